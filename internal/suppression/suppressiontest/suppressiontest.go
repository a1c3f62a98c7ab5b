// Package suppressiontest is the one conformance suite that every suppression ledger runs, and a reference ledger that is
// too simple to be wrong.
package suppressiontest

import (
	"context"
	"strings"
	"testing"
	"time"

	"recount/internal/subject"
	"recount/internal/suppression"
)

// Harness is how the suite gets at an adapter.
type Harness struct {
	// Open opens the ledger of a cell with these keys. Two calls with one place are two processes at one ledger; a place
	// that was not named before is empty.
	Open func(t *testing.T, place, cell string, keys *suppression.Keys) (suppression.Ledger, error)
	// Stored answers everything that is stored at a place, to be searched for plaintext; nil where it can't be had.
	Stored func(t *testing.T, place string) string
	// Slow is set for a ledger behind an emulator.
	Slow bool
}

const (
	secretOne   = "the first suppression secret"
	secretTwo   = "the second suppression secret"
	tenant      = "acme"
	otherTenant = "globex"
	callLimit   = 60 * time.Second
)

// Run checks everything that the contract of suppression.Ledger says.
func Run(t *testing.T, h Harness) {
	t.Helper()
	for _, c := range []struct {
		name  string
		check func(*testing.T, *bench)
	}{
		{"suppresses exactly what was recorded", testRecords},
		{"keeps the first reason, date and erasure", testFirstIsKept},
		{"suppresses what derives from what was recorded", testParents},
		{"keeps tenants and cells apart", testApart},
		{"finds an erasure's entries again", testRecorded},
		{"withdraws what is an attempt's alone and nothing else", testWithdraw},
		{"allows one source alone", testAllow},
		{"lists page by page", testList},
		{"grows its generation with everything that suppresses", testGeneration},
		{"fences", testFences},
		{"checks very many in one call", testMany},
		{"knows its entries after a rotation of keys, and refuses to start without one", testRotation},
		{"keeps nothing in plaintext", testSealed},
		{"is one ledger for two processes", testProcesses},
		{"takes concurrent callers", testConcurrent},
		{"agrees with the reference ledger", testModel},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := &bench{h: h, place: strings.NewReplacer("/", "-", " ", "-", ",", "").Replace(t.Name()), keys: keys(t, secretOne)}
			b.Ledger = b.open(t, "ingest", b.keys)
			c.check(t, b)
		})
	}
}

// bench is one fresh ledger under test.
type bench struct {
	suppression.Ledger

	h     Harness
	place string
	keys  *suppression.Keys
}

func (b *bench) open(t *testing.T, cell string, k *suppression.Keys) suppression.Ledger {
	t.Helper()
	l, err := b.h.Open(t, b.place, cell, k)
	if err != nil {
		t.Fatalf("opening: %v", err)
	}
	return l
}

func keys(t *testing.T, secrets ...string) *suppression.Keys {
	t.Helper()
	k, err := suppression.ParseKeys(strings.Join(secrets, ","))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callLimit)
	t.Cleanup(cancel)
	return ctx
}

type fataler interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

func src(t fataler, tenant, source, ref string) subject.Source {
	t.Helper()
	s, err := subject.NewSource(tenant, source, ref)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var erasedAt = time.Date(2026, 3, 4, 5, 6, 7, 891011000, time.UTC)

func entry(s subject.Source, attempt suppression.AttemptID, ref subject.Ref) suppression.Entry {
	return suppression.Entry{Source: s, Reason: suppression.ReasonSubject, ErasedAt: erasedAt, Erasure: ref, Attempt: attempt}
}

func (b *bench) record(t *testing.T, want int, entries ...suppression.Entry) {
	t.Helper()
	got, err := b.Record(bounded(t), entries)
	if err != nil || got != want {
		t.Fatalf("Record inserted %d, %v, want %d", got, err, want)
	}
}

func (b *bench) verdict(t *testing.T, l suppression.Ledger, r subject.Record, want suppression.Verdict) {
	t.Helper()
	a, err := l.Check(bounded(t), []subject.Record{r})
	if err != nil || len(a.Verdicts) != 1 {
		t.Fatalf("Check: %d verdicts, %v", len(a.Verdicts), err)
	}
	if a.Verdicts[0] != want {
		t.Fatalf("the verdict is %d, want %d", a.Verdicts[0], want)
	}
}

func (b *bench) suppressed(t *testing.T, sources ...subject.Source) {
	t.Helper()
	for _, s := range sources {
		b.verdict(t, b, subject.Record{Source: s}, suppression.Suppressed)
	}
}

func (b *bench) admitted(t *testing.T, sources ...subject.Source) {
	t.Helper()
	for _, s := range sources {
		b.verdict(t, b, subject.Record{Source: s}, suppression.Admitted)
	}
}
