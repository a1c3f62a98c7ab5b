package subjectapi_test

import (
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

// post sends a value of the contract to a verb of subject or source.
func (f *fixture) post(caller, verb string, body any) answer {
	f.t.Helper()
	text, err := wire.Marshal(body)
	if err != nil {
		f.t.Fatal(err)
	}
	return f.do(caller, http.MethodPost, "/v1/intent/"+verb, string(text))
}

func (f *fixture) wantProblem(what string, got answer, code int, word string) {
	f.t.Helper()
	if got.status != code || !strings.Contains(got.body, `"urn:recount:problem:`+word+`"`) {
		f.t.Errorf("%s: %d %s", what, got.status, got.body)
	}
}

// saidWhere is what the tests read of an enumeration.
type saidWhere struct {
	Cell, Operation, Status string
	Results                 []struct {
		Ref      string `json:"subject_ref"`
		Receipts []struct {
			Store, Status, Detail string
			Count                 *int64
			Rows                  []string           `json:"row_ids"`
			Sources               []wire.KeyedSource `json:"sources"`
		}
	}
}

func (a answer) where(t *testing.T, code int) (said saidWhere) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.body), &said); err != nil || a.status != code {
		t.Fatalf("%d %s", a.status, a.body)
	}
	return said
}

func someIDs(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprint("person-", i)
	}
	return ids
}

func someSources(n int) []wire.Source {
	sources := make([]wire.Source, n)
	for i := range sources {
		sources[i] = wire.Source{Source: "crm", SourceRef: fmt.Sprint("r", i)}
	}
	return sources
}

func TestAnEnumerationAnswersForPeopleAndThenForSourcesAndListsWhereAsked(t *testing.T) {
	f := serve(t, false)
	asked := wire.EnumerateRequest{TenantID: "acme", IdentityIDs: []string{"person@example.com", "b"}, Sources: []wire.Source{{Source: "crm", SourceRef: "person@example.com"}}}
	for _, list := range []bool{false, true} {
		asked.List = list
		got := f.post("all", "subject:enumerate", asked)
		said := got.where(t, 200)
		if said.Cell != "scoring" || said.Operation != "enumerate" || said.Status != "counted" || len(said.Results) != 3 || strings.Contains(got.body, "person@") {
			t.Fatalf("%s", got.body)
		}
		first, last := said.Results[0], said.Results[2]
		if first.Ref != string(person(t, "acme", "person@example.com").Ref(salt)) || last.Ref != refOfOne() {
			t.Errorf("%+v", said)
		}
		if listed := len(first.Receipts[0].Rows) == 1 && len(first.Receipts[0].Sources) == 1; listed != list || len(last.Receipts[0].Rows) != 0 {
			t.Errorf("list %t: %s", list, got.body)
		}
	}
	if !slices.Equal(f.cell.lists, []bool{false, true}) || len(f.audit.rows) != 0 {
		t.Errorf("asked %v, audited %v", f.cell.lists, f.audit.rows)
	}
}

func TestAnEnumerationNamesOneToAThousand(t *testing.T) {
	f := serve(t, false)
	for _, c := range []struct {
		people, sources, code int
	}{{0, 0, 422}, {1, 0, 200}, {0, 1, 200}, {1000, 0, 200}, {500, 500, 200}, {0, 1000, 200}, {1001, 0, 422}, {500, 501, 422}} {
		asked := wire.EnumerateRequest{TenantID: "acme", IdentityIDs: someIDs(c.people), Sources: someSources(c.sources)}
		f.cell.targets = nil
		got := f.post("all", "subject:enumerate", asked)
		if got.status != c.code || c.code == 200 && len(f.cell.targets) != c.people+c.sources || c.code != 200 && f.cell.targets != nil {
			t.Errorf("%d and %d: %d, %d targets", c.people, c.sources, got.status, len(f.cell.targets))
		}
	}
}

func TestAnEnumerationWithAStoreThatCanNotBeCountedFails(t *testing.T) {
	f := serve(t, false)
	f.cell.uncounted = true
	said := f.post("all", "subject:enumerate", wire.EnumerateRequest{TenantID: "acme", IdentityIDs: []string{"a"}}).where(t, 502)
	if r := said.Results[0].Receipts; said.Status != "failed" || r[0].Status != "counted" || r[1].Status != "failed" || r[1].Count != nil || r[1].Detail != "access_denied" {
		t.Errorf("%+v", said)
	}
}

