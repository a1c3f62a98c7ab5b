package erasureapi_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"recount/internal/audit"
	"recount/internal/auth"
	"recount/internal/descriptor"
	"recount/internal/erasure"
	"recount/internal/httpapi"
	"recount/internal/httpapi/apitest"
	"recount/internal/httpapi/erasureapi"
	"recount/internal/ledger"
	"recount/internal/notify"
	"recount/internal/stores/sqlite"
	"recount/internal/subject"
	"recount/internal/wire"
)

var salt, _ = subject.NewSalt("0123456789abcdef")

// stores are two cells with a store each, and how many rows every target has in them.
type stores struct {
	mu   sync.Mutex
	rows map[string]int64 // by cell
}

func storeOf(cell string) string {
	return map[string]string{"ingest": "events", "graph": "edges"}[cell]
}

func (s *stores) set(cell string, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rows[cell] = n
}

// EraseBatch deletes them all, but what is to be kept.
func (s *stores) EraseBatch(_ context.Context, _ string, targets []subject.Target) []subject.Erasure {
	s.mu.Lock()
	defer s.mu.Unlock()
	out, gone := make([]subject.Erasure, len(targets)), map[string]bool{}
	for i, t := range targets {
		for _, cell := range []string{"ingest", "graph"} {
			if t.KeepsAll(cell) || t.Keeps(cell, storeOf(cell)) {
				continue
			}
			now, n := time.Now(), subject.Measured(s.rows[cell])
			out[i].Receipts = append(out[i].Receipts, subject.Attest(subject.Statement{
				Label: subject.Label{Cell: cell, Store: storeOf(cell), Backend: "sqlite"}, Times: subject.Times{Started: now, Finished: now},
				Counts: subject.Counts{
					Before: n, Deleted: n, Remaining: subject.Measured(0), Suppressed: subject.Measured(0), Derived: subject.Measured(0),
				},
				Status: subject.Erased,
			}))
			gone[cell] = true
		}
	}
	for cell := range gone {
		s.rows[cell] = 0
	}
	return out
}

// fakeCell is one of them.
type fakeCell struct {
	name string
	all  *stores
}

func (f fakeCell) Name() string { return f.name }

func (f fakeCell) Follow(_ context.Context, _ string, targets []subject.Target) ([][]subject.Source, error) {
	return make([][]subject.Source, len(targets)), nil
}

func (f fakeCell) Enumerate(_ context.Context, _ string, targets []subject.Target, list bool) []wire.Enumerated {
	f.all.mu.Lock()
	defer f.all.mu.Unlock()
	out := make([]wire.Enumerated, len(targets))
	for i, t := range targets {
		where := wire.Coordinates{
			Cell: f.name, Store: storeOf(f.name), Backend: "sqlite", Status: "counted", Count: subject.Measured(f.all.rows[f.name]), Sticky: true,
		}
		for n := int64(0); list && n < f.all.rows[f.name]; n++ {
			where.RowIDs = append(where.RowIDs, fmt.Sprint(i, ".", n))
		}
		out[i] = wire.Enumerated{SubjectRef: string(t.Ref), Suppressed: subject.Measured(0), Receipts: []wire.Coordinates{where}}
	}
	return out
}

func (fakeCell) Freeze(context.Context, string, string, []subject.Subject, time.Time) error {
	return nil
}
func (fakeCell) Thaw(context.Context, string, string, string) error { return nil }

type fakeAudit struct {
	mu   sync.Mutex
	rows []audit.Row
}

func (f *fakeAudit) Record(rows ...audit.Row) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rows = append(f.rows, rows...)
}

// said is every row as "operation status detail actor".
func (f *fakeAudit) said() (out []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.rows {
		out = append(out, strings.Join([]string{r.Operation, r.Status, r.Detail, r.Actor}, " "))
	}
	return out
}

// last is the last of them.
func (f *fakeAudit) last() string {
	rows := f.said()
	if len(rows) == 0 {
		return ""
	}
	return rows[len(rows)-1]
}

