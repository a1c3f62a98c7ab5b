package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"recount/internal/auth"
	"recount/internal/intake"
	"recount/internal/subject"
	"recount/internal/wire"
)

func fine(c *Call) error { return c.Answer(http.StatusOK, wire.Ready{Status: "ready"}, 0) }

func TestTheGatesAreAskedInOrderAndTheBodyComesLast(t *testing.T) {
	gate := error(nil)
	s := serveAPI(t, nil, resource("/x", http.MethodPost, Operation{
		Role: auth.Erase, Body: JSONBody, Gate: func() error { return gate }, Query: []string{"q"},
		Serve: func(c *Call) error {
			var asked wire.SubjectRequest
			if err := c.Decode(&asked); err != nil {
				return err
			}
			if _, err := c.Subject(asked.TenantID, asked.IdentityID); err != nil {
				return err
			}
			return fine(c)
		},
	}))
	// Each step mends the first fault of the step before it, and the next one shows.
	good := `{"tenant_id":"acme","identity_id":"a"}`
	a := ask{method: http.MethodPut, path: "/nowhere?r=1", contentType: "text/plain", body: "nonsense"}
	for _, step := range []struct {
		mend   func()
		status int
		word   string
	}{
		{func() {}, 404, "not-found"},
		{func() { a.path = "/x?r=1" }, 405, "method-not-allowed"},
		{func() { a.method = http.MethodPost }, 401, "unauthenticated"},
		{func() { a.caller = "nobody" }, 403, "forbidden"},
		{func() { a.caller = "reader" }, 403, "forbidden"},
		{func() { a.caller, gate = "acme", &subject.Fault{Reason: subject.ReasonNoLease} }, 503, "unavailable"},
		{func() { gate = nil }, 400, "invalid-query"},
		{func() { a.path = "/x?q=1" }, 415, "unsupported-media-type"},
		{func() { a.contentType = "application/json" }, 400, "invalid-body"},
		{func() { a.body = `{"tenant_id":"ACME","identity_id":".."}` }, 400, "invalid-tenant-id"},
		{func() { a.body = `{"tenant_id":"globex","identity_id":".."}` }, 403, "forbidden"},
		{func() { a.body = `{"tenant_id":"acme","identity_id":".."}` }, 400, "invalid-identity-id"},
		{func() { a.body = good }, 200, ""},
	} {
		step.mend()
		got := s.do(t, a)
		if got.status != step.status {
			t.Fatalf("%+v: %d %s, want %d", a, got.status, got.body, step.status)
		}
		if step.word != "" && got.problem(t) != step.word {
			t.Fatalf("%+v: %s, want %s", a, got.body, step.word)
		}
	}
}

func TestEveryErrorHasItsOneProblem(t *testing.T) {
	secret := "alice@example.com SELECT"
	for _, c := range []struct {
		err    error
		status int
		word   string
		retry  bool
	}{
		{subject.ErrTenant, 400, "invalid-tenant-id", false},
		{fmt.Errorf("%s: %w", secret, subject.ErrIdentity), 400, "invalid-identity-id", false},
		{subject.ErrPageToken, 400, "invalid-page-token", false},
		{fmt.Errorf("%s: %w", secret, intake.ErrNotJSON), 400, "invalid-body", false},
		{intake.ErrTooLarge, 413, "body-too-large", false},
		{&http.MaxBytesError{Limit: MaxJSONBytes}, 413, "body-too-large", false},
		{&wire.MalformedError{Problem: "the body is not one JSON object"}, 400, "invalid-body", false},
		{fmt.Errorf("%s: %w", secret, auth.ErrUnauthenticated), 401, "unauthenticated", false},
		{fmt.Errorf("%s: %w", secret, auth.ErrForbidden), 403, "forbidden", false},
		{Unprocessable("no"), 422, "unprocessable", false},
		{&subject.Fault{Reason: subject.ReasonNoLease, Cause: errors.New(secret)}, 503, "unavailable", true},
		{Unavailable("not now", errors.New(secret)), 503, "unavailable", true},
		{fmt.Errorf("%s: %w", secret, context.DeadlineExceeded), 503, "unavailable", true},
		{errors.New(secret), 500, "internal", false},
	} {
		s := serveAPI(t, nil, resource("/x", http.MethodGet, Operation{Public: true, Serve: func(*Call) error { return c.err }}))
		got := s.do(t, ask{method: http.MethodGet, path: "/x"})
		if got.status != c.status || got.problem(t) != c.word || (got.header.Get("Retry-After") != "") != c.retry {
			t.Errorf("%T: %d %s", c.err, got.status, got.body)
		}
		if all := string(got.body) + s.logText(t); strings.Contains(all, "alice") || strings.Contains(all, "SELECT") {
			t.Errorf("%T leaks into %s", c.err, all)
		}
	}
}

