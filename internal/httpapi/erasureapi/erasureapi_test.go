package erasureapi_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"recount/internal/auth"
	"recount/internal/wire"
)

// routes are all that a principal can ask for, about a request of that id.
func routes(id string) map[string]string {
	out := map[string]string{
		root: http.MethodPost, root + "?tenant_id=acme": http.MethodGet, root + "/keys": http.MethodGet, root + "/" + id: http.MethodGet,
	}
	for _, what := range []string{"report", "report.html", "certificate"} {
		out[root+"/"+id+"/"+what] = http.MethodGet
	}
	for verb := range ownFields {
		out[root+"/"+id+":"+verb] = http.MethodPost
	}
	return out
}

func TestNobodyButAPrincipalReachesAnErasureRequest(t *testing.T) {
	f := serve(t)
	id := f.file(filing())
	before := len(f.audit.said())
	for path, method := range routes(id) {
		for what, header := range map[string][]string{
			"nobody":                       nil,
			"a caller with every role":     {"Authorization", "all"},
			"two principals":               {auth.HeaderDevPrincipal, anna, auth.HeaderDevPrincipal, ben},
			"the same principal twice":     {auth.HeaderDevPrincipal, anna, auth.HeaderDevPrincipal, anna},
			"no address":                   {auth.HeaderDevPrincipal, "anna"},
			"an empty address":             {auth.HeaderDevPrincipal, ""},
			"a caller with half a sign-in": {"Authorization", "all", auth.HeaderDevPrincipal, "anna@"},
		} {
			body := ""
			if method == http.MethodPost {
				body = filing().text()
			}
			f.wantProblem(what+" at "+path, f.send(method, path, body, header...), 401, "unauthenticated")
		}
	}
	if rows := f.audit.said(); len(rows) != before {
		t.Errorf("audited %q", rows[before:])
	}
}

func TestARequestIsFiledAndFoundWhereItIsSaidToBe(t *testing.T) {
	f := serve(t)
	received := time.Date(2026, 1, 31, 9, 0, 0, 0, time.UTC)
	got := f.as(anna, http.MethodPost, root, filing().with("received_at", received).text())
	var filed, shown wire.Request
	got.into(t, 201, &filed)
	if got.header.Get("Location") != root+"/"+filed.ID {
		t.Errorf("at %q, not at %s", got.header.Get("Location"), filed.ID)
	}
	f.as(ben, http.MethodGet, got.header.Get("Location"), "").into(t, 200, &shown)
	for what, r := range map[string]wire.Request{"filed": filed, "shown": shown} {
		if r.State != "filed" || r.Persons != 2 || r.FiledBy.Email != anna || len(r.Stages) != 8 || len(r.History) != 1 ||
			!r.DueAt.Equal(time.Date(2026, 2, 28, 9, 0, 0, 0, time.UTC)) || len(r.SubjectRef) != 64 {
			t.Errorf("%s: %+v", what, r)
		}
	}
	if said := f.audit.last(); said != "request_file done  "+anna {
		t.Errorf("audited %q", said)
	}
}

