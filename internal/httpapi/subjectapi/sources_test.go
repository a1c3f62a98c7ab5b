package subjectapi_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"recount/internal/subject"
	"recount/internal/wire"
)

const oneSource = `{"tenant_id":"acme","source":"crm","source_ref":"person@example.com"}`

// refOfOne is the pseudonym of that source, made by hand.
func refOfOne() string {
	sum := sha256.Sum256([]byte("0123456789abcdef|acme|crm|person@example.com"))
	return hex.EncodeToString(sum[:])
}

func sourceOf(t *testing.T, tenant, ref string) subject.Source {
	t.Helper()
	s, err := subject.NewSource(tenant, "crm", ref)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// tookSources is which sources the cell was asked for since the last time.
func (f *fakeCell) tookSources() []subject.Source {
	f.mu.Lock()
	defer f.mu.Unlock()
	sources := f.sources
	f.sources = nil
	return sources
}

// saidOfOne is what the tests read of an answer about one erasure.
type saidOfOne struct {
	RequestID  string `json:"request_id"`
	TenantID   string `json:"tenant_id"`
	SubjectRef string `json:"subject_ref"`
	Operation  string `json:"operation"`
	Status     string `json:"status"`
}

// sourceBatch is the body of an erasure of n sources under one pseudonym.
func sourceBatch(ref string, n int) string {
	sources := make([]wire.Source, n)
	for i := range sources {
		sources[i] = wire.Source{Source: "crm", SourceRef: fmt.Sprint("r", i)}
	}
	return batchOf(wire.SourceErasure{SubjectRef: ref, Sources: sources})
}

func batchOf(erasures ...wire.SourceErasure) string {
	body, err := wire.Marshal(wire.SourceBatchRequest{TenantID: "acme", Erasures: erasures})
	if err != nil {
		panic(err) // plain texts always encode
	}
	return string(body)
}

func TestAnErasureOfASourceIsWrittenDownUnderItsOwnPseudonym(t *testing.T) {
	f := serve(t, true)
	for verb, reached := range map[string]*fakeCell{"delete": f.cell, "erase": f.all} {
		got := f.do("all", http.MethodPost, "/v1/intent/source:"+verb, oneSource, "X-Request-ID", "0123456789abcdef")
		var said saidOfOne
		if err := json.Unmarshal([]byte(got.body), &said); err != nil || got.status != 200 {
			t.Fatalf("%s: %d %s", verb, got.status, got.body)
		}
		if said.SubjectRef != refOfOne() || said.Operation != "erase_source" || said.TenantID != "acme" || said.Status != "erased" || said.RequestID != "0123456789abcdef" {
			t.Errorf("%s: %+v", verb, said)
		}
		if strings.Contains(got.body, "person@") {
			t.Errorf("%s: the source is in the answer: %s", verb, got.body)
		}
		own, all := f.cell.tookSources(), f.all.tookSources()
		asked, other := own, all
		if reached == f.all {
			asked, other = all, own
		}
		if !slices.Equal(asked, []subject.Source{sourceOf(t, "acme", "person@example.com")}) || len(other) != 0 {
			t.Errorf("%s reached %d and %d sources", verb, len(own), len(all))
		}
	}
	for _, r := range f.audit.rows {
		if r.Operation != "erase_source" || string(r.SubjectRef) != refOfOne() || r.Status != "erased" || r.Actor != "all@example.com" {
			t.Errorf("audited: %+v", r)
		}
	}
	if text := fmt.Sprintf("%+v", f.audit.rows); len(f.audit.rows) != 2 || strings.Contains(text, "person@") {
		t.Errorf("audited: %s", text)
	}
}

func TestAnErasureOfASourceAnswersWithTheCodeOfItsFold(t *testing.T) {
	f := serve(t, true)
	for _, c := range []struct {
		receipts    []subject.Receipt
		code        int
		word, retry string
	}{
		{[]subject.Receipt{receipt(subject.Pending, subject.ReasonQuota, 3, time.Minute)}, 409, "pending", "60"},
		{[]subject.Receipt{receipt(subject.Failed, subject.ReasonDeleteFailed, 3, 0)}, 502, "failed", ""},
		{nil, 502, "failed", ""},
	} {
		for _, cell := range []*fakeCell{f.cell, f.all} {
			cell.receipts = func(subject.Subject) []subject.Receipt { return c.receipts }
		}
		for verb, body := range map[string]string{"delete": oneSource, "erase": oneSource, "batchDelete": sourceBatch(refOfOne(), 1)} {
			got := f.do("all", http.MethodPost, "/v1/intent/source:"+verb, body)
			if got.status != c.code || !strings.Contains(got.body, `"status":"`+c.word+`"`) || got.header.Get("Retry-After") != c.retry {
				t.Errorf("%s: %d, Retry-After %q, %s", verb, got.status, got.header.Get("Retry-After"), got.body)
			}
		}
	}
}

func TestABatchOfSourcesIsErasedUnderThePseudonymsThatItNames(t *testing.T) {
	f := serve(t, true)
	first, second := strings.Repeat("0a", 32), strings.Repeat("f9", 32)
	got := f.do("all", http.MethodPost, "/v1/intent/source:batchDelete", batchOf(
		wire.SourceErasure{SubjectRef: first, Sources: []wire.Source{{Source: "crm", SourceRef: "a"}, {Source: "crm", SourceRef: "b"}}},
		wire.SourceErasure{SubjectRef: second, Sources: []wire.Source{{Source: "crm", SourceRef: "a"}}},
	))
	var said struct{ Results []saidOfOne }
	if err := json.Unmarshal([]byte(got.body), &said); err != nil || got.status != 200 || len(said.Results) != 2 {
		t.Fatalf("%d %s", got.status, got.body)
	}
	for i, ref := range []string{first, second} {
		r := said.Results[i]
		if r.SubjectRef != ref || r.Operation != "erase_source" || r.TenantID != "acme" || r.Status != "erased" {
			t.Errorf("%+v", r)
		}
		if row := f.audit.rows[i]; string(row.SubjectRef) != ref || row.Operation != "erase_source" {
			t.Errorf("audited: %+v", row)
		}
	}
	a, b := sourceOf(t, "acme", "a"), sourceOf(t, "acme", "b")
	if own := f.cell.tookSources(); !slices.Equal(own, []subject.Source{a, b, a}) || len(f.all.tookSources()) != 0 {
		t.Errorf("reached %d sources of the cell", len(own))
	}
}

func TestSourcesAreAnsweredOnlyToACallerThatPrefersThem(t *testing.T) {
	f := serve(t, true)
	listed := `"sources":[{"source":"crm","source_ref":"r0"}]`
	for verb, body := range map[string]string{"delete": `{"tenant_id":"acme","source":"crm","source_ref":"r0"}`, "batchDelete": sourceBatch(refOfOne(), 1)} {
		for prefer, want := range map[string]bool{"": false, "return=minimal": false, "sources": true} {
			var header []string
			if prefer != "" {
				header = []string{"Prefer", prefer}
			}
			got := f.do("all", http.MethodPost, "/v1/intent/source:"+verb, body, header...)
			if got.status != 200 || strings.Contains(got.body, listed) != want || strings.Contains(got.body, `"sources"`) != want {
				t.Errorf("%s, preferring %q: %d %s", verb, prefer, got.status, got.body)
			}
		}
	}
	for prefer, want := range map[string]bool{"return=minimal": false, "sources": true} { // nobody's records are a list too
		got := f.do("all", http.MethodPost, "/v1/intent/subject:delete", one, "Prefer", prefer)
		if got.status != 200 || strings.Contains(got.body, `"sources":[]`) != want {
			t.Errorf("of a person, preferring %q: %d %s", prefer, got.status, got.body)
		}
	}
}

func TestACellThatCoordinatesNobodyErasesSourcesOfItsOwnAlone(t *testing.T) {
	f := serve(t, false)
	got := f.do("all", http.MethodPost, "/v1/intent/source:erase", oneSource)
	if _, given := got.header["Allow"]; got.status != 405 || !given || strings.Contains(got.header.Get("Allow"), "POST") {
		t.Errorf("%d, Allow %v", got.status, got.header["Allow"])
	}
	if len(f.cell.tookSources()) != 0 {
		t.Error("the cell was reached")
	}
	if got := f.do("all", http.MethodPost, "/v1/intent/source:delete", oneSource); got.status != 200 || len(f.cell.tookSources()) != 1 {
		t.Errorf("its own: %d %s", got.status, got.body)
	}
}

// refused is what an erasure of sources must not take.
func refused() map[string]struct {
	caller, verb, body string
	code               int
} {
	ok := wire.SourceErasure{SubjectRef: refOfOne(), Sources: []wire.Source{{Source: "crm", SourceRef: "person@example.com"}}}
	bad := func(ref string) string { return batchOf(ok, wire.SourceErasure{SubjectRef: ref, Sources: ok.Sources}) }
	many := wire.SourceErasure{SubjectRef: refOfOne()}
	for i := range 999 {
		many.Sources = append(many.Sources, wire.Source{Source: "crm", SourceRef: fmt.Sprint(i)})
	}
	return map[string]struct {
		caller, verb, body string
		code               int
	}{
		"a foreign tenant":             {"globex", "delete", oneSource, 403},
		"a foreign tenant everywhere":  {"globex", "erase", oneSource, 403},
		"a foreign tenant in a batch":  {"globex", "batchDelete", batchOf(ok), 403},
		"no role to erase":             {"writer", "delete", oneSource, 403},
		"no role to erase everywhere":  {"writer", "erase", oneSource, 403},
		"no role to erase in a batch":  {"reader", "batchDelete", batchOf(ok), 403},
		"no reference":                 {"all", "delete", `{"tenant_id":"acme","source":"crm"}`, 422},
		"no source":                    {"all", "erase", `{"tenant_id":"acme","source_ref":"person@example.com"}`, 422},
		"a long source":                {"all", "delete", `{"tenant_id":"acme","source":"` + strings.Repeat("x", 513) + `","source_ref":"a"}`, 422},
		"a long reference":             {"all", "erase", `{"tenant_id":"acme","source":"crm","source_ref":"` + strings.Repeat("x", 1025) + `"}`, 422},
		"a person":                     {"all", "delete", one, 400},
		"a tenant in another form":     {"all", "delete", strings.Replace(oneSource, "acme", "ACME", 1), 400},
		"a pseudonym in capitals":      {"all", "batchDelete", bad(strings.Repeat("0A", 32)), 422},
		"a pseudonym that is short":    {"all", "batchDelete", bad(strings.Repeat("0", 63)), 422},
		"a pseudonym that is long":     {"all", "batchDelete", bad(strings.Repeat("0", 65)), 422},
		"a pseudonym that is not hex":  {"all", "batchDelete", bad(strings.Repeat("g", 64)), 422},
		"no pseudonym":                 {"all", "batchDelete", bad(""), 422},
		"no erasures":                  {"all", "batchDelete", batchOf(), 422},
		"no list of erasures":          {"all", "batchDelete", `{"tenant_id":"acme"}`, 422},
		"an erasure without sources":   {"all", "batchDelete", batchOf(ok, wire.SourceErasure{SubjectRef: refOfOne()}), 422},
		"a source without a reference": {"all", "batchDelete", batchOf(ok, wire.SourceErasure{SubjectRef: refOfOne(), Sources: []wire.Source{{Source: "crm"}}}), 422},
		"a thousand and one":           {"all", "batchDelete", sourceBatch(refOfOne(), 1001), 422},
		"a thousand and one in three":  {"all", "batchDelete", batchOf(ok, many, ok), 422},
	}
}

func TestAnErasureOfSourcesThatIsRefusedErasesNothing(t *testing.T) {
	f := serve(t, true)
	for what, c := range refused() {
		got := f.do(c.caller, http.MethodPost, "/v1/intent/source:"+c.verb, c.body)
		if got.status != c.code || strings.Contains(got.body, "person@") {
			t.Errorf("%s: %d %s, want %d", what, got.status, got.body, c.code)
		}
	}
	if own, all := f.cell.tookSources(), f.all.tookSources(); len(own)+len(all)+len(f.audit.rows) != 0 {
		t.Errorf("reached %d and %d sources, %d rows of audit", len(own), len(all), len(f.audit.rows))
	}
	if got := f.do("all", http.MethodPost, "/v1/intent/source:batchDelete", sourceBatch(refOfOne(), 1000)); got.status != 200 || len(f.cell.tookSources()) != 1000 {
		t.Errorf("a thousand: %d", got.status)
	}
}