func TestEnumeratingFreezingAndThawingTakeTheRoleToEraseForTheTenant(t *testing.T) {
	f := serve(t, false)
	until := time.Now().Add(time.Hour)
	for verb, body := range map[string]any{
		"enumerate": wire.EnumerateRequest{TenantID: "acme", IdentityIDs: []string{"a"}},
		"freeze":    wire.FreezeRequest{TenantID: "acme", IdentityIDs: []string{"a"}, FreezeID: freezeID, Until: until},
		"thaw":      wire.ThawRequest{TenantID: "acme", FreezeID: freezeID},
	} {
		for _, caller := range []string{"reader", "writer", "globex"} {
			f.wantProblem(caller+" "+verb, f.post(caller, "subject:"+verb, body), 403, "forbidden")
		}
		f.wantProblem("nobody "+verb, f.post("nobody", "subject:"+verb, body), 401, "unauthenticated")
		f.cell.serving = &subject.Fault{Reason: subject.ReasonShuttingDown}
		f.wantProblem(verb+" at a cell that does not serve", f.post("all", "subject:"+verb, body), 503, "unavailable")
		f.cell.serving = nil
	}
	f.wantProblem("no tenant", f.post("all", "subject:enumerate", wire.EnumerateRequest{IdentityIDs: []string{"a"}}), 400, "invalid-tenant-id")
	f.wantProblem("no identity", f.post("all", "subject:enumerate", wire.EnumerateRequest{TenantID: "acme", IdentityIDs: []string{""}}), 400, "invalid-identity-id")
	f.wantProblem("no source", f.post("all", "subject:enumerate", wire.EnumerateRequest{TenantID: "acme", Sources: []wire.Source{{Source: "crm"}}}), 422, "unprocessable")
	if len(f.cell.took()) != 0 || len(f.cell.freezes) != 0 {
		t.Error("the cell was asked all the same")
	}
}

var freezeID = strings.Repeat("0a", 16)

func TestAFreezeHoldsUntilItIsThawed(t *testing.T) {
	f := serve(t, false)
	until := time.Now().Add(23 * time.Hour).UTC()
	got := f.post("all", "subject:freeze", wire.FreezeRequest{TenantID: "acme", IdentityIDs: []string{"a", "b"}, FreezeID: freezeID, Until: until})
	if got.status != 200 || !strings.Contains(got.body, `"operation":"freeze","status":"frozen"`) || !f.cell.until.Equal(until) {
		t.Errorf("%d %s, until %s", got.status, got.body, f.cell.until)
	}
	if people := f.cell.took(); !slices.Equal(people, []subject.Subject{person(t, "acme", "a"), person(t, "acme", "b")}) {
		t.Errorf("%d people", len(people))
	}
	got = f.post("all", "subject:thaw", wire.ThawRequest{TenantID: "acme", FreezeID: freezeID})
	if got.status != 200 || !strings.Contains(got.body, `"operation":"thaw","status":"thawed"`) || !slices.Equal(f.cell.freezes, []string{"freeze " + freezeID, "thaw " + freezeID + " acme"}) {
		t.Errorf("%d %s, %q", got.status, got.body, f.cell.freezes)
	}
}

func TestAFreezeThatIsNotWellFormedHoldsNobody(t *testing.T) {
	f := serve(t, false)
	good := wire.FreezeRequest{TenantID: "acme", IdentityIDs: []string{"a"}, FreezeID: freezeID, Until: time.Now().Add(time.Hour)}
	for _, id := range []string{"", "0a", freezeID + "0a", strings.Repeat("g", 32), strings.Repeat("0", 31), freezeID + " "} {
		bad := good
		bad.FreezeID = id
		f.wantProblem("freeze_id "+id, f.post("all", "subject:freeze", bad), 422, "unprocessable")
		f.wantProblem("thawing "+id, f.post("all", "subject:thaw", wire.ThawRequest{TenantID: "acme", FreezeID: id}), 422, "unprocessable")
	}
	for what, until := range map[string]time.Time{
		"never": {}, "now": time.Now(), "the past": time.Now().Add(-time.Second), "over a day": time.Now().Add(24*time.Hour + time.Minute), "far away": time.Now().AddDate(500, 0, 0),
	} {
		bad := good
		bad.Until = until
		f.wantProblem("until "+what, f.post("all", "subject:freeze", bad), 422, "unprocessable")
	}
	for _, n := range []int{0, 1001} {
		bad := good
		bad.IdentityIDs = someIDs(n)
		f.wantProblem(fmt.Sprint(n, " people"), f.post("all", "subject:freeze", bad), 422, "unprocessable")
	}
	bad := good
	bad.IdentityIDs = []string{"a", "."}
	f.wantProblem("an identity that is none", f.post("all", "subject:freeze", bad), 400, "invalid-identity-id")
	if len(f.cell.took()) != 0 || len(f.cell.freezes) != 0 {
		t.Errorf("%q all the same", f.cell.freezes)
	}
}

