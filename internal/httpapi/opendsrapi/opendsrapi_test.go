package opendsrapi_test

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"recount/internal/erasure"
	"recount/internal/httpapi/opendsrapi"
	"recount/internal/wire"
)

const (
	requests = "/opendsr/acme/requests"
	first    = "a7551968-d5d6-44b2-9831-815ac9017798"
	second   = "0e3d7cf8-6e84-4b0c-8a4f-8f7f0d3c2b1a"
)

func identity(kind, value string) map[string]any {
	return map[string]any{"identity_type": kind, "identity_value": value, "identity_format": "raw"}
}

// request is a body, with some members changed; nil takes one out.
func (f *fixture) request(changes map[string]any) string {
	f.t.Helper()
	body := map[string]any{
		"regulation": "gdpr", "subject_request_id": first, "subject_request_type": "erasure", "submitted_time": "2026-05-03T10:00:00+02:00",
		"subject_identities":   []any{identity("controller_customer_id", "zora-1"), identity("email", "Zora@Example.com")},
		"api_version":          "2.0",
		"status_callback_urls": []string{f.hook.url + "/status"},
		"extensions":           map[string]any{"example.com": map[string]any{"anything": []int{1}}},
	}
	maps.Copy(body, changes)
	maps.DeleteFunc(body, func(_ string, v any) bool { return v == nil })
	text, err := json.Marshal(body)
	if err != nil {
		f.t.Fatal(err)
	}
	return string(text)
}

// filed are the requests of the tenant.
func (f *fixture) filed() []wire.Request {
	f.t.Helper()
	list, err := f.service.List(f.t.Context(), "acme", "")
	if err != nil {
		f.t.Fatal(err)
	}
	return list.Requests
}

func TestDiscoverySaysWhatIsSupported(t *testing.T) {
	f := serve(t)
	got := f.do("dsar", http.MethodGet, "/opendsr/acme/discovery", "")
	want := `{"api_version":"2.0","supported_identities":[{"identity_type":"controller_customer_id","identity_format":"raw"},` +
		`{"identity_type":"email","identity_format":"raw"}],"supported_subject_request_types":["erasure"],` +
		`"processor_certificate":"https://dsr.example.com/opendsr/certificate.pem"}`
	if got.status != http.StatusOK || got.body != want {
		t.Errorf("%d %s", got.status, got.body)
	}
	if got = f.do("", http.MethodGet, "/opendsr/certificate.pem", ""); got.status != http.StatusOK || got.header.Get("Content-Type") != "application/x-pem-file" {
		t.Errorf("%d %v", got.status, got.header)
	}
}

func TestARequestIsFiledAndNeitherVerifiedNorApproved(t *testing.T) {
	f := serve(t)
	body := f.request(nil)
	got := f.do("dsar", http.MethodPost, requests, body).into(t, http.StatusCreated)
	want := map[string]any{
		"controller_id": "dsar@example.com", "expected_completion_time": "2026-06-03T08:00:00Z", "received_time": "2026-05-04T03:02:01Z",
		"encoded_request": base64.StdEncoding.EncodeToString([]byte(body)), "subject_request_id": first,
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v", got)
	}
	all := f.filed()
	if len(all) != 1 {
		t.Fatalf("%d are filed", len(all))
	}
	r := all[0]
	if r.State != erasure.Filed || r.Verification != nil || len(r.Approvals) != 0 || r.LegalRef != "17(1)(b)" || r.Policy != "delete" ||
		r.Persons != 2 || r.FiledBy != (wire.Principal{Sub: "1", Email: "dsar@example.com"}) || !r.ReceivedAt.Equal(time.Date(2026, 5, 3, 8, 0, 0, 0, time.UTC)) {
		t.Errorf("%+v", r)
	}
	d, err := f.service.Descriptor(t.Context(), wire.Principal{}, r.ID)
	if err != nil || !slices.Equal(d.PersonIDs, []string{"zora-1", "person-email:zora@example.com"}) {
		t.Errorf("%v %v", d, err)
	}
	got = f.do("dsar", http.MethodGet, requests+"/"+first, "").into(t, http.StatusOK)
	want = map[string]any{
		"controller_id": "dsar@example.com", "expected_completion_time": "2026-06-03T08:00:00Z", "subject_request_id": first,
		"request_status": "pending", "api_version": "2.0", "results_url": nil,
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v", got)
	}
	page, _, err := f.index.List(t.Context(), "acme", "", 10)
	if err != nil || len(page) != 1 || len(page[0].ID) != 48 || strings.Contains(strings.ToLower(string(page[0].Body)), "zora") {
		t.Errorf("the index: %v %v", page, err)
	}
}

