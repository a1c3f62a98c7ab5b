// Package storetest is the one conformance suite that every storage adapter runs: it checks each MUST of the contracts
// in subject and stores that the adapter's store implements. It also holds a reference store that is too simple to be
// wrong, and a wrapper that injects faults into any store, for the tests of what is built on stores.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"recount/internal/stores"
	"recount/internal/subject"
)

// Harness is how the suite gets at an adapter.
type Harness struct {
	// New makes a fresh, empty store for a table that is ours. It MUST be safe to call more than once in a test.
	New func(t *testing.T, table stores.Table) subject.Store
	// Seed writes rows that the next Count must see. Nil is the store's own Append.
	Seed func(t *testing.T, store subject.Store, rows []stores.Row)
	// Physical counts every row that the table holds in whatever state, so that a tombstone can't hide. Nil leaves
	// that one check out.
	Physical func(t *testing.T, store subject.Store) int64
	// Tables are the tables to test with; nil is EventsTable and EdgesTable.
	Tables []stores.Table
	// Casefold says that the adapter takes tables with stores.MatchCasefold.
	Casefold bool
	// Slow is set for a store behind an emulator: fewer rounds of the tests that draw at random.
	Slow bool
}

const (
	tenant      = "acme"
	otherTenant = "globex"
	stepLimit   = 2 * time.Minute
)

// Run checks everything that the adapter's stores implement.
func Run(t *testing.T, h Harness) {
	t.Helper()
	tables := h.Tables
	if tables == nil {
		tables = []stores.Table{EventsTable(), EdgesTable()}
	}
	for _, table := range tables {
		t.Run(table.Store, func(t *testing.T) { runTable(t, h, table) })
	}
	if h.Casefold {
		t.Run("casefold", func(t *testing.T) { runCasefold(t, h, tables[0]) })
	}
}

func runTable(t *testing.T, h Harness, table stores.Table) {
	t.Helper()
	for _, c := range []struct {
		name  string
		check func(*testing.T, *bench)
	}{
		{"says what it is", testDescribes},
		{"counts exactly the subject's rows", testCounts},
		{"compares identities byte for byte", testLookalikes},
		{"keeps tenants apart", testTenants},
		{"deletes for good, and again", testDeletes},
		{"deletes many rows", testManyRows},
		{"counts a row that names the subject in several columns once", testSeveralColumns},
		{"answers an error for a context that has ended", testCancelled},
		{"batches", testBatch},
		{"erases atomically", testAtomic},
		{"appends once", testAppend},
		{"appends all or none", testAppendRefused},
		{"pages", testPages},
		{"pages while rows come and go", testPagesMove},
		{"reads what was written", testReadBack},
		{"refuses a cursor that it did not make", testForeignCursor},
		{"resolves the sources of a subject's rows", testSources},
		{"counts and deletes by source", testBySource},
		{"finds what was derived", testDerivedFrom},
		{"survives concurrent writes and erasures", testConcurrent},
		{"agrees with the reference store", testModel},
	} {
		t.Run(c.name, func(t *testing.T) { c.check(t, newBench(t, h, table)) })
	}
}

// bench is one fresh store under test, and short words for driving it. Every error that the store answers is searched
// for the identity that it was asked about.
type bench struct {
	h     Harness
	table stores.Table
	store subject.Store
}

func newBench(t *testing.T, h Harness, table stores.Table) *bench {
	t.Helper()
	return &bench{h: h, table: table, store: h.New(t, table)}
}

func (b *bench) seed(t *testing.T, rows ...stores.Row) {
	t.Helper()
	if b.h.Seed != nil {
		b.h.Seed(t, b.store, rows)
		return
	}
	b.appender(t).append(t, rows...)
}

func (b *bench) count(t *testing.T, s subject.Subject) int64 {
	t.Helper()
	n, err := b.store.Count(bounded(t), s)
	if err != nil {
		t.Fatalf("Count: %v", err)
	}
	return n
}

func (b *bench) wantCount(t *testing.T, s subject.Subject, want int64) {
	t.Helper()
	if got := b.count(t, s); got != want {
		t.Fatalf("Count(%q) = %d, want %d", s.Identity(), got, want)
	}
}

