package e2e

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestNothingPersonalIsLeftInLogsMetricsAuditsOrProblems provokes errors with identities in odd places, and searches.
func TestNothingPersonalIsLeftInLogsMetricsAuditsOrProblems(t *testing.T) {
	w := start(t, everywhere(map[string]string{"LOG_LEVEL": "debug"}))
	const secret = "zq-alice@example.com"
	w.write("acme", secret)
	var answers strings.Builder
	provoke := func(method, url, body string, header map[string]string) {
		r, err := try(http.DefaultClient, method, url, strings.NewReader(body), header)
		if err != nil {
			return
		}
		if r.Code >= 400 && strings.Contains(r.Header.Get("Content-Type"), "problem") {
			answers.Write(r.Body)
			for name, values := range r.Header {
				answers.WriteString(name + strings.Join(values, ","))
			}
		}
	}
	base := w.Coordinator.URL + "/v1/intent/"
	provoke(http.MethodPost, base+"subject/"+secret+"?tenant_id=acme", "", nil)
	provoke(http.MethodGet, base+"subject/"+secret, "", nil)
	provoke(http.MethodGet, base+"subject/"+secret+"?tenant_id="+secret, "", nil)
	provoke(http.MethodGet, base+"subject/"+secret+"?tenant_id=acme&"+secret+"=1", "", nil)
	provoke(http.MethodGet, base+"subject/"+secret+"/x?tenant_id=acme", "", nil)
	provoke(http.MethodGet, base+secret, "", nil)
	provoke(http.MethodPost, base+"subject:erase", `{"tenant_id":"acme","identity_id":"`+secret+`","`+secret+`":1}`, jsonBody)
	provoke(http.MethodPost, base+"subject:erase", `{"tenant_id":"acme","identity_id":"`+secret+"\x01"+`"}`, jsonBody)
	provoke(http.MethodPost, base+"subject:erase", secret, jsonBody)
	provoke(http.MethodPost, base+"subject:erase", `{}`, map[string]string{"Content-Type": secret})
	provoke(http.MethodPost, base+"scores", `{"tenant_id":"acme","identity_id":"`+secret+`","x":"ref-`+secret+`"}`, jsonBody)
	provoke(http.MethodPost, base+"subject:access", `{"tenant_id":"acme","identity_id":"`+secret+`","page_token":"`+secret+`"}`, jsonBody)
	provoke(http.MethodPost, base+"subject:erase", `{"tenant_id":"acme","identity_id":"`+secret+`"}`, map[string]string{"Content-Type": "application/json", "X-Request-ID": secret})
	if err := w.Ingest.Kill(); err != nil {
		t.Fatal(err)
	}
	provoke(http.MethodPost, base+"subject:erase", `{"tenant_id":"acme","identity_id":"`+secret+`"}`, jsonBody)
	if err := w.Ingest.StartAgain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := w.ask(w.Coordinator, "erase", "acme", secret); r.Code != http.StatusOK {
		t.Fatalf("%d %s", r.Code, r.Body)
	}
	for _, s := range w.All() {
		answers.Write(w.do(http.MethodGet, s.URL+"/metrics", nil, nil).Body)
	}
	time.Sleep(200 * time.Millisecond) // the audit outbox
	if strings.Contains(answers.String(), "zq-alice") {
		t.Error("a problem document or a metric holds the identity")
	}
	w.Stop()
	if found := filesWith(t, w.dir, "zq-alice", "zq%2Dalice"); len(found) > 0 {
		t.Error(found)
	}
}

func TestTheAuditHasARowForEachReceiptAndNothingElse(t *testing.T) {
	w := start(t)
	w.write("acme", "alice")
	w.ask(w.Coordinator, "erase", "acme", "alice")
	w.ask(w.Ingest, "access", "acme", "alice")
	w.Stop()
	rows := auditRows(t, filepath.Join(w.dir, "coordinator", "audit.db"))
	if len(rows) != 7 {
		t.Fatalf("%d rows at the coordinator", len(rows))
	}
	for _, row := range rows {
		var columns []string
		for name := range row {
			columns = append(columns, name)
		}
		slices.Sort(columns)
		if got := fmt.Sprint(columns); got != "[actor before cell deleted detail occurred_at operation remaining request_id status store subject_ref tenant_id]" {
			t.Errorf("columns %s", got)
		}
		if row["status"] != "erased" || row["operation"] != "erase" || fmt.Sprint(row["remaining"]) != "0" || len(fmt.Sprint(row["subject_ref"])) != 64 {
			t.Errorf("%v", row)
		}
	}
	operations := map[any]int{}
	for _, row := range auditRows(t, filepath.Join(w.dir, "ingest", "audit.db")) {
		operations[row["operation"]]++
	}
	if fmt.Sprint(operations) != "map[access:1 erase:1]" {
		t.Errorf("at the ingest cell: %v", operations)
	}
}
