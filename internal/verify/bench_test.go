package verify

import (
	"bytes"
	"crypto/sha256"
	"io"
	"testing"
)

const benchEntries = 1_000_000

// benchLedger is a ledger of a million entries, and its signed checkpoint.
func benchLedger(b *testing.B) (body, checkpoint []byte, keys Keys) {
	b.Helper()
	i := newIssuer(b, "recount-test")
	tree, out := compactRange{}, bytes.Buffer{}
	for n := range benchEntries {
		line := recordLine(n, "execute:intent")
		tree.add(leafHash([]byte(line)))
		out.WriteString(line + "\n")
	}
	return out.Bytes(), []byte(i.checkpointOf(b, benchEntries, tree.root())), i.keys
}

// BenchmarkLedger is to have at least a fifth of the MB/s of BenchmarkHash.
func BenchmarkLedger(b *testing.B) {
	body, checkpoint, keys := benchLedger(b)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		r, err := Ledger(bytes.NewReader(body), checkpoint, keys)
		if err != nil || r.Covered != benchEntries {
			b.Fatalf("%+v, %v", r, err)
		}
	}
}

// BenchmarkHash hashes the same file with SHA-256.
func BenchmarkHash(b *testing.B) {
	body, _, _ := benchLedger(b)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if _, err := io.Copy(sha256.New(), bytes.NewReader(body)); err != nil {
			b.Fatal(err)
		}
	}
}
