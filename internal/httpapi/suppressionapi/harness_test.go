package suppressionapi_test

import (
	"context"
	"encoding/json"
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
	"recount/internal/httpapi"
	"recount/internal/httpapi/apitest"
	"recount/internal/httpapi/suppressionapi"
	"recount/internal/stores/sqlite"
	"recount/internal/subject"
	"recount/internal/suppression"
	"recount/internal/wire"
)

var salt, _ = subject.NewSalt("0123456789abcdef")

// ownLedger lets sources come back into the one ledger, and then answers as others would, which it is told.
type ownLedger struct {
	ledger suppression.Ledger
	others []wire.CellAllowed
}

func (o *ownLedger) Allow(ctx context.Context, _ string, s subject.Source, _, _ string) []wire.CellAllowed {
	own := wire.CellAllowed{Cell: "scoring", Status: "allowed"}
	var err error
	if own.Removed, err = o.ledger.Allow(ctx, s); err != nil {
		own.Status, own.Detail = "failed", string(subject.ReasonOf(err))
	}
	return append([]wire.CellAllowed{own}, o.others...)
}

// fakeBackfiller answers what it is told to, and remembers what it was asked for.
type fakeBackfiller struct {
	asked []wire.BackfillRequest
	out   wire.BackfillResponse
	err   error
}

func (f *fakeBackfiller) Backfill(_ context.Context, asked wire.BackfillRequest) (wire.BackfillResponse, error) {
	f.asked = append(f.asked, asked)
	return f.out, f.err
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

// took is what was written down since the last time.
func (f *fakeAudit) took() []audit.Row {
	f.mu.Lock()
	defer f.mu.Unlock()
	rows := f.rows
	f.rows = nil
	return rows
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
	t        *testing.T
	db       *sqlite.DB
	ledger   *sqlite.Ledger
	allower  *ownLedger
	backfill *fakeBackfiller
	audit    *fakeAudit
	url      string
	http     *http.Client
}

// serve serves a ledger in a file.
func serve(t *testing.T) *fixture {
	t.Helper()
	keys, err := suppression.ParseKeys("a suppression secret")
	if err != nil {
		t.Fatal(err)
	}
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "cell.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	ledger, err := db.Ledger(t.Context(), keys)
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, db: db, ledger: ledger, allower: &ownLedger{ledger: ledger}, backfill: &fakeBackfiller{}, audit: &fakeAudit{}}
	every := auth.Read | auth.Write | auth.Erase | auth.Allow
	api := httpapi.New(httpapi.Config{
		Log: zap.NewNop(), Meter: noMeter{}, Rate: 1e6, MaxInFlight: 100,
		Auth: callers{
			"all":     {Email: "all@example.com", Roles: every},
			"default": {Email: "default@example.com", Roles: auth.Read | auth.Write | auth.Erase},
			"reader":  {Email: "reader@example.com", Roles: auth.Read},
			"writer":  {Email: "writer@example.com", Roles: auth.Write},
			"eraser":  {Email: "eraser@example.com", Roles: auth.Erase},
			"allower": {Email: "allower@example.com", Roles: auth.Allow},
			"globex":  {Email: "globex@example.com", Roles: every, Tenants: []string{"globex"}},
		},
	})
	suppressionapi.Mount(api, suppressionapi.Surface{
		Cell: "scoring", Salt: salt, Ledger: ledger, Checker: &suppression.Guard{Ledger: ledger}, Allower: f.allower, Backfiller: f.backfill, Audit: f.audit,
	})
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	f.url, f.http = server.URL, &http.Client{Transport: apitest.Transport(t, nil)}
	return f
}

// closeLedger takes the file away under the service.
func (f *fixture) closeLedger() {
	f.t.Helper()
	if err := f.db.Close(); err != nil {
		f.t.Fatal(err)
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

func (f *fixture) do(caller, method, path, body string) answer {
	f.t.Helper()
	r, err := http.NewRequestWithContext(f.t.Context(), method, f.url+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	r.Header.Set("Authorization", caller)
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
	return answer{response.StatusCode, response.Header, string(got)}
}

// post sends an object to one of the verbs.
func (f *fixture) post(caller, verb string, body map[string]any) answer {
	f.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		f.t.Fatal(err)
	}
	return f.do(caller, http.MethodPost, "/v1/suppression:"+verb, string(text))
}

// source is a record of the CRM.
func source(t *testing.T, tenant, ref string) subject.Source {
	t.Helper()
	s, err := subject.NewSource(tenant, "crm", ref)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var erasedAt = time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)

// suppress records that these were erased.
func (f *fixture) suppress(sources ...subject.Source) {
	f.t.Helper()
	for _, s := range sources {
		_, err := f.ledger.Record(f.t.Context(), []suppression.Entry{{Source: s, Reason: suppression.ReasonSource, ErasedAt: erasedAt, Erasure: s.Ref(salt)}})
		if err != nil {
			f.t.Fatal(err)
		}
	}
}

// with is the object with one member changed; nil takes it out.
func with(object map[string]any, name string, value any) map[string]any {
	out := map[string]any{}
	for k, v := range object {
		out[k] = v
	}
	if out[name] = value; value == nil {
		delete(out, name)
	}
	return out
}
