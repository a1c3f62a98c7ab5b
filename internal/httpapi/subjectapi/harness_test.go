package subjectapi_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"recount/internal/audit"
	"recount/internal/auth"
	"recount/internal/httpapi"
	"recount/internal/httpapi/apitest"
	"recount/internal/httpapi/subjectapi"
	"recount/internal/subject"
	"recount/internal/wire"
)

// fakeCell answers what it is told to, and remembers whom it was asked about.
type fakeCell struct {
	mu         sync.Mutex
	cell       string
	asked      []subject.Subject
	sources    []subject.Source
	requestIDs []string
	receipts   func(s subject.Subject) []subject.Receipt
	counts     []subject.CountReceipt
	accesses   func() ([]subject.AccessReceipt, error)
	page       subject.PageRequest
	serving    error
	frozen     error // what a freeze or a thaw answers
	freezes    []string
	until      time.Time
	keeps      [][]string // of the targets
	lists      []bool     // of the enumerations
	targets    []subject.Target
	uncounted  bool // the second store can't be counted
}

func (f *fakeCell) Serving() error { return f.serving }
func (f *fakeCell) Name() string   { return f.cell }

var salt, _ = subject.NewSalt("0123456789abcdef")

func (*fakeCell) Salt() subject.Salt { return salt }

func (f *fakeCell) note(requestID string, people ...subject.Subject) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked, f.requestIDs = append(f.asked, people...), append(f.requestIDs, requestID)
}

// took is whom the cell was asked about since the last time.
func (f *fakeCell) took() []subject.Subject {
	f.mu.Lock()
	defer f.mu.Unlock()
	asked := f.asked
	f.asked = nil
	return asked
}

func (f *fakeCell) Erase(_ context.Context, requestID string, t subject.Target) subject.Erasure {
	if t.AboutPerson() {
		f.note(requestID, t.Subject)
	} else {
		f.mu.Lock()
		f.sources, f.requestIDs = append(f.sources, t.Sources...), append(f.requestIDs, requestID)
		f.mu.Unlock()
	}
	return subject.Erasure{Receipts: f.receipts(t.Subject), Sources: t.Sources}
}

func (f *fakeCell) EraseBatch(ctx context.Context, requestID string, targets []subject.Target) []subject.Erasure {
	out := make([]subject.Erasure, len(targets))
	for i, t := range targets {
		f.keeps = append(f.keeps, t.Keep)
		out[i] = f.Erase(ctx, requestID, t)
	}
	return out
}

func (f *fakeCell) Count(_ context.Context, s subject.Subject) []subject.CountReceipt {
	f.note("", s)
	return f.counts
}

func (f *fakeCell) Access(_ context.Context, s subject.Subject, page subject.PageRequest) ([]subject.AccessReceipt, error) {
	f.note("", s)
	f.page = page
	return f.accesses()
}

// Health is of a cell with two stores.
func (f *fakeCell) Health() wire.Health {
	return wire.Health{Cell: f.cell, Stores: []wire.HealthStore{{Store: "intent_scores"}, {Store: "score_cache"}}}
}

func (f *fakeCell) Enumerate(_ context.Context, requestID string, targets []subject.Target, list bool) []wire.Enumerated {
	f.lists, f.targets = append(f.lists, list), append(f.targets, targets...)
	out := make([]wire.Enumerated, len(targets))
	for i, t := range targets {
		f.note(requestID, t.Subject)
		out[i] = wire.Enumerated{SubjectRef: string(t.Ref), Suppressed: subject.Measured(0), Receipts: []wire.Coordinates{
			{Cell: f.cell, Store: "intent_scores", Backend: "sqlite", Status: "counted", Count: subject.Measured(1), Sticky: true},
			{Cell: f.cell, Store: "score_cache", Backend: "firestore", Status: "counted", Count: subject.Measured(0)},
		}}
		if f.uncounted {
			failed := &out[i].Receipts[1]
			failed.Status, failed.Count, failed.Detail = "failed", subject.Unmeasured(), "access_denied"
		}
		if list && t.AboutPerson() {
			first := &out[i].Receipts[0]
			first.RowIDs, first.Sources = []string{"r1"}, []wire.KeyedSource{{KeyID: "k1", Digest: "0a0b"}}
		}
	}
	return out
}

