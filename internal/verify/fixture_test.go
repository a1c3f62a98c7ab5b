package verify

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// issuer makes what is verified, with the code of others.
type issuer struct {
	signer note.Signer
	public string
	keys   Keys
}

func newIssuer(t testing.TB, name string) issuer {
	t.Helper()
	private, public, err := note.GenerateKey(rand.Reader, name)
	must(t, err)
	signer, err := note.NewSigner(private)
	must(t, err)
	keys, err := ParseKeys(public)
	must(t, err)
	return issuer{signer: signer, public: public, keys: keys}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (i issuer) sign(t testing.TB, text string) string {
	t.Helper()
	signed, err := note.Sign(&note.Note{Text: text}, i.signer)
	must(t, err)
	return string(signed)
}

// forest is a tree that golang.org/x/mod/sumdb/tlog keeps.
type forest struct {
	size   int64
	stored []tlog.Hash
}

func (f *forest) ReadHashes(at []int64) ([]tlog.Hash, error) {
	list := make([]tlog.Hash, len(at))
	for i, n := range at {
		list[i] = f.stored[n]
	}
	return list, nil
}

func (f *forest) add(t testing.TB, line string) {
	t.Helper()
	list, err := tlog.StoredHashes(f.size, []byte(line), f)
	must(t, err)
	f.stored, f.size = append(f.stored, list...), f.size+1
}

func (f *forest) root(t testing.TB, size int64) tlog.Hash {
	t.Helper()
	if size == 0 {
		return tlog.Hash{} // tlog has RFC 6962's own for this, the hash of nothing
	}
	root, err := tlog.TreeHash(size, f)
	must(t, err)
	return root
}

func planted(t testing.TB, lines ...string) *forest {
	t.Helper()
	f := &forest{}
	for _, line := range lines {
		f.add(t, line)
	}
	return f
}

func (i issuer) checkpoint(t testing.TB, f *forest, size int64) string {
	t.Helper()
	return i.checkpointOf(t, size, hash(f.root(t, size)))
}

func (i issuer) checkpointOf(t testing.TB, size int64, root hash) string {
	t.Helper()
	return i.sign(t, fmt.Sprintf("recount erasure ledger v1\n%d\n%s\n", size, base64.StdEncoding.EncodeToString(root[:])))
}

type object = map[string]any

func encode(t testing.TB, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	must(t, err)
	return string(raw)
}

func recordLine(n int, phase string) string {
	return fmt.Sprintf(`{"v":1,"entry_id":"e%d","at_us":17000000000%05d,"tenant_id":"acme","method":"gdpr_subject","phase":%q,"subject_kind":"person",`+
		`"subject_id":"%s","rows_deleted":{"ingest/intent_events":%d,"graph/edges":0},"request_ref":"r%d"}`, n, n, phase, strings.Repeat("ab", 32), n, n)
}

func goodStore() object {
	return object{
		"cell": "ingest", "store": "intent_events", "backend": "bigquery", "status": "erased", "before": 12, "remaining": 0,
		"measured_at": "2026-03-01T10:00:00Z", "recoverable_until": "2026-03-08T10:00:00Z", "sticky": true, "basis": "",
	}
}

func retainedStore() object {
	s := goodStore()
	maps.Copy(s, object{"store": "invoices", "status": "retained_article_17_3", "before": nil, "remaining": 4, "basis": "17(3)(b)", "recoverable_until": nil})
	return s
}

func goodStatement() object {
	return object{
		"v": 1, "certificate_id": "c1", "request_ref": "r7", "tenant_id": "acme",
		"commitment": "a1b2a1b2a1b2a1b2a1b2a1b2a1b2a1b2a1b2a1b2a1b2a1b2a1b2a1b2a1b2a1b2", "legal_ref": "art17", "policy": "redact",
		"received_at": "2026-03-01T09:00:00Z", "closed_at": "2026-03-01T10:00:01.5Z", "outcome": "closed",
		"stores": []any{goodStore(), retainedStore()}, "stages": []any{object{"stage": "execute", "status": "done"}},
		"backup_horizon_until": "2026-04-01T00:00:00Z", "recoverable_until": nil,
	}
}

// issued is a certificate, and what may be different about it when it is made.
type issued struct {
	statement string              // its line
	entry     func(object)        // changes the entry before it is in the ledger
	evidence  func(object)        // changes the evidence before it is signed
	rawEntry  func(string) string // changes the entry's line
}

// issue makes a certificate whose entry has index 5 of 11, and signs it well whatever it says.
func (i issuer) issue(t testing.TB, c issued) string {
	t.Helper()
	entry := object{
		"v": 1, "entry_id": "closing", "at_us": 1700000000000000, "tenant_id": "acme", "method": "gdpr_subject", "phase": "close:outcome",
		"subject_kind": "person", "subject_id": "ab", "request_ref": "r7", "program_ref": "c1", "program_hash": blake3Hex(c.statement),
	}
	if c.entry != nil {
		c.entry(entry)
	}
	line := encode(t, entry)
	if c.rawEntry != nil {
		line = c.rawEntry(line)
	}
	f := &forest{}
	for n := range 11 {
		if n == 5 {
			f.add(t, line)
		} else {
			f.add(t, recordLine(n, "execute:intent"))
		}
	}
	path, err := tlog.ProveRecord(f.size, 5, f)
	must(t, err)
	proof := []string{}
	for _, h := range path {
		proof = append(proof, base64.StdEncoding.EncodeToString(h[:]))
	}
	evidence := object{"entry": line, "index": 5, "checkpoint": i.checkpoint(t, f, f.size), "proof": proof}
	if c.evidence != nil {
		c.evidence(evidence)
	}
	return i.sign(t, "recount certificate v1\n"+c.statement+"\n"+encode(t, evidence)+"\n")
}

// refused fails a test unless the error is a refusal of one of the reasons; of any, when none is named.
func refused(t testing.TB, err error, reasons ...string) {
	t.Helper()
	var refusal *Refusal
	if !errors.As(err, &refusal) {
		t.Errorf("%v instead of a refusal", err)
		return
	}
	for _, reason := range reasons {
		if refusal.Reason == reason {
			return
		}
	}
	if len(reasons) > 0 {
		t.Errorf("it was refused because of %s, not %v", refusal.Error(), reasons)
	}
}
