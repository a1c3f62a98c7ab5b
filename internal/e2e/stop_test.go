package e2e

import (
	"net/http"
	"testing"
	"time"

	"recount/internal/fleet"
	"recount/internal/stores/bigquery/bqemu"
)

// stopsInTime sends SIGTERM. Platforms kill after 10 s.
func stopsInTime(t *testing.T, s *fleet.Service) {
	t.Helper()
	began := time.Now()
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the stop took %s", took)
	}
}

func TestAStopLetsErasuresEndAndAnswersThoseThatTakeTooLong(t *testing.T) {
	t.Parallel()
	w := start(t, withSlowPeer(t, 12*time.Second, nil))
	w.write("acme", "alice")
	answered := w.later(w.Coordinator, "erase", "acme", "alice")
	eventually(t, "the erasure doesn't begin", func() bool { return w.held("acme", "alice") == 0 })
	stopsInTime(t, w.Coordinator)
	r := <-answered
	got := statuses(r.Answer.Receipts)
	if r.Code != http.StatusBadGateway || got["slow/*"] != "failed shutting_down" || got["ingest/intent_events"] != "erased" || got["scoring/intent_scores"] != "erased" {
		t.Errorf("%d %v", r.Code, got)
	}
}

func TestAStopAnswersForAStoreThatHangsAndAnAuditThatDoes(t *testing.T) {
	t.Parallel()
	w, emulator := onBigQuery(t, nil)
	w.write("acme", "alice")
	emulator.Inject(bqemu.Fault{At: bqemu.AtJobHold, Kind: "delete", Table: "intent_events", Times: -1, DelayMS: 12_000})
	emulator.Inject(bqemu.Fault{At: bqemu.AtInsertAll, Table: "intent_erasure_audit", Times: -1, Hang: true})
	answered := w.later(w.Ingest, "delete", "acme", "alice")
	eventually(t, "no statement was sent", func() bool {
		for _, s := range emulator.Statements() {
			if s.Kind == "delete" {
				return true
			}
		}
		return false
	})
	stopsInTime(t, w.Ingest)
	r := <-answered
	if got := statuses(r.Answer.Receipts); r.Code != http.StatusBadGateway || got["ingest/intent_events"] != "failed shutting_down" {
		t.Errorf("%d %v", r.Code, got)
	}
	emulator.Heal()
	if err := w.Ingest.StartAgain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := w.ask(w.Coordinator, "erase", "acme", "alice"); r.Code != http.StatusOK || w.held("acme", "alice") != 0 {
		t.Errorf("the retry: %d %s", r.Code, r.Body)
	}
}

func TestAStopInTheMiddleOfManyErasuresMakesNoReceiptFalse(t *testing.T) {
	w := start(t)
	people := crowd("stopped", 250)
	w.write("acme", people...)
	erase := w.Coordinator.URL + "/v1/intent/subject:erase"
	var verdicts []verdict
	for _, s := range w.All() {
		verdicts = eraseAll(t, erase, people, func() { stopsInTime(t, s) })
		if len(erased(verdicts)) == 0 {
			t.Errorf("%s: nobody was told erased", s.Name)
		}
		w.proveTrue(verdicts)
		if err := s.StartAgain(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.proveTrue(verdicts)
	}
	w.eraseTheRest(erase, people, erased(verdicts))
}

// TestAStopEndsABodyThatNeverDoes has a caller who sends a record now and then for ever.
func TestAStopEndsABodyThatNeverDoes(t *testing.T) {
	t.Parallel()
	w := start(t, only("ingest"))
	body := &trickle{stop: t.Context().Done(), begun: make(chan struct{})}
	go func() {
		_, _ = try(&http.Client{}, http.MethodPost, w.Ingest.URL+"/v1/intent/events", body, map[string]string{"Content-Type": "application/x-ndjson"})
	}()
	<-body.begun
	stopsInTime(t, w.Ingest)
}

type trickle struct {
	stop  <-chan struct{}
	begun chan struct{}
	n     int
}

func (s *trickle) Read(p []byte) (int, error) {
	if s.n++; s.n == 3 {
		close(s.begun)
	}
	select {
	case <-s.stop:
		return 0, http.ErrBodyReadAfterClose
	case <-time.After(50 * time.Millisecond):
		return copy(p, "{}\n"), nil
	}
}
