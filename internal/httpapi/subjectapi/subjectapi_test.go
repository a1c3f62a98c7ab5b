package subjectapi_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"recount/internal/subject"
)

const one = `{"tenant_id":"acme","identity_id":"person@example.com"}`

func TestTheFoldDecidesTheCodeOfAnErasure(t *testing.T) {
	f := serve(t, true)
	for _, c := range []struct {
		receipts []subject.Receipt
		code     int
		status   string
		retry    string
	}{
		{erased(subject.Subject{}), 200, "erased", ""},
		{[]subject.Receipt{receipt(subject.Erased, "", 0, 0), receipt(subject.Pending, subject.ReasonStreamingBuffer, 3, 90*time.Minute)}, 409, "pending", "5400"},
		{[]subject.Receipt{receipt(subject.Pending, subject.ReasonQuota, 3, 0)}, 409, "pending", "1800"},
		{[]subject.Receipt{receipt(subject.Pending, subject.ReasonQuota, 3, 0), receipt(subject.Failed, subject.ReasonDeleteFailed, 3, 0)}, 502, "failed", ""},
		{nil, 502, "failed", ""},
	} {
		for _, cell := range []*fakeCell{f.cell, f.all} {
			cell.receipts = func(subject.Subject) []subject.Receipt { return c.receipts }
		}
		for _, call := range [][3]string{
			{http.MethodPost, "/v1/intent/subject:delete", one},
			{http.MethodPost, "/v1/intent/subject:erase", one},
			{http.MethodDelete, "/v1/intent/subject/person@example.com?tenant_id=acme", ""},
			{http.MethodPost, "/v1/intent/subject/person@example.com:erase?tenant_id=acme", ""},
			{http.MethodPost, "/v1/intent/subject:batchDelete", `{"tenant_id":"acme","identity_ids":["person@example.com"]}`},
			{http.MethodPost, "/v1/intent/subject:batchErase", `{"tenant_id":"acme","identity_ids":["person@example.com"]}`},
		} {
			got := f.do("all", call[0], call[1], call[2], "X-Request-ID", "0123456789abcdef")
			if got.status != c.code || got.header.Get("Retry-After") != c.retry || !strings.Contains(got.body, `"status":"`+c.status+`"`) {
				t.Errorf("%v: %d, Retry-After %q, %s", call, got.status, got.header.Get("Retry-After"), got.body)
			}
			if strings.Contains(got.body, "person@") || !strings.Contains(got.body, `"request_id":"0123456789abcdef"`) ||
				!strings.Contains(got.body, string(person(t, "acme", "person@example.com").Ref(salt))) {
				t.Errorf("%v: %s", call, got.body)
			}
		}
	}
}

func TestCellAndCascadeAreNotTakenForEachOther(t *testing.T) {
	f := serve(t, true)
	alice := person(t, "acme", "person@example.com")
	for _, c := range []struct {
		method, path, body string
		cascade            bool
	}{
		{"POST", "/v1/intent/subject:delete", one, false},
		{"DELETE", "/v1/intent/subject/person@example.com?tenant_id=acme", "", false},
		{"POST", "/v1/intent/subject:batchDelete", `{"tenant_id":"acme","identity_ids":["person@example.com"]}`, false},
		{"POST", "/v1/intent/subject:erase", one, true},
		{"POST", "/v1/intent/subject/person@example.com:erase?tenant_id=acme", "", true},
		{"POST", "/v1/intent/subject:batchErase", `{"tenant_id":"acme","identity_ids":["person@example.com"]}`, true},
	} {
		f.do("all", c.method, c.path, c.body, "X-Request-ID", "00000000000000ff")
		own, all := f.cell.took(), f.all.took()
		reached, other := own, all
		if c.cascade {
			reached, other = all, own
		}
		if !slices.Equal(reached, []subject.Subject{alice}) || len(other) != 0 {
			t.Errorf("%s %s reached the wrong ones", c.method, c.path)
		}
	}
	if !slices.Contains(f.all.requestIDs, "00000000000000ff") {
		t.Error("the request id did not go on")
	}
}

