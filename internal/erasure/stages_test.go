package erasure

import (
	"strings"
	"testing"
	"time"

	"recount/internal/subject"
	"recount/internal/wire"
)

func TestAnApprovedRequestRunsToItsEnd(t *testing.T) {
	w := newWorld(t)
	w.populate()
	s := w.service("a")
	id := w.filed(s)
	w.approved(s, id)
	w.resume(s)
	r := w.show(s, id)
	wantState(t, r, Closed)
	for _, c := range w.cells {
		for _, store := range c.stores {
			o := outcomeIn(t, r, c.name, store.name)
			if n, _ := o.Before.Value(); n != 5 || !o.Remaining.IsZero() || o.Status != "erased" {
				t.Errorf("%s/%s: %+v", c.name, store.name, o)
			}
			if len(store.rows) != 1 {
				t.Errorf("%s/%s holds %d rows: only the bystander's other one may stay", c.name, store.name, len(store.rows))
			}
		}
	}
	if len(w.eraser.wrong) > 0 {
		t.Errorf("deleted without a program: %v", w.eraser.wrong)
	}
	for name, want := range map[string]string{
		"shred": "not_applicable", "freeze": "done", "enumerate": "done", "execute": "done", "archives": "not_applicable",
		"app_databases": "not_applicable", "verify": "done", "close": "done",
	} {
		if st := stageOf(t, r, name); st.Status != want || want == "not_applicable" && st.Detail == "" {
			t.Errorf("%s: %+v", name, st)
		}
	}
	var phases []string
	for _, rec := range w.records(id) {
		phases = append(phases, rec.Phase)
	}
	if got := strings.Join(phases, " "); got != "shred:not_applicable freeze:intent freeze:outcome enumerate:outcome execute:intent execute:outcome "+
		"archives:not_applicable app_databases:not_applicable verify:outcome close:outcome" {
		t.Errorf("the ledger says %s", got)
	}
	report := w.report(s, id)
	if len(report.NotApplicable) != 3 {
		t.Errorf("not applicable: %q", report.NotApplicable)
	}
	if got := w.observer.ended; len(got) != 1 || got[0] != Closed {
		t.Errorf("the observer was told %v", got)
	}
}

func TestIdentifierStringsCloseAsUnverified(t *testing.T) {
	w := newWorld(t)
	w.populate()
	s := w.service("a")
	id := w.filed(s, func(f *wire.FileRequest) {
		f.Descriptor.IdentifierStrings = []wire.Identifier{{Value: phone, Strength: "strong"}}
	})
	w.approved(s, id)
	w.resume(s)
	r := w.show(s, id)
	wantState(t, r, Unverified)
	if report := w.report(s, id); report.Outcome != Unverified || len(report.NotApplicable) != 4 {
		t.Errorf("%s, %q", report.Outcome, report.NotApplicable)
	}
	if OpenDSRWord(r.State) == "completed" {
		t.Error("OpenDSR is told that it is completed")
	}
}

func TestAPeerThatIsDownIsPendingAndClosesByItself(t *testing.T) {
	w := newWorld(t)
	w.populate()
	s := w.service("a")
	causal := w.cell("causal")
	causal.down = subject.ReasonPeerUnreachable
	id := w.filed(s)
	w.approved(s, id)
	w.resume(s)
	r := w.show(s, id)
	wantState(t, r, Pending)
	if !strings.Contains(r.StateDetail, "causal") || !strings.Contains(r.StateDetail, "peer_unreachable") {
		t.Errorf("the reason is not given: %s", r.StateDetail)
	}
	if causal.count("outcomes", alice) != 3 {
		t.Error("rows of the peer are gone")
	}
	if w.cell("ingest").count("events", alice) != 0 {
		t.Error("the peer kept the local rows from being erased")
	}
	causal.with(func() { causal.down = "" })
	w.resume(s)
	wantState(t, w.show(s, id), Pending) // it is not time yet
	w.move(2 * time.Minute)
	w.resume(s)
	wantState(t, w.show(s, id), Closed)
	if causal.count("outcomes", alice) != 0 || len(w.eraser.wrong) > 0 {
		t.Errorf("%d rows are left, %v had no program", causal.count("outcomes", alice), w.eraser.wrong)
	}
}

func TestACellThatCanNotBeFrozenLosesNothing(t *testing.T) {
	w := newWorld(t)
	w.populate()
	s := w.service("a")
	causal := w.cell("causal")
	causal.stiff = subject.ReasonPeerTimeout
	id := w.filed(s)
	w.approved(s, id)
	w.resume(s)
	r := w.show(s, id)
	wantState(t, r, Pending)
	if causal.count("outcomes", alice) != 3 {
		t.Error("rows were deleted while anybody could write them again")
	}
	if !strings.Contains(r.StateDetail, "causal/outcomes") || !strings.Contains(r.StateDetail, "peer_timeout") {
		t.Errorf("the reason is not given: %s", r.StateDetail)
	}
	causal.with(func() { causal.stiff = "" })
	w.move(time.Hour)
	w.resume(s)
	wantState(t, w.show(s, id), Closed)
}

