package erasure

import (
	"strings"
	"testing"
	"time"

	"recount/internal/subject"
	"recount/internal/wire"
)

func (w *world) excluded(s *Service, id string, places ...string) {
	w.t.Helper()
	review := w.Now().AddDate(1, 0, 0)
	for _, place := range places {
		_, err := s.Exclude(w.t.Context(), cid, id, wire.ActionRequest{Store: place, Article: "17(3)(b)", CounselRef: "op-77", ReviewAt: &review})
		must(w.t, err)
	}
}

func TestWhatIsExcludedIsRetainedAndNeverCalledErased(t *testing.T) {
	w := newWorld(t)
	w.populate()
	s := w.service("a")
	id := w.filed(s)
	first := w.previewed(s, id)
	w.excluded(s, id, "ingest/invoices")
	_, err := s.Approve(t.Context(), bob, id, first)
	w.wantRefused(t, "approving what was previewed before", err, "state")
	digest := w.previewedAgain(s, id)
	if total := w.show(s, id).Preview.Total; total != 10 {
		t.Errorf("%d rows would be hit", total)
	}
	w.approveBoth(s, id, digest)
	w.resume(s)
	r := w.show(s, id)
	wantState(t, r, Closed)
	o := outcomeIn(t, r, "ingest", "invoices")
	if n, _ := o.Remaining.Value(); o.Status != "retained_article_17_3" || n != 5 || o.Basis != "17(3)(b)" {
		t.Errorf("%+v", o)
	}
	if n := w.cell("ingest").store("invoices").deletes; n > 0 || w.cell("ingest").count("events", alice) > 0 {
		t.Errorf("%d rows of the excluded store were deleted", n)
	}
	page, err := Page(w.report(s, id))
	must(t, err)
	if !strings.Contains(string(page), "was retained under Art. 17(3)(b)") {
		t.Error("the page does not say so")
	}
	body, err := w.programs.Read(t.Context(), w.stored(id).Program)
	must(t, err)
	if strings.Contains(string(body), "invoices") || !strings.Contains(string(body), "events") {
		t.Error("the program holds what is retained: whoever carries it out again would erase it")
	}
	if c := w.stored(id).Certificate; !strings.Contains(c, "retained_article_17_3") {
		t.Error("the certificate does not say so")
	}
}

func TestAWholeCellCanBeExcluded(t *testing.T) {
	w := newWorld(t)
	w.populate()
	s := w.service("a")
	id := w.filed(s)
	w.previewed(s, id)
	w.excluded(s, id, "causal/outcomes")
	w.approveBoth(s, id, w.previewedAgain(s, id))
	w.resume(s)
	r := w.show(s, id)
	wantState(t, r, Closed)
	if o := outcomeIn(t, r, "causal", "outcomes"); o.Status != retained || w.cell("causal").count("outcomes", alice) != 3 {
		t.Errorf("%+v", o)
	}
}

func TestAnExcludedStoreThatCanNotBeCountedStopsNoOther(t *testing.T) {
	w := newWorld(t)
	w.populate()
	s := w.service("a")
	id := w.filed(s)
	w.previewed(s, id)
	w.excluded(s, id, "ingest/invoices")
	w.approveBoth(s, id, w.previewedAgain(s, id))
	invoices := w.cell("ingest").store("invoices")
	invoices.uncounted = subject.ReasonAccessDenied
	w.resume(s)
	r := w.show(s, id)
	wantState(t, r, Pending)
	if w.cell("ingest").count("events", alice) > 0 || !strings.Contains(r.StateDetail, "ingest/invoices access_denied") {
		t.Errorf("%s", r.StateDetail)
	}
	invoices.uncounted = ""
	w.move(time.Hour)
	w.resume(s)
	wantState(t, w.show(s, id), Closed)
}

func TestAnExclusionIsRefusedFor(t *testing.T) {
	w := newWorld(t)
	w.populate()
	s := w.service("a")
	id := w.filed(s)
	w.previewed(s, id)
	soon, past := w.Now().Add(time.Hour), w.Now()
	good := wire.ActionRequest{Store: "ingest/events", Article: "17(3)(b)", CounselRef: "op-1", ReviewAt: &soon}
	for what, change := range map[string]func(*wire.ActionRequest){
		"no cell":      func(a *wire.ActionRequest) { a.Store = "events" },
		"another name": func(a *wire.ActionRequest) { a.Store = "ingest/evnets" },
		"all":          func(a *wire.ActionRequest) { a.Store = "ingest/*" },
		"article":      func(a *wire.ActionRequest) { a.Article = "17(3)(f)" },
		"the person":   func(a *wire.ActionRequest) { a.CounselRef = "op-" + alias },
		"free text":    func(a *wire.ActionRequest) { a.CounselRef = "he said so" },
		"no review":    func(a *wire.ActionRequest) { a.ReviewAt = nil },
		"a past one":   func(a *wire.ActionRequest) { a.ReviewAt = &past },
	} {
		asked := good
		change(&asked)
		_, err := s.Exclude(t.Context(), cid, id, asked)
		w.wantRefused(t, what, err, "invalid")
	}
	_, err := s.Exclude(t.Context(), cid, id, good)
	must(t, err)
	good.RemoveStore = true
	if r, err := s.Exclude(t.Context(), cid, id, good); err != nil || len(r.Exclusions) > 0 {
		t.Errorf("%v %v", err, r.Exclusions)
	}
	_, err = s.Exclude(t.Context(), cid, id, good)
	w.wantRefused(t, "removing it twice", err, "no_exclusion")
}

