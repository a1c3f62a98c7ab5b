package erasure

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"recount/internal/ledger"
	"recount/internal/subject"
	"recount/internal/wire"
)

// essence is what has to be the same of a report, whatever happened on the way.
func essence(r wire.Report) string {
	var stages, places []string
	for _, st := range r.Request.Stages {
		stages = append(stages, st.Name+" "+st.Status)
	}
	for _, o := range r.Request.Stores {
		places = append(places, fmt.Sprintf("%s/%s %s %s->%s %s", o.Cell, o.Store, o.Status, o.Before, o.Remaining, o.Basis))
	}
	slices.Sort(places)
	phases := map[string]bool{}
	for _, e := range r.Entries {
		phases[e.Phase] = true
	}
	text, _ := json.Marshal(map[string]any{
		"outcome": r.Outcome, "stages": stages, "stores": places, "phases": slices.Sorted(maps.Keys(phases)), "not applicable": r.NotApplicable,
		"before": r.RowsBefore, "remaining": r.RowsRemaining, "key destroyed": r.Request.KeyDestroyedAt != nil,
	})
	return string(text)
}

// faultWorld has a store that answers "not yet" once, and a store that is retained, so that a run has two attempts.
func faultWorld(t *testing.T) *world {
	w := newWorld(t)
	w.populate()
	causal := w.cell("causal").store("outcomes")
	causal.notYet, causal.keepFor = 1, 7*24*time.Hour
	return w
}

func (w *world) faultRequest(s *Service) string {
	w.t.Helper()
	id := w.filed(s, func(f *wire.FileRequest) { f.Callback = "https://hooks.example/erasure" })
	w.previewed(s, id)
	review := w.Now().AddDate(1, 0, 0)
	_, err := s.Exclude(w.t.Context(), cid, id, wire.ActionRequest{Store: "ingest/invoices", Article: "17(3)(b)", CounselRef: "op-77", ReviewAt: &review})
	must(w.t, err)
	w.approveBoth(s, id, w.previewedAgain(s, id))
	return id
}

// driveToTheEnd drives until the descriptor's key is destroyed. A process that dies is followed by another one.
func (w *world) driveToTheEnd(id string) {
	w.t.Helper()
	s := w.service("process-0")
	for i := 1; i < 40; i++ {
		if dead := w.lives(s, id); dead {
			w.kill.disarm()
			must(w.t, w.log.Close())
			w.openLedger()
			s = w.service(fmt.Sprintf("process-%d", i))
		}
		if r := w.stored(id); r.KeyDestroyedAt != nil && len(r.Outbox) == 0 {
			return
		}
		w.move(31 * time.Minute)
		if r := w.stored(id); r.over() && r.KeyDestroyedAt == nil {
			w.move(max(0, r.KeyDestroyAt.Sub(w.Now())) + time.Minute)
		}
	}
	r := w.stored(id)
	w.t.Fatalf("it came to no end: %s (%s)", r.State, r.StateDetail)
}

// lives drives the request once, and reports whether the process died.
func (w *world) lives(s *Service, id string) (dead bool) {
	defer func() {
		if why := recover(); why != nil {
			if _, ours := why.(killed); !ours {
				panic(why)
			}
			dead = true
		}
	}()
	if err := s.Drive(w.t.Context(), id); err != nil && !errors.Is(err, errLost) && !errors.Is(err, errFault) {
		w.t.Fatal(err)
	}
	return w.kill.isDead()
}

func TestAProcessThatDiesOrFailsAnywhereIsFollowedByOneThatFinishes(t *testing.T) {
	w := faultWorld(t)
	id := w.faultRequest(w.service("setup"))
	w.kill.arm(0, diesBefore)
	w.driveToTheEnd(id)
	calls := w.kill.disarm()
	want := essence(w.report(w.service("reader"), id))
	w.judged(t, id)
	if calls*waysToFail/2 < 200 {
		t.Fatalf("%d calls are too few", calls)
	}
	t.Logf("%d calls, each failing in two ways", calls)
	for way := range waysToFail {
		t.Run(fmt.Sprintf("way %d", way), func(t *testing.T) {
			w := newWorld(t)
			for at := 1 + way%2; at <= calls; at += 2 { // each call in two of the ways
				if at%20 < 2 { // a short ledger is a fast one
					w = newWorld(t)
				}
				w.afresh()
				id := w.faultRequest(w.service("setup"))
				w.kill.arm(at, way)
				w.driveToTheEnd(id)
				where := w.kill.where
				w.kill.disarm()
				if got := essence(w.report(w.service("reader"), id)); got != want {
					t.Fatalf("call %d (%s):\n%s instead of\n%s", at, where, got, want)
				}
				w.judged(t, id)
				if t.Failed() {
					t.Fatalf("call %d (%s)", at, where)
				}
			}
		})
	}
}