func TestACellThatCoordinatesNobodyRefusesToErase(t *testing.T) {
	f := serve(t, false)
	for path, body := range map[string]string{
		"/v1/intent/subject:erase": one, "/v1/intent/subject:batchErase": `{"tenant_id":"acme","identity_ids":["a"]}`,
		"/v1/intent/subject/a:erase?tenant_id=acme": "",
	} {
		got := f.do("all", http.MethodPost, path, body)
		if _, given := got.header["Allow"]; got.status != 405 || !given || strings.Contains(got.header.Get("Allow"), "POST") {
			t.Errorf("%s: %d, Allow %v", path, got.status, got.header["Allow"])
		}
	}
	if len(f.cell.took()) != 0 {
		t.Error("somebody was reached")
	}
}

func TestABatchAnswersForEachInOrderAndTheWorstDecides(t *testing.T) {
	f := serve(t, true)
	f.all.receipts = func(s subject.Subject) []subject.Receipt {
		if s.Identity() == "b" {
			return []subject.Receipt{receipt(subject.Pending, subject.ReasonQuota, 1, time.Minute)}
		}
		return erased(s)
	}
	got := f.do("all", http.MethodPost, "/v1/intent/subject:batchErase", `{"tenant_id":"acme","identity_ids":["a","b","c"]}`)
	var said struct {
		Status  string
		Results []struct {
			Status string `json:"status"`
			Ref    string `json:"subject_ref"`
		}
	}
	if err := json.Unmarshal([]byte(got.body), &said); err != nil {
		t.Fatal(err)
	}
	want := ""
	for i, id := range []string{"a", "b", "c"} {
		want += fmt.Sprintf("{%s %s} ", []string{"erased", "pending", "erased"}[i], person(t, "acme", id).Ref(salt))
	}
	if fmt.Sprint(said.Results) != "["+strings.TrimSpace(want)+"]" || got.status != 409 || got.header.Get("Retry-After") != "60" || said.Status != "pending" {
		t.Errorf("%d %s", got.status, got.body)
	}
	full := make([]string, 1000)
	for i := range full {
		full[i] = fmt.Sprintf("person-%d", i)
	}
	batch := func(ids []string) string {
		list, _ := json.Marshal(ids)
		return `{"tenant_id":"acme","identity_ids":` + string(list) + `}`
	}
	for body, code := range map[string]int{
		batch(full): 200, batch(append(full, "one too many")): 422, batch([]string{}): 422, `{"tenant_id":"acme"}`: 422,
		batch([]string{"a", "..", "b"}): 400, `{"tenant_id":"acme","identity_ids":"a"}`: 400, `{"tenant_id":"acme","identity_ids":[1]}`: 400, `{"tenant_id":"x!","identity_ids":["a"]}`: 400,
	} {
		if got := f.do("all", http.MethodPost, "/v1/intent/subject:batchErase", body); got.status != code {
			t.Errorf("%.60s: %d, want %d", body, got.status, code)
		}
	}
}

func TestBodiesAreStrict(t *testing.T) {
	f := serve(t, true)
	for _, body := range []string{
		``, `null`, `[]`, `"x"`, `{`, one + one, one + `x`, `{"tenant_id":"acme"}`, `{"identity_id":"a"}`, `{"tenant_id":"acme","identity_id":"a","x":1}`,
		`{"tenant_id":"acme","identity_id":"a","identity_id":"b"}`, `{"tenant_id":"acme","Identity_ID":"a"}`, `{"tenant_id":"acme","identity_id":"a","IDENTITY_ID":"b"}`,
		`{"tenant_id":"acme","identity_id":1}`, `{"tenant_id":"acme","identity_id":null}`, "{\"tenant_id\":\"acme\",\"identity_id\":\"\xff\"}", `{"tenant_id":"acme","identity_id":"\u0000"}`,
		`{"tenant_id":"acme","identity_id":"` + strings.Repeat("a", 513) + `"}`, `{"tenant_id":"acme","identity_id":"."}`, `{"tenant_id":"acme","identity_id":""}`, `{"tenant_id":"acme","identity_id":"\ud800"}`,
		`{"tenant_id":"acme","identity_id":"a","page_token":"x"}`,
	} {
		for _, verb := range []string{"erase", "delete", "count"} {
			if got := f.do("all", http.MethodPost, "/v1/intent/subject:"+verb, body, "Content-Type", "application/json"); got.status != 400 {
				t.Errorf("%s %s: %d", verb, body, got.status)
			}
		}
	}
	if len(f.cell.took())+len(f.all.took()) != 0 {
		t.Error("somebody was reached")
	}
}