func TestEveryFaultOfAFilingIsNamedAtOnceAndNoneQuoted(t *testing.T) {
	f := serve(t)
	const quoted = "Quoted-1"
	all := filing()
	var words []string
	for _, c := range []struct {
		field string
		value any
		word  string
	}{
		{"kind", quoted, "kind"},
		{"tenant_id", quoted, "tenant_id"},
		{"legal_ref", quoted, "legal_ref"},
		{"policy", quoted, "policy"},
		{"received_at", time.Now().Add(time.Hour).UTC(), "received_at"},
		{"received_at", time.Now().AddDate(-6, 0, 0).UTC(), "received_at"},
		{"callback_url", "https://elsewhere.example/" + quoted, "callback_url"},
		{"descriptor", fields{"identifier_strings": []fields{{"value": quoted, "strength": "faint"}}}, "identifier_strings[0]"},
		{"descriptor", fields{"person_ids": []string{quoted, quoted}}, "person_ids[1]"},
		{"descriptor", fields{"person_ids": []string{quoted + "\n"}}, "person_ids[0]"},
		{"descriptor", fields{"whole_sources": []fields{{"source": "", "source_ref": quoted}}}, "whole_sources[0]"},
		{"recipients", []fields{{"name": quoted}, {"name": "Customer-77", "callback_url": "https://hooks.example/x"}}, "recipients[0]"},
		{"recipients", []fields{{"name": "a house", "status": "impossible", "reason": "of Customer-77"}}, "recipients[0]"},
	} {
		got := f.as(anna, http.MethodPost, root, filing().with(c.field, c.value).text())
		f.wantProblem(c.word, got, 422, "unprocessable")
		if !strings.Contains(got.body, c.word) || strings.Contains(got.body, quoted) {
			t.Errorf("%s: %s", c.word, got.body)
		}
		all, words = all.with(c.field, c.value), append(words, c.word)
	}
	all = all.with("descriptor", fields{"person_ids": []string{"Customer-77", "Customer-77"}})
	got := f.as(anna, http.MethodPost, root, all.text())
	for _, word := range words {
		if word = strings.SplitN(word, "[", 2)[0]; !strings.Contains(got.body, word) && word != "identifier_strings" && word != "whole_sources" {
			t.Errorf("%s is not named with the others: %s", word, got.body)
		}
	}
	for _, row := range f.audit.said() {
		if row != "request_file refused invalid "+anna {
			t.Errorf("audited %q", row)
		}
	}
}

func TestWhatStandsInPlaceOfATenantIsNotAudited(t *testing.T) {
	f := serve(t)
	f.wantProblem("a person for a tenant", f.as(anna, http.MethodPost, root, filing().with("tenant_id", "person@example.com").text()), 422, "unprocessable")
	if rows := f.audit.rows; len(rows) != 1 || rows[0].TenantID != "-" {
		t.Errorf("%+v", rows)
	}
}

func TestATenantAsAWholeIsStillToCome(t *testing.T) {
	f := serve(t)
	got := f.as(anna, http.MethodPost, root, filing().with("kind", "tenant").text())
	if f.wantProblem("kind tenant", got, 422, "unprocessable"); !strings.Contains(got.body, "still to come") {
		t.Error(got.body)
	}
}

func TestAFilingIsOneStrictObject(t *testing.T) {
	f := serve(t)
	for what, body := range map[string]string{
		"an unknown field": filing().with("Kind", "subject").text(), "two objects": filing().text() + "{}", "a list": "[]", "nothing": "",
		"an unknown field within": filing().with("descriptor", fields{"emails": []string{"a"}}).text(),
	} {
		got := f.send(http.MethodPost, root, body, auth.HeaderDevPrincipal, anna, "Content-Type", "application/json")
		f.wantProblem(what, got, 400, "invalid-body")
	}
	f.wantProblem("plain text", f.send(http.MethodPost, root, "", auth.HeaderDevPrincipal, anna, "Content-Type", "text/plain"), 415, "unsupported-media-type")
}

func TestThereIsNoRequestOfAnUnknownOrMalformedID(t *testing.T) {
	f := serve(t)
	known := f.file(filing())
	for _, id := range []string{
		"0192f0c8-7d2b-7c6f-9a3e-1b2c3d4e5f60", "x", "-", strings.ToUpper(known), known + "0", known[:35], known + "%20", "%2e%2e", strings.Repeat("a", 2000),
	} {
		for path, method := range routes(id) {
			if !strings.HasPrefix(path, root+"/"+id) {
				continue
			}
			body := ""
			if method == http.MethodPost {
				body = ownFields[path[strings.LastIndex(path, ":")+1:]].text()
			}
			f.wantProblem(path, f.as(anna, method, path, body), 404, "not-found")
		}
	}
	for _, path := range []string{"/", "/" + known + "/", "/" + known + "/Report", "/" + known + "/report/", "/" + known + ":", "/" + known + ":Approve", "/" + known + ":erase", "/" + known + "/report:preview"} {
		f.wantProblem(path, f.as(anna, http.MethodGet, root+path, ""), 404, "not-found")
		if strings.Contains(path, ":") {
			f.wantProblem(path, f.as(anna, http.MethodPost, root+path, "{}"), 404, "not-found")
		}
	}
}

