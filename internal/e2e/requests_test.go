package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"recount/internal/verify"
	"recount/internal/wire"
)

// admin is a call of a principal.
func (w *world) admin(principal, method, path string, body any) reply {
	w.t.Helper()
	header := map[string]string{"X-Dev-Principal": principal}
	if body == nil {
		return w.do(method, w.Coordinator.URL+path, nil, header)
	}
	header["Content-Type"] = "application/json"
	return w.do(method, w.Coordinator.URL+path, encode(w.t, body), header)
}

// request is an erasure request as tests look at it.
type request struct {
	ID, State   string
	StateDetail string `json:"state_detail"`
	Preview     struct {
		Digest         string
		Total, Derived int64
	}
	Approvals []struct{}
	Stages    []struct {
		Name, Status, Detail string
		Entries              []string
	}
	Stores []struct {
		Cell, Store, Status, Detail string
		Before, Remaining           *int64
	}
	Attempts int
}

func (w *world) read(r reply) (out request) {
	w.t.Helper()
	if r.Code >= 300 {
		w.t.Fatalf("%d %s", r.Code, r.Body)
	}
	if err := json.Unmarshal(r.Body, &out); err != nil {
		w.t.Fatal(err)
	}
	return out
}

// previewed files a request for the people and takes it to its preview.
func (w *world) previewed(d map[string]any) request {
	w.t.Helper()
	r := w.read(w.admin("dpo@acme.example", http.MethodPost, "/admin/erasure", map[string]any{
		"kind": "subject", "tenant_id": "acme", "descriptor": d, "legal_ref": "17(1)(b)", "policy": "delete",
		"received_at": time.Now().Add(-24 * time.Hour).UTC().Format(time.RFC3339),
	}))
	w.read(w.action("dpo@acme.example", r.ID, "verify-identity", map[string]any{"method": "signed in, with a second factor"}))
	return w.read(w.action("dpo@acme.example", r.ID, "preview", map[string]any{}))
}

func (w *world) action(principal, id, verb string, body any) reply {
	w.t.Helper()
	return w.admin(principal, http.MethodPost, "/admin/erasure/"+id+":"+verb, body)
}

// approved takes a request to its second approval.
func (w *world) approved(d map[string]any) request {
	w.t.Helper()
	r := w.previewed(d)
	var out request
	for _, principal := range []string{"dpo@acme.example", "counsel@acme.example"} {
		out = w.read(w.action(principal, r.ID, "approve", map[string]any{"preview_digest": r.Preview.Digest}))
	}
	return out
}

// reaches waits until a request is in the state.
func (w *world) reaches(id, state string) (r request) {
	w.t.Helper()
	for deadline := time.Now().Add(40 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		r = w.read(w.admin("dpo@acme.example", http.MethodGet, "/admin/erasure/"+id, nil))
		if r.State == state {
			return r
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("the request is %s (%s), not %s", r.State, r.StateDetail, state)
		}
	}
}

func people(ids ...string) map[string]any { return map[string]any{"person_ids": ids} }

// summary is what a report says, without what differs from run to run.
func summary(r request) string {
	var out strings.Builder
	for _, s := range r.Stages {
		fmt.Fprintf(&out, "%s %s\n", s.Name, s.Status)
	}
	lines := []string{}
	for _, s := range r.Stores {
		before, remaining := "null", "null"
		if s.Before != nil && s.Remaining != nil {
			before, remaining = fmt.Sprint(*s.Before), fmt.Sprint(*s.Remaining)
		}
		lines = append(lines, fmt.Sprintf("%s/%s %s %s->%s\n", s.Cell, s.Store, s.Status, before, remaining))
	}
	slices.Sort(lines)
	return r.State + "\n" + out.String() + strings.Join(lines, "")
}

