package verify

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// FuzzCertificate: nobody without the key makes a certificate that says anything else.
func FuzzCertificate(f *testing.F) {
	i := newIssuer(f, "recount-test")
	good := i.issue(f, issued{statement: encode(f, goodStatement())})
	signed := good[:strings.LastIndex(good, "\n\n")]
	f.Add([]byte(good))
	f.Add([]byte(good[:len(good)/2]))
	f.Add([]byte("recount certificate v1\n{}\n{}\n\n\u2014 recount-test AAAAAAA=\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		_, err := Certificate(raw, i.keys)
		var refusal *Refusal
		if err != nil && (!errors.As(err, &refusal) || refusal.Reason == "" || refusal.Problem == "") {
			t.Fatalf("%v is no refusal", err)
		}
		if err == nil && !bytes.HasPrefix(raw, []byte(signed+"\n\n")) {
			t.Fatal("another certificate passes")
		}
		// The parsers behind the signature see any bytes too.
		_, _ = parseStatement(raw)
		_, _ = parseEvidence(raw)
	})
}

// FuzzLedger: whatever follows, a ledger that passes begins with the lines that were signed.
func FuzzLedger(f *testing.F) {
	i := newIssuer(f, "recount-test")
	lines := book(3)
	good := text(lines...)
	checkpoint := []byte(i.checkpoint(f, planted(f, lines...), 3))
	f.Add([]byte(good))
	f.Add([]byte(good + recordLine(9, "x") + "\n{"))
	f.Add([]byte(good[1:]))
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := Ledger(bytes.NewReader(raw), checkpoint, i.keys)
		if err == nil && (!bytes.HasPrefix(raw, []byte(good)) || r.Entries < 3 || r.Entries != int64(bytes.Count(raw, []byte("\n")))) {
			t.Fatalf("another ledger passes: %+v", r)
		}
		for line := range bytes.Lines(raw) {
			agree(t, bytes.TrimSuffix(line, []byte("\n")))
		}
	})
}

// FuzzParseKeys: what is taken holds keys, and a refusal holds none of the text.
func FuzzParseKeys(f *testing.F) {
	good := newIssuer(f, "recount-test").public
	f.Add(good)
	f.Add(good + "," + good)
	f.Add("PRIVATE+KEY+x")
	f.Fuzz(func(t *testing.T, text string) {
		keys, err := ParseKeys(text)
		if (err == nil) != (len(keys.known) > 0) {
			t.Fatalf("%d keys, %v", len(keys.known), err)
		}
		if err == nil {
			_, _ = keys.open([]byte(text))
		}
	})
}
