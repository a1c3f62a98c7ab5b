package intakeapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"recount/internal/auth"
	"recount/internal/httpapi"
	"recount/internal/httpapi/apitest"
	"recount/internal/httpapi/intakeapi"
	"recount/internal/intake"
	"recount/internal/stores"
	"recount/internal/subject"
	"recount/internal/suppression"
	"recount/internal/suppression/suppressiontest"
)

// appender takes every row for a new one, or fails.
type appender struct {
	mu   sync.Mutex
	rows int
	err  error
}

func (a *appender) Append(_ context.Context, rows []stores.Row, _ suppression.Generation) ([]bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		return nil, a.err
	}
	a.rows += len(rows)
	created := make([]bool, len(rows))
	for i := range created {
		created[i] = true
	}
	return created, nil
}

type byName struct{}

func (byName) Authenticate(r *http.Request) (auth.Caller, error) {
	c := auth.Caller{Email: "importer@example.com", Roles: auth.Write}
	switch r.Header.Get("Authorization") {
	case "writer":
	case "acme":
		c.Tenants = []string{"acme"}
	case "reader":
		c.Roles = auth.Read
	default:
		return auth.Caller{}, auth.ErrUnauthenticated
	}
	return c, nil
}

type noMeter struct{}

func (noMeter) Started()                                    {}
func (noMeter) Finished(string, string, int, time.Duration) {}

type fixture struct {
	store   *appender
	serving error
	url     string
	client  *http.Client
}

func serve(t *testing.T, http2 bool) *fixture {
	t.Helper()
	f := &fixture{store: &appender{}}
	api := httpapi.New(httpapi.Config{Log: zap.NewNop(), Auth: byName{}, Meter: noMeter{}, Rate: 1e6, MaxInFlight: 10})
	for _, kind := range []intake.Kind{intake.Events(), intake.Scores(), intake.Edges(), intake.Holdouts(), intake.Outcomes()} {
		intakeapi.Mount(api, intakeapi.Endpoint{
			Path: kind.Path, Intake: &intake.Intake{Kind: kind, Guard: &suppression.Guard{Ledger: suppressiontest.NewModel()}, Store: f.store, Budget: intake.NewBudget()}, Serving: func() error { return f.serving },
		})
	}
	server := httptest.NewUnstartedServer(api)
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!http2)
	protocols.SetUnencryptedHTTP2(http2)
	server.Config.Protocols = protocols
	server.Start()
	t.Cleanup(server.Close)
	transport := &http.Transport{Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	f.url, f.client = server.URL, &http.Client{Transport: apitest.Transport(t, transport)}
	return f
}

func (f *fixture) post(t *testing.T, caller, path, contentType string, body io.Reader) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+path, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", caller)
	r.Header.Set("Content-Type", contentType)
	response, err := f.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	got, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(got)
}

const (
	jsonType = "application/json"
	ndjson   = "application/x-ndjson"
	head     = `{"tenant_id":"acme","identity_id":"person@example.com","source":"crm","source_ref":"7001","consent_basis":"contract",`
	event    = head + `"event_type":"page_view","occurred_at":"2026-11-30T09:00:00Z","payload":{"page":{"path":"/pricing"}}}`
)

func TestEveryKindOfRecordIsTakenAtItsOwnPath(t *testing.T) {
	f := serve(t, false)
	for path, record := range map[string]string{
		"/v1/intent/events":      event,
		"/v1/intent/scores":      head + `"model_version":"m","score":0.5,"features":{"a":1}}`,
		"/v1/intent/graph/edges": head + `"related_id":"b","relation":"knows","properties":{"a":1}}`,
		"/v1/intent/holdouts":    head + `"experiment":"e","identity_kind":"deterministic"}`,
		"/v1/intent/outcomes":    head + `"experiment":"e","metric":"m","value":1,"derived_from":[{"source":"s","source_ref":"r"}]}`,
	} {
		for _, contentType := range []string{jsonType, ndjson} {
			if code, body := f.post(t, "writer", path, contentType, strings.NewReader(record)); code != 200 || !strings.Contains(body, `"accepted":1,`) {
				t.Errorf("%s %s: %d %s", path, contentType, code, body)
			}
		}
	}
}

