package cascade_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"recount/internal/cascade"
	"recount/internal/subject"
)

// item is a record of a simple cell: whose it is, and what it derives from.
type item struct {
	owner   subject.Subject
	parents []subject.Source
}

// simple is a cell with one store, too simple to be wrong: it erases a person or sources, closes over what derives within
// itself, and remembers.
type simple struct {
	name    string
	mu      sync.Mutex
	rows    map[subject.Source]item
	ledger  map[subject.Source]bool
	calls   int
	mute    bool // it keeps no ledger
	refuses bool // sources of others
}

func (c *simple) Name() string { return c.name }

func (c *simple) Erase(_ context.Context, _ string, t subject.Target) subject.Erasure {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	gone := map[subject.Source]bool{}
	for _, s := range t.Sources {
		gone[s] = true
	}
	own := int64(0)
	for s, row := range c.rows {
		if t.AboutPerson() && row.owner == t.Subject || !t.AboutPerson() && gone[s] {
			gone[s] = true
			own++
		}
	}
	for again := true; again; {
		again = false
		for s, row := range c.rows {
			if !gone[s] && slices.ContainsFunc(row.parents, func(p subject.Source) bool { return gone[p] }) {
				gone[s], again = true, true
			}
		}
	}
	derived := -own
	e := subject.Erasure{Sources: []subject.Source{}}
	for s := range gone {
		if _, held := c.rows[s]; held {
			derived++
		}
		delete(c.rows, s)
		c.ledger[s] = true
		e.Sources = append(e.Sources, s)
	}
	counts := subject.Counts{
		Before: subject.Measured(own), Deleted: subject.Measured(own), Remaining: subject.Measured(0), Suppressed: subject.Measured(int64(len(gone))), Derived: subject.Measured(derived),
	}
	status, reason := subject.Erased, subject.ReasonNone
	if c.refuses && !t.AboutPerson() {
		status, reason = subject.Failed, subject.ReasonStoreLocked
	}
	if c.mute {
		e.Sources = nil
	}
	e.Receipts = []subject.Receipt{subject.Attest(subject.Statement{
		Label: subject.Label{Cell: c.name, Store: "rows", Sticky: !c.mute}, Counts: counts, Status: status, Reason: reason,
	})}
	return e
}

func (c *simple) EraseBatch(ctx context.Context, id string, targets []subject.Target) []subject.Erasure {
	out := make([]subject.Erasure, len(targets))
	for i, t := range targets {
		out[i] = c.Erase(ctx, id, t)
	}
	return out
}

func newSimple(n int) []*simple {
	cells := make([]*simple, n)
	for i := range cells {
		cells[i] = &simple{name: fmt.Sprint("cell", i), rows: map[subject.Source]item{}, ledger: map[subject.Source]bool{}}
	}
	return cells
}

func over(cells []*simple) *cascade.Cascade {
	all := make([]cascade.Cell, len(cells))
	for i, c := range cells {
		all[i] = c
	}
	return cascade.New(time.Minute, all...)
}

func sourced(t interface{ Fatal(...any) }, n int) subject.Source {
	s, err := subject.NewSource("acme", "crm", fmt.Sprint(n))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func named(t interface{ Fatal(...any) }, identity string) subject.Subject {
	s, err := subject.New("acme", identity)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestErasedMeansThatNothingDerivesFromItInAnyCell draws records that derive from each other across cells.
func TestErasedMeansThatNothingDerivesFromItInAnyCell(t *testing.T) {
	erased, bounded := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		cells := newSimple(rapid.IntRange(1, 4).Draw(t, "cells"))
		alice, bob := named(t, "alice"), named(t, "bob")
		parents := map[subject.Source][]subject.Source{}
		doomed := map[subject.Source]bool{}
		n := rapid.IntRange(0, 14).Draw(t, "records")
		for i := range n {
			s, row := sourced(t, i), item{owner: bob}
			if rapid.IntRange(0, 2).Draw(t, "alice's") == 0 {
				row.owner, doomed[s] = alice, true
			}
			for _, p := range rapid.SliceOfNDistinct(rapid.IntRange(0, n), 0, 2, rapid.ID).Draw(t, "parents") { // cycles too
				row.parents = append(row.parents, sourced(t, p))
			}
			parents[s] = row.parents
			cells[rapid.IntRange(0, len(cells)-1).Draw(t, "cell")].rows[s] = row
		}
		for again := true; again; {
			again = false
			for s, of := range parents {
				if !doomed[s] && slices.ContainsFunc(of, func(p subject.Source) bool { return doomed[p] }) {
					doomed[s], again = true, true
				}
			}
		}
		c := over(cells)
		target := subject.Target{Tenant: "acme", Subject: alice, Ref: "r"}
		receipts := c.Erase(t.Context(), requestID, target)
		if subject.Fold(receipts) != subject.Erased {
			bounded++
			for _, r := range receipts {
				if r.Status() == subject.Failed && r.Reason() != subject.ReasonSourcesOpen {
					t.Fatalf("%q", r.Reason())
				}
			}
			return
		}
		erased++
		derived := int64(0)
		for _, r := range receipts {
			d, _ := r.Counts().Derived.Value()
			own, _ := r.Counts().Before.Value()
			derived += d + own
		}
		if derived != int64(len(doomed)) {
			t.Fatalf("%d rows went, by the receipts, of %d", derived, len(doomed))
		}
		for _, cell := range cells {
			for s := range cell.rows {
				if doomed[s] {
					t.Fatal("erased, and a row that derives from the erased is there")
				}
			}
			for s := range doomed {
				if !cell.ledger[s] {
					t.Fatal("erased, and a cell would take it in again")
				}
			}
			for s := range cell.ledger {
				if !doomed[s] {
					t.Fatal("somebody else's record is suppressed")
				}
			}
		}
	})
	if erased == 0 {
		t.Errorf("%d erased, %d out of bounds: this shows nothing", erased, bounded)
	}
}