func TestARequestThatTwoApprovedRunsToItsCertificateWhichVerifiesOffline(t *testing.T) {
	w := start(t)
	w.write("acme", "alice@example.com", "bob@example.com")
	closed := w.reaches(w.approved(people("alice@example.com")).ID, "closed")
	if n := w.held("acme", "alice@example.com"); n != 0 {
		t.Errorf("%d rows are left", n)
	}
	if n := w.held("acme", "bob@example.com"); n == 0 {
		t.Error("somebody else's rows are gone")
	}
	var got wire.CertificateResponse
	if err := json.Unmarshal(w.admin("dpo@acme.example", http.MethodGet, "/admin/erasure/"+closed.ID+"/certificate", nil).Body, &got); err != nil {
		t.Fatal(err)
	}
	keys, err := verify.ParseKeys(strings.Join(got.Keys, ","))
	if err != nil {
		t.Fatal(err)
	}
	statement, err := verify.Certificate([]byte(got.Certificate), keys)
	if err != nil {
		t.Fatal(err)
	}
	if !statement.Opens(got.Opening, "acme", []string{"alice@example.com"}) || statement.Opens(got.Opening, "acme", []string{"bob@example.com"}) {
		t.Error("the commitment is not to the person, or to anybody")
	}
	if strings.Contains(got.Certificate, "alice") {
		t.Error("the certificate says who")
	}
	page := w.admin("dpo@acme.example", http.MethodGet, "/admin/erasure/"+closed.ID+"/report.html", nil)
	if page.Code != http.StatusOK || !strings.Contains(string(page.Body), "intent_events") || strings.Contains(string(page.Body), "alice") {
		t.Errorf("the report's page: %d", page.Code)
	}
	w.Stop()
	lines, err := os.Open(filepath.Join(w.Coordinator.DataDir, "erasure-ledger.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lines.Close() }()
	checkpoint, err := os.ReadFile(filepath.Join(w.Coordinator.DataDir, "erasure-ledger.checkpoint"))
	if err != nil {
		t.Fatal(err)
	}
	if report, err := verify.Ledger(lines, checkpoint, keys); err != nil || report.Entries < 8 || report.Covered != report.Entries {
		t.Errorf("the ledger: %+v, %v", report, err)
	}
}

func TestARequestRefusesTheSubjectsWritesUntilItIsVerified(t *testing.T) {
	w := start(t)
	w.write("acme", "alice@example.com", "bob@example.com")
	r := w.previewed(people("alice@example.com"))
	if err := w.Graph.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, principal := range []string{"dpo@acme.example", "counsel@acme.example"} {
		w.read(w.action(principal, r.ID, "approve", map[string]any{"preview_digest": r.Preview.Digest}))
	}
	w.reaches(r.ID, "pending")
	record := func(who, ref string) map[string]any {
		return map[string]any{
			"tenant_id": "acme", "identity_id": who, "source": "new", "source_ref": ref, "consent_basis": "consent",
			"event_type": "v", "occurred_at": "2026-11-01T10:00:00Z",
		}
	}
	url := w.Ingest.URL + "/v1/intent/events"
	if got := w.do(http.MethodPost, url, encode(t, record("alice@example.com", "1")), jsonBody); got.Code != http.StatusServiceUnavailable || got.Header.Get("Retry-After") == "" {
		t.Errorf("a write for the frozen subject: %d %s", got.Code, got.Body)
	}
	if got := w.do(http.MethodPost, url, encode(t, record("bob@example.com", "2")), jsonBody); got.Code != http.StatusOK {
		t.Errorf("a write for somebody else: %d %s", got.Code, got.Body)
	}
	if err := w.Graph.StartAgain(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.reaches(r.ID, "closed")
	got := w.do(http.MethodPost, url, encode(t, record("alice@example.com", "1")), jsonBody)
	if got.Code != http.StatusOK || !strings.Contains(string(got.Body), `"accepted":1`) {
		t.Errorf("a new record after the request: %d %s", got.Code, got.Body)
	}
}

func TestAnExcludedStoreIsRetainedAndNeverCalledErased(t *testing.T) {
	w := start(t)
	w.write("acme", "alice@example.com")
	r := w.previewed(people("alice@example.com"))
	for _, store := range []string{"causal/outcomes", "ingest/intent_events"} { // one of two stores, and the only one of a cell
		w.read(w.action("counsel@acme.example", r.ID, "exclude", map[string]any{
			"store": store, "article": "17(3)(e)", "counsel_ref": "op-17", "review_at": time.Now().AddDate(1, 0, 0).UTC().Format(time.RFC3339),
		}))
	}
	if got := w.action("dpo@acme.example", r.ID, "approve", map[string]any{"preview_digest": r.Preview.Digest}); got.Code != http.StatusConflict {
		t.Fatalf("an approval of what was previewed without the exclusions: %d", got.Code)
	}
	r = w.read(w.action("dpo@acme.example", r.ID, "preview", map[string]any{}))
	for _, principal := range []string{"dpo@acme.example", "counsel@acme.example"} {
		w.read(w.action(principal, r.ID, "approve", map[string]any{"preview_digest": r.Preview.Digest}))
	}
	closed := w.reaches(r.ID, "closed")
	for _, s := range closed.Stores {
		excluded := s.Store == "outcomes" || s.Store == "intent_events"
		if want := map[bool]string{true: "retained_article_17_3", false: "erased"}[excluded]; s.Status != want || s.Remaining == nil || excluded != (*s.Remaining == 1) {
			t.Errorf("%s/%s is %s", s.Cell, s.Store, s.Status)
		}
	}
	if n := w.held("acme", "alice@example.com"); n != 2 {
		t.Errorf("%d rows are left of the two that are retained", n)
	}
	again := map[string]any{
		"tenant_id": "acme", "identity_id": "alice@example.com", "source": "retained", "source_ref": "more", "consent_basis": "obligation",
		"experiment": "e", "metric": "m", "value": 1,
	}
	if got := w.do(http.MethodPost, w.Causal.URL+"/v1/intent/outcomes", encode(t, again), jsonBody); !strings.Contains(string(got.Body), `"accepted":1`) {
		t.Errorf("what is retained can't be written to: %d %s", got.Code, got.Body)
	}
}

func TestNothingOfThePersonIsLeftAfterAClosedRequest(t *testing.T) {
	w := start(t, everywhere(map[string]string{"LOG_LEVEL": "debug"}))
	writeMarked(w)
	descriptor := map[string]any{
		"person_ids":         []string{markedPerson},
		"identifier_strings": []map[string]string{{"value": "zq-alice", "strength": "weak"}, {"value": markedPerson, "strength": "strong"}},
		"whole_sources":      []map[string]string{{"source": markedValue, "source_ref": markedRef}},
	}
	if len(filesWith(t, w.dir, "zq-")) < 4 {
		t.Error("the search doesn't see what is there")
	}
	r := w.approved(descriptor)
	closed := w.reaches(r.ID, "closed_unverified_strings")
	answers := string(w.admin("dpo@acme.example", http.MethodGet, "/admin/erasure/"+closed.ID, nil).Body)
	for _, path := range []string{"/report", "/report.html", "/certificate"} {
		answers += string(w.admin("dpo@acme.example", http.MethodGet, "/admin/erasure/"+closed.ID+path, nil).Body)
	}
	for _, s := range w.All() {
		answers += string(w.do(http.MethodGet, s.URL+"/metrics", nil, nil).Body)
	}
	for _, mark := range marks {
		if strings.Contains(answers, mark) {
			t.Errorf("an answer or a metric holds %q", mark)
		}
	}
	w.Stop()
	if found := filesWith(t, w.dir, marks...); len(found) > 0 {
		t.Error(found)
	}
}

// TestAToolFilesByOpenDSRAndHearsOfTheEnd has a DSAR tool file, and a listener of its own told.
func TestAToolFilesByOpenDSRAndHearsOfTheEnd(t *testing.T) {
	told := make(chan string, 16)
	listener := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		told <- r.Header.Get("X-OpenDSR-Processor-Domain") + " " + string(body)
	}))
	defer listener.Close()
	w := start(t, own("coordinator", map[string]string{
		"OPENDSR_DOMAIN": "privacy.acme.example", "OPENDSR_IDENTITIES": "email=person-email:{value}", "ERASURE_CALLBACK_HOSTS": strings.TrimPrefix(listener.URL, "http://"),
	}))
	w.write("acme", "person-email:alice@example.com")
	const dsr = "a7551968-d5d6-44b2-9831-815ac9017798"
	filed := w.do(http.MethodPost, w.Coordinator.URL+"/opendsr/acme/requests", encode(t, map[string]any{
		"regulation": "gdpr", "subject_request_id": dsr, "subject_request_type": "erasure", "submitted_time": "2026-11-20T10:00:00Z",
		"subject_identities":   []map[string]string{{"identity_type": "email", "identity_value": "Alice@example.com", "identity_format": "raw"}},
		"status_callback_urls": []string{listener.URL + "/status"},
	}), jsonBody)
	if filed.Code != http.StatusCreated || filed.Header.Get("X-OpenDSR-Signature") == "" {
		t.Fatalf("%d %s", filed.Code, filed.Body)
	}
	var list struct{ Requests []request }
	if err := json.Unmarshal(w.admin("dpo@acme.example", http.MethodGet, "/admin/erasure?tenant_id=acme", nil).Body, &list); err != nil || len(list.Requests) != 1 {
		t.Fatalf("%d requests, %v", len(list.Requests), err)
	}
	id := list.Requests[0].ID
	w.read(w.action("dpo@acme.example", id, "verify-identity", map[string]any{"method": "by the tool"}))
	r := w.read(w.action("dpo@acme.example", id, "preview", map[string]any{}))
	for _, principal := range []string{"dpo@acme.example", "counsel@acme.example"} {
		w.read(w.action(principal, id, "approve", map[string]any{"preview_digest": r.Preview.Digest}))
	}
	w.reaches(id, "closed")
	for deadline := time.After(20 * time.Second); ; {
		select {
		case said := <-told:
			if !strings.HasPrefix(said, "privacy.acme.example ") || strings.Contains(strings.ToLower(said), "alice") {
				t.Fatalf("the tool was told %s", said)
			}
			if !strings.Contains(said, `"request_status":"completed"`) {
				continue
			}
		case <-deadline:
			t.Fatal("the tool never heard of the end")
		}
		break
	}
	status := w.do(http.MethodGet, w.Coordinator.URL+"/opendsr/acme/requests/"+dsr, nil, nil)
	if status.Code != http.StatusOK || !strings.Contains(string(status.Body), `"request_status":"completed"`) {
		t.Errorf("%d %s", status.Code, status.Body)
	}
	if n := w.held("acme", "person-email:alice@example.com"); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

// TestWhatDerivesFromThePersonsRowsIsPreviewedAndHeldToTheCap has other people's rows in another cell derive from the person's.
func TestWhatDerivesFromThePersonsRowsIsPreviewedAndHeldToTheCap(t *testing.T) {
	w := start(t, own("coordinator", map[string]string{"ERASURE_BLAST_CAP": "20"}))
	w.write("acme", "alice@example.com")
	for i := range 30 {
		record := map[string]any{
			"tenant_id": "acme", "identity_id": fmt.Sprintf("other-%d", i), "source": "model", "source_ref": fmt.Sprint(i), "consent_basis": "consent",
			"experiment": "e", "metric": "m", "value": 1, "derived_from": []map[string]string{{"source": "test", "source_ref": "ref-alice@example.com"}},
		}
		if got := w.do(http.MethodPost, w.Causal.URL+"/v1/intent/outcomes", encode(t, record), jsonBody); got.Code != http.StatusOK {
			t.Fatalf("%d %s", got.Code, got.Body)
		}
	}
	r := w.previewed(people("alice@example.com"))
	if r.Preview.Derived != 30 || r.Preview.Total != 37 {
		t.Errorf("%d rows, %d of them derived", r.Preview.Total, r.Preview.Derived)
	}
	if got := w.action("counsel@acme.example", r.ID, "approve", map[string]any{"preview_digest": r.Preview.Digest}); got.Code != http.StatusConflict || !strings.Contains(string(got.Body), "cap") {
		t.Errorf("an approval past the cap: %d %s", got.Code, got.Body)
	}
	r = w.read(w.action("dpo@acme.example", r.ID, "preview", map[string]any{"blast_cap": 50, "reason": "the model's outputs go too"}))
	for _, principal := range []string{"dpo@acme.example", "counsel@acme.example"} {
		w.read(w.action(principal, r.ID, "approve", map[string]any{"preview_digest": r.Preview.Digest}))
	}
	w.reaches(r.ID, "closed")
	if n := w.held("acme", "other-7"); n != 0 {
		t.Errorf("%d derived rows are left", n)
	}
}