func TestTheTimeIsExtendedOnceInsideTheFirstMonthByTwoMonthsAtMost(t *testing.T) {
	w := newWorld(t)
	s := w.service("a")
	id := w.filed(s)
	due := w.show(s, id).DueAt
	extend := func(until time.Time, reason string) error {
		_, err := s.Extend(t.Context(), cid, id, &until, reason)
		return err
	}
	latest := monthsAfter(w.show(s, id).ReceivedAt, 3)
	w.wantRefused(t, "too long", extend(latest.Add(time.Second), "complex"), "invalid")
	w.wantRefused(t, "no longer", extend(due, "complex"), "invalid")
	w.wantRefused(t, "no reason", extend(latest, ""), "invalid")
	w.wantRefused(t, "the person", extend(latest, "because of "+alias), "invalid")
	other := w.filed(s)
	must(t, extend(latest, "complex"))
	if r := w.show(s, id); !r.DueAt.Equal(latest) || r.Extension == nil {
		t.Errorf("%s", r.DueAt)
	}
	w.wantRefused(t, "twice", extend(latest, "complex"), "extended")
	w.move(31 * 24 * time.Hour)
	_, err := s.Extend(t.Context(), cid, other, &latest, "complex")
	w.wantRefused(t, "late", err, "too_late")
}

func TestARejectionDestroysTheDescriptorAtOnce(t *testing.T) {
	for _, state := range []string{Rejected, Cancelled} {
		w := newWorld(t)
		w.populate()
		s := w.service("a")
		id := w.filed(s)
		act := s.Reject
		if state == Cancelled {
			act = s.Cancel
		}
		_, err := act(t.Context(), bob, id, "it is about "+alias)
		w.wantRefused(t, "naming the person", err, "invalid")
		_, err = act(t.Context(), bob, id, "manifestly unfounded")
		must(t, err)
		w.resume(s)
		r := w.show(s, id)
		if r.State != state || r.KeyDestroyedAt == nil || r.Refusal == nil || len(w.stored(id).Sealed) > 0 {
			t.Errorf("%+v", r)
		}
		if _, err := s.Descriptor(t.Context(), bob, id); refusedFor(err) != "descriptor_destroyed" {
			t.Errorf("%v", err)
		}
		if rep := w.report(s, id); rep.BackupHorizon != nil || w.eraser.calls > 0 {
			t.Error("the report claims that backups run out of what was never erased")
		}
		if len(w.observer.ended) != 1 || w.observer.ended[0] != state {
			t.Errorf("the observer was told %v", w.observer.ended)
		}
	}
}

func TestACancellationIsRefusedOnceRowsMayBeGoneAndThawsBefore(t *testing.T) {
	w := newWorld(t)
	w.populate()
	s := w.service("a")
	w.cell("causal").down = subject.ReasonPeerTimeout
	id := w.filed(s)
	w.approved(s, id)
	w.resume(s)
	for _, act := range []func() error{
		func() error { _, err := s.Cancel(t.Context(), bob, id, "taken back"); return err },
		func() error { _, err := s.Reject(t.Context(), bob, id, "unfounded"); return err },
	} {
		w.wantRefused(t, "ending it", act(), "executed")
	}
	w.cell("causal").down = ""
	other := w.filed(s, func(f *wire.FileRequest) { f.Descriptor = wire.Descriptor{PersonIDs: []string{"bystander"}} })
	w.approved(s, other)
	w.kill.arm(0, diesBefore)
	d := &drive{Service: s, id: other}
	if _, err := d.freeze(t.Context(), w.stored(other)); err != nil || !w.cell("ingest").isFrozen("bystander") {
		t.Fatal("it is not frozen", err)
	}
	_, err := s.Cancel(t.Context(), bob, other, "taken back")
	must(t, err)
	must(t, s.Drive(t.Context(), other))
	if w.cell("ingest").isFrozen("bystander") {
		t.Error("the freeze of a request that was taken back was left")
	}
}

