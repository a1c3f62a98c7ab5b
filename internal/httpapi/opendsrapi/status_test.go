package opendsrapi_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"recount/internal/erasure"
	"recount/internal/wire"
)

// drive does what is due.
func (f *fixture) drive() {
	f.t.Helper()
	if _, _, err := f.service.Resume(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
}

// approve is what people do, by another surface.
func (f *fixture) approve(id string) {
	f.t.Helper()
	alice, bob := wire.Principal{Sub: "a", Email: "alice@example.com"}, wire.Principal{Sub: "b", Email: "bob@example.com"}
	_, err := f.service.VerifyIdentity(f.t.Context(), alice, id, "login")
	if err != nil {
		f.t.Fatal(err)
	}
	r, err := f.service.Preview(f.t.Context(), alice, id, wire.ActionRequest{})
	if err != nil {
		f.t.Fatal(err)
	}
	for _, by := range []wire.Principal{alice, bob} {
		if _, err := f.service.Approve(f.t.Context(), by, id, r.Preview.Digest); err != nil {
			f.t.Fatal(err)
		}
	}
}

// file files a request and answers our id of it.
func (f *fixture) file(changes map[string]any) string {
	f.t.Helper()
	f.do("dsar", http.MethodPost, requests, f.request(changes)).into(f.t, http.StatusCreated)
	return f.filed()[0].ID
}

func (f *fixture) status() string {
	f.t.Helper()
	word, _ := f.do("dsar", http.MethodGet, requests+"/"+first, "").into(f.t, http.StatusOK)["request_status"].(string)
	return word
}

// words are the states that callbacks told of, each of them signed.
func (f *fixture) words(got []callback) string {
	f.t.Helper()
	var words []string
	for _, c := range got {
		f.verify(c.header, c.body)
		body := map[string]any{}
		if err := json.Unmarshal(c.body, &body); err != nil {
			f.t.Fatal(err)
		}
		word, _ := body["request_status"].(string)
		words = append(words, word)
		want := map[string]any{
			"controller_id": "dsar@example.com", "expected_completion_time": "2026-06-03T08:00:00Z", "status_callback_url": f.hook.url + "/status",
			"subject_request_id": first, "request_status": word, "api_version": "2.0", "results_url": nil,
		}
		if !maps.Equal(body, want) || c.header.Get("Content-Type") != "application/json" {
			f.t.Errorf("%s %v", c.body, c.header)
		}
	}
	return strings.Join(words, " ")
}

func TestCallbacksTellOfARequestUntilItIsCompleted(t *testing.T) {
	f := serve(t)
	id := f.file(nil)
	f.drive()
	if got := f.words(f.hook.took(http.StatusOK)); got != "pending" {
		t.Errorf("filed: %q", got)
	}
	f.approve(id)
	f.drive()
	got := f.words(f.hook.took(http.StatusOK))
	if !strings.HasSuffix(got, "in_progress completed") || strings.Count(got, "completed") != 1 || f.status() != "completed" {
		t.Errorf("closed: %q, %s", got, f.status())
	}
	f.do("dsar", http.MethodDelete, requests+"/"+first, "").problem(t, "cancelling what is done", http.StatusBadRequest, "too-late")
}

func TestACancelledRequestIsToldOf(t *testing.T) {
	f := serve(t)
	f.file(nil)
	one := f.do("dsar", http.MethodDelete, requests+"/"+first, "")
	want := map[string]any{"controller_id": "dsar@example.com", "received_time": "2026-05-04T03:02:01Z", "subject_request_id": first, "api_version": "2.0"}
	if got := one.into(t, http.StatusAccepted); !maps.Equal(got, want) {
		t.Errorf("%v", got)
	}
	f.clock.move(time.Hour)
	if again := f.do("dsar", http.MethodDelete, requests+"/"+first, ""); again.status != http.StatusAccepted || again.body != one.body {
		t.Errorf("again: %d %s", again.status, again.body)
	}
	f.drive()
	if got := f.words(f.hook.took(http.StatusOK)); got != "pending cancelled" || f.status() != "cancelled" {
		t.Errorf("%q, %s", got, f.status())
	}
	// The descriptor is gone by now, and the same request is still the same.
	f.do("dsar", http.MethodPost, requests, f.request(nil)).into(t, http.StatusCreated)
	if all := f.filed(); len(all) != 1 || all[0].KeyDestroyedAt == nil {
		t.Errorf("%+v", all)
	}
}

func TestSomebodyWhoIsCalledLikeTheReasonCanBeCancelled(t *testing.T) {
	f := serve(t)
	f.file(map[string]any{"subject_identities": []any{identity("controller_customer_id", "controller")}, "status_callback_urls": nil})
	f.do("dsar", http.MethodDelete, requests+"/"+first, "").into(t, http.StatusAccepted)
}

func TestACallbackThatIsNotTakenComesAgain(t *testing.T) {
	f := serve(t)
	f.file(nil)
	f.hook.took(http.StatusServiceUnavailable)
	f.drive()
	f.drive()
	if got := f.words(f.hook.took(http.StatusServiceUnavailable)); got != "pending" {
		t.Errorf("at once: %q", got)
	}
	f.clock.move(10 * time.Second)
	f.drive()
	if got := f.words(f.hook.took(http.StatusOK)); got != "pending" {
		t.Errorf("after a while: %q", got)
	}
	f.clock.move(10 * time.Minute)
	f.drive()
	f.clock.move(24 * time.Hour)
	f.drive()
	if got := f.words(f.hook.took(http.StatusOK)); got != "pending" {
		t.Errorf("once it is taken: %q", got)
	}
}

func TestWhatFailedIsNeverCompleted(t *testing.T) {
	f := serve(t)
	f.cell.stuck = true
	id := f.file(nil)
	f.approve(id)
	f.drive()
	f.do("dsar", http.MethodDelete, requests+"/"+first, "").problem(t, "cancelling what is carried out", http.StatusBadRequest, "too-late")
	f.clock.move(limits.Deadline + time.Minute)
	f.drive()
	if r := f.filed()[0]; r.State != erasure.Failed || f.status() != "in_progress" {
		t.Errorf("%s is %s", r.State, f.status())
	}
	if got := f.words(f.hook.took(http.StatusOK)); strings.Contains(got, "completed") || !strings.HasSuffix(got, "in_progress") {
		t.Errorf("%q", got)
	}
}

func TestOnlyAClosedRequestIsCompleted(t *testing.T) {
	f := serve(t)
	f.file(nil)
	for state, want := range map[string]string{
		erasure.Filed: "pending", erasure.Verified: "pending", erasure.Previewed: "pending", erasure.Approved: "in_progress", erasure.Running: "in_progress",
		erasure.Pending: "in_progress", erasure.Unverified: "in_progress", erasure.Failed: "in_progress", erasure.Rejected: "cancelled",
		erasure.Cancelled: "cancelled", erasure.Closed: "completed",
	} {
		f.service.state = state
		if got := f.status(); got != want {
			t.Errorf("%s is %s", state, got)
		}
	}
}