// afresh fills the cells again, for another request.
func (w *world) afresh() {
	w.cells = []*fakeCell{
		newCell(w, "ingest", newStore("events", "sqlite"), newStore("invoices", "sqlite")),
		newCell(w, "causal", newStore("outcomes", "bigquery")),
	}
	w.populate()
	causal := w.cell("causal").store("outcomes")
	causal.notYet, causal.keepFor = 1, 7*24*time.Hour
	head, err := w.log.Head(w.t.Context())
	must(w.t, err)
	w.from, w.listing = head.Size, &listing{hashes: map[string]string{}, rows: map[string]bool{}}
}

// judged checks what has to hold of every end.
func (w *world) judged(t *testing.T, id string) {
	t.Helper()
	if len(w.eraser.wrong) > 0 {
		t.Errorf("deleted without a program: %v", w.eraser.wrong)
	}
	if n := w.cell("ingest").count("invoices", alice); n != 3 {
		t.Errorf("%d rows are left of what is retained", n)
	}
	if w.cell("ingest").isFrozen(alice) || w.cell("causal").isFrozen(alice) {
		t.Error("the freeze was left")
	}
	order, seen := map[string]int{}, map[string]bool{}
	for i, r := range w.records(id) {
		if seen[r.EntryID] {
			t.Errorf("%s is in the ledger twice", r.Phase)
		}
		seen[r.EntryID], order[r.Phase] = true, i+1 // the last of each
	}
	last := 0
	for _, phase := range []string{
		"freeze:outcome", "execute:intent", "execute:outcome", "archives:not_applicable", "verify:outcome", "close:outcome", "descriptor:intent", "descriptor:outcome",
	} {
		if order[phase] <= last {
			t.Errorf("%s stands at %d, behind %d", phase, order[phase], last)
		}
		last = order[phase]
	}
	if c := w.stored(id).Certificate; c == "" {
		t.Error("there is no certificate")
	}
}

func TestTwoCoordinatorsCloseEachRequestOnce(t *testing.T) {
	w := newWorld(t)
	w.populate()
	a, b := w.service("a"), w.service("b")
	const requests = 1000
	ids, epochs := make([]string, requests), map[string]int64{}
	for i := range ids {
		person := fmt.Sprintf("person-%d@example.org", i)
		for _, c := range w.cells {
			for _, s := range c.stores {
				s.add(w.person(person), w.source("erp", person))
			}
		}
		ids[i] = w.filed(a, func(f *wire.FileRequest) { f.Descriptor = wire.Descriptor{PersonIDs: []string{person}} })
		w.approved(a, ids[i])
	}
	for round := 0; ; round++ {
		done := make(chan error, 2)
		for _, s := range []*Service{a, b} {
			go func() { _, _, err := s.Resume(t.Context()); done <- err }()
		}
		must(t, errors.Join(<-done, <-done))
		open := 0
		for _, id := range ids {
			r := w.stored(id)
			if r.Epoch < epochs[id] {
				t.Fatalf("the epoch went back from %d to %d", epochs[id], r.Epoch)
			}
			if epochs[id] = r.Epoch; !r.over() {
				open++
			}
		}
		if open == 0 {
			break
		}
		if round > 40 {
			t.Fatalf("%d are open", open)
		}
		w.move(time.Minute)
	}
	for _, id := range ids {
		wantState(t, w.show(a, id), Closed)
	}
	w.wantEachPhaseOnce(t)
	if n := len(w.observer.ended); n != requests {
		t.Errorf("%d ends were counted", n)
	}
	for _, c := range w.cells {
		for _, s := range c.stores {
			if s.deletes != requests {
				t.Errorf("%s/%s: %d rows were deleted", c.name, s.name, s.deletes)
			}
		}
	}
	if len(w.eraser.wrong) > 0 {
		t.Errorf("deleted without a program: %v", w.eraser.wrong)
	}
}