func TestTokensThatCanNotBeCheckedAreNotRefused(t *testing.T) {
	s := serveAPI(t, nil, resource("/x", http.MethodGet, Operation{Role: auth.Read, Serve: fine}))
	if got := s.do(t, ask{method: http.MethodGet, path: "/x", caller: "broken"}); got.status != 503 || bytes.Contains(got.body, []byte("refused")) {
		t.Errorf("%d %s", got.status, got.body)
	}
}

func TestAnOperationWithoutARoleServesNobody(t *testing.T) {
	s := serveAPI(t, nil, resource("/x", http.MethodGet, Operation{Serve: fine}))
	if got := s.do(t, ask{method: http.MethodGet, path: "/x", caller: "all"}); got.status != 403 {
		t.Errorf("%d", got.status)
	}
}

func TestMethodsAreTheResourcesOwn(t *testing.T) {
	s := serveAPI(t, nil,
		Resource{Route: "/x", Methods: map[string]Operation{http.MethodGet: {Public: true, Serve: fine}, http.MethodDelete: {Public: true, Serve: fine}}},
		Resource{Route: "/none"})
	for _, method := range []string{"HEAD", "OPTIONS", "PUT", "PATCH", "POST", "TRACE", "BREW", "get"} {
		got := s.do(t, ask{method: method, path: "/x"})
		if got.status != 405 || got.header.Get("Allow") != "DELETE, GET" {
			t.Errorf("%s: %d, Allow %q", method, got.status, got.header.Get("Allow"))
		}
		if method != "HEAD" && got.problem(t) != "method-not-allowed" {
			t.Errorf("%s: %s", method, got.body)
		}
		if got := s.do(t, ask{method: method, path: "/y"}); got.status != 404 {
			t.Errorf("%s elsewhere: %d", method, got.status)
		}
	}
	got := s.do(t, ask{method: "GET", path: "/none"})
	if allow, given := got.header["Allow"]; got.status != 405 || !given || allow[0] != "" {
		t.Errorf("a resource without methods: %d %v", got.status, allow)
	}
}

func TestRequestIDsAreHexOrUUIDElseOurs(t *testing.T) {
	s := serveAPI(t, nil, resource("/x", http.MethodGet, Operation{Public: true, Serve: fine}))
	for given, kept := range map[string]bool{
		"0123456789abcdef": true, "DEADBEEF": true, "5f0c8a1e-7d2b-4c6f-9a3e-1b2c3d4e5f60": true, strings.Repeat("a", 64): true,
		"": false, "abc": false, strings.Repeat("a", 65): false, "alice@example.com": false, "5f0c8a1e-7d2b-4c6f-9a3e": false, "0123456g": false,
	} {
		h := http.Header{}
		if given != "" {
			h.Set(HeaderRequestID, given)
		}
		got := s.do(t, ask{method: "GET", path: "/x", header: h}).header.Get(HeaderRequestID)
		if (got == given) != kept || !requestID.MatchString(got) {
			t.Errorf("%q became %q", given, got)
		}
	}
	two := http.Header{HeaderRequestID: {"01234567", "89abcdef"}}
	two[http.CanonicalHeaderKey(HeaderRequestID)] = two[HeaderRequestID]
	if got := s.do(t, ask{method: "GET", path: "/x", header: two}).header.Get(HeaderRequestID); got == "01234567" || got == "89abcdef" {
		t.Errorf("one of two was chosen: %s", got)
	}
}

func TestEveryAnswerForbidsCachingAndSniffing(t *testing.T) {
	s := serveAPI(t, nil, resource("/x", http.MethodGet, Operation{Public: true, Serve: fine}))
	for _, path := range []string{"/x", "/y"} {
		h := s.do(t, ask{method: "GET", path: path}).header
		if h.Get("Cache-Control") != "no-store" || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: %v", path, h)
		}
	}
}

