package suppression_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"recount/internal/stores"
	"recount/internal/stores/storetest"
	"recount/internal/subject"
	"recount/internal/suppression"
	"recount/internal/suppression/suppressiontest"
)

var errFault = errors.New("a fault")

// flaky is a store whose next calls fail as it is told to, before or after they did their work.
type flaky struct {
	*storetest.Model
	mu     sync.Mutex
	faults []string // for the next calls: "", "before", "after"
}

func (f *flaky) next() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.faults) == 0 {
		return ""
	}
	how := f.faults[0]
	f.faults = f.faults[1:]
	return how
}

func faulty[T any](f *flaky, work func() (T, error)) (T, error) {
	var none T
	switch f.next() {
	case "before":
		return none, errFault
	case "after":
		_, _ = work()
		return none, errFault
	}
	return work()
}

func (f *flaky) Count(ctx context.Context, s subject.Subject) (int64, error) {
	return faulty(f, func() (int64, error) { return f.Model.Count(ctx, s) })
}

func (f *flaky) Delete(ctx context.Context, s subject.Subject) (int64, error) {
	return faulty(f, func() (int64, error) { return f.Model.Delete(ctx, s) })
}

func (f *flaky) Sources(ctx context.Context, s []subject.Subject) ([][]subject.Source, error) {
	return faulty(f, func() ([][]subject.Source, error) { return f.Model.Sources(ctx, s) })
}

func (f *flaky) DerivedFrom(ctx context.Context, p []subject.Source) ([]subject.Derivation, error) {
	return faulty(f, func() ([]subject.Derivation, error) { return f.Model.DerivedFrom(ctx, p) })
}

func (f *flaky) CountSources(ctx context.Context, s []subject.Source) ([]int64, error) {
	return faulty(f, func() ([]int64, error) { return f.Model.CountSources(ctx, s) })
}

func (f *flaky) DeleteSources(ctx context.Context, s []subject.Source) (int64, error) {
	return faulty(f, func() (int64, error) { return f.Model.DeleteSources(ctx, s) })
}

// plain hides what a model can do beyond a Store and Sourced, so that every step is called by itself.
type plain struct{ suppression.Store }

// world is two stores, a ledger, a guard and an eraser.
type world struct {
	stores [2]*flaky
	ledger *suppressiontest.Model
	guard  *suppression.Guard
	eraser subject.Eraser
}

func newWorld() *world {
	w := &world{ledger: suppressiontest.NewModel()}
	writers := suppression.NewWriters(time.Minute)
	w.guard = &suppression.Guard{Ledger: w.ledger, Writers: writers}
	capture := &suppression.Capture{Ledger: w.ledger, Writers: writers}
	w.eraser = subject.Eraser{Cell: "test", Timeout: time.Second, Capture: capture}
	for i := range w.stores {
		table := storetest.EventsTable()
		table.Store = fmt.Sprint("store_", i)
		w.stores[i] = &flaky{Model: storetest.NewModel(table)}
		store := plain{w.stores[i]}
		capture.Stores = append(capture.Stores, store)
		w.eraser.Groups = append(w.eraser.Groups, subject.Group{Stores: []subject.Store{store}})
	}
	return w
}

