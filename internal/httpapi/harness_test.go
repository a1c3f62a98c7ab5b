package httpapi

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"recount/internal/auth"
	"recount/internal/wire"
)

// byHeader lets in whoever says so: "Authorization: <name>".
type byHeader map[string]auth.Caller

func (b byHeader) Authenticate(r *http.Request) (auth.Caller, error) {
	name := r.Header.Get("Authorization")
	switch c, known := b[name]; {
	case name == "broken":
		return auth.Caller{}, errors.New("keys: connection refused")
	case name == "":
		return auth.Caller{}, auth.ErrUnauthenticated
	case !known:
		return auth.Caller{}, auth.ErrForbidden
	default:
		return c, nil
	}
}

var people = byHeader{
	"all":    {Email: "all@example.com", Roles: auth.Read | auth.Write | auth.Erase},
	"other":  {Email: "other@example.com", Roles: auth.Read},
	"reader": {Email: "reader@example.com", Roles: auth.Read},
	"acme":   {Email: "acme@example.com", Roles: auth.Read | auth.Write | auth.Erase, Tenants: []string{"acme"}},
}

type finished struct {
	method, route string
	status        int
}

type meter struct {
	mu      sync.Mutex
	started int
	all     []finished
}

func (m *meter) Started() { m.mu.Lock(); m.started++; m.mu.Unlock() }

func (m *meter) Finished(method, route string, status int, _ time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all = append(m.all, finished{method, route, status})
}

type served struct {
	*API
	url   string
	logs  *observer.ObservedLogs
	meter *meter
}

func serveAPI(t *testing.T, change func(*Config), resources ...Resource) *served {
	t.Helper()
	core, logs := observer.New(zapcore.DebugLevel)
	s := &served{logs: logs, meter: &meter{}}
	c := Config{Log: zap.New(core), Auth: people, Meter: s.meter, Rate: 1e6, MaxInFlight: 100, TraceProject: "proj"}
	if change != nil {
		change(&c)
	}
	s.API = New(c)
	s.Mount(resources...)
	server := httptest.NewUnstartedServer(s)
	server.Config.DisableGeneralOptionsHandler = true
	server.Start()
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func resource(route, method string, op Operation) Resource {
	return Resource{Route: route, Methods: map[string]Operation{method: op}}
}

type ask struct {
	method, path, caller, body, contentType string
	header                                  http.Header
}

type told struct {
	status int
	header http.Header
	body   []byte
}

func (s *served) do(t *testing.T, a ask) told {
	t.Helper()
	var body io.Reader = http.NoBody
	if a.body != "" {
		body = strings.NewReader(a.body)
	}
	r, err := http.NewRequestWithContext(t.Context(), a.method, s.url+a.path, body)
	if err != nil {
		t.Fatal(err)
	}
	if a.header != nil {
		r.Header = a.header
	}
	if a.caller != "" {
		r.Header.Set("Authorization", a.caller)
	}
	if a.contentType != "" {
		r.Header.Set("Content-Type", a.contentType)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	got, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return told{response.StatusCode, response.Header, got}
}

// problem is the word of the answer's type, once the answer was checked to be a whole problem document.
func (a told) problem(t *testing.T) string {
	t.Helper()
	var p wire.Problem
	if err := json.Unmarshal(a.body, &p, json.RejectUnknownMembers(true)); err != nil {
		t.Fatalf("%d is no problem document: %s", a.status, a.body)
	}
	if p.Status != a.status || p.Title == "" || p.RequestID != a.header.Get(HeaderRequestID) || a.header.Get("Content-Type") != "application/problem+json" {
		t.Fatalf("a half problem document: %+v", p)
	}
	return strings.TrimPrefix(p.Type, TypePrefix)
}

func (s *served) logText(t *testing.T) string {
	t.Helper()
	var out bytes.Buffer
	encoder := zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig())
	for _, e := range s.logs.All() {
		line, err := encoder.EncodeEntry(e.Entry, e.Context)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(line.Bytes())
	}
	return out.String()
}

func within(t *testing.T, d time.Duration, what string, done <-chan struct{}) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	select {
	case <-done:
	case <-ctx.Done():
		t.Fatalf("%s did not happen within %s", what, d)
	}
}