func TestEachResourceTakesItsOwnMethodAlone(t *testing.T) {
	f := serve(t)
	id := f.file(filing())
	for path, method := range routes(id) {
		wrong, allow := http.MethodGet, method
		if method == http.MethodGet {
			wrong = http.MethodPost
		}
		if strings.HasPrefix(path, root+"?") || path == root {
			wrong, allow = http.MethodDelete, "GET, POST"
		}
		got := f.as(anna, wrong, path, "")
		if f.wantProblem(wrong+" "+path, got, 405, "method-not-allowed"); got.header.Get("Allow") != allow {
			t.Errorf("%s allows %q", path, got.header.Get("Allow"))
		}
	}
}

func TestTheRequestsOfATenantComeInPagesTheNewestFirst(t *testing.T) {
	f := serve(t)
	other := f.file(filing().with("tenant_id", "globex"))
	var filed []string
	for range 51 {
		filed = append(filed, f.file(filing()))
	}
	slices.Reverse(filed)
	var page struct {
		Requests []request `json:"requests"`
		Next     string    `json:"next_page_token"`
	}
	var got []string
	for token, pages := "", 0; pages == 0 || token != ""; pages++ {
		f.as(ben, http.MethodGet, root+"?tenant_id=acme&page_token="+token, "").into(t, 200, &page)
		for _, r := range page.Requests {
			got = append(got, r.ID)
		}
		if token = page.Next; pages > 1 {
			t.Fatal("no end")
		}
	}
	if !slices.Equal(got, filed) {
		t.Errorf("%d of %d, in another order", len(got), len(filed))
	}
	if f.as(ben, http.MethodGet, root+"?tenant_id=globex", "").into(t, 200, &page); len(page.Requests) != 1 || page.Requests[0].ID != other || page.Next != "" {
		t.Errorf("%+v", page)
	}
	if got := f.as(ben, http.MethodGet, root+"?tenant_id=nobody", ""); got.status != 200 || !strings.Contains(got.body, `"requests":[]`) {
		t.Errorf("%d %s", got.status, got.body)
	}
	for query, word := range map[string]string{
		"": "invalid-tenant-id", "?tenant_id=Acme": "invalid-tenant-id", "?tenant_id=acme&page_token=x": "invalid-page-token",
		"?tenant_id=acme&tenant_id=acme": "invalid-query", "?tenant_id=acme&state=filed": "invalid-query",
	} {
		f.wantProblem(query, f.as(ben, http.MethodGet, root+query, ""), 400, word)
	}
}

func TestDrivingIsForASchedulersRoleAndForNoPrincipal(t *testing.T) {
	f := serve(t)
	const path = root + ":resume"
	f.wantProblem("nobody", f.send(http.MethodPost, path, ""), 401, "unauthenticated")
	f.wantProblem("a principal", f.as(anna, http.MethodPost, path, ""), 401, "unauthenticated")
	f.wantProblem("a caller that may everything else", f.send(http.MethodPost, path, "", "Authorization", "others"), 403, "forbidden")
	f.wantProblem("a body", f.send(http.MethodPost, path, "{}", "Authorization", "scheduler"), 400, "invalid-body")
	f.wantProblem("reading it", f.send(http.MethodGet, path, "", "Authorization", "scheduler"), 405, "method-not-allowed")
	id, digest := f.ready(filing())
	wantDriven := func(when string, driven int) {
		var said wire.ResumeResponse
		if f.send(http.MethodPost, path, "", "Authorization", "scheduler").into(t, 200, &said); said.Driven != driven || said.Left != 0 {
			t.Errorf("%s: %+v", when, said)
		}
	}
	f.did(anna, id, "approve", fields{"preview_digest": digest})
	wantDriven("with one approval", 0)
	f.did(ben, id, "approve", fields{"preview_digest": digest})
	wantDriven("with two", 1)
	wantDriven("when it is closed", 0)
	if r := f.show(id); r.State != "closed" {
		t.Errorf("%+v", r)
	}
}

// show is the request as it is now.
func (f *fixture) show(id string) (r request) {
	f.t.Helper()
	f.as(ben, http.MethodGet, root+"/"+id, "").into(f.t, 200, &r)
	return r
}
