package main

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"recount/internal/subject"
	"recount/internal/wire"
)

const (
	theID    = "0197a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b"
	otherID  = "0197a1b2-c3d4-7e5f-8a9b-ffffffffffff"
	herMail  = "alice@x.io"
	officer  = "officer@example.com"
	received = "2026-03-01T09:00:00Z"
)

var theDigest = strings.Repeat("ab", 32)

// desk is a coordinator that answers about one erasure request, by what a test has put there.
type desk struct {
	server *httptest.Server

	mu      sync.Mutex
	request wire.Request
	steps   []func(*wire.Request) // taken one by one, with every look at the request
	other   map[string]func(w http.ResponseWriter)
	asked   []string // method, path and body
	headers []http.Header
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{request: filed(), other: map[string]func(http.ResponseWriter){}}
	d.server = httptest.NewServer(d)
	t.Cleanup(d.server.Close)
	return d
}

func filed() wire.Request {
	at := time.Now().UTC().Truncate(time.Second)
	r := wire.Request{
		ID: theID, Kind: "subject", TenantID: "acme", State: "filed", SubjectRef: strings.Repeat("0f", 32), LegalRef: "17(1)(a)", Policy: "delete",
		Persons: 2, Identifiers: 1, WholeSources: 1, ReceivedAt: at.Add(-time.Hour), FiledAt: at, FiledBy: wire.Principal{Sub: "1", Email: officer},
		DueAt: at.Add(12*24*time.Hour + time.Hour),
	}
	for _, name := range []string{"shred", "freeze", "enumerate", "execute", "archives", "app_databases", "verify", "close"} {
		r.Stages = append(r.Stages, wire.Stage{Name: name, Status: "waiting"})
	}
	return r
}

func previewed() wire.Request {
	r, until := filed(), time.Date(2026, 5, 6, 7, 8, 0, 0, time.UTC)
	at := time.Now().UTC()
	r.State = "previewed"
	r.Verification = &wire.Verification{Method: "signed in", By: r.FiledBy, At: at}
	r.Hold = &wire.Hold{Ref: "LH-7", By: r.FiledBy, At: at}
	exclusion := wire.Exclusion{Store: "causal/outcomes", Article: "17(3)(b)", CounselRef: "OP-1", ReviewAt: until, By: r.FiledBy, At: at}
	r.Exclusions = []wire.Exclusion{exclusion}
	r.Preview = &wire.Preview{
		Digest: theDigest, At: at, ExpiresAt: at.Add(time.Hour), By: r.FiledBy, Total: 1215, BlastCap: 5000, HoldRef: "LH-7", Exclusions: r.Exclusions,
		Targets: []wire.PreviewTarget{
			{Kind: "person", Ref: strings.Repeat("1a", 32), Total: 1212, Suppressed: subject.Measured(3)},
			{Kind: "source", Ref: strings.Repeat("2b", 32), Total: 3, Suppressed: subject.Unmeasured()},
		},
		Stores: []wire.PreviewStore{
			{Cell: "ingest", Store: "intent_events", Backend: "bigquery", Count: subject.Measured(1215), Sticky: true, RecoverableUntil: &until},
			{Cell: "causal", Store: "outcomes", Backend: "sqlite", Count: subject.Measured(4), Excluded: true},
			{Cell: "graph", Store: "edges", Backend: "firestore", Count: subject.Unmeasured(), Detail: "peer_unreachable"},
		},
		Unreachable: []string{"graph/edges: peer_unreachable"}, NotSearchable: []string{"archives"},
	}
	return r
}

// closed is a request that was carried out.
func closed(r *wire.Request) {
	at := time.Now().UTC()
	r.State, r.ClosedAt = "closed", &at
	for i := range r.Stages {
		r.Stages[i].Status, r.Stages[i].StartedAt, r.Stages[i].FinishedAt = "done", &at, &at
	}
	r.Stages[4].Status = "not_applicable"
	r.Stores = []wire.StoreOutcome{
		{
			Cell: "ingest", Store: "intent_events", Backend: "bigquery", Status: "erased", Before: subject.Measured(1215), Deleted: subject.Measured(1215),
			Remaining: subject.Measured(0), MeasuredAt: &at,
		},
		{Cell: "causal", Store: "outcomes", Status: "retained_article_17_3", Before: subject.Unmeasured(), Remaining: subject.Measured(4), Basis: "17(3)(b)"},
	}
}

