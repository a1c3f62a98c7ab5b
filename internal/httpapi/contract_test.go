package httpapi_test

import (
	"context"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"recount/api"
	"recount/internal/cell"
	"recount/internal/erasure"
	"recount/internal/httpapi"
	"recount/internal/httpapi/erasureapi"
	"recount/internal/httpapi/intakeapi"
	"recount/internal/httpapi/opendsrapi"
	"recount/internal/httpapi/opsapi"
	"recount/internal/httpapi/subjectapi"
	"recount/internal/httpapi/suppressionapi"
	"recount/internal/intake"
	"recount/internal/subject"
	"recount/internal/suppression/suppressiontest"
)

func TestEveryOperationOfTheDocumentIsServedAndNoOther(t *testing.T) {
	salt, err := subject.NewSalt("0123456789abcdef")
	if err != nil {
		t.Fatal(err)
	}
	c := cell.New(cell.Config{Name: "scoring", Salt: salt, Stopping: t.Context(), Ledger: suppressiontest.NewModel()})
	a := httpapi.New(httpapi.Config{
		Log: zap.NewNop(), Auth: anyone{}, Meter: httpapi.NewMetrics(prometheus.NewRegistry()), Rate: 1e6, MaxInFlight: 100,
	})
	subjectapi.Mount(a, subjectapi.Surface{Cell: c, Coordinator: c, Audit: noAudit{}})
	for _, kind := range []intake.Kind{intake.Events(), intake.Scores(), intake.Edges(), intake.Holdouts(), intake.Outcomes()} {
		intakeapi.Mount(a, intakeapi.Endpoint{Path: kind.Path, Intake: &intake.Intake{Kind: kind}, Serving: c.Serving})
	}
	erasureapi.Mount(a, erasure.New(erasure.Config{}))
	if err := opendsrapi.Mount(a, opendsrapi.Surface{Key: make([]byte, 32), Identities: identities(t), Signer: unsigned{}, Now: time.Now}); err != nil {
		t.Fatal(err)
	}
	suppressionapi.Mount(a, suppressionapi.Surface{Cell: "scoring", Salt: salt})
	opsapi.Mount(a, opsapi.Surface{
		Health: c.Health, Ready: c.Ready, Stopping: func() bool { return false }, Coverage: c.Coverage, Metrics: http.NotFoundHandler(),
		PurgeJournal: func(context.Context, string) (int64, error) { return 0, nil },
	})
	var document struct {
		Paths map[string]map[string]struct{ OperationID string } `yaml:"paths"`
	}
	if err := yaml.Unmarshal(api.OpenAPI, &document); err != nil {
		t.Fatal(err)
	}
	if len(document.Paths) < 15 {
		t.Fatalf("%d paths", len(document.Paths))
	}
	patterns := map[string]bool{}
	for path, operations := range document.Paths {
		patterns[mountedAs(path)] = true
		// No method is TRACE: the answer says which ones there are.
		r := httptest.NewRequestWithContext(t.Context(), http.MethodTrace, strings.NewReplacer("{identity_id}", "a", "{id}", "a", "{tenant_id}", "acme", "{subject_request_id}", "a7551968-d5d6-44b2-9831-815ac9017798").Replace(path), http.NoBody)
		w := httptest.NewRecorder()
		a.ServeHTTP(w, r)
		var want []string
		for method := range operations {
			want = append(want, strings.ToUpper(method))
		}
		if strings.HasSuffix(path, "{identity_id}:erase") { // an id may end in ":erase" itself
			want = append(want, http.MethodGet, http.MethodDelete)
		}
		slices.Sort(want)
		if got := w.Header().Get("Allow"); w.Code != http.StatusMethodNotAllowed || got != strings.Join(want, ", ") {
			t.Errorf("%s takes %q (%d), and the document says %q", path, got, w.Code, want)
		}
	}
	if served := a.Routes(); !slices.Equal(served, slices.Sorted(maps.Keys(patterns))) {
		t.Errorf("served %q", served)
	}
}

type unsigned struct{}

func (unsigned) Sign(string, time.Time, []byte) http.Header { return http.Header{} }
func (unsigned) Certificate() []byte                        { return nil }

func identities(t *testing.T) opendsrapi.Identities {
	t.Helper()
	known, err := opendsrapi.ParseIdentities(opendsrapi.DefaultIdentities)
	if err != nil {
		t.Fatal(err)
	}
	return known
}

// mountedAs is the pattern that serves a path of the document: all that are below one prefix are one.
func mountedAs(path string) string {
	for _, prefix := range []string{"/v1/intent/subject/", "/admin/erasure/", "/opendsr/"} {
		if strings.HasPrefix(path, prefix) {
			return prefix + "*"
		}
	}
	return path
}
