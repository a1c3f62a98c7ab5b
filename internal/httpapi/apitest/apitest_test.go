package apitest

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/pb33f/libopenapi-validator/schema_validation"

	"recount/internal/subject"
)

func TestTheDocumentIsValidOpenAPI(t *testing.T) {
	c, err := document()
	if err != nil {
		t.Fatal(err)
	}
	if ok, faults := c.validator.ValidateDocument(); !ok {
		t.Fatal(strings.Join(describe(faults), "\n"))
	}
}

func TestEveryExampleOfTheDocumentIsWhatItsSchemaSays(t *testing.T) {
	c, err := document()
	if err != nil {
		t.Fatal(err)
	}
	schemas := schema_validation.NewSchemaValidator()
	checked := 0
	check := func(where string, pairs map[string]*mediaType) {
		for name, m := range pairs {
			for i, example := range m.examples {
				var value any
				if err := example.Decode(&value); err != nil {
					t.Fatal(err)
				}
				if ok, faults := schemas.ValidateSchemaObject(m.schema, value); !ok {
					t.Errorf("%s %s example %d: %s", where, name, i, strings.Join(describe(faults), "\n"))
				}
				checked++
			}
		}
	}
	for name, body := range c.model.Components.RequestBodies.FromOldest() {
		check(name, mediaTypes(body.Content))
	}
	for name, response := range c.model.Components.Responses.FromOldest() {
		check(name, mediaTypes(response.Content))
	}
	if checked < 30 {
		t.Fatalf("only %d examples", checked)
	}
}

func TestTheDocumentHasTheWholeVocabularyOfDetails(t *testing.T) {
	c, err := document()
	if err != nil {
		t.Fatal(err)
	}
	detail := c.model.Components.Schemas.GetOrZero("Detail").Schema().Description
	for _, reason := range subject.Reasons() {
		if !strings.Contains(detail, "`"+string(reason)+"`") {
			t.Errorf("%s is not documented", reason)
		}
	}
}

// recorder is a test that only remembers whether it was failed.
type recorder struct {
	testing.TB
	faults []string
}

func (r *recorder) Helper() {}
func (r *recorder) Errorf(f string, args ...any) {
	r.faults = append(r.faults, fmt.Sprintf(f, args...))
}

func TestAnswersThatAreNotInTheDocumentAreFound(t *testing.T) {
	const head = `{"request_id":"0123456789abcdef","tenant_id":"acme","subject_ref":"` +
		`9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08","operation":"erase","detail":"","generated_at":"2026-12-01T10:00:00Z",`
	const receipt = `{"cell":"c","store":"s","backend":"b","status":"erased","before":1,"deleted":1,"remaining":%s,"suppressed":1,"derived":0,"sticky":true,"recoverable_until":null,` +
		`"detail":"","started_at":"2026-12-01T10:00:00Z","finished_at":"2026-12-01T10:00:00Z"%s}`
	erased := head + `"status":"erased","receipts":[` + fmt.Sprintf(receipt, "0", "") + `]}`
	for _, c := range []struct {
		name, method, path, contentType, body string
		status                                int
		found                                 bool
	}{
		{"a good answer", "POST", "/v1/intent/subject/a%2Fb%3Aerase:erase?tenant_id=acme", "application/json", erased, 200, false},
		{"of a store whose remaining is not 0", "POST", "/v1/intent/subject/a:erase?tenant_id=acme", "application/json", head + `"status":"erased","receipts":[` + fmt.Sprintf(receipt, "1", "") + `]}`, 200, true},
		{"with a field that is not declared", "POST", "/v1/intent/subject/a:erase?tenant_id=acme", "application/json", head + `"status":"erased","receipts":[` + fmt.Sprintf(receipt, "0", `,"identity_id":"a"`) + `]}`, 200, true},
		{"with a code that is not declared", "DELETE", "/v1/intent/subject/a?tenant_id=acme", "application/json", erased, 202, true},
		{"without Retry-After", "DELETE", "/v1/intent/subject/a?tenant_id=acme", "application/json", strings.Replace(erased, `:"erased","receipts"`, `:"pending","receipts"`, 1), 409, true},
		{"of another type", "DELETE", "/v1/intent/subject/a?tenant_id=acme", "text/plain", erased, 200, true},
		{"to a request that the document does not allow", "DELETE", "/v1/intent/subject/a", "application/json", erased, 200, true},
		{"to an operation that is not declared", "GET", "/v1/intent/everything", "application/json", `{}`, 200, true},
		{"a problem that is none", "DELETE", "/v1/intent/subject/a?tenant_id=acme", "application/problem+json", `{"type":"about:blank","title":"t","status":400}`, 400, true},
		{"what an action on an erasure request lacks", "POST", "/admin/erasure/x:hold", "application/problem+json", `{"type":"urn:recount:problem:unprocessable","title":"t","status":422}`, 422, false},
		{"the same with a type that is none", "POST", "/admin/erasure/x:hold", "application/problem+json", `{"type":"about:blank","title":"t","status":422}`, 422, true},
		{"what can be read of an erasure request", "GET", "/admin/erasure/x/certificate", "application/json", `{"certificate":"c","keys":[]}`, 200, false},
		{"one without a field", "GET", "/admin/erasure/x/certificate", "application/json", `{"certificate":"c"}`, 200, true},
		{"the keys", "GET", "/admin/erasure/keys", "application/json", `{"keys":[]}`, 200, false},
		{"an action that is not declared", "POST", "/admin/erasure/x:undo", "application/json", `{}`, 200, true},
		{"404 in plain text", "GET", "/x", "text/plain", `not found`, 404, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", c.contentType)
				w.Header().Set("X-Request-ID", "0123456789abcdef")
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			}))
			defer server.Close()
			r := &recorder{TB: t}
			request, err := http.NewRequestWithContext(t.Context(), c.method, server.URL+c.path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			response, err := (&http.Client{Transport: Transport(r, nil)}).Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = response.Body.Close() }()
			if (len(r.faults) > 0) != c.found {
				t.Errorf("found %v", r.faults)
			}
		})
	}
}