func TestRolesAndTenantsAreAskedOfEveryOperation(t *testing.T) {
	f := serve(t, true)
	f.cell.counts = []subject.CountReceipt{{Count: subject.Measured(0)}}
	f.cell.accesses = func() ([]subject.AccessReceipt, error) {
		return []subject.AccessReceipt{{Count: subject.Measured(0)}}, nil
	}
	for _, c := range []struct{ method, path, body, role string }{
		{"POST", "/v1/intent/subject:access", one, "read"},
		{"POST", "/v1/intent/subject:count", one, "read"},
		{"GET", "/v1/intent/subject/a?tenant_id=acme", "", "read"},
		{"POST", "/v1/intent/subject:delete", one, "erase"},
		{"POST", "/v1/intent/subject:erase", one, "erase"},
		{"DELETE", "/v1/intent/subject/a?tenant_id=acme", "", "erase"},
		{"POST", "/v1/intent/subject/a:erase?tenant_id=acme", "", "erase"},
		{"POST", "/v1/intent/subject:batchDelete", `{"tenant_id":"acme","identity_ids":["a"]}`, "erase"},
		{"POST", "/v1/intent/subject:batchErase", `{"tenant_id":"acme","identity_ids":["a"]}`, "erase"},
	} {
		want := map[string]int{"nobody": 401, "writer": 403, "globex": 403, "all": 200, "reader": 403}
		if c.role == "read" {
			want["reader"] = 200
		}
		for caller, code := range want {
			if got := f.do(caller, c.method, c.path, c.body); got.status != code {
				t.Errorf("%s of %s %s: %d, want %d", caller, c.method, c.path, got.status, code)
			}
			reached := len(f.cell.took()) + len(f.all.took())
			if (reached == 1) != (code == 200) {
				t.Errorf("%s of %s %s reached %d", caller, c.method, c.path, reached)
			}
		}
	}
}

func TestAnAccessShowsPagesAndCards(t *testing.T) {
	f := serve(t, false)
	card := subject.Card{Purposes: []string{"p"}, Retention: "r", Source: "s"}
	label := subject.Label{Cell: "scoring", Store: "intent_scores", Backend: "sqlite"}
	f.cell.accesses = func() ([]subject.AccessReceipt, error) {
		return []subject.AccessReceipt{
			{
				Label: label, Count: subject.Measured(700), About: card, NextPageToken: "dG9rZW4", Scrubbed: []string{"api_key"},
				Rows: []map[string]any{{"b": 1, "a": "<ok>", "at": time.Unix(0, 0).UTC(), "deep": map[string]any{"x": []any{nil, true}}}, {"mangled": "\xff"}},
			},
		}, nil
	}
	for _, got := range []answer{
		f.do("reader", http.MethodPost, "/v1/intent/subject:access", `{"tenant_id":"acme","identity_id":"a","page_token":"bmV4dA"}`),
		f.do("reader", http.MethodGet, "/v1/intent/subject/a?page_token=bmV4dA&tenant_id=acme", ""),
	} {
		if got.status != 200 || !strings.Contains(got.body, `"rows":[{"a":"<ok>","at":"1970-01-01T00:00:00Z","b":1,"deep":{"x":[null,true]}},{"mangled":"`+"\uFFFD"+`"}],"scrubbed":["api_key"]`) ||
			!strings.Contains(got.body, `"count":700`) || !strings.Contains(got.body, `"next_page_token":"dG9rZW4"`) || !strings.Contains(got.body, `"recipients":[]`) {
			t.Errorf("%d %s", got.status, got.body)
		}
		if f.cell.page != (subject.PageRequest{Token: "bmV4dA", Caller: "reader@example.com"}) {
			t.Errorf("asked for %+v", f.cell.page)
		}
	}
	f.cell.accesses = func() ([]subject.AccessReceipt, error) { return nil, subject.ErrPageToken }
	if got := f.do("reader", http.MethodPost, "/v1/intent/subject:access", one); got.status != 400 || !strings.Contains(got.body, "invalid-page-token") {
		t.Errorf("a bad token: %d %s", got.status, got.body)
	}
}

