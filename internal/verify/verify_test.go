package verify

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"lukechampine.com/blake3"
)

func blake3Hex(text string) string {
	sum := blake3.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func TestAGoodCertificatePassesAndStatesItsFields(t *testing.T) {
	i := newIssuer(t, "recount-test")
	s, err := Certificate([]byte(i.issue(t, issued{statement: encode(t, goodStatement())})), i.keys)
	must(t, err)
	at := func(text string) time.Time {
		at, err := time.Parse(time.RFC3339, text)
		must(t, err)
		return at
	}
	twelve, week, april := int64(12), at("2026-03-08T10:00:00Z"), at("2026-04-01T00:00:00Z")
	want := Statement{
		V: 1, CertificateID: "c1", RequestRef: "r7", TenantID: "acme", Commitment: strings.Repeat("a1b2", 16), LegalRef: "art17", Policy: "redact",
		ReceivedAt: at("2026-03-01T09:00:00Z"), ClosedAt: at("2026-03-01T10:00:01.5Z"), Outcome: "closed",
		Stores: []Store{
			{Cell: "ingest", Store: "intent_events", Backend: "bigquery", Status: "erased", Before: &twelve, MeasuredAt: at("2026-03-01T10:00:00Z"), RecoverableUntil: &week, Sticky: true},
			{Cell: "ingest", Store: "invoices", Backend: "bigquery", Status: "retained_article_17_3", Remaining: 4, MeasuredAt: at("2026-03-01T10:00:00Z"), Sticky: true, Basis: "17(3)(b)"},
		},
		Stages: []Stage{{"execute", "done"}}, BackupHorizonUntil: &april,
	}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("%+v instead of %+v", s, want)
	}
}

func TestNoSingleMutationOfACertificatePasses(t *testing.T) {
	i := newIssuer(t, "recount-test")
	good := []byte(i.issue(t, issued{statement: encode(t, goodStatement())}))
	random := rand.New(rand.NewPCG(1, 2))
	digits := []int{}
	for at, b := range good {
		if b >= '0' && b <= '9' {
			digits = append(digits, at)
		}
	}
	for n := range 1000 {
		bad := bytes.Clone(good)
		at := random.IntN(len(bad))
		switch n % 5 {
		case 0:
			bad[at] ^= 1 << random.IntN(8)
		case 1:
			bad = append(bad[:at], bad[at+1:]...)
		case 2:
			at = digits[random.IntN(len(digits))]
			bad[at] = '0' + (bad[at]-'0'+1+byte(random.IntN(9)))%10
		case 3:
			lines := bytes.SplitAfter(bad, []byte("\n"))
			a, b := random.IntN(len(lines)), random.IntN(len(lines))
			lines[a], lines[b] = lines[b], lines[a]
			bad = bytes.Join(lines, nil)
		default:
			bad = append(bad[:at], append([]byte{byte(random.IntN(256))}, bad[at:]...)...)
		}
		if bytes.Equal(bad, good) {
			continue // a line swapped with itself
		}
		if _, err := Certificate(bad, i.keys); err == nil {
			t.Fatalf("mutation %d, at byte %d of %d, passes", n, at, len(good))
		}
	}
}

func TestEveryBitOfACertificateCounts(t *testing.T) {
	i := newIssuer(t, "recount-test")
	good := []byte(i.issue(t, issued{statement: encode(t, goodStatement())}))
	step := 1
	if testing.Short() {
		step = 17
	}
	from := bytes.LastIndex(good, []byte("\n\n")) // the text is covered by the signature: every bit of that, and some of the rest
	for at := 0; at < len(good); at++ {
		if at < from && at%(13*step) != 0 {
			continue
		}
		for bit := range 8 {
			bad := bytes.Clone(good)
			bad[at] ^= 1 << bit
			if _, err := Certificate(bad, i.keys); err == nil {
				t.Fatalf("bit %d of byte %d can be changed", bit, at)
			}
		}
	}
}

