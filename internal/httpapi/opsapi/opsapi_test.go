package opsapi_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"recount/api"
	"recount/internal/auth"
	"recount/internal/httpapi"
	"recount/internal/httpapi/apitest"
	"recount/internal/httpapi/opsapi"
	"recount/internal/stores"
	"recount/internal/subject"
	"recount/internal/wire"
)

type byName struct{}

func (byName) Authenticate(r *http.Request) (auth.Caller, error) {
	switch r.Header.Get("Authorization") {
	case "reader":
		return auth.Caller{Email: "reader@example.com", Roles: auth.Read}, nil
	case "eraser":
		return auth.Caller{Email: "eraser@example.com", Roles: auth.Erase}, nil
	case "acme":
		return auth.Caller{Email: "acme@example.com", Roles: auth.Read | auth.Erase, Tenants: []string{"acme"}}, nil
	default:
		return auth.Caller{}, auth.ErrUnauthenticated
	}
}

func serve(t *testing.T, s opsapi.Surface) func(caller, method, path, body string) (int, http.Header, string) {
	t.Helper()
	registry := prometheus.NewRegistry()
	a := httpapi.New(httpapi.Config{Log: zap.NewNop(), Auth: byName{}, Meter: httpapi.NewMetrics(registry), Rate: 1e6, MaxInFlight: 100})
	yes := true
	s.Health = func() wire.Health {
		return wire.Health{
			Status: "ok", Cell: "graph", Version: "1", Stores: []wire.HealthStore{{Store: "graph", Backend: "memory"}}, GraphJournal: "off", GraphNote: "n",
			CascadePeersConfigured: &yes, CascadePeers: map[string]bool{"ingest": true},
		}
	}
	s.Metrics = promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	if s.Ready == nil {
		s.Ready = func(context.Context) error { return nil }
	}
	if s.Stopping == nil {
		s.Stopping = func() bool { return false }
	}
	opsapi.Mount(a, s)
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	client := &http.Client{Transport: apitest.Transport(t, nil)}
	return func(caller, method, path, body string) (int, http.Header, string) {
		t.Helper()
		var reader io.Reader = http.NoBody
		if body != "" {
			reader = strings.NewReader(body)
		}
		r, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, reader)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", caller)
		if body != "" {
			r.Header.Set("Content-Type", "application/json")
		}
		response, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		got, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, response.Header, string(got)
	}
}

func TestHealthReadinessAndTheDocumentAreForEverybodyAndMetricsForReaders(t *testing.T) {
	do := serve(t, opsapi.Surface{})
	for _, path := range []string{"/health", "/ready", "/openapi.yaml"} {
		if code, _, body := do("", "GET", path, ""); code != 200 {
			t.Errorf("%s: %d %s", path, code, body)
		}
		if code, h, _ := do("", "POST", path, "{}"); code != 405 || h.Get("Allow") != "GET" {
			t.Errorf("POST %s: %d", path, code)
		}
	}
	if _, h, body := do("", "GET", "/openapi.yaml", ""); !bytes.Equal([]byte(body), api.OpenAPI) || h.Get("Content-Type") != "application/yaml" {
		t.Error("another document")
	}
	for caller, want := range map[string]int{"": 401, "eraser": 403, "reader": 200} {
		if code, _, _ := do(caller, "GET", "/metrics", ""); code != want {
			t.Errorf("/metrics of %q: %d", caller, code)
		}
	}
	if _, _, body := do("reader", "GET", "/metrics", ""); !strings.Contains(body, `recount_http_requests_total{code="200",method="GET",route="/health"} 1`) {
		t.Errorf("%s", body)
	}
}

