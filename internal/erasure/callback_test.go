package erasure

import (
	"errors"
	"strings"
	"testing"
	"time"

	"recount/internal/notify"
	"recount/internal/wire"
)

const hook, mailer = "https://hooks.example/state", "https://hooks.example/mailer"

func TestACallbackIsThinAndTellsOfEachChangeOfState(t *testing.T) {
	w := newWorld(t)
	w.populate()
	s := w.service("a")
	id := w.filed(s, func(f *wire.FileRequest) { f.Callback = hook })
	w.resume(s)
	w.previewed(s, id)
	w.resume(s)
	w.approveBoth(s, id, w.show(s, id).Preview.Digest)
	w.resume(s)
	var states []string
	for _, p := range w.poster.posts {
		if p.url != hook || p.header.Get("Webhook-Id") == "" || p.header.Get("Signed-By") != "state" || p.header.Get("Content-Type") != "application/json" {
			t.Errorf("%+v", p)
		}
		_, state, _ := strings.Cut(p.body, `"state":"`)
		state, _, _ = strings.Cut(state, `"`)
		states = append(states, state)
		for _, secret := range []string{"subject_ref", w.show(s, id).SubjectRef, "acme", alice} {
			if strings.Contains(p.body, secret) {
				t.Errorf("%s holds %s", p.body, secret)
			}
		}
	}
	if got := strings.Join(states, " "); got != "filed verified previewed approved running closed" {
		t.Errorf("told of %s", got)
	}
}

func TestACallbackIsTriedAgainUnderItsIdAndGivenUp(t *testing.T) {
	w := newWorld(t)
	s := w.service("a")
	w.poster.answer = func(string) error { return &notify.DeliveryError{Status: 503, Retryable: true} }
	id := w.filed(s, func(f *wire.FileRequest) { f.Callback = hook })
	for range 30 {
		w.resume(s)
		w.resume(s) // nothing is due at once
		w.move(24*time.Hour + 5*time.Hour)
		if len(w.stored(id).Outbox) == 0 {
			break
		}
	}
	n := len(w.poster.posts)
	if n < 3 || n > 10 || len(w.stored(id).Outbox) > 0 {
		t.Fatalf("%d tries, %d due", n, len(w.stored(id).Outbox))
	}
	for _, p := range w.poster.posts {
		if p.header.Get("Webhook-Id") != w.poster.posts[0].header.Get("Webhook-Id") {
			t.Error("another try has another id")
		}
	}
	r := w.show(s, id)
	if last := r.History[len(r.History)-1]; last.Action != "callback_given_up" || r.State != Filed {
		t.Errorf("%+v", last)
	}
}

func TestRecipientsAreToldOrItIsSaidThatItWasImpossible(t *testing.T) {
	w := newWorld(t)
	w.populate()
	s := w.service("a")
	broken := "https://hooks.example/broken"
	w.poster.answer = func(url string) error {
		if url == broken {
			return &notify.DeliveryError{Status: 410}
		}
		return nil
	}
	id := w.filed(s, func(f *wire.FileRequest) {
		f.Recipients = []wire.Recipient{
			{Name: "archive", Status: "disproportionate", Reason: "thousands of readers"}, {Name: "mailer", Callback: mailer}, {Name: "broken", Callback: broken},
		}
	})
	w.approved(s, id)
	w.resume(s)
	r := w.show(s, id)
	wantState(t, r, Closed)
	for i, want := range []string{"disproportionate", "notified", "impossible"} {
		if got := r.Recipients[i]; got.Status != want || want == "impossible" && got.Reason == "" || i > 0 && got.At == nil {
			t.Errorf("%+v instead of %s", got, want)
		}
	}
	if len(w.poster.posts) != 2 || !strings.Contains(w.poster.posts[0].body, "erasure.recipient") {
		t.Errorf("%+v", w.poster.posts)
	}
}

func TestOpenDSRIsToldInItsOwnWords(t *testing.T) {
	w := newWorld(t)
	w.populate()
	s := w.service("a")
	r, err := s.FileOpenDSR(t.Context(), ann, drawn(t), fileRequest(), DSR{SubjectRequestID: "a7551968-d5d6-44b2-9831-815ac9017798", ControllerID: "controller-1", Callbacks: []string{hook}})
	must(t, err)
	wantState(t, r, Filed)
	w.approved(s, r.ID)
	w.resume(s)
	words := map[string]bool{}
	for _, p := range w.poster.posts {
		if p.header.Get("Signed-By") != "opendsr" || !strings.Contains(p.body, `"results_url":null`) {
			t.Errorf("%+v", p)
		}
		_, word, _ := strings.Cut(p.body, `"request_status":"`)
		word, _, _ = strings.Cut(word, `"`)
		words[word] = true
	}
	if !words["pending"] || !words["in_progress"] || !words["completed"] || len(words) != 3 {
		t.Errorf("%v", words)
	}
	if _, err := s.Show(t.Context(), "../x"); !errors.Is(err, ErrNotFound) {
		t.Errorf("%v", err)
	}
}

func TestThePageRendersForEveryStateAndAsksForNothing(t *testing.T) {
	w := newWorld(t)
	w.populate()
	s := w.service("a")
	id := w.filed(s, func(f *wire.FileRequest) {
		f.Recipients = []wire.Recipient{{Name: "<script>alert(1)</script>", Callback: mailer}}
	})
	check := func(state string, report wire.Report) {
		t.Helper()
		report.Outcome, report.Request.State = state, state
		page, err := Page(report)
		must(t, err)
		text := string(page)
		for _, bad := range []string{"http://", "https://", "<script", "<link", "@import", "url(", "<img", "ZgotmplZ", "%!", "<no value>"} {
			if strings.Contains(text, bad) {
				t.Errorf("%s: the page holds %s", state, bad)
			}
		}
		if !strings.Contains(text, strings.ReplaceAll(state, "_", " ")) || !strings.Contains(text, report.RequestID) || !strings.HasSuffix(strings.TrimSpace(text), "</html>") {
			t.Errorf("%s: it is not whole", state)
		}
	}
	early := w.report(s, id)
	w.cell("causal").down = "peer_timeout"
	w.approved(s, id)
	w.resume(s)
	half := w.report(s, id)
	if page, err := Page(half); err != nil || !strings.Contains(string(page), "not measured") || !strings.Contains(string(page), "could not be counted") {
		t.Errorf("a store that was not counted is passed over: %v", err)
	}
	w.cell("causal").down = ""
	w.move(time.Hour)
	w.resume(s)
	for _, state := range []string{Filed, Verified, Previewed, Approved, Running, Pending, Closed, Unverified, Rejected, Cancelled, Failed} {
		check(state, early)
		check(state, half)
		check(state, w.report(s, id))
	}
}

// drawn is an id for a request of a controller.
func drawn(t *testing.T) string {
	t.Helper()
	id, err := NewID()
	must(t, err)
	return id
}