func TestTheFreezeHoldsUntilTheVerificationIsDone(t *testing.T) {
	w := newWorld(t)
	w.populate()
	s := w.service("a")
	ingest, causal := w.cell("ingest"), w.cell("causal")
	w.eraser.during = func() {
		if err := ingest.write("events", alice); err == nil {
			t.Error("a write came through while rows were deleted")
		}
		if err := ingest.write("events", "bystander"); err != nil {
			t.Error("a bystander can't write")
		}
	}
	enumerations := 0
	causal.before = func() { // the verification can't count it
		if enumerations++; enumerations == 5 { // behind the preview, two approvals and the program
			causal.with(func() { causal.down = subject.ReasonPeerTimeout })
		}
	}
	id := w.filed(s)
	w.approved(s, id)
	w.resume(s)
	if st := stageOf(t, w.show(s, id), "verify"); st.Status != "pending" {
		t.Fatalf("the verification is %s", st.Status)
	}
	for range 30 { // longer than any freeze lasts by itself
		wantState(t, w.show(s, id), Pending)
		if !ingest.isFrozen(alice) || !ingest.isFrozen(alias) {
			t.Fatalf("the freeze ran out before the verification was done, at %s", w.Now())
		}
		w.move(29 * time.Minute)
		w.resume(s)
	}
	causal.with(func() { causal.down = "" })
	w.move(31 * time.Minute)
	w.resume(s)
	wantState(t, w.show(s, id), Closed)
	if ingest.isFrozen(alice) || causal.isFrozen(alice) {
		t.Error("nobody thawed it")
	}
}

func TestAStoreThatAsksToBeLeftAloneIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	w.populate()
	s := w.service("a")
	store := w.cell("causal").store("outcomes")
	store.notYet, store.retryAfter = 2, 5*time.Hour // both persons' rows
	id := w.filed(s)
	w.approved(s, id)
	w.resume(s)
	r := w.show(s, id)
	wantState(t, r, Pending)
	if r.NextTryAt.Before(w.Now().Add(5 * time.Hour)) {
		t.Errorf("the next try is at %s", r.NextTryAt)
	}
	if !strings.Contains(r.StateDetail, "streaming_buffer") {
		t.Errorf("the reason is not given: %s", r.StateDetail)
	}
	w.move(4*time.Hour + 59*time.Minute)
	if !w.cell("causal").isFrozen(alice) {
		t.Error("the freeze ran out while the store was left alone")
	}
	w.resume(s)
	wantState(t, w.show(s, id), Pending)
	w.move(2 * time.Minute)
	w.resume(s)
	wantState(t, w.show(s, id), Closed)
}

func TestADeadlineThatPassesIsToldAndAnotherApprovalContinues(t *testing.T) {
	w := newWorld(t)
	w.populate()
	s := w.service("a")
	causal := w.cell("causal")
	causal.down = subject.ReasonPeerUnreachable
	id := w.filed(s, func(f *wire.FileRequest) { f.Callback = "https://hooks.example/erasure" })
	w.approved(s, id)
	w.resume(s)
	w.move(w.limits.Deadline + time.Minute)
	w.resume(s)
	r := w.show(s, id)
	wantState(t, r, Failed)
	if got := w.observer.ended; len(got) != 1 || got[0] != Failed {
		t.Errorf("the observer was told %v", got)
	}
	if last := w.poster.posts[len(w.poster.posts)-1]; !strings.Contains(last.body, Failed) {
		t.Errorf("the last callback says %s", last.body)
	}
	causal.with(func() { causal.down = "" })
	w.move(time.Hour)
	w.resume(s)
	wantState(t, w.show(s, id), Failed)
	w.approveBoth(s, id, w.previewedAgain(s, id))
	w.resume(s)
	wantState(t, w.show(s, id), Closed)
	if len(w.eraser.wrong) > 0 {
		t.Errorf("deleted without a program: %v", w.eraser.wrong)
	}
}

func TestAVerificationThatFindsRowsGoesRoundAgain(t *testing.T) {
	w := newWorld(t)
	w.populate()
	s := w.service("a")
	id := w.filed(s)
	w.approved(s, id)
	ingest := w.cell("ingest")
	calls := 0
	ingest.before = func() { // an owner's own import, which no freeze holds back, between the erasure and the verification
		if calls++; calls == 2 {
			ingest.with(func() { ingest.store("events").add(w.person(alice), w.source("late", "late")) })
		}
	}
	w.resume(s)
	r := w.show(s, id)
	wantState(t, r, Pending)
	if o := outcomeIn(t, r, "ingest", "events"); o.Status != "failed" || o.Detail != "rows_remain" {
		t.Errorf("%+v", o)
	}
	w.move(2 * time.Minute)
	w.resume(s)
	r = w.show(s, id)
	wantState(t, r, Closed)
	if r.Attempts != 2 || len(w.eraser.wrong) > 0 {
		t.Errorf("%d attempts, %v had no program", r.Attempts, w.eraser.wrong)
	}
}
