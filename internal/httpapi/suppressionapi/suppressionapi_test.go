package suppressionapi_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"recount/internal/httpapi/suppressionapi"
	"recount/internal/subject"
	"recount/internal/suppression"
	"recount/internal/wire"
)

const list = "/v1/suppression?tenant_id=acme"

// wantProblem checks a refusal, and that it doesn't quote the person.
func wantProblem(t *testing.T, what string, got answer, code int, word string) {
	t.Helper()
	if got.status != code || !strings.Contains(got.body, `"urn:recount:problem:`+word+`"`) || strings.Contains(got.body, "person@") {
		t.Errorf("%s: %d %s, want %d %s", what, got.status, got.body, code, word)
	}
}

func TestTheListPagesThroughEverySourceOfTheTenantOnce(t *testing.T) {
	f := serve(t)
	var entries []suppression.Entry
	want := map[string]bool{}
	for i := range 1001 {
		s := source(t, "acme", fmt.Sprintf("person-%d@example.com", i))
		entries = append(entries, suppression.Entry{Source: s, Reason: suppression.ReasonSubject, ErasedAt: erasedAt, Erasure: s.Ref(salt)})
		want[s.Reference()] = true
	}
	if _, err := f.ledger.Record(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
	f.suppress(source(t, "globex", "somebody else's"))
	var pages []int
	for token, more := "", true; more; more = token != "" {
		var page wire.SuppressionList
		f.do("reader", http.MethodGet, list+"&page_token="+token, "").into(t, 200, &page)
		for _, e := range page.Entries {
			if !want[e.SourceRef] || e.Source != "crm" || e.Reason != suppression.ReasonSubject || !e.ErasedAt.Equal(erasedAt) {
				t.Errorf("listed twice, or wrong: %+v", e)
			}
			delete(want, e.SourceRef)
		}
		if page.TenantID != "acme" || page.Cell != "scoring" || page.Operation != "suppression_list" || page.GeneratedAt.IsZero() {
			t.Errorf("%+v", page)
		}
		pages, token = append(pages, len(page.Entries)), page.NextPageToken
	}
	if !slices.Equal(pages, []int{500, 500, 1}) || len(want) != 0 {
		t.Errorf("pages of %v, and %d never listed", pages, len(want))
	}
	rows := f.audit.took()
	if text := fmt.Sprint(rows); len(rows) != 3 || rows[0].Operation != "suppression_list" || rows[0].Status != "listed" ||
		rows[0].Store != "suppression_ledger" || rows[0].Actor != "reader@example.com" || strings.Contains(text, "person-") {
		t.Errorf("audited: %s", text)
	}
}

func TestAListThatCanNotBeMadeSaysWhy(t *testing.T) {
	f := serve(t)
	f.suppress(source(t, "acme", "person@example.com"))
	for what, c := range map[string]struct {
		caller, path string
		code         int
		word         string
	}{
		"a token of something else":  {"reader", list + "&page_token=person@example.com", 422, "unprocessable"},
		"a token that was cut":       {"reader", list + "&page_token=s1.", 422, "unprocessable"},
		"another tenant":             {"globex", list, 403, "forbidden"},
		"the wrong roles":            {"writer", list, 403, "forbidden"},
		"a role for allows alone":    {"allower", list, 403, "forbidden"},
		"no tenant":                  {"reader", "/v1/suppression", 400, "invalid-tenant-id"},
		"a tenant in another form":   {"reader", "/v1/suppression?tenant_id=ACME", 400, "invalid-tenant-id"},
		"a parameter it has not got": {"reader", list + "&limit=5", 400, "invalid-query"},
		"nobody":                     {"", list, 401, "unauthenticated"},
	} {
		wantProblem(t, what, f.do(c.caller, http.MethodGet, c.path, ""), c.code, c.word)
	}
	if rows := f.audit.took(); len(rows) != 0 {
		t.Errorf("audited as lists: %v", rows)
	}
}

func TestALedgerThatCanNotBeReadIsNotTakenForAnEmptyOne(t *testing.T) {
	f := serve(t)
	f.closeLedger()
	got := f.do("reader", http.MethodGet, list, "")
	wantProblem(t, "the list", got, 503, "unavailable")
	if !strings.Contains(got.body, "suppression_failed") || got.header.Get("Retry-After") == "" {
		t.Errorf("%v %s", got.header, got.body)
	}
	if rows := f.audit.took(); len(rows) != 1 || rows[0].Status != "failed" {
		t.Errorf("audited: %v", rows)
	}
}

func item(ref string, parents ...string) map[string]any {
	out := map[string]any{"source": "crm", "source_ref": ref}
	var from []any
	for _, p := range parents {
		from = append(from, map[string]any{"source": "crm", "source_ref": p})
	}
	if from != nil {
		out["derived_from"] = from
	}
	return out
}

func checkOf(items ...map[string]any) map[string]any {
	return map[string]any{"tenant_id": "acme", "items": items}
}

func TestACheckAnswersEachRecordInOrder(t *testing.T) {
	f := serve(t)
	f.suppress(source(t, "acme", "person@example.com"), source(t, "globex", "theirs"))
	var said wire.CheckResponse
	f.post("writer", "check", checkOf(
		item("free"), item("person@example.com"), item("theirs"), item("grandchild", "other", "child"), item("child", "free", "person@example.com"), item("own", "free"),
	)).into(t, 200, &said)
	if want := []string{"admitted", "suppressed", "admitted", "suppressed", "suppressed", "admitted"}; !slices.Equal(said.Verdicts, want) {
		t.Errorf("%v, want %v", said.Verdicts, want)
	}
	if said.TenantID != "acme" || said.Cell != "scoring" || said.Operation != "suppression_check" || said.RequestID == "" {
		t.Errorf("%+v", said)
	}
	var page wire.SuppressionList
	f.do("reader", http.MethodGet, list, "").into(t, 200, &page)
	reasons := map[string]string{}
	for _, e := range page.Entries {
		reasons[e.SourceRef] = e.Reason
	}
	if len(reasons) != 3 || reasons["child"] != suppression.ReasonDerived || reasons["grandchild"] != suppression.ReasonDerived {
		t.Errorf("what derives was not remembered: %v", reasons)
	}
	f.post("writer", "check", checkOf(item("latecomer", "grandchild"))).into(t, 200, &said)
	if !slices.Equal(said.Verdicts, []string{"suppressed"}) {
		t.Errorf("what derives from a derived one: %v", said.Verdicts)
	}
}

func TestACheckOfALedgerThatCanNotBeReadAdmitsNothing(t *testing.T) {
	f := serve(t)
	f.closeLedger()
	var said wire.CheckResponse
	f.post("writer", "check", checkOf(item("a"), item("b", "a"))).into(t, 200, &said)
	if !slices.Equal(said.Verdicts, []string{"unreadable", "unreadable"}) {
		t.Errorf("%v", said.Verdicts)
	}
}

func TestACheckTakesOneToAThousandWellNamedRecordsOfAnAllowedTenant(t *testing.T) {
	f := serve(t)
	many := func(n int) map[string]any {
		items := make([]map[string]any, n)
		for i := range items {
			items[i] = item(fmt.Sprint(i))
		}
		return checkOf(items...)
	}
	var said wire.CheckResponse
	if f.post("writer", "check", many(1000)).into(t, 200, &said); len(said.Verdicts) != 1000 {
		t.Errorf("%d verdicts", len(said.Verdicts))
	}
	parent := item("child", "p")
	parent["derived_from"] = []any{map[string]any{"source": "crm"}}
	for what, c := range map[string]struct {
		caller string
		body   map[string]any
		code   int
		word   string
	}{
		"none":                       {"writer", many(0), 422, "unprocessable"},
		"no list":                    {"writer", with(many(1), "items", nil), 422, "unprocessable"},
		"a thousand and one":         {"writer", many(1001), 422, "unprocessable"},
		"a record without a name":    {"writer", checkOf(item("a"), map[string]any{"source": "crm"}), 422, "unprocessable"},
		"a parent without a name":    {"writer", checkOf(parent), 422, "unprocessable"},
		"a reference that is long":   {"writer", checkOf(item(strings.Repeat("x", subject.MaxSourceRefBytes+1))), 422, "unprocessable"},
		"a field that nobody knows":  {"writer", checkOf(with(item("a"), "identity_id", "person@example.com")), 400, "invalid-body"},
		"another tenant":             {"globex", many(1), 403, "forbidden"},
		"no role to write":           {"reader", many(1), 403, "forbidden"},
		"a tenant in another form":   {"writer", with(many(1), "tenant_id", "ACME"), 400, "invalid-tenant-id"},
		"a caller that only may let": {"allower", many(1), 403, "forbidden"},
	} {
		wantProblem(t, what, f.post(c.caller, "check", c.body), c.code, c.word)
	}
}

var backfill = map[string]any{
	"tenant_id": "acme", "table": "erased", "source_column": "source", "ref_column": "source_ref", "erased_at_column": "erased_at",
}

func TestABackfillIsPassedOnAndAudited(t *testing.T) {
	f := serve(t)
	f.backfill.out = wire.BackfillResponse{Seen: 7, Recorded: 4, Rejected: 1, NextCursor: "n1"}
	byColumn := with(with(backfill, "tenant_id", nil), "tenant_column", "tenant")
	for _, body := range []map[string]any{with(backfill, "cursor", "c1"), byColumn} {
		var said wire.BackfillResponse
		f.post("eraser", "backfill", body).into(t, 200, &said)
		if said.Seen != 7 || said.Recorded != 4 || said.Rejected != 1 || said.NextCursor != "n1" || said.Cell != "scoring" ||
			said.Operation != "suppression_backfill" || said.RequestID == "" {
			t.Errorf("%+v", said)
		}
	}
	want := wire.BackfillRequest{TenantID: "acme", Table: "erased", SourceColumn: "source", RefColumn: "source_ref", ErasedAtColumn: "erased_at", Cursor: "c1"}
	if len(f.backfill.asked) != 2 || f.backfill.asked[0] != want || f.backfill.asked[1].TenantColumn != "tenant" || f.backfill.asked[1].TenantID != "" {
		t.Errorf("asked for %+v", f.backfill.asked)
	}
	f.post("globex", "backfill", with(backfill, "tenant_id", "globex"))
	var got []string
	for _, r := range f.audit.took() {
		got = append(got, strings.Join([]string{r.Operation, r.Status, r.TenantID, r.Store, r.Actor}, " "))
	}
	if want := []string{
		"suppression_backfill recorded acme suppression_ledger eraser@example.com", "suppression_backfill recorded  suppression_ledger eraser@example.com",
		"suppression_backfill recorded globex suppression_ledger globex@example.com",
	}; !slices.Equal(got, want) {
		t.Errorf("audited %q", got)
	}
}

func TestABackfillNamesOneTenantOrIsOfACallerForAll(t *testing.T) {
	f := serve(t)
	byColumn := with(with(backfill, "tenant_id", nil), "tenant_column", "tenant")
	for what, c := range map[string]struct {
		caller string
		body   map[string]any
		code   int
		word   string
	}{
		"both":                                {"eraser", with(backfill, "tenant_column", "tenant"), 422, "unprocessable"},
		"neither":                             {"eraser", with(backfill, "tenant_id", nil), 422, "unprocessable"},
		"both empty":                          {"eraser", with(with(backfill, "tenant_id", ""), "tenant_column", ""), 422, "unprocessable"},
		"any tenant, by a caller for one":     {"globex", byColumn, 403, "forbidden"},
		"another tenant, by a caller for one": {"globex", backfill, 403, "forbidden"},
		"a tenant in another form":            {"eraser", with(backfill, "tenant_id", "ACME"), 400, "invalid-tenant-id"},
		"no role to erase":                    {"writer", backfill, 403, "forbidden"},
		"a role for allows alone":             {"allower", backfill, 403, "forbidden"},
	} {
		wantProblem(t, what, f.post(c.caller, "backfill", c.body), c.code, c.word)
	}
	if len(f.backfill.asked) != 0 {
		t.Errorf("taken up all the same: %+v", f.backfill.asked)
	}
}

func TestABackfillThatFailsSaysWhyAndIsNotAuditedAsDone(t *testing.T) {
	f := serve(t)
	for _, c := range []struct {
		err        error
		code       int
		word, told string
	}{
		{&suppressionapi.BackfillError{Problem: "no such table"}, 422, "unprocessable", "no such table"},
		{fmt.Errorf("at the table: %w", suppression.ErrCursor), 422, "unprocessable", "cursor"},
		{&subject.Fault{Reason: subject.ReasonQuota, Cause: errors.New("person@example.com")}, 503, "unavailable", "quota"},
		{errors.New("person@example.com"), 503, "unavailable", "suppression_failed"},
	} {
		f.backfill.err = c.err
		got := f.post("eraser", "backfill", backfill)
		wantProblem(t, c.told, got, c.code, c.word)
		if !strings.Contains(got.body, c.told) {
			t.Errorf("%s is not told: %s", c.told, got.body)
		}
	}
	if rows := f.audit.took(); len(rows) != 0 {
		t.Errorf("audited: %v", rows)
	}
}