func (b *bench) delete(t *testing.T, s subject.Subject) {
	t.Helper()
	if _, err := b.store.Delete(bounded(t), s); err != nil {
		t.Fatalf("Delete: %v", err)
	}
}

func (b *bench) wantPhysical(t *testing.T, want int64) {
	t.Helper()
	if b.h.Physical == nil {
		return
	}
	if got := b.h.Physical(t, b.store); got != want {
		t.Fatalf("the table holds %d rows in whatever state, want %d", got, want)
	}
}

// row is a new record of the tenant that names the identities in the table's identity columns. With fewer identities
// than columns, a bystander fills the others.
func (b *bench) row(tenant string, identities ...string) stores.Row {
	n := serial.Add(1)
	return NewRow(b.table, tenant, "suite", fmt.Sprintf("ref-%d", n), identities...)
}

var serial atomic.Int64

func who(t fataler, identity string) subject.Subject { return whoIn(t, tenant, identity) }

func whoIn(t fataler, tenant, identity string) subject.Subject {
	t.Helper()
	s, err := subject.New(tenant, identity)
	if err != nil {
		t.Fatalf("subject.New(%q, %q): %v", tenant, identity, err)
	}
	return s
}

// fataler is what testing.T and rapid.T share.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), stepLimit)
	t.Cleanup(cancel)
	return ctx
}

var (
	storeName   = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)
	backendName = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
)

func testDescribes(t *testing.T, b *bench) {
	if got := b.store.Name(); got != b.table.Store || !storeName.MatchString(got) {
		t.Errorf("Name() = %q, want %q", got, b.table.Store)
	}
	if got := b.store.Backend(); !backendName.MatchString(got) {
		t.Errorf("Backend() = %q, want one lower-case word", got)
	}
	if d, ok := b.store.(subject.Described); ok {
		if got, want := fmt.Sprint(d.About()), fmt.Sprint(b.table.Card); got != want {
			t.Errorf("About() = %s, want the table's card %s", got, want)
		}
	}
	if _, ok := b.store.(subject.Reader); ok && len(b.table.Identities) > 1 {
		i, ok := b.store.(subject.Identified)
		if !ok || !slices.Equal(i.IdentityFields(), b.table.Identities) {
			t.Errorf("IdentityFields() is not the table's %v: an access would show who else a row names", b.table.Identities)
		}
	}
	if p, ok := b.store.(subject.Prober); ok {
		if err := p.Ready(bounded(t)); err != nil {
			t.Errorf("Ready() = %v, want nil of a store that was just made", err)
		}
	}
	if d, ok := b.store.(subject.Deferrer); ok {
		if notYet, err := d.Deferred(bounded(t), who(t, "nobody")); notYet != nil || err != nil {
			t.Errorf("Deferred() = %v, %v for a subject without rows, want nil, nil", notYet, err)
		}
	}
	if r, ok := b.store.(subject.Retainer); ok {
		now := time.Now()
		until, err := r.RecoverableUntil(bounded(t), now)
		if err != nil || !until.IsZero() && until.Before(now) {
			t.Errorf("RecoverableUntil(now) = %v, %v, want the zero time or one that is not before the delete", until, err)
		}
	}
}

// wantError checks that an error was answered, and that its text does not hold the identity.
func wantError(t *testing.T, what string, err error, s subject.Subject) {
	t.Helper()
	if err == nil {
		t.Errorf("%s answered no error", what)
		return
	}
	wantDiscreet(t, what, err, s)
}

// wantDiscreet checks that what a caller would print of the error holds nothing of the subject. A *Fault's cause is
// never printed, so it may.
func wantDiscreet(t *testing.T, what string, err error, s subject.Subject) {
	t.Helper()
	if err == nil || s.IsZero() {
		return
	}
	if text := err.Error(); containsAny(text, s.Identity()) {
		t.Errorf("%s put the identity into its error: %q", what, text)
	}
	var notYet *subject.NotYet
	if errors.As(err, &notYet) && !notYet.Reason.Known() {
		t.Errorf("%s answered not-yet with the unknown reason %q", what, notYet.Reason)
	}
}