func TestAskingAgainFilesNothingTwice(t *testing.T) {
	f := serve(t)
	body := f.request(map[string]any{"controller_id": "acme-crm", "extensions": map[string]any{"recount": map[string]any{"legal_ref": "17(1)(d)"}}})
	one := f.do("dsar", http.MethodPost, requests, body)
	f.clock.move(40 * 24 * time.Hour)
	if again := f.do("dsar", http.MethodPost, requests, body); again.status != http.StatusCreated || again.body != one.body {
		t.Errorf("%d %s\n%s", again.status, again.body, one.body)
	}
	f.do("dsar", http.MethodPost, requests, f.request(nil)).problem(t, "another body", http.StatusConflict, "conflict")
	f.do("dsar", http.MethodPost, requests, f.request(map[string]any{"subject_request_id": strings.ToUpper(first)})).
		problem(t, "another case", http.StatusConflict, "conflict")
	f.do("other", http.MethodPost, requests, body).problem(t, "another controller", http.StatusConflict, "conflict")
	if all := f.filed(); len(all) != 1 || all[0].LegalRef != "17(1)(d)" {
		t.Errorf("%+v", all)
	}
	if got := f.do("dsar", http.MethodPost, "/opendsr/globex/requests", body); got.status != http.StatusCreated {
		t.Errorf("for another tenant: %d %s", got.status, got.body)
	}
}

func TestTwentyAtATimeFileOneRequest(t *testing.T) {
	f := serve(t)
	for range 5 {
		body := f.request(map[string]any{"subject_request_id": uuid.NewString()})
		before := len(f.filed())
		answers := make([]answer, 20)
		var wg sync.WaitGroup
		for i := range answers {
			wg.Go(func() { answers[i] = f.do("dsar", http.MethodPost, requests, body) })
		}
		wg.Wait()
		for _, a := range answers {
			if a.status != http.StatusCreated || a.body != answers[0].body {
				t.Errorf("%d %s", a.status, a.body)
			}
		}
		all := f.filed()
		if len(all) != before+1 {
			t.Fatalf("%d are filed", len(all)-before)
		}
		if _, err := f.service.Descriptor(t.Context(), wire.Principal{}, all[0].ID); err != nil {
			t.Errorf("the key is gone: %v", err)
		}
	}
}

func TestWhatDiedBetweenTheStepsIsFiledTheNextTime(t *testing.T) {
	f := serve(t)
	body := f.request(nil)
	f.service.dies = true
	f.do("dsar", http.MethodPost, requests, body).problem(t, "dying", http.StatusServiceUnavailable, "unavailable")
	f.do("dsar", http.MethodGet, requests+"/"+first, "").problem(t, "not filed yet", http.StatusNotFound, "not-found")
	f.service.dies = false
	f.clock.move(time.Hour)
	for range 2 {
		if got := f.do("dsar", http.MethodPost, requests, body).into(t, http.StatusCreated); got["received_time"] != "2026-05-04T03:02:01Z" {
			t.Errorf("%v", got)
		}
	}
	if n := len(f.filed()); n != 1 {
		t.Errorf("%d are filed", n)
	}
}

func TestWhoMayDoWhat(t *testing.T) {
	f := serve(t)
	body := f.request(nil)
	f.do("dsar", http.MethodPost, requests, body).into(t, http.StatusCreated)
	one := requests + "/" + first
	for _, c := range []struct {
		caller, method, path, body string
		status                     int
		word                       string
	}{
		{"", http.MethodPost, requests, body, http.StatusUnauthorized, "unauthenticated"},
		{"reader", http.MethodGet, one, "", http.StatusForbidden, "forbidden"},
		{"reader", http.MethodPost, requests, body, http.StatusForbidden, "forbidden"},
		{"globex", http.MethodPost, requests, body, http.StatusForbidden, "forbidden"},
		{"globex", http.MethodGet, one, "", http.StatusForbidden, "forbidden"},
		{"globex", http.MethodDelete, one, "", http.StatusForbidden, "forbidden"},
		{"globex", http.MethodGet, "/opendsr/acme/discovery", "", http.StatusForbidden, "forbidden"},
		{"other", http.MethodGet, one, "", http.StatusNotFound, "not-found"},
		{"other", http.MethodDelete, one, "", http.StatusNotFound, "not-found"},
		{"dsar", http.MethodGet, "/opendsr/globex/requests/" + first, "", http.StatusNotFound, "not-found"},
		{"dsar", http.MethodGet, requests + "/" + second, "", http.StatusNotFound, "not-found"},
		{"dsar", http.MethodGet, requests + "/" + f.filed()[0].ID, "", http.StatusNotFound, "not-found"}, // our own id
		{"dsar", http.MethodGet, "/opendsr/Acme/discovery", "", http.StatusBadRequest, "invalid-tenant-id"},
		{"dsar", http.MethodPost, one + "/approve", "{}", http.StatusNotFound, "not-found"},
		{"dsar", http.MethodPost, one + ":approve", "{}", http.StatusNotFound, "not-found"},
		{"dsar", http.MethodPost, one, "{}", http.StatusMethodNotAllowed, "method-not-allowed"},
		{"dsar", http.MethodPatch, one, "{}", http.StatusMethodNotAllowed, "method-not-allowed"},
		{"dsar", http.MethodPut, one, "{}", http.StatusMethodNotAllowed, "method-not-allowed"},
		{"dsar", http.MethodGet, requests, "", http.StatusMethodNotAllowed, "method-not-allowed"},
		{"dsar", http.MethodDelete, one, "{}", http.StatusBadRequest, "invalid-body"},
	} {
		f.do(c.caller, c.method, c.path, c.body).problem(t, c.caller+" "+c.method+" "+c.path, c.status, c.word)
	}
	if r := f.filed(); len(r) != 1 || r[0].State != erasure.Filed {
		t.Errorf("%+v", r)
	}
}

