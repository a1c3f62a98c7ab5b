package erasureapi_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"recount/internal/wire"
)

// closed is a request that was carried out.
func (f *fixture) closed(body fields) string {
	f.t.Helper()
	id, digest := f.ready(body)
	f.did(anna, id, "approve", fields{"preview_digest": digest})
	f.did(ben, id, "approve", fields{"preview_digest": digest})
	must(0, f.drive())(f.t)
	return id
}

func TestTheWholeWayFromFilingToTheCertificate(t *testing.T) {
	f := serve(t)
	id := f.file(filing())
	if r := f.did(ben, id, "verify-identity", fields{"method": "signed in"}); r.State != "verified" {
		t.Errorf("%+v", r)
	}
	previewed := f.did(anna, id, "preview", fields{})
	if previewed.State != "previewed" || previewed.Preview == nil {
		t.Fatalf("%+v", previewed)
	}
	body := fields{"preview_digest": previewed.Preview.Digest}
	if r := f.did(anna, id, "approve", body); r.State != "previewed" || len(r.Approved) != 1 {
		t.Errorf("%+v", r)
	}
	if r := f.did(ben, id, "approve", body); r.State != "approved" || len(r.Approved) != 2 {
		t.Errorf("%+v", r)
	}
	must(0, f.drive())(t)
	r := f.show(id)
	if r.State != "closed" || len(r.Stores) != 2 || r.Stores[0].Status != "erased" || r.Stores[1].Status != "erased" {
		t.Errorf("%+v", r)
	}
	f.wantRefused(ben, id, "approve", body, "state")
	var said wire.CertificateResponse
	f.as(ben, http.MethodGet, root+"/"+id+"/certificate", "").into(t, 200, &said)
	var keys wire.KeysResponse
	f.as(ben, http.MethodGet, root+"/keys", "").into(t, 200, &keys)
	if !strings.HasPrefix(said.Certificate, "recount certificate v1\n") || len(said.Opening) != 64 || len(keys.Keys) != 1 || !slices.Equal(said.Keys, keys.Keys) ||
		strings.Contains(said.Certificate, string(f.refOf(id))) {
		t.Errorf("%+v, keys %q", said, keys.Keys)
	}
	want := []string{
		"request_file done  " + anna, "request_verify_identity done  " + ben, "request_preview done  " + anna, "request_approve done  " + anna,
		"request_approve done  " + ben,
	}
	rows := f.audit.said()
	if !slices.Equal(rows[:len(want)], want) || f.audit.last() != "request_certificate done  "+ben {
		t.Errorf("audited %q", rows)
	}
	erased := 0
	for _, row := range rows {
		if strings.HasPrefix(row, "erase erased ") && strings.HasSuffix(row, anna+","+ben) {
			erased++
		}
	}
	if erased != 4 { // two people in two stores
		t.Errorf("audited %q", rows)
	}
}

// refOf is the pseudonym of whom the request means.
func (f *fixture) refOf(id string) string {
	f.t.Helper()
	var r struct {
		Ref string `json:"subject_ref"`
	}
	f.as(ben, http.MethodGet, root+"/"+id, "").into(f.t, 200, &r)
	return r.Ref
}

func TestThereIsNoCertificateBeforeTheRequestIsClosed(t *testing.T) {
	f := serve(t)
	id, _ := f.ready(filing())
	f.wantProblem("a certificate", f.as(ben, http.MethodGet, root+"/"+id+"/certificate", ""), 409, "refused")
	if said := f.audit.last(); said != "request_certificate refused not_closed "+ben {
		t.Errorf("audited %q", said)
	}
}

func TestWhatIsExcludedIsRetainedAndNeverCalledErased(t *testing.T) {
	f := serve(t)
	id := f.file(filing())
	f.did(anna, id, "verify-identity", fields{"method": "signed in"})
	f.did(anna, id, "preview", fields{})
	f.did(anna, id, "exclude", ownFields["exclude"])
	digest := f.did(anna, id, "preview", fields{}).Preview.Digest
	f.did(anna, id, "approve", fields{"preview_digest": digest})
	f.did(ben, id, "approve", fields{"preview_digest": digest})
	must(0, f.drive())(t)
	r := f.show(id)
	if r.State != "closed" || len(r.Stores) != 2 || r.Stores[0].Status != "erased" || r.Stores[1].Status != "retained_article_17_3" {
		t.Errorf("%+v", r)
	}
	if page := f.as(ben, http.MethodGet, root+"/"+id+"/report.html", ""); !strings.Contains(page.body, "retained under Art. 17(3)(b)") {
		t.Error(page.body)
	}
}

func TestIdentifierStringsThatNothingIsSearchedForLeaveARequestUnverified(t *testing.T) {
	f := serve(t)
	d := fields{"person_ids": []string{"person@example.com"}, "identifier_strings": []fields{{"value": "+43 1 5550", "strength": "strong"}}}
	id := f.closed(filing().with("descriptor", d))
	if r := f.show(id); r.State != "closed_unverified_strings" {
		t.Errorf("%+v", r)
	}
}

func TestAReportIsThereAtEveryTimeAndAudited(t *testing.T) {
	f := serve(t)
	var said struct {
		Outcome   string            `json:"outcome"`
		Before    int64             `json:"rows_before"`
		Remaining int64             `json:"rows_remaining"`
		Entries   []json.RawMessage `json:"ledger_entries"`
		Surfaces  map[string]string `json:"surfaces"`
	}
	early := f.file(filing())
	if f.as(ben, http.MethodGet, root+"/"+early+"/report", "").into(t, 200, &said); said.Outcome != "filed" || said.Surfaces["close"] != "waiting" {
		t.Errorf("%+v", said)
	}
	id := f.closed(filing())
	f.as(ben, http.MethodGet, root+"/"+id+"/report", "").into(t, 200, &said)
	if said.Outcome != "closed" || said.Before != 10 || said.Remaining != 0 || len(said.Entries) == 0 || said.Surfaces["close"] != "done" || said.Surfaces["shred"] != "not_applicable" {
		t.Errorf("%+v", said)
	}
	if row := f.audit.last(); row != "request_report done  "+ben {
		t.Errorf("audited %q", row)
	}
}

func TestTheReportsPageLoadsNothingFromAnywhere(t *testing.T) {
	f := serve(t)
	id := f.closed(filing())
	got := f.as(ben, http.MethodGet, root+"/"+id+"/report.html", "")
	policies := got.header.Values("Content-Security-Policy")
	if got.status != 200 || got.header.Get("Content-Type") != "text/html; charset=utf-8" || len(policies) != 1 ||
		!strings.Contains(policies[0], "default-src 'none'") || !strings.Contains(policies[0], "style-src 'unsafe-inline'") || strings.Contains(policies[0], "script-src") {
		t.Errorf("%d, %v", got.status, got.header)
	}
	for _, reference := range []string{"http:", "https:", "src=", "href=", "url(", "@import", "<script", "<form"} {
		if strings.Contains(got.body, reference) {
			t.Errorf("the page has a %s", reference)
		}
	}
	if !strings.Contains(got.body, id) || !strings.Contains(got.body, `class="verdict closed"`) {
		t.Error(got.body)
	}
	if row := f.audit.last(); row != "request_report done  "+ben {
		t.Errorf("audited %q", row)
	}
	if other := f.as(ben, http.MethodGet, root+"/"+id, ""); strings.Contains(other.header.Get("Content-Security-Policy"), "style-src") {
		t.Errorf("every answer lets styles apply: %v", other.header)
	}
}