// half is a request in the middle of being carried out.
func half(r *wire.Request) {
	at := time.Now().UTC().Add(-3 * time.Second)
	r.State = "running"
	for i := range 3 {
		r.Stages[i].Status, r.Stages[i].StartedAt, r.Stages[i].FinishedAt = "done", &at, &at
	}
	r.Stages[3].Status, r.Stages[3].StartedAt = "running", &at
	r.Stores = []wire.StoreOutcome{{
		Cell: "ingest", Store: "intent_events", Status: "pending", Before: subject.Measured(1215), Remaining: subject.Measured(600), Detail: "streaming_buffer",
	}}
}

// pending is one that a platform holds up.
func pending(r *wire.Request) {
	half(r)
	at := time.Now().Add(90 * time.Second)
	r.State, r.StateDetail, r.NextTryAt, r.Deadline = "pending", "execute: streaming_buffer", &at, &at
	r.Stages[3].Status = "pending"
}

// refuse has a route answer a problem document.
func (d *desk) refuse(route string, code int, detail string) {
	d.answer(route, code, "application/problem+json", `{"type":"urn:recount:problem:refused","title":"refused","detail":"`+detail+`"}`)
}

func (d *desk) answer(route string, code int, kind, body string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.other[route] = func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

func (d *desk) is(r wire.Request, steps ...func(*wire.Request)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.request, d.steps = r, steps
}

func (d *desk) requests() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.asked)
}

// header is what the n-th request carried.
func (d *desk) header(n int) http.Header {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.headers[n]
}

// ServeHTTP plays the admin routes.
func (d *desk) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	d.mu.Lock()
	defer d.mu.Unlock()
	route := r.Method + " " + r.URL.RequestURI()
	d.asked, d.headers = append(d.asked, strings.TrimSpace(route+" "+string(body))), append(d.headers, r.Header)
	if other := d.other[route]; other != nil {
		other(w)
		return
	}
	code := http.StatusOK
	switch {
	case route == "POST /admin/erasure":
		code = http.StatusCreated
	case route == "GET /admin/erasure/"+theID:
		if len(d.steps) > 0 {
			d.steps[0](&d.request)
			d.steps = d.steps[1:]
		}
	case r.Method == http.MethodPost && strings.HasPrefix(route, "POST /admin/erasure/"+theID+":"):
	default:
		problem(w, http.StatusNotFound)
		return
	}
	answer(w, code, d.request)
}

// ran is what a command left behind.
type ran struct {
	code     int
	out, err string
}

func (r ran) all() string { return r.out + r.err }

func (r ran) wants(t *testing.T, code int, words ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d:\n%s", r.code, code, r.all())
	}
	for _, want := range words {
		if !strings.Contains(r.all(), want) {
			t.Errorf("%q is missing in\n%s", want, r.all())
		}
	}
}

// command is one that acts as the officer.
func (d *desk) command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	command := exec.CommandContext(t.Context(), os.Args[0], args...)
	command.Args[0] = "recount" // testscript.Main looks at it
	command.Env = []string{"RECOUNT_COORDINATOR=" + d.server.URL, "RECOUNT_PRINCIPAL=" + officer, "TERM=xterm"}
	return command
}

func (d *desk) run(t *testing.T, args ...string) ran {
	t.Helper()
	return finish(t, d.command(t, args...))
}

func finish(t *testing.T, command *exec.Cmd) ran {
	t.Helper()
	var out, complaints bytes.Buffer
	command.Stdout, command.Stderr = &out, &complaints
	err := command.Run()
	var code *exec.ExitError
	if err != nil && !errors.As(err, &code) {
		t.Fatal(err)
	}
	return ran{command.ProcessState.ExitCode(), out.String(), complaints.String()}
}