func TestWhatIsRefusedNamesEveryFaultAndNobody(t *testing.T) {
	f := serve(t)
	for what, c := range map[string]struct {
		changes map[string]any
		want    []string
	}{
		"ccpa": {map[string]any{"regulation": "ccpa"}, []string{"regulation: gdpr"}},
		"many": {
			map[string]any{"regulation": nil, "subject_request_type": "access", "submitted_time": "yesterday", "subject_request_id": "1", "api_version": "1.0"},
			[]string{"regulation:", "subject_request_type: erasure", "submitted_time:", "subject_request_id:", "api_version:"},
		},
		"a UUID of version 1":  {map[string]any{"subject_request_id": "a7551968-d5d6-14b2-9831-815ac9017798"}, []string{"subject_request_id:"}},
		"an unknown type":      {map[string]any{"subject_identities": []any{identity("zora", "zora")}}, []string{"[0].identity_type: supported are controller_customer_id, email"}},
		"no identity":          {map[string]any{"subject_identities": []any{}}, []string{"subject_identities: give 1 to 100"}},
		"an empty one":         {map[string]any{"subject_identities": []any{identity("email", "")}}, []string{"[0].identity_value"}},
		"a hash":               {map[string]any{"subject_identities": []any{map[string]any{"identity_type": "email", "identity_value": "zora", "identity_format": "sha256"}}}, []string{"[0].identity_format: raw"}},
		"a control character":  {map[string]any{"subject_identities": []any{identity("email", "zora\x00")}}, []string{"person_ids[0]", "subject_identities"}},
		"the future":           {map[string]any{"submitted_time": "2027-01-01T00:00:00Z"}, []string{"received_at", "submitted_time"}},
		"no such ground":       {map[string]any{"extensions": map[string]any{"recount": map[string]any{"legal_ref": "17(3)(a)"}}}, []string{"legal_ref:"}},
		"an extension unknown": {map[string]any{"extensions": map[string]any{"recount": map[string]any{"approve": true}}}, []string{"extensions.recount:"}},
		"a strange host":       {map[string]any{"status_callback_urls": []any{"https://zora.example.org/"}}, []string{"status_callback_urls: ", "not registered"}},
		"a callback twice":     {map[string]any{"status_callback_urls": []any{f.hook.url, f.hook.url}}, []string{"status_callback_urls[1]: is there twice"}},
		"a callback that names": {
			map[string]any{"status_callback_urls": []any{f.hook.url + "?who=ZORA%40example.com"}}, []string{"status_callback_urls[0]: outlives"},
		},
		"a controller that names": {map[string]any{"controller_id": "crm/zora-1"}, []string{"controller_id:"}},
	} {
		got := f.do("dsar", http.MethodPost, requests, f.request(c.changes))
		got.problem(t, what, http.StatusUnprocessableEntity, "unprocessable")
		for _, want := range c.want {
			if !strings.Contains(got.body, want) {
				t.Errorf("%s: %q is not in %s", what, want, got.body)
			}
		}
	}
	for what, body := range map[string]string{
		"no JSON": "zora", "a list": "[]", "nothing": " ", "an unknown field": f.request(map[string]any{"zora": 1}), "a field in another case": f.request(map[string]any{"Regulation": "gdpr"}),
		"twice": `{"regulation":"gdpr","regulation":"gdpr"}`, "a number": f.request(map[string]any{"submitted_time": 1}), "more": f.request(nil) + "{}",
		"an extension that is none": f.request(map[string]any{"extensions": []any{}}),
	} {
		f.do("dsar", http.MethodPost, requests, body).problem(t, what, http.StatusBadRequest, "invalid-body")
	}
	if page, _, err := f.index.List(t.Context(), "acme", "", 10); len(f.filed())+len(page) != 0 || err != nil {
		t.Errorf("something was kept: %v", err)
	}
	byChance := map[string]any{"subject_identities": []any{identity("controller_customer_id", f.hook.url[len(f.hook.url)-4:])}}
	f.do("dsar", http.MethodPost, requests, f.request(byChance)).into(t, http.StatusCreated) // and none of it has taken the id
}

func TestAWeakKeyIsNotMounted(t *testing.T) {
	if err := opendsrapi.Mount(nil, opendsrapi.Surface{Key: []byte("short")}); err == nil {
		t.Error("it was")
	}
}