func TestReadinessNamesNoMoreThanAWord(t *testing.T) {
	var err error
	do := serve(t, opsapi.Surface{Ready: func(context.Context) error { return err }})
	for _, c := range []struct {
		err  error
		want string
	}{{errors.New("no such table: alice"), "a store can not answer now"}, {&subject.Fault{Reason: subject.ReasonNoLease, Cause: errors.New("alice")}, "lease_lost"}} {
		err = c.err
		if code, h, body := do("", "GET", "/ready", ""); code != 503 || !strings.Contains(body, c.want) || strings.Contains(body, "alice") || h.Get("Retry-After") == "" {
			t.Errorf("%d %s", code, body)
		}
	}
	do = serve(t, opsapi.Surface{Stopping: func() bool { return true }})
	if code, _, body := do("", "GET", "/ready", ""); code != 503 || !strings.Contains(body, "shutting_down") {
		t.Errorf("%d %s", code, body)
	}
	if code, _, _ := do("", "GET", "/health", ""); code != 200 {
		t.Errorf("health: %d", code)
	}
}

func TestProbesShareOneLookAtTheStores(t *testing.T) {
	var looks atomic.Int64
	do := serve(t, opsapi.Surface{Ready: func(context.Context) error {
		looks.Add(1)
		time.Sleep(300 * time.Millisecond)
		return nil
	}})
	var probes sync.WaitGroup
	for range 20 {
		probes.Go(func() {
			if code, _, _ := do("", "GET", "/ready", ""); code != 200 {
				t.Errorf("%d", code)
			}
		})
	}
	probes.Wait()
	if looks.Load() > 10 {
		t.Errorf("%d looks", looks.Load())
	}
}

func TestCoverageListsSuspectsAndAFailedSurveyIsNone(t *testing.T) {
	var err error
	found := []stores.Suspect{}
	do := serve(t, opsapi.Surface{Coverage: func(context.Context) ([]stores.Suspect, error) { return found, err }})
	if code, _, body := do("reader", "GET", "/v1/intent/coverage", ""); code != 200 || body != `{"cell":"graph","suspects":[]}` {
		t.Errorf("%d %s", code, body)
	}
	found = []stores.Suspect{{Table: "invoices", Column: "customer_email"}}
	if code, _, body := do("reader", "GET", "/v1/intent/coverage", ""); code != 200 || body != `{"cell":"graph","suspects":[{"table":"invoices","column":"customer_email"}]}` {
		t.Errorf("%d %s", code, body)
	}
	err = errors.New("SELECT column_name FROM x")
	if code, _, body := do("reader", "GET", "/v1/intent/coverage", ""); code != 503 || strings.Contains(body, "SELECT") {
		t.Errorf("%d %s", code, body)
	}
	if code, _, _ := do("eraser", "GET", "/v1/intent/coverage", ""); code != 403 {
		t.Errorf("%d", code)
	}
}

func TestPurgingTheJournalTakesEveryTenant(t *testing.T) {
	const path, body = "/v1/intent/graph/journal:purge", `{"project":"an-old-project"}`
	var err error
	asked := ""
	do := serve(t, opsapi.Surface{PurgeJournal: func(_ context.Context, project string) (int64, error) {
		asked = project
		return 12, err
	}})
	for caller, want := range map[string]int{"": 401, "reader": 403, "acme": 403} {
		if code, _, _ := do(caller, "POST", path, body); code != want || asked != "" {
			t.Errorf("%q: %d, asked %q", caller, code, asked)
		}
	}
	for bad, want := range map[string]int{`{}`: 422, `{"project":"../x"}`: 422, `{"project":"an-old-project","x":1}`: 400, `{"project":1}`: 400} {
		if code, _, _ := do("eraser", "POST", path, bad); code != want || asked != "" {
			t.Errorf("%s: %d", bad, code)
		}
	}
	if code, _, got := do("eraser", "POST", path, body); code != 200 || got != `{"cell":"graph","deleted":12,"remaining":0}` || asked != "an-old-project" {
		t.Errorf("%d %s", code, got)
	}
	err = &subject.Fault{Reason: subject.ReasonRowsRemain}
	if code, _, got := do("eraser", "POST", path, body); code != 503 || !strings.Contains(got, "rows_remain") {
		t.Errorf("%d %s", code, got)
	}
	do = serve(t, opsapi.Surface{})
	if code, _, _ := do("eraser", "POST", path, body); code != 404 {
		t.Errorf("where there is no journal: %d", code)
	}
}