func TestAHoldInMidRunReturnsToBothApproversAndThenItContinues(t *testing.T) {
	for _, where := range []string{"execute", "verify"} {
		w := newWorld(t)
		w.populate()
		s := w.service("a")
		id := w.filed(s)
		w.approved(s, id)
		hold := func() {
			if w.show(s, id).Hold == nil {
				_, err := s.Hold(t.Context(), cid, id, "case-2026/17", false)
				must(t, err)
			}
		}
		enumerations := 0
		w.eraser.during = func() {
			if where == "execute" {
				hold()
			}
		}
		w.cell("causal").before = func() {
			if enumerations++; where == "verify" && enumerations == 2 {
				hold()
			}
		}
		w.resume(s)
		r := w.show(s, id)
		wantState(t, r, Verified)
		if len(r.Approvals) > 0 || !strings.Contains(r.StateDetail, "hold") {
			t.Errorf("%s: %+v", where, r.Approvals)
		}
		w.move(time.Hour)
		w.resume(s)
		wantState(t, w.show(s, id), Verified)
		must(t, w.cell("ingest").write("events", "bystander"))
		digest := w.previewedAgain(s, id)
		if p := w.show(s, id).Preview; p.HoldRef != "case-2026/17" {
			t.Error("the approvers don't see it")
		}
		w.approveBoth(s, id, digest)
		w.resume(s)
		r = w.show(s, id)
		wantState(t, r, Closed)
		if len(r.Approvals) != 2 {
			t.Errorf("%d approvals", len(r.Approvals))
		}
		held := false
		for _, rec := range w.records(id) {
			held = held || rec.Phase == "close:outcome" && rec.HoldRef == "case-2026/17"
		}
		if !held || len(w.eraser.wrong) > 0 {
			t.Error(where, "the ledger does not say that there was a hold", w.eraser.wrong)
		}
		_, err := s.Hold(t.Context(), cid, id, "late", false)
		w.wantRefused(t, "a hold on what is closed", err, "state")
	}
}

func TestARequestThatIsDrivenForAMonthFitsIntoADocument(t *testing.T) {
	w := newWorld(t)
	w.populate()
	s := w.service("a")
	w.cell("causal").down = subject.ReasonPeerUnreachable
	id := w.filed(s, func(f *wire.FileRequest) { f.Callback = "https://hooks.example/x" })
	w.approved(s, id)
	for range 40 {
		w.resume(s)
		w.move(30 * time.Minute)
	}
	r := w.stored(id)
	if len(r.History) > 12 || len(w.poster.posts) > 8 || len(r.Outbox) > 0 || r.State != Pending || r.Attempts < 30 {
		t.Errorf("%d events, %d callbacks, %s after %d attempts", len(r.History), len(w.poster.posts), r.State, r.Attempts)
	}
	list := []int{}
	for i := range 5000 {
		list = bounded(append(list, i))
	}
	if len(list) != firstEntries+latestEntries || list[0] != 0 || list[len(list)-1] != 4999 {
		t.Errorf("%d entries are listed", len(list))
	}
}

func TestASecondHoldIsRefusedUntilTheFirstIsReleased(t *testing.T) {
	w := newWorld(t)
	w.populate()
	s := w.service("a")
	id := w.filed(s)
	_, err := s.Hold(t.Context(), cid, id, "case-7", false)
	must(t, err)
	if _, err := s.Hold(t.Context(), cid, id, "case-8", false); refusedFor(err) != "held" {
		t.Errorf("a hold over a hold: %v", err)
	}
	r, err := s.Hold(t.Context(), cid, id, "", true)
	must(t, err)
	if last := r.History[len(r.History)-1]; r.Hold != nil || last.Action != "hold_released" || last.Detail != "case-7" {
		t.Errorf("%+v", last)
	}
}

func TestAReportClaimsNoFigureThatNobodyMeasuredAndNoHorizonThatNobodyStated(t *testing.T) {
	w := newWorld(t)
	w.limits.BackupHorizonDays = nil
	w.populate()
	s := w.service("a")
	id := w.filed(s)
	w.previewed(s, id)
	report, err := s.Report(t.Context(), cid, id)
	must(t, err)
	if _, measured := report.RowsBefore.Value(); measured {
		t.Errorf("%s rows before anything was carried out", report.RowsBefore)
	}
	w.approved(s, id)
	w.resume(s)
	report, err = s.Report(t.Context(), cid, id)
	must(t, err)
	if n, measured := report.RowsBefore.Value(); !measured || n == 0 || !report.RowsRemaining.IsZero() || report.BackupHorizon != nil {
		t.Errorf("%s before, %s remain, backups until %v", report.RowsBefore, report.RowsRemaining, report.BackupHorizon)
	}
}