type observer struct{ t *testing.T }

func (observer) RequestEnded(string)      {}
func (observer) RequestsDue(int64, int64) {}
func (o observer) RequestFailed(step string, err error) {
	o.t.Errorf("%s: %v", step, err)
}

type callers map[string]auth.Caller

func (c callers) Authenticate(r *http.Request) (auth.Caller, error) {
	caller, known := c[r.Header.Get("Authorization")]
	if !known {
		return auth.Caller{}, auth.ErrUnauthenticated
	}
	return caller, nil
}

type noMeter struct{}

func (noMeter) Started()                                    {}
func (noMeter) Finished(string, string, int, time.Duration) {}

type fixture struct {
	t       *testing.T
	stores  *stores
	service *erasure.Service
	audit   *fakeAudit
	url     string
	http    *http.Client
}

// named is everything that names the person in the requests of these tests.
var named = []string{"person@example.com", "Customer-77", "+43 1 5550", "crm-7001"}

func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// newService is a service over a file and a folder.
func newService(t *testing.T, all *stores, rows *fakeAudit) *erasure.Service {
	t.Helper()
	dir := t.TempDir()
	db := must(sqlite.Open(t.Context(), filepath.Join(dir, "cell.db")))(t)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	keys := must(ledger.ParseKeys(must(ledger.GenerateKey("acme.example/recount"))(t)))(t)
	log := must(ledger.OpenFile(dir, keys, nil))(t)
	t.Cleanup(func() {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
	return erasure.New(erasure.Config{
		Holder: "one", Salt: salt, Requests: must(db.Documents(t.Context(), "erasure_requests"))(t),
		Sealer: descriptor.New(must(descriptor.LocalKey(filepath.Join(dir, "key")))(t), must(db.Documents(t.Context(), "descriptor_keys"))(t)),
		Ledger: log, Programs: must(ledger.OpenPrograms(dir))(t), Signer: keys,
		Cells: []erasure.Cell{fakeCell{"ingest", all}, fakeCell{"graph", all}}, Eraser: all, Audit: rows, Observer: observer{t},
		Poster: notify.New(notify.Config{Hosts: notify.Hosts{"hooks.example"}}), Now: time.Now,
		Digest: func(tenant string, text []byte) string {
			sum := sha256.Sum256(append([]byte(tenant+"|"), text...))
			return hex.EncodeToString(sum[:])
		},
		Limits: erasure.Limits{
			LogRetentionDays: 30, DriftPercent: 10, BlastCap: 100, ApprovalTTL: time.Hour, Deadline: time.Hour,
			Lease: time.Minute, RetryFirst: time.Millisecond,
		},
	})
}

func serve(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, stores: &stores{rows: map[string]int64{"ingest": 3, "graph": 2}}, audit: &fakeAudit{}}
	f.service = newService(t, f.stores, f.audit)
	every := auth.Read | auth.Write | auth.Erase | auth.Allow
	api := httpapi.New(httpapi.Config{
		Log: zap.NewNop(), Meter: noMeter{}, Rate: 1e6, MaxInFlight: 100, Admin: must(auth.NewDevPrincipals("127.0.0.1:0"))(t),
		Auth: callers{
			"all":       {Email: "all@example.com", Roles: every},
			"scheduler": {Email: "scheduler@example.com", Roles: auth.Drive},
			"others":    {Email: "others@example.com", Roles: auth.Read | auth.Write | auth.Erase | auth.Allow},
		},
	})
	erasureapi.Mount(api, f.service)
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	f.url, f.http = server.URL, &http.Client{Transport: apitest.Transport(t, nil)}
	t.Cleanup(func() {
		for _, r := range f.audit.rows {
			f.namesNobody("an audit row", fmt.Sprintf("%+v", r))
		}
	})
	return f
}

func (f *fixture) namesNobody(what, text string) {
	f.t.Helper()
	for _, name := range named {
		if strings.Contains(strings.ToLower(text), strings.ToLower(name)) {
			f.t.Errorf("%s names the person: %s", what, text)
		}
	}
}

type answer struct {
	status int
	header http.Header
	body   string
}

// into reads the answer, which must have that code.
func (a answer) into(t *testing.T, code int, v any) {
	t.Helper()
	if a.status != code {
		t.Fatalf("%d, want %d: %s", a.status, code, a.body)
	}
	if err := json.Unmarshal([]byte(a.body), v); err != nil {
		t.Fatal(err)
	}
}

// send sends a request with these headers. No answer may name the person, but that which is asked for it.
func (f *fixture) send(method, path, body string, header ...string) answer {
	f.t.Helper()
	r, err := http.NewRequestWithContext(f.t.Context(), method, f.url+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	response, err := f.http.Do(r)
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	got, err := io.ReadAll(response.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	if !strings.HasSuffix(path, ":descriptor") {
		f.namesNobody("the answer to "+method+" "+path, fmt.Sprint(response.Header, string(got)))
	}
	return answer{response.StatusCode, response.Header, string(got)}
}

// as is what a principal does.
func (f *fixture) as(email, method, path, body string) answer {
	f.t.Helper()
	return f.send(method, path, body, auth.HeaderDevPrincipal, email)
}

const (
	root = "/admin/erasure"
	anna = "anna@acme.example"
	ben  = "ben@acme.example"
)

type fields map[string]any

func (o fields) text() string {
	text, err := json.Marshal(o)
	if err != nil {
		panic(err) // plain values always encode
	}
	return string(text)
}

// with is the object with one member changed; nil takes it out.
func (o fields) with(name string, value any) fields {
	out := fields{}
	for k, v := range o {
		out[k] = v
	}
	if out[name] = value; value == nil {
		delete(out, name)
	}
	return out
}

// filing is a request that is well-formed.
func filing() fields {
	return fields{
		"kind": "subject", "tenant_id": "acme", "legal_ref": "17(1)(b)", "policy": "delete", "received_at": time.Now().Add(-time.Hour).UTC(),
		"descriptor": fields{"person_ids": []string{"person@example.com", "Customer-77"}},
	}
}

// file files it, and answers its id.
func (f *fixture) file(body fields) string {
	f.t.Helper()
	var r wire.Request
	f.as(anna, http.MethodPost, root, body.text()).into(f.t, 201, &r)
	return r.ID
}

// act does something to a request.
func (f *fixture) act(email, id, verb string, body fields) answer {
	f.t.Helper()
	return f.as(email, http.MethodPost, root+"/"+id+":"+verb, body.text())
}

// request is what an answer must be.
type request struct {
	ID       string                           `json:"id"`
	TenantID string                           `json:"tenant_id"`
	State    string                           `json:"state"`
	Preview  *struct{ Digest string }         `json:"preview"`
	Approved []struct{ By wire.Principal }    `json:"approvals"`
	Stores   []struct{ Store, Status string } `json:"stores"`
	Hold     *struct {
		Ref string `json:"hold_ref"`
	} `json:"hold"`
	Exclusions []struct{ Store string } `json:"exclusions"`
	DueAt      time.Time                `json:"due_at"`
}

// did is what an action that must be done left of the request.
func (f *fixture) did(email, id, verb string, body fields) (r request) {
	f.t.Helper()
	f.act(email, id, verb, body).into(f.t, 200, &r)
	return r
}

// ready files a request that can be approved, and answers the digest to approve.
func (f *fixture) ready(body fields) (id, digest string) {
	f.t.Helper()
	id = f.file(body)
	f.did(anna, id, "verify-identity", fields{"method": "signed in"})
	return id, f.did(anna, id, "preview", fields{}).Preview.Digest
}

func (f *fixture) wantProblem(what string, got answer, code int, word string) {
	f.t.Helper()
	var p wire.Problem
	if err := json.Unmarshal([]byte(got.body), &p); err != nil || got.status != code || p.Type != httpapi.TypePrefix+word || p.Status != code {
		f.t.Errorf("%s: %d %s", what, got.status, got.body)
	}
}