func TestALedgerThatCanNotBeWrittenFreezesNobody(t *testing.T) {
	f := serve(t, false)
	f.cell.frozen = &subject.Fault{Reason: subject.ReasonSuppression}
	until := time.Now().Add(time.Hour)
	for verb, body := range map[string]any{
		"freeze": wire.FreezeRequest{TenantID: "acme", IdentityIDs: []string{"a"}, FreezeID: freezeID, Until: until}, "thaw": wire.ThawRequest{TenantID: "acme", FreezeID: freezeID},
	} {
		got := f.post("all", "subject:"+verb, body)
		if f.wantProblem(verb, got, 503, "unavailable"); !strings.Contains(got.body, "suppression_failed") || got.header.Get("Retry-After") == "" {
			t.Errorf("%s: %v %s", verb, got.header, got.body)
		}
	}
}

// batches are the two that take stores to keep.
func batches(keep ...string) map[string]any {
	return map[string]any{
		"subject:batchDelete": wire.BatchRequest{TenantID: "acme", IdentityIDs: []string{"a"}, Keep: keep},
		"source:batchDelete": wire.SourceBatchRequest{
			TenantID: "acme", Erasures: []wire.SourceErasure{{SubjectRef: refOfOne(), Sources: []wire.Source{{Source: "crm", SourceRef: "a"}}}}, Keep: keep,
		},
	}
}

func TestStoresThatAreRetainedAreKeptAndNamed(t *testing.T) {
	f := serve(t, true)
	for _, names := range [][]string{{"score_cache"}, {"score_cache", "score_cache"}} {
		for verb, body := range batches(names...) {
			f.cell.keeps = nil
			got := f.post("all", verb, body)
			if got.status != 200 || !strings.Contains(got.body, `"kept":["score_cache"]`) {
				t.Errorf("%s: %d %s", verb, got.status, got.body)
			}
			if len(f.cell.keeps) != 1 || !slices.Equal(f.cell.keeps[0], []string{"scoring/score_cache"}) {
				t.Errorf("%s kept %q", verb, f.cell.keeps)
			}
		}
	}
	for verb, body := range batches() {
		if got := f.post("all", verb, body); got.status != 200 || strings.Contains(got.body, "kept") {
			t.Errorf("%s: %d %s", verb, got.status, got.body)
		}
	}
}

func TestAStoreThatIsNotThereIsNotKeptSilently(t *testing.T) {
	f := serve(t, true)
	for what, names := range map[string][]string{
		"an unknown store": {"score_cach"}, "another spelling": {"Score_Cache"}, "one of another cell": {"graph/edges"}, "the cell's own, in full": {"scoring/score_cache"},
		"any": {"*"}, "an empty name": {""}, "an unknown one behind a known": {"score_cache", "x"}, "every store": {"intent_scores", "score_cache"},
	} {
		for verb, body := range batches(names...) {
			f.wantProblem(what+" of "+verb, f.post("all", verb, body), 422, "unprocessable")
		}
	}
	f.wantProblem("of the cascade", f.post("all", "subject:batchErase", wire.BatchRequest{TenantID: "acme", IdentityIDs: []string{"a"}, Keep: []string{"score_cache"}}), 422, "unprocessable")
	if len(f.cell.keeps)+len(f.all.keeps)+len(f.audit.rows) != 0 {
		t.Error("erased all the same")
	}
}