func TestACutOrContinuedCertificateIsRefused(t *testing.T) {
	i := newIssuer(t, "recount-test")
	good := i.issue(t, issued{statement: encode(t, goodStatement())})
	for cut := range len(good) {
		if cut%7 != 0 && cut < len(good)-200 {
			continue
		}
		_, err := Certificate([]byte(good[:cut]), i.keys)
		refused(t, err)
	}
	for _, more := range []string{"\n", " ", "{}", "{}\n", "\n\n", good, "\x00"} {
		_, err := Certificate([]byte(good+more), i.keys)
		refused(t, err)
	}
	_, err := Certificate(append([]byte(good), make([]byte, 1<<20)...), i.keys)
	refused(t, err, ReasonForm)
	_, err = Certificate([]byte(i.sign(t, "recount certificate v2"+strings.TrimPrefix(good[:strings.Index(good, "\n\n")+1], "recount certificate v1"))), i.keys)
	refused(t, err, ReasonForm)
}

func TestACertificateOfAnotherKeyIsRefused(t *testing.T) {
	i, foreign := newIssuer(t, "recount-test"), newIssuer(t, "recount-test")
	good := i.issue(t, issued{statement: encode(t, goodStatement())})
	_, err := Certificate([]byte(good), foreign.keys)
	refused(t, err, ReasonSignature)
	_, err = Certificate([]byte(good), Keys{})
	refused(t, err, ReasonSignature)
	both, err := ParseKeys(foreign.public + ",\n" + i.public)
	must(t, err)
	if _, err := Certificate([]byte(good), both); err != nil {
		t.Errorf("with both keys known: %v", err)
	}
}

func TestSignaturesOfUnknownKeysArePassedOverAndWrongOnesOfKnownKeysAreNot(t *testing.T) {
	i, foreign := newIssuer(t, "recount-test"), newIssuer(t, "witness")
	good := i.issue(t, issued{statement: encode(t, goodStatement())})
	text := good[:strings.Index(good, "\n\n")+1]
	_, line, _ := strings.Cut(foreign.sign(t, text), "\n\n")
	if _, err := Certificate([]byte(good+line), i.keys); err != nil {
		t.Errorf("a second signature by an unknown key: %v", err)
	}
	_, wrong, _ := strings.Cut(i.sign(t, "another text\n"), "\n\n")
	_, err := Certificate([]byte(good+wrong), i.keys)
	refused(t, err, ReasonSignature)
	_, err = Certificate([]byte(good+strings.Repeat(line, 100)), i.keys)
	refused(t, err, ReasonForm)
}