func TestASingleRecordIsJudgedLikeALine(t *testing.T) {
	f := serve(t, false)
	for body, want := range map[string]string{
		"": "400", "{": "400", event + event: "400", `{}`: `"tenant_id_invalid"`, `[]`: `"not_an_object"`,
		strings.Replace(event, `"contract"`, `""`, 1): `"consent_basis_missing"`,
		"\"" + strings.Repeat("x", 1<<20) + "\"":      "413",
	} {
		r := strings.NewReader(body)
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+"/v1/intent/events", io.MultiReader(r)) // the document doesn't allow all of these
		request.Header.Set("Authorization", "writer")
		request.Header.Set("Content-Type", jsonType)
		response, err := f.client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if code := fmt.Sprint(response.StatusCode); code != want && !(code == "200" && strings.Contains(string(got), want)) {
			t.Errorf("%.60q: %s %s, want %s", body, code, got, want)
		}
	}
}

func TestABodyOfAnySizeIsTakenInOverHTTP2(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			f := serve(t, http2)
			const records = 20_000
			r, w := io.Pipe()
			go func() {
				for i := range records {
					_, _ = io.WriteString(w, strings.Replace(event, "7001", fmt.Sprint(i), 1)+"\n")
					if i%1000 == 0 {
						_, _ = io.WriteString(w, "not json\n\n")
					}
				}
				_ = w.Close()
			}()
			code, body := f.post(t, "writer", "/v1/intent/events", ndjson, r)
			if code != 200 || !strings.Contains(body, fmt.Sprintf(`"accepted":%d,`, records)) || !strings.Contains(body, `"rejected_total":20`) || f.store.rows != records {
				t.Errorf("%d %s", code, body)
			}
		})
	}
}

func TestACallerWritesForItsTenantsAlone(t *testing.T) {
	f := serve(t, false)
	other := strings.Replace(event, "acme", "globex", 1)
	if code, body := f.post(t, "acme", "/v1/intent/events", ndjson, strings.NewReader(event+"\n"+other)); code != 200 ||
		!strings.Contains(body, `"accepted":1,`) || !strings.Contains(body, `{"line":2,"reason":"tenant_not_allowed"}`) {
		t.Errorf("%d %s", code, body)
	}
	for caller, want := range map[string]int{"reader": 403, "nobody": 401} {
		if code, _ := f.post(t, caller, "/v1/intent/events", jsonType, strings.NewReader(event)); code != want {
			t.Errorf("%s: %d", caller, code)
		}
	}
	if f.store.rows != 1 {
		t.Errorf("%d rows", f.store.rows)
	}
}

func TestAStoreThatCanNotTakeRecordsAsksToSendThemAgain(t *testing.T) {
	f := serve(t, false)
	for _, err := range []error{errors.New("UNIQUE constraint failed for alice"), &subject.Fault{Reason: subject.ReasonStoreFull, Cause: errors.New("alice")}} {
		f.store.err = err
		code, body := f.post(t, "writer", "/v1/intent/events", ndjson, strings.NewReader(event))
		if code != 503 || strings.Contains(body, "alice") || !strings.Contains(body, "unavailable") {
			t.Errorf("%d %s", code, body)
		}
	}
	f.store.err, f.serving = nil, &subject.Fault{Reason: subject.ReasonNoLease}
	if code, body := f.post(t, "writer", "/v1/intent/events", jsonType, strings.NewReader(event)); code != 503 || !strings.Contains(body, "lease_lost") {
		t.Errorf("%d %s", code, body)
	}
}

func TestABodyThatBreaksOffKeepsWhatArrived(t *testing.T) {
	f := serve(t, false)
	r, w := io.Pipe()
	go func() {
		_, _ = io.WriteString(w, event+"\n")
		_ = w.CloseWithError(errors.New("the importer died"))
	}()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+"/v1/intent/events", r)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "writer")
	request.Header.Set("Content-Type", ndjson)
	if response, err := f.client.Do(request); err == nil {
		_ = response.Body.Close()
		if response.StatusCode == 200 {
			t.Error("half a body was taken for a whole one")
		}
	}
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		f.store.mu.Lock()
		rows := f.store.rows
		f.store.mu.Unlock()
		if rows == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the record that arrived was dropped")
		}
	}
}