func (w *world) wantEachPhaseOnce(t *testing.T) {
	t.Helper()
	phases := map[string]int{}
	must(t, w.log.Scan(t.Context(), 0, func(e ledger.Entry) error {
		r, err := ledger.Decode(e.Line)
		phases[r.RequestRef+" "+r.Phase]++
		return err
	}))
	for phase, n := range phases {
		if n != 1 {
			t.Fatalf("%s is in the ledger %d times", phase, n)
		}
	}
}

func TestACoordinatorThatLostItsLeaseChangesNothingMore(t *testing.T) {
	w := newWorld(t)
	w.populate()
	a, b := w.service("a"), w.service("b")
	id := w.filed(a)
	w.approved(a, id)
	once := false
	w.eraser.during = func() {
		if once {
			return
		}
		once = true
		w.move(2 * w.limits.Lease) // a hangs in the erasure, and b takes over
		must(t, b.Drive(t.Context(), id))
		wantState(t, w.show(b, id), Closed)
	}
	before := w.stored(id).Epoch
	if err := a.Drive(t.Context(), id); !errors.Is(err, errLost) {
		t.Fatalf("%v", err)
	}
	r := w.stored(id)
	wantState(t, r.Request, Closed)
	if r.Epoch != before+2 || len(w.observer.ended) != 1 {
		t.Errorf("epoch %d after %d, %v", r.Epoch, before, w.observer.ended)
	}
}

func TestALeaseOfAnotherIsWaitedFor(t *testing.T) {
	w := newWorld(t)
	w.populate()
	a, b := w.service("a"), w.service("b")
	id := w.filed(a)
	w.approved(a, id)
	w.kill.arm(0, diesBefore)
	w.eraser.during = func() { w.kill.arm(1, diesBefore) }
	if !w.lives(a, id) {
		t.Fatal("it lived")
	}
	w.kill.disarm()
	w.eraser.during = nil
	if err := b.Drive(t.Context(), id); !errors.Is(err, errLost) {
		t.Fatalf("the lease was taken from one that holds it: %v", err)
	}
	w.move(w.limits.Lease + time.Second)
	must(t, b.Drive(t.Context(), id))
	wantState(t, w.show(b, id), Closed)
}

func TestDriftIsSeenAlthoughTheProcessDiedInTheEnumeration(t *testing.T) {
	w := newWorld(t)
	w.populate()
	s := w.service("a")
	id := w.filed(s)
	w.approved(s, id)
	w.cell("causal").before = func() { w.kill.arm(1, diesBefore) }
	if !w.lives(s, id) {
		t.Fatal("it lived")
	}
	w.kill.disarm()
	w.cell("causal").before = nil
	events := w.cell("ingest").store("events")
	for range 50 {
		events.add(w.person(alice), w.source("erp", "more"))
	}
	w.move(w.limits.Lease + time.Second)
	s = w.service("b")
	w.resume(s)
	r := w.show(s, id)
	wantState(t, r, Verified)
	if w.eraser.calls > 0 || len(r.Approvals) > 0 || w.cell("ingest").isFrozen(alice) {
		t.Error("something was deleted, or is still approved or frozen")
	}
	w.approveBoth(s, id, w.previewedAgain(s, id))
	w.resume(s)
	wantState(t, w.show(s, id), Closed)
}

func TestAPeerThatComesBackWithMoreThanTheCapGoesToBothApprovers(t *testing.T) {
	w := newWorld(t)
	w.populate()
	w.limits.BlastCap = 20
	s := w.service("a")
	causal := w.cell("causal")
	causal.down = subject.ReasonPeerUnreachable
	for range 30 {
		causal.store("outcomes").add(w.person(alice), w.source("erp", "more"))
	}
	id := w.filed(s)
	w.approved(s, id)
	w.resume(s)
	wantState(t, w.show(s, id), Pending)
	causal.with(func() { causal.down = "" })
	w.move(time.Hour)
	w.resume(s)
	r := w.show(s, id)
	wantState(t, r, Verified)
	if causal.count("outcomes", alice) != 33 || r.Attempts == 0 {
		t.Errorf("%d rows are left, attempt %d", causal.count("outcomes", alice), r.Attempts)
	}
	if _, err := s.Cancel(t.Context(), ann, id, "a mistake"); refusedFor(err) != "executed" {
		t.Errorf("cancelled although rows were deleted: %v", err)
	}
}