func TestWhatCanNotBeShownIsFailedAndItsSiblingsAreShown(t *testing.T) {
	f := serve(t, false)
	label := func(store string) subject.Label {
		return subject.Label{Cell: "scoring", Store: store, Backend: "sqlite"}
	}
	f.cell.accesses = func() ([]subject.AccessReceipt, error) {
		return []subject.AccessReceipt{
			{Label: label("nan"), Count: subject.Measured(2), Rows: []map[string]any{{"n": 1}, {"n": math.NaN()}}, NextPageToken: "x"},
			{Label: label("broken"), Reason: subject.ReasonReadFailed},
			{Label: label("fine"), Count: subject.Measured(1), Rows: []map[string]any{{"n": 7}}},
		}, nil
	}
	got := f.do("all", http.MethodPost, "/v1/intent/subject:access", one)
	if got.status != 502 || !strings.Contains(got.body, `"status":"failed","receipts"`) || !strings.Contains(got.body, `"n":7`) || strings.Contains(got.body, `"n":1`) ||
		strings.Count(got.body, `"status":"failed","count":null,"rows":[]`) != 2 {
		t.Errorf("%d %s", got.status, got.body)
	}
	f.cell.accesses = func() ([]subject.AccessReceipt, error) { return nil, nil }
	if got := f.do("all", http.MethodPost, "/v1/intent/subject:access", one); got.status != 502 {
		t.Errorf("no stores: %d", got.status)
	}
}

func TestCountsAreNeverZeroByDefault(t *testing.T) {
	f := serve(t, false)
	f.cell.counts = []subject.CountReceipt{
		{Label: subject.Label{Cell: "scoring", Store: "a"}, Count: subject.Measured(3)},
		{Label: subject.Label{Cell: "scoring", Store: "b"}, Reason: subject.ReasonCountFailed},
	}
	got := f.do("reader", http.MethodPost, "/v1/intent/subject:count", one)
	if got.status != 502 || !strings.Contains(got.body, `"status":"failed","count":null,"detail":"count_failed"`) || !strings.Contains(got.body, `"status":"counted","count":3`) {
		t.Errorf("%d %s", got.status, got.body)
	}
	f.cell.counts = f.cell.counts[:1]
	if got := f.do("reader", http.MethodPost, "/v1/intent/subject:count", one); got.status != 200 {
		t.Errorf("%d %s", got.status, got.body)
	}
	f.cell.counts = nil
	if got := f.do("reader", http.MethodPost, "/v1/intent/subject:count", one); got.status != 502 {
		t.Errorf("no stores: %d", got.status)
	}
}

func TestErasuresAndAccessesAreAuditedByReferenceAndCountsAreNot(t *testing.T) {
	f := serve(t, true)
	f.cell.counts = []subject.CountReceipt{{Count: subject.Measured(0)}}
	f.cell.accesses = func() ([]subject.AccessReceipt, error) {
		return []subject.AccessReceipt{{Label: subject.Label{Cell: "scoring", Store: "intent_scores"}, Count: subject.Measured(2), Rows: []map[string]any{{"n": math.NaN()}}}}, nil
	}
	f.do("all", http.MethodPost, "/v1/intent/subject:count", one)
	f.do("all", http.MethodPost, "/v1/intent/subject:access", one)
	f.do("all", http.MethodPost, "/v1/intent/subject:erase", one)
	f.do("all", http.MethodPost, "/v1/intent/subject:batchDelete", `{"tenant_id":"acme","identity_ids":["a","b"]}`)
	f.all.receipts = func(subject.Subject) []subject.Receipt { return nil }
	f.do("all", http.MethodPost, "/v1/intent/subject:erase", one)
	var got []string
	for _, r := range f.audit.rows {
		got = append(got, fmt.Sprintf("%s %s %s %s %s", r.Operation, r.Status, r.Store, r.Actor, r.Cell))
	}
	want := []string{
		"access failed intent_scores all@example.com scoring", // its row could not be shown
		"erase erased intent_scores all@example.com scoring", "erase erased intent_scores all@example.com scoring",
		"erase erased intent_scores all@example.com scoring", "erase failed * all@example.com scoring",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if text := fmt.Sprint(f.audit.rows); strings.Contains(text, "person@") {
		t.Errorf("%s", text)
	}
}

func TestACellThatMayNotAnswerForItsStoresSaysSo(t *testing.T) {
	f := serve(t, true)
	f.cell.serving = &subject.Fault{Reason: subject.ReasonNoLease, Cause: errors.New("x")}
	for _, verb := range []string{"erase", "delete", "access", "count"} {
		if got := f.do("all", http.MethodPost, "/v1/intent/subject:"+verb, one); got.status != 503 || !strings.Contains(got.body, "lease_lost") || got.header.Get("Retry-After") == "" {
			t.Errorf("%s: %d %s", verb, got.status, got.body)
		}
	}
}
