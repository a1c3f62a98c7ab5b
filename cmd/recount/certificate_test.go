package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"recount/internal/ledger"
)

// issuer signs what is verified.
type issuer struct {
	signer note.Signer
	public string
}

func newIssuer(t *testing.T) issuer {
	t.Helper()
	private, public, err := note.GenerateKey(rand.Reader, "recount-test")
	must(t, err)
	signer, err := note.NewSigner(private)
	must(t, err)
	return issuer{signer, public}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (i issuer) sign(t *testing.T, text string) string {
	t.Helper()
	signed, err := note.Sign(&note.Note{Text: text}, i.signer)
	must(t, err)
	return string(signed)
}

// leaves are the stored hashes of a tree.
type leaves []tlog.Hash

// ReadHashes answers them by index.
func (l leaves) ReadHashes(at []int64) (list []tlog.Hash, err error) {
	for _, n := range at {
		list = append(list, l[n])
	}
	return list, nil
}

// grow is a tree of lines, and its signed checkpoint.
func (i issuer) grow(t *testing.T, lines ...string) (leaves, string) {
	t.Helper()
	var tree leaves
	for n, line := range lines {
		list, err := tlog.StoredHashes(int64(n), []byte(line), tree)
		must(t, err)
		tree = append(tree, list...)
	}
	root, err := tlog.TreeHash(int64(len(lines)), tree)
	must(t, err)
	return tree, i.sign(t, fmt.Sprintf("recount erasure ledger v1\n%d\n%s\n", len(lines), base64.StdEncoding.EncodeToString(root[:])))
}

func entryLine(n int) string {
	return fmt.Sprintf(`{"v":1,"entry_id":"e%d","at_us":1700000000000000,"tenant_id":"acme","method":"gdpr_subject","phase":"execute:intent",`+
		`"subject_kind":"person","subject_id":"ab","request_ref":"r%d"}`, n, n)
}

func encode(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	must(t, err)
	return string(raw)
}

const theNonce = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// certify makes a certificate about a person of acme.
func (i issuer) certify(t *testing.T, id, person string) string {
	t.Helper()
	commitment := sha256.Sum256([]byte("recount commitment v1\n" + theNonce + "\n" + encode(t, []string{"acme", person})))
	statement := encode(t, map[string]any{
		"v": 1, "certificate_id": "c1", "request_ref": id, "tenant_id": "acme", "commitment": hex.EncodeToString(commitment[:]),
		"legal_ref": "17(1)(a)", "policy": "delete", "received_at": "2026-03-01T09:00:00Z", "closed_at": "2026-03-02T10:00:00Z", "outcome": "closed",
		"stores": []any{map[string]any{
			"cell": "ingest", "store": "intent_events", "backend": "bigquery", "status": "erased", "before": 12, "remaining": 0,
			"measured_at": "2026-03-02T10:00:00Z", "recoverable_until": "2026-03-09T10:00:00Z", "sticky": true, "basis": "",
		}, map[string]any{
			"cell": "causal", "store": "outcomes", "backend": "sqlite", "status": "retained_article_17_3", "before": nil, "remaining": 4,
			"measured_at": "2026-03-02T10:00:00Z", "recoverable_until": nil, "sticky": false, "basis": "17(3)(b)",
		}},
		"stages": []any{map[string]any{"stage": "archives", "status": "not_applicable"}}, "backup_horizon_until": "2026-04-01T00:00:00Z", "recoverable_until": nil,
	})
	closing := encode(t, map[string]any{
		"v": 1, "entry_id": "closing", "at_us": 1700000000000000, "tenant_id": "acme", "method": "gdpr_subject", "phase": "close:outcome",
		"subject_kind": "person", "subject_id": "ab", "request_ref": id, "program_ref": "c1", "program_hash": ledger.Hash([]byte(statement)),
	})
	lines := []string{entryLine(0), entryLine(1), closing, entryLine(3)}
	tree, checkpoint := i.grow(t, lines...)
	path, err := tlog.ProveRecord(int64(len(lines)), 2, tree)
	must(t, err)
	proof := []string{}
	for _, h := range path {
		proof = append(proof, base64.StdEncoding.EncodeToString(h[:]))
	}
	evidence := encode(t, map[string]any{"entry": closing, "index": 2, "checkpoint": checkpoint, "proof": proof})
	return i.sign(t, "recount certificate v1\n"+statement+"\n"+evidence+"\n")
}

func write(t *testing.T, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	must(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func TestACertificateIsVerifiedOffline(t *testing.T) {
	i, dir, d := newIssuer(t), t.TempDir(), newDesk(t)
	good := i.certify(t, theID, "alice@x.io")
	file, bad := write(t, dir, "good", good), write(t, dir, "bad", strings.Replace(good, `"remaining":4`, `"remaining":5`, 1))
	opening, person := write(t, dir, "opening", theNonce+"\n"), write(t, dir, "person", "alice@x.io\n")
	keys := write(t, dir, "keys", newIssuer(t).public+"\n"+i.public+"\n")
	for _, c := range []struct {
		name string
		args []string
		code int
		want []string
	}{
		{"good", []string{file, "--key", i.public}, 0, []string{"good", "intent_events", "retained, Art. 17(3)(b)", "archives: not applicable", "c1", "closed"}},
		{"keys in a file", []string{file, "--key-file", keys}, 0, []string{"good"}},
		{"tampered", []string{bad, "--key", i.public}, 4, []string{"not good", "signature"}},
		{"another's key", []string{file, "--key", newIssuer(t).public}, 4, []string{"not good", "signature"}},
		{"no certificate", []string{keys, "--key", i.public}, 4, []string{"not good", "form"}},
		{"about her", []string{file, "--key", i.public, "--nonce", theNonce, "--identity", "alice@x.io"}, 0, []string{"it is about these people"}},
		{"about her, by files", []string{file, "--key", i.public, "--opening", opening, "--identity-file", person}, 0, []string{"it is about these people"}},
		{"about another", []string{file, "--key", i.public, "--nonce", theNonce, "--identity", "bob@x.io"}, 4, []string{"not good", "commitment"}},
		{"another tenant", []string{file, "--key", i.public, "--tenant", "globex"}, 4, []string{"not good", "tenant"}},
		{"another opening", []string{file, "--key", i.public, "--nonce", strings.Repeat("0", 64), "--identity", "alice@x.io"}, 4, []string{"commitment"}},
		{"machines", []string{file, "--key", i.public, "--json"}, 0, []string{`{"good":true,"statement":{`, `"certificate_id":"c1"`}},
		{"machines, bad", []string{bad, "--key", i.public, "--json"}, 4, []string{`{"good":false,"reason":"signature"`}},
		{"machines, another", []string{file, "--key", i.public, "--nonce", theNonce, "--identity", "bob@x.io", "--json"}, 4, []string{`"good":false,"reason":"commitment"`, `"about_these_people":false`}},
		{"no key", []string{file}, 2, nil},
		{"a key that is none", []string{file, "--key", "nonsense"}, 2, []string{"the keys"}},
		{"no file", []string{"--key", i.public}, 2, nil},
		{"a file that is not there", []string{filepath.Join(dir, "none"), "--key", i.public}, 2, []string{"no such file"}},
		{"a nonce alone", []string{file, "--key", i.public, "--nonce", theNonce}, 2, []string{"go together"}},
		{"both", []string{file, "--ledger", dir, "--key", i.public}, 2, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := d.run(t, append([]string{"verify"}, c.args...)...)
			got.wants(t, c.code, c.want...)
			if strings.Contains(got.all(), "@x.io") {
				t.Errorf("it names the person: %s", got.all())
			}
		})
	}
	if len(d.requests()) > 0 {
		t.Errorf("it asked: %v", d.requests())
	}
}

func TestALedgerIsVerifiedOffline(t *testing.T) {
	i, dir, d := newIssuer(t), t.TempDir(), newDesk(t)
	lines := []string{entryLine(0), entryLine(1), entryLine(2)}
	_, checkpoint := i.grow(t, lines...)
	write(t, dir, "erasure-ledger.checkpoint", checkpoint)
	verify := func(body string, code int, want ...string) {
		t.Helper()
		write(t, dir, "erasure-ledger.jsonl", body)
		d.run(t, "verify", "--ledger", dir, "--key", i.public).wants(t, code, want...)
	}
	whole := strings.Join(lines, "\n") + "\n"
	verify(whole, 0, "good: 3 entries, the first 3", "execute:intent")
	verify(whole+entryLine(3)+"\n{", 0, "good: 4 entries, the first 3", "no signature covers it yet", "never acknowledged")
	verify(strings.Replace(whole, "r1", "r9", 1), 4, "not good (tampered)")
	verify(lines[0]+"\n", 4, "not good (truncated)")
	d.run(t, "verify", "--ledger", dir, "--key", i.public, "--json").wants(t, 4, `"reason":"truncated"`)
	d.run(t, "verify", "--ledger", t.TempDir(), "--key", i.public).wants(t, 2, "no such file")
}

func TestAKeyIsMadeThatSignsAndOneThatVerifies(t *testing.T) {
	got := newDesk(t).run(t, "keygen", "recount-prod")
	got.wants(t, 0)
	keys, err := ledger.ParseKeys(strings.TrimSpace(got.out))
	must(t, err)
	if !strings.Contains(got.err, keys.Verifiers()[0]) || strings.Contains(got.err, "PRIVATE") {
		t.Errorf("got %q", got.err)
	}
	newDesk(t).run(t, "keygen", "recount-prod", "--json").wants(t, 0, `{"signing_key":"PRIVATE+KEY+`, `"verifier_key":"recount-prod+`)
	newDesk(t).run(t, "keygen", "two words").wants(t, 2)
}