func TestAChainThatCrossesCellsTooOftenIsFailedAndARetryGoesOn(t *testing.T) {
	cells := newSimple(2)
	alice := named(t, "alice")
	cells[0].rows[sourced(t, 0)] = item{owner: alice}
	for i := 1; i < 15; i++ {
		cells[i%2].rows[sourced(t, i)] = item{owner: named(t, fmt.Sprint("p", i)), parents: []subject.Source{sourced(t, i-1)}}
	}
	c := over(cells)
	target := subject.Target{Tenant: "acme", Subject: alice, Ref: "r"}
	receipts := c.Erase(t.Context(), requestID, target)
	if subject.Fold(receipts) != subject.Failed || !slices.ContainsFunc(receipts, func(r subject.Receipt) bool { return r.Reason() == subject.ReasonSourcesOpen }) {
		t.Fatalf("%q", told(receipts))
	}
}

func TestACellThatFailsForWhatOthersResolvedHasFailed(t *testing.T) {
	cells := newSimple(3)
	cells[0].rows[sourced(t, 1)] = item{owner: named(t, "alice")}
	cells[1].refuses = true
	got := over(cells).Erase(t.Context(), requestID, subject.Target{Tenant: "acme", Subject: named(t, "alice"), Ref: "r"})
	if want := []string{"rows erased", "rows failed store_locked", "rows erased"}; !slices.Equal(told(got), want) {
		t.Errorf("%q", told(got))
	}
}

func TestACellWithoutALedgerIsNotAskedAndSaysThatItIsNotSticky(t *testing.T) {
	cells := newSimple(2)
	cells[0].rows[sourced(t, 1)] = item{owner: named(t, "alice")}
	cells[1].mute = true
	got := over(cells).Erase(t.Context(), requestID, subject.Target{Tenant: "acme", Subject: named(t, "alice"), Ref: "r"})
	if subject.Fold(got) != subject.Erased || got[1].Sticky() || cells[1].calls != 1 {
		t.Errorf("%q, sticky %t, asked %d times", told(got), got[1].Sticky(), cells[1].calls)
	}
}

func TestWithoutSourcesACascadeIsOneRound(t *testing.T) {
	cells := newSimple(3)
	over(cells).EraseBatch(t.Context(), requestID, everyone(people(t, 5)...))
	for _, c := range cells {
		if c.calls != 5 {
			t.Errorf("%d calls for 5 people without records", c.calls)
		}
	}
}

// TestAPersonOfManyRecordsIsAskedForInBodiesThatACellTakes sends more sources than one call may name.
func TestAPersonOfManyRecordsIsAskedForInBodiesThatACellTakes(t *testing.T) {
	cells := newSimple(2)
	alice := named(t, "alice")
	for i := range 2500 {
		cells[0].rows[sourced(t, i)] = item{owner: alice}
	}
	got := over(cells).Erase(t.Context(), requestID, subject.Target{Tenant: "acme", Subject: alice, Ref: "r"})
	if subject.Fold(got) != subject.Erased || len(cells[1].ledger) != 2500 || cells[1].calls != 4 { // the person, and three thousands
		t.Errorf("%q, %d sources in %d calls", told(got), len(cells[1].ledger), cells[1].calls)
	}
}