func TestLogsAndMetricsHaveTheRouteAndNothingThatWasSent(t *testing.T) {
	s := serveAPI(t, nil, resource("/x", http.MethodPost, Operation{
		Role: auth.Erase, Body: JSONBody, Query: []string{"tenant_id"}, Serve: func(c *Call) error {
			var asked wire.SubjectRequest
			if err := c.Decode(&asked); err != nil {
				return err
			}
			return fmt.Errorf("no row of %s", asked.IdentityID)
		},
	}))
	s.MountBelow("/below/", func(string, string) (Resource, bool) {
		return resource("/below/{id}", http.MethodGet, Operation{Public: true, Serve: fine}), true
	})
	h := func() http.Header {
		return http.Header{"Traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}, "User-Agent": {"alice"}, "X-Request-Id": {"alice@"}}
	}
	s.do(t, ask{method: "POST", path: "/x?tenant_id=alice", caller: "all", contentType: "application/json", body: `{"tenant_id":"acme","identity_id":"alice"}`, header: h()})
	s.do(t, ask{method: "POST", path: "/x?alice=1", caller: "all", contentType: "application/json", body: `{"alice":1}`, header: h()})
	s.do(t, ask{method: "POST", path: "/x", caller: "all", contentType: "application/json", body: `{"alice":1}`, header: h()})
	s.do(t, ask{method: "GET", path: "/below/alice", header: h()})
	s.do(t, ask{method: "GET", path: "/alice?alice", header: h()})
	s.do(t, ask{method: "alice", path: "/x", header: h()})
	text := s.logText(t)
	if strings.Contains(text, "alice") {
		t.Errorf("the log has it: %s", text)
	}
	for _, want := range []string{`"requestUrl":"/below/{id}"`, `"requestMethod":"OTHER"`, `"actor":"all@example.com"`, "projects/proj/traces/0af7651916cd43dd8448eb211c80319c", `"failure":"*errors.errorString"`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	s.meter.mu.Lock()
	defer s.meter.mu.Unlock()
	if fmt.Sprint(s.meter.all) != "[{POST /x 500} {POST /x 400} {POST /x 400} {GET /below/{id} 200} {GET unknown 404} {OTHER /x 405}]" || s.meter.started != 6 {
		t.Errorf("measured %v", s.meter.all)
	}
}

func TestAPanicIsAProblemAndItsValueIsNotTold(t *testing.T) {
	s := serveAPI(t, nil,
		resource("/early", http.MethodGet, Operation{Public: true, Serve: func(*Call) error { panic("row of alice") }}),
		resource("/late", http.MethodGet, Operation{Public: true, Serve: func(c *Call) error {
			return c.Stream(http.StatusOK, func(w io.Writer) error {
				_, _ = io.WriteString(w, `{"receipts":[`)
				panic("row of alice")
			})
		}}),
		resource("/broken", http.MethodGet, Operation{Public: true, Serve: func(c *Call) error {
			return c.Stream(http.StatusOK, func(w io.Writer) error {
				_, _ = io.WriteString(w, `{"receipts":[]}`)
				return errors.New("row of alice")
			})
		}}))
	if got := s.do(t, ask{method: "GET", path: "/early"}); got.status != 500 || got.problem(t) != "internal" || bytes.Contains(got.body, []byte("alice")) {
		t.Errorf("%d %s", got.status, got.body)
	}
	for _, path := range []string{"/late", "/broken"} {
		response, err := http.Get(s.url + path)
		if err == nil {
			_, err = io.ReadAll(response.Body)
			_ = response.Body.Close()
		}
		if err == nil {
			t.Errorf("%s: half an answer arrived as a whole one", path)
		}
	}
	if text := s.logText(t); strings.Contains(text, "alice") || !strings.Contains(text, "panic") {
		t.Errorf("logged %s", text)
	}
}

func TestQueriesAreStrict(t *testing.T) {
	s := serveAPI(t, nil, resource("/x", http.MethodGet, Operation{Public: true, Query: []string{"tenant_id"}, Serve: func(c *Call) error {
		return c.Answer(http.StatusOK, wire.Ready{Status: c.Query("tenant_id")}, 0)
	}}))
	for query, status := range map[string]int{
		"": 200, "?": 200, "?tenant_id=acme": 200, "?tenant%5Fid=acme": 200,
		"?tenant_id=acme&tenant_id=acme": 400, "?tenant_id=a&tenant%5Fid=b": 400, "?Tenant_id=acme": 400, "?x=1": 400, "?tenant_id=acme;x=1": 400, "?tenant_id=%zz": 400, "?=": 400,
	} {
		if got := s.do(t, ask{method: "GET", path: "/x" + query}); got.status != status {
			t.Errorf("%q: %d", query, got.status)
		}
	}
}

func TestABodyOfAnotherKindIsRefused(t *testing.T) {
	s := serveAPI(t, nil,
		resource("/json", http.MethodPost, Operation{Public: true, Body: JSONBody, Serve: fine}),
		resource("/records", http.MethodPost, Operation{Public: true, Body: RecordsBody, Serve: func(c *Call) error {
			return c.Answer(http.StatusOK, wire.Ready{Status: fmt.Sprint(c.NDJSON)}, 0)
		}}),
		resource("/none", http.MethodPost, Operation{Public: true, Serve: fine}))
	for _, c := range []struct {
		path, contentType, encoding string
		status                      int
	}{
		{"/json", "application/json", "", 200},
		{"/json", "Application/JSON; charset=UTF-8", "", 200},
		{"/json", "application/json", "identity", 200},
		{"/json", "", "", 415},
		{"/json", "text/json", "", 415},
		{"/json", "application/x-ndjson", "", 415},
		{"/json", "application/json; charset=latin1", "", 415},
		{"/json", "application/json", "gzip", 415},
		{"/json", "application/json, text/plain", "", 415},
		{"/json", "application/x-www-form-urlencoded", "", 415},
		{"/records", "application/x-ndjson", "", 200},
		{"/records", "application/json", "", 200},
		{"/records", "text/plain", "", 415},
		{"/none", "application/json", "", 400},
	} {
		h := http.Header{}
		if c.encoding != "" {
			h.Set("Content-Encoding", c.encoding)
		}
		if got := s.do(t, ask{method: "POST", path: c.path, contentType: c.contentType, body: "{}", header: h}); got.status != c.status {
			t.Errorf("%+v: %d %s", c, got.status, got.body)
		}
	}
	if got := s.do(t, ask{method: "POST", path: "/none"}); got.status != 200 {
		t.Errorf("no body: %d", got.status)
	}
	// A body of unknown length is looked at, too.
	for body, status := range map[string]int{"": 200, "x": 400} {
		r, err := http.NewRequestWithContext(t.Context(), "POST", s.url+"/none", io.MultiReader(strings.NewReader(body)))
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != status {
			t.Errorf("%q: %d", body, response.StatusCode)
		}
	}
}

func TestAJSONBodyIsBoundedAndNDJSONIsNot(t *testing.T) {
	var read int64
	s := serveAPI(t, nil,
		resource("/records", http.MethodPost, Operation{Public: true, Body: RecordsBody, Serve: func(c *Call) (err error) {
			if read, err = io.Copy(io.Discard, c.R.Body); err != nil {
				return err
			}
			return fine(c)
		}}))
	big := strings.Repeat("x", 3<<20)
	if got := s.do(t, ask{method: "POST", path: "/records", contentType: "application/json", body: big}); got.status != 413 || got.problem(t) != "body-too-large" {
		t.Errorf("JSON: %d %s", got.status, got.body)
	}
	if got := s.do(t, ask{method: "POST", path: "/records", contentType: "application/json", body: big[:MaxJSONBytes]}); got.status != 200 {
		t.Errorf("JSON of just the limit: %d", got.status)
	}
	if got := s.do(t, ask{method: "POST", path: "/records", contentType: "application/x-ndjson", body: big}); got.status != 200 || read != 3<<20 {
		t.Errorf("NDJSON: %d after %d bytes", got.status, read)
	}
}

func TestACallerOverItsRateIsTurnedAwayAndOthersAreNot(t *testing.T) {
	s := serveAPI(t, func(c *Config) { c.Rate = 2 }, resource("/x", http.MethodGet, Operation{Role: auth.Read, Serve: fine}))
	codes := map[int]int{}
	for range 6 {
		got := s.do(t, ask{method: "GET", path: "/x", caller: "reader"})
		codes[got.status]++
		if got.status == 429 && (got.problem(t) != "too-many-requests" || got.header.Get("Retry-After") != "1") {
			t.Errorf("%s", got.body)
		}
	}
	if codes[200] < 2 || codes[429] < 3 {
		t.Errorf("%v", codes)
	}
	if got := s.do(t, ask{method: "GET", path: "/x", caller: "other"}); got.status != 200 {
		t.Errorf("another caller: %d", got.status)
	}
}

func TestAFullInstanceTurnsAwayAndStillSaysHowItIs(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	s := serveAPI(t, func(c *Config) { c.MaxInFlight = 1 },
		resource("/slow", http.MethodGet, Operation{Role: auth.Read, Serve: func(c *Call) error { close(entered); <-leave; return fine(c) }}),
		resource("/x", http.MethodGet, Operation{Role: auth.Read, Serve: fine}),
		resource("/health", http.MethodGet, Operation{Public: true, Serve: fine}))
	done := make(chan struct{})
	go func() { defer close(done); s.do(t, ask{method: "GET", path: "/slow", caller: "reader"}) }()
	within(t, 5*time.Second, "the slow request", entered)
	if got := s.do(t, ask{method: "GET", path: "/x", caller: "reader"}); got.status != 429 || got.header.Get("Retry-After") == "" {
		t.Errorf("a second one: %d", got.status)
	}
	if got := s.do(t, ask{method: "GET", path: "/health"}); got.status != 200 {
		t.Errorf("health: %d", got.status)
	}
	close(leave)
	within(t, 5*time.Second, "the slow answer", done)
	for _, caller := range []string{"", "nobody", "reader"} { // refusals give their place back
		s.do(t, ask{method: "GET", path: "/x", caller: caller})
	}
	if got := s.do(t, ask{method: "GET", path: "/x", caller: "reader"}); got.status != 200 {
		t.Errorf("afterwards: %d", got.status)
	}
}