func (f *fakeCell) Freeze(_ context.Context, requestID, freezeID string, people []subject.Subject, until time.Time) error {
	f.note(requestID, people...)
	f.freezes, f.until = append(f.freezes, "freeze "+freezeID), until
	return f.frozen
}

func (f *fakeCell) Follow(_ context.Context, requestID string, targets []subject.Target) ([][]subject.Source, error) {
	out := make([][]subject.Source, len(targets))
	for i, t := range targets {
		f.note(requestID, t.Subject)
		out[i] = t.Sources
	}
	return out, f.frozen
}

func (f *fakeCell) Thaw(_ context.Context, requestID, freezeID, tenant string) error {
	f.note(requestID)
	f.freezes = append(f.freezes, "thaw "+freezeID+" "+tenant)
	return f.frozen
}

func receipt(status subject.Status, reason subject.Reason, remaining int64, after time.Duration) subject.Receipt {
	now := time.Now()
	return subject.Attest(subject.Statement{
		Label: subject.Label{Cell: "scoring", Store: "intent_scores", Backend: "sqlite"}, Times: subject.Times{Started: now, Finished: now},
		Counts: subject.Counts{Before: subject.Measured(remaining), Deleted: subject.Measured(0), Remaining: subject.Measured(remaining)},
		Status: status, Reason: reason, RetryAfter: after,
	})
}

func erased(subject.Subject) []subject.Receipt {
	return []subject.Receipt{receipt(subject.Erased, subject.ReasonNone, 0, 0)}
}

type fakeAudit struct {
	mu   sync.Mutex
	rows []audit.Row
}

func (f *fakeAudit) Record(rows ...audit.Row) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rows = append(f.rows, rows...)
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
	t     *testing.T
	cell  *fakeCell // this cell's own stores
	all   *fakeCell // every cell
	audit *fakeAudit
	url   string
	http  *http.Client
}

func serve(t *testing.T, coordinates bool) *fixture {
	t.Helper()
	f := &fixture{t: t, cell: &fakeCell{cell: "scoring", receipts: erased}, all: &fakeCell{receipts: erased}, audit: &fakeAudit{}}
	api := httpapi.New(httpapi.Config{
		Log: zap.NewNop(), Meter: noMeter{}, Rate: 1e6, MaxInFlight: 100,
		Auth: callers{
			"all":    {Email: "all@example.com", Roles: auth.Read | auth.Write | auth.Erase},
			"reader": {Email: "reader@example.com", Roles: auth.Read},
			"writer": {Email: "writer@example.com", Roles: auth.Write},
			"globex": {Email: "globex@example.com", Roles: auth.Read | auth.Erase, Tenants: []string{"globex"}},
		},
	})
	surface := subjectapi.Surface{Cell: f.cell, Audit: f.audit}
	if coordinates {
		surface.Coordinator = f.all
	}
	subjectapi.Mount(api, surface)
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	f.url, f.http = server.URL, &http.Client{Transport: apitest.Transport(t, nil)}
	return f
}

type answer struct {
	status int
	header http.Header
	body   string
}

func (f *fixture) do(caller, method, path, body string, header ...string) answer {
	f.t.Helper()
	var reader io.Reader = http.NoBody
	if body != "" {
		reader = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(f.t.Context(), method, f.url+path, reader)
	if err != nil {
		f.t.Fatal(err)
	}
	r.Header.Set("Authorization", caller)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
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
	return answer{response.StatusCode, response.Header, string(got)}
}

func person(t *testing.T, tenant, identity string) subject.Subject {
	t.Helper()
	s, err := subject.New(tenant, identity)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