// write is one record by way of the guard, and whether it was taken.
func (w *world) write(t interface{ Fatal(...any) }, store int, ref, who string, parents ...string) (taken bool) {
	row := storetest.NewRow(storetest.EventsTable(), "acme", "crm", ref, who)
	r := subject.Record{Source: origin(t, ref), Identities: []string{who}}
	for _, p := range parents {
		r.Parents = append(r.Parents, origin(t, p))
	}
	if len(parents) > 0 {
		row = storetest.Derived(storetest.EventsTable(), "acme", "crm", ref, who, r.Parents...)
	}
	_, err := w.guard.Write(context.Background(), []subject.Record{r}, nil, func(ctx context.Context, d suppression.Decision) error {
		created, err := w.stores[store].Append(ctx, []stores.Row{row}, d.Generation)
		taken = err == nil && created[0]
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return taken
}

func (w *world) erase(t interface{ Fatal(...any) }, who string) subject.Erasure {
	s, err := subject.New("acme", who)
	if err != nil {
		t.Fatal(err)
	}
	return w.eraser.Erase(context.Background(), subject.Target{Tenant: "acme", Subject: s, Ref: subject.Ref("ref of " + who)})
}

// TestNoScheduleOfFaultsLosesASourceOrLeavesADerivedRowBehindAnErased is the property of the capture: erased leaves nothing,
// derived rows included; and what an attempt took does not come back, unless a receipt said that it could not be recorded.
func TestNoScheduleOfFaultsLosesASourceOrLeavesADerivedRowBehindAnErased(t *testing.T) {
	erased, retried, told, kept := 0, 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		var unrecorded atomic.Bool
		w.eraser.OnError = func(_, step string, _ error) {
			if step == "capture" {
				unrecorded.Store(true)
			}
		}
		type row struct {
			store   int
			ref     string
			who     string
			parents []string
		}
		var rows []row
		for i := range rapid.IntRange(1, 8).Draw(t, "rows") {
			r := row{store: rapid.IntRange(0, 1).Draw(t, "store"), ref: fmt.Sprint(i), who: rapid.SampledFrom([]string{"alice", "alice", "bob"}).Draw(t, "who")}
			if i > 0 {
				for _, p := range rapid.SliceOfNDistinct(rapid.IntRange(0, i-1), 0, 2, rapid.ID).Draw(t, "parents") {
					r.parents = append(r.parents, fmt.Sprint(p))
				}
			}
			if !w.write(t, r.store, r.ref, r.who, r.parents...) {
				t.Fatal("not taken")
			}
			rows = append(rows, r)
		}
		doomed := map[string]bool{} // alice's, and what derives from them
		for _, r := range rows {    // parents come first
			doomed[r.ref] = r.who == "alice" || slices.ContainsFunc(r.parents, func(p string) bool { return doomed[p] })
		}
		held := func(r row) bool {
			counts, err := w.stores[r.store].Model.CountSources(context.Background(), []subject.Source{origin(t, r.ref)})
			return err != nil || counts[0] > 0
		}
		for attempt := range 4 {
			if attempt < 3 {
				for _, s := range w.stores {
					s.faults = rapid.SliceOfN(rapid.SampledFrom([]string{"", "", "", "before", "after"}), 0, 10).Draw(t, "faults")
				}
				if rapid.IntRange(0, 5).Draw(t, "ledger") == 0 {
					w.ledger.BreakFor(rapid.IntRange(1, 3).Draw(t, "ledger's faults"), errFault)
				}
			}
			e := w.erase(t, "alice")
			w.ledger.Break(nil)
			for _, s := range w.stores {
				s.faults = nil
			}
			status := subject.Fold(e.Receipts)
			if attempt == 3 && status != subject.Erased {
				t.Fatalf("without a fault: %v %q %q", status, e.Receipts[0].Reason(), e.Receipts[1].Reason())
			}
			if status != subject.Erased {
				retried++
				continue
			}
			erased++
			for _, r := range rows {
				if held(r) == doomed[r.ref] {
					t.Fatalf("record %s: there %t, doomed %t", r.ref, held(r), doomed[r.ref])
				}
			}
			break
		}
		for _, r := range rows { // and none of it comes back, whichever attempt took it
			if unrecorded.Load() {
				told++
				break
			}
			kept++
			if taken := w.write(t, r.store, r.ref, r.who, r.parents...); taken {
				t.Fatalf("record %s of %s came back", r.ref, r.who)
			}
		}
	})
	if erased == 0 || retried == 0 || told == 0 || kept == 0 {
		t.Errorf("%d erased, %d failed attempts, %d told, %d kept away: this shows nothing", erased, retried, told, kept)
	}
}

// TestAHalfDoneAttemptIsFoundAgain: the rows were deleted, the recount failed, and the person's import comes.
func TestAHalfDoneAttemptIsFoundAgain(t *testing.T) {
	w := newWorld()
	w.write(t, 0, "1", "alice")
	w.write(t, 1, "2", "bob", "1")
	w.stores[0].faults = []string{"", "", "", "", "", "", "before"} // resolve twice, count, delete; the recount fails
	for range 20 {
		e := w.erase(t, "alice")
		if e.Receipts[0].Status() == subject.Failed {
			break
		}
	}
	if w.write(t, 0, "1", "alice") {
		t.Error("it came back after a half-done attempt")
	}
	e := w.erase(t, "alice")
	if subject.Fold(e.Receipts) != subject.Erased || len(e.Sources) != 2 {
		t.Errorf("the retry: %v, %d sources", subject.Fold(e.Receipts), len(e.Sources))
	}
	if w.write(t, 0, "1", "alice") || w.write(t, 1, "2", "bob", "1") {
		t.Error("it came back after the retry")
	}
}