func TestWellSignedEvidenceOfSomethingElseIsRefused(t *testing.T) {
	i, foreign := newIssuer(t, "recount-test"), newIssuer(t, "recount-test")
	statement := encode(t, goodStatement())
	otherTree := planted(t, "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k")
	evidence := func(name string, value any) func(object) { return func(e object) { e[name] = value } }
	entry := evidence
	for name, c := range map[string]struct {
		reason string
		issued issued
	}{
		"another tree":               {ReasonProof, issued{evidence: evidence("checkpoint", i.checkpoint(t, otherTree, 11))}},
		"a checkpoint of a stranger": {ReasonCheckpoint, issued{evidence: evidence("checkpoint", foreign.checkpoint(t, otherTree, 11))}},
		"a signed text of no tree":   {ReasonCheckpoint, issued{evidence: evidence("checkpoint", i.sign(t, "recount erasure ledger v1\n011\nx\n"))}},
		"no checkpoint":              {ReasonCheckpoint, issued{evidence: evidence("checkpoint", "")}},
		"another entry":              {ReasonProof, issued{evidence: evidence("entry", recordLine(5, "close:outcome"))}},
		"another index":              {ReasonProof, issued{evidence: evidence("index", 4)}},
		"an index behind the tree":   {ReasonProof, issued{evidence: evidence("index", 11)}},
		"no proof":                   {ReasonProof, issued{evidence: evidence("proof", []string{})}},
		"a proof of null":            {ReasonEvidence, issued{evidence: evidence("proof", nil)}},
		"a proof that is too long":   {ReasonEvidence, issued{evidence: evidence("proof", make([]string, 64))}},
		"a short hash":               {ReasonEvidence, issued{evidence: evidence("proof", []string{"AAAA"})}},
		"a negative index":           {ReasonEvidence, issued{evidence: evidence("index", -1)}},
		"one more field":             {ReasonEvidence, issued{evidence: evidence("more", 1)}},
		"one field less":             {ReasonEvidence, issued{evidence: func(e object) { delete(e, "index") }}},
		"an entry of a request":      {ReasonEntry, issued{entry: entry("request_ref", "r8")}},
		"an entry of a tenant":       {ReasonEntry, issued{entry: entry("tenant_id", "umbrella")}},
		"an entry of a phase":        {ReasonEntry, issued{entry: entry("phase", "execute:intent")}},
		"an entry without a hash":    {ReasonEntry, issued{entry: func(e object) { delete(e, "program_hash") }}},
		"an entry of a statement":    {ReasonProgramHash, issued{entry: entry("program_hash", blake3Hex("another"))}},
		"a hash in upper case":       {ReasonProgramHash, issued{entry: entry("program_hash", strings.ToUpper(blake3Hex(statement)))}},
		"an entry of two lines":      {ReasonEntry, issued{rawEntry: func(line string) string { return line + "\n" }}},
		"an entry of two objects":    {ReasonEntry, issued{rawEntry: func(line string) string { return line + "{}" }}},
		"an entry with a twin":       {ReasonEntry, issued{rawEntry: func(line string) string { return `{"phase":"x",` + line[1:] }}},
		"an entry that is a list":    {ReasonEntry, issued{rawEntry: func(line string) string { return "[" + line + "]" }}},
		"a long entry":               {ReasonEntry, issued{entry: entry("note", strings.Repeat("x", 65536))}},
	} {
		t.Run(name, func(t *testing.T) {
			c.issued.statement = statement
			_, err := Certificate([]byte(i.issue(t, c.issued)), i.keys)
			refused(t, err, c.reason)
		})
	}
}

func TestWhoHasTheNonceCanShowWhoTheCommitmentIsTo(t *testing.T) {
	nonce := strings.Repeat("0f", 32)
	sum := sha256.Sum256([]byte("recount commitment v1\n" + nonce + "\n" + `["acme","a<b>&","b\u2028","é"]`))
	s := Statement{Commitment: hex.EncodeToString(sum[:])}
	people := []string{"é", "b\u2028", "a<b>&"}
	if !s.Opens(nonce, "acme", people) || people[0] != "é" {
		t.Error("the right people don't open it, or were put in another order")
	}
	for name, opens := range map[string]bool{
		"another nonce":    s.Opens(strings.Repeat("0e", 32), "acme", people),
		"a short nonce":    s.Opens("0f", "acme", people),
		"another tenant":   s.Opens(nonce, "umbrella", people),
		"one less":         s.Opens(nonce, "acme", people[:2]),
		"one more":         s.Opens(nonce, "acme", append(people, "x")),
		"nobody":           s.Opens(nonce, "acme", nil),
		"broken UTF-8":     s.Opens(nonce, "acme", []string{"\xff"}),
		"a zero statement": Statement{}.Opens(nonce, "acme", people),
	} {
		if opens {
			t.Errorf("%s opens it", name)
		}
	}
}

func TestAProgramHasItsHashInLowerCaseOnly(t *testing.T) {
	want := "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262" // of nothing, from the paper on BLAKE3
	if !Program(nil, want) || Program([]byte{0}, want) || Program(nil, strings.ToUpper(want)) || Program(nil, "") {
		t.Error("a hash is taken for another")
	}
}
