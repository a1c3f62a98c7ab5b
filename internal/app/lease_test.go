package app

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"recount/internal/cell"
	"recount/internal/intake"
	"recount/internal/stores"
	"recount/internal/stores/memory"
	"recount/internal/subject"
	"recount/internal/suppression"
	"recount/internal/suppression/suppressiontest"
)

type switchedLease struct{ held atomic.Bool }

func (l *switchedLease) Held() bool { return l.held.Load() }

func (l *switchedLease) Keep(ctx context.Context, _ func(context.Context) error, _ func()) error {
	<-ctx.Done()
	return nil
}

// stubbornJournal replays a row that it read before the row was erased, as a page in flight would.
type stubbornJournal struct {
	*memory.Graph
	page []stores.Row
}

func (j *stubbornJournal) Scan(_ context.Context, yield func(stores.Row) error) error {
	for _, row := range j.page {
		if err := yield(row); err != nil {
			return err
		}
	}
	return nil
}

// TestAReplayOfTheNextTermWaitsForTheErasuresOfTheLast: the lease is lost and taken anew in the middle of an erasure.
func TestAReplayOfTheNextTermWaitsForTheErasuresOfTheLast(t *testing.T) {
	spec := intake.Edges().Table
	spec.Store = "graph_journal"
	durable, err := memory.NewGraph(spec)
	if err != nil {
		t.Fatal(err)
	}
	row := stores.Row{"id", "acme", "alice", "bob", "crm", "1", "consent", nil, time.Now(), "knows", nil}
	lease := &switchedLease{}
	lease.held.Store(true)
	a := &assembly{}
	a.keep(suppressiontest.NewModel(), suppression.NewWriters(time.Second), 0)
	if err := a.journalled(&stubbornJournal{Graph: durable, page: []stores.Row{row}}, "test", lease); err != nil {
		t.Fatal(err)
	}
	if err := a.lease.replay(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := durable.Append(t.Context(), []stores.Row{row}, 0); err != nil {
		t.Fatal(err)
	}
	served := a.groups[0].Stores[1]
	replayed := make(chan error, 1)
	a.groups[0].Stores[1] = afterDelete{Store: served, then: func() { // lost, and taken anew
		a.lease.replayed.Store(false)
		go func() { replayed <- a.lease.replay(t.Context()) }()
		time.Sleep(50 * time.Millisecond)
	}}
	s, err := subject.New("acme", "alice")
	if err != nil {
		t.Fatal(err)
	}
	receipts := (&subject.Eraser{Cell: "graph", Groups: a.groups, Timeout: 5 * time.Second}).Erase(t.Context(), subject.Target{Tenant: "acme", Subject: s}).Receipts
	if err := <-replayed; err != nil {
		t.Fatal(err)
	}
	n, err := served.(cell.Leased).MemoryStore.Count(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if receipts[1].Status() == subject.Erased && n != 0 {
		t.Fatalf("told erased, and the memory holds %d rows", n)
	}
	if receipts[1].Reason() != subject.ReasonNoLease {
		t.Errorf("%v %q", receipts[1].Status(), receipts[1].Reason())
	}
}

type afterDelete struct {
	subject.Store
	then func()
}

// TestARowThatWasSuppressedIsNotReplayed: an erasure died between its record and its delete.
func TestARowThatWasSuppressedIsNotReplayed(t *testing.T) {
	spec := intake.Edges().Table
	spec.Store = "graph_journal"
	durable, err := memory.NewGraph(spec)
	if err != nil {
		t.Fatal(err)
	}
	row := func(ref, from string) stores.Row {
		return stores.Row{"id-" + ref, "acme", from, "bob", "crm", ref, "consent", nil, time.Now(), "knows", nil}
	}
	lease := &switchedLease{}
	lease.held.Store(true)
	ledger := suppressiontest.NewModel()
	gone, err := subject.NewSource("acme", "crm", "1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ledger.Record(t.Context(), []suppression.Entry{{Source: gone}}); err != nil {
		t.Fatal(err)
	}
	a := &assembly{}
	a.keep(ledger, suppression.NewWriters(time.Second), 0)
	if err := a.journalled(&stubbornJournal{Graph: durable, page: []stores.Row{row("1", "alice"), row("2", "carol")}}, "test", lease); err != nil {
		t.Fatal(err)
	}
	if err := a.lease.replay(t.Context()); err != nil {
		t.Fatal(err)
	}
	for identity, want := range map[string]int64{"alice": 0, "carol": 1} {
		s, err := subject.New("acme", identity)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := a.lease.graph.Count(t.Context(), s); err != nil || n != want {
			t.Errorf("%s has %d edges, want %d, %v", identity, n, want, err)
		}
	}
	ledger.Break(errors.New("unreadable"))
	if err := a.lease.replay(t.Context()); err == nil {
		t.Error("a journal was replayed that nobody could check")
	}
}

func (a afterDelete) Delete(ctx context.Context, s subject.Subject) (int64, error) {
	n, err := a.Store.Delete(ctx, s)
	a.then()
	return n, err
}