// TestAnAttemptThatTookNothingIsWithdrawn: the store refuses, and the person's imports go on.
func TestAnAttemptThatTookNothingIsWithdrawn(t *testing.T) {
	w := newWorld()
	w.write(t, 0, "1", "alice")
	refusing := &refuses{plain{w.stores[0]}}
	w.eraser.Groups[0].Stores[0] = refusing
	e := w.erase(t, "alice")
	if r := e.Receipts[0]; r.Status() != subject.Failed || !r.Counts().Suppressed.IsZero() {
		t.Fatalf("%v, %s suppressed", r.Status(), r.Counts().Suppressed)
	}
	if a, err := w.ledger.Check(t.Context(), []subject.Record{{Source: origin(t, "1"), Identities: []string{"alice"}}}); err != nil || a.Verdicts[0] != suppression.Admitted {
		t.Errorf("%v %v", a.Verdicts, err)
	}
}

// TestAnAttemptThatTookNothingLeavesWhatAnotherReliesOn: a source of two people, of whom one is erased while the erasure of
// the other fails.
func TestAnAttemptThatTookNothingLeavesWhatAnotherReliesOn(t *testing.T) {
	for what, order := range map[string][]string{"the one that fails began": {"alice", "bob"}, "the other began": {"bob", "alice"}} {
		t.Run(what, func(t *testing.T) {
			w := newWorld()
			w.write(t, 0, "1", "alice")
			w.write(t, 1, "1", "bob")
			refusing := &refuses{plain{w.stores[0]}} // alice's rows
			w.eraser.Groups[0].Stores[0] = refusing
			var targets []subject.Target
			for _, who := range order {
				s, err := subject.New("acme", who)
				if err != nil {
					t.Fatal(err)
				}
				targets = append(targets, subject.Target{Tenant: "acme", Subject: s, Ref: subject.Ref("ref of " + who)})
			}
			capture := w.eraser.Capture.(*suppression.Capture)
			_, first := capture.Begin(t.Context(), targets[:1])
			_, second := capture.Begin(t.Context(), targets[1:])
			failed := map[string]subject.Attempt{order[0]: first, order[1]: second}["alice"]
			settled := map[string]subject.Attempt{order[0]: first, order[1]: second}["bob"]
			if err := errors.Join(settled.Settle(t.Context(), []bool{false}), failed.Settle(t.Context(), []bool{true})); err != nil {
				t.Fatal(err)
			}
			if w.write(t, 1, "1", "bob") {
				t.Error("what one of them deleted came back, because the other had recorded it")
			}
			for i, e := range w.eraser.EraseAll(t.Context(), targets) { // and in one batch
				if order[i] == "bob" && e.Receipts[1].Status() != subject.Erased {
					t.Errorf("%v", e.Receipts[1].Status())
				}
			}
			if w.write(t, 1, "1", "bob") {
				t.Error("it came back after a batch")
			}
		})
	}
}

type refuses struct{ plain }

func (*refuses) Delete(context.Context, subject.Subject) (int64, error) { return 0, errFault }

func TestWritersThatAskedBeforeTheFenceAreWaitedFor(t *testing.T) {
	w := newWorld()
	entered, release := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		r := subject.Record{Source: origin(t, "1"), Identities: []string{"alice"}}
		_, _ = w.guard.Write(t.Context(), []subject.Record{r}, nil, func(ctx context.Context, d suppression.Decision) error {
			close(entered)
			<-release
			_, err := w.stores[0].Append(ctx, []stores.Row{storetest.NewRow(storetest.EventsTable(), "acme", "crm", "1", "alice")}, d.Generation)
			return err
		})
	})
	<-entered
	time.AfterFunc(50*time.Millisecond, func() { close(release) })
	e := w.erase(t, "alice")
	wg.Wait()
	if r := e.Receipts[0]; r.Status() != subject.Erased || r.Counts().Before != subject.Measured(1) || r.Counts().Suppressed != subject.Measured(1) {
		t.Errorf("%v, %+v", r.Status(), r.Counts())
	}
	if n, err := w.stores[0].Model.CountSources(t.Context(), []subject.Source{origin(t, "1")}); err != nil || n[0] != 0 {
		t.Errorf("%v rows, %v", n, err)
	}
	if w.write(t, 0, "1", "alice") {
		t.Error("it came back")
	}
}
