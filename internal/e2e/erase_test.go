package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestAnErasureByPathAnswersReceiptsOfEveryCell(t *testing.T) {
	w := start(t)
	w.write("acme", "person-email:a@x.io")
	r := w.do(http.MethodPost, w.Coordinator.URL+"/v1/intent/subject/person-email:a@x.io:erase?tenant_id=acme", nil, nil)
	if r.Code != http.StatusOK || r.Answer.Status != "erased" {
		t.Fatalf("%d %s", r.Code, r.Body)
	}
	want := "map[causal/holdout_assignments:erased causal/outcomes:erased graph/graph:erased graph/graph_journal:erased ingest/intent_events:erased scoring/intent_scores:erased scoring/score_cache:erased]"
	if got := fmt.Sprint(statuses(r.Answer.Receipts)); got != want {
		t.Errorf("got %s", got)
	}
	for _, receipt := range r.Answer.Receipts {
		if receipt.Before == nil || *receipt.Before != 1 || *receipt.Deleted != 1 || *receipt.Remaining != 0 {
			t.Errorf("%+v", receipt)
		}
	}
	if strings.Contains(string(r.Body), "a@x.io") {
		t.Error("the answer echoes the identity")
	}
	if again := w.ask(w.Coordinator, "erase", "acme", "person-email:a@x.io"); again.Code != http.StatusOK {
		t.Errorf("erased again: %d", again.Code)
	}
	if found := filesWith(t, w.dir, "a@x.io"); len(found) > 0 {
		t.Error(found)
	}
}

func TestASlashAndAnEscapedSlashAreTwoPeople(t *testing.T) {
	w := start(t)
	w.write("acme", "a/b", "a%2Fb")
	r := w.do(http.MethodPost, w.Coordinator.URL+"/v1/intent/subject/a%252Fb:erase?tenant_id=acme", nil, nil)
	if r.Code != http.StatusOK {
		t.Fatalf("%d %s", r.Code, r.Body)
	}
	for _, receipt := range r.Answer.Receipts {
		if *receipt.Deleted != 1 {
			t.Errorf("%+v", receipt)
		}
	}
	if escaped, plain := w.held("acme", "a%2Fb"), w.held("acme", "a/b"); escaped != 0 || plain != 7 {
		t.Errorf("the wrong person was erased: %d and %d rows are left", escaped, plain)
	}
	r = w.do(http.MethodDelete, w.Ingest.URL+"/v1/intent/subject/a%2Fb?tenant_id=acme", nil, nil)
	if r.Code != http.StatusOK || *r.Answer.Receipts[0].Deleted != 1 || w.held("acme", "a/b") != 6 {
		t.Errorf("%d %s", r.Code, r.Body)
	}
}

func TestAPeerWithoutAURLIsAFailedReceipt(t *testing.T) {
	w := start(t, own("coordinator", map[string]string{"INTENT_GRAPH_URL": ""}))
	w.write("acme", "alice")
	r := w.ask(w.Coordinator, "erase", "acme", "alice")
	if r.Code != http.StatusBadGateway || r.Answer.Status != "failed" {
		t.Fatalf("%d %s", r.Code, r.Body)
	}
	got := statuses(r.Answer.Receipts)
	if got["graph/*"] != "failed peer_url_unset" || got["ingest/intent_events"] != "erased" || got["causal/outcomes"] != "erased" {
		t.Errorf("%v", got)
	}
	health := string(w.do(http.MethodGet, w.Coordinator.URL+"/health", nil, nil).Body)
	if !strings.Contains(health, `"cascade_peers_configured":false`) || !strings.Contains(health, `"graph":false`) || !strings.Contains(health, `"ingest":true`) {
		t.Error(health)
	}
}

func TestADirectDeleteAndTheCascadeGiveTheSameReceipt(t *testing.T) {
	w := start(t)
	w.write("acme", "alice", "bob")
	direct := map[string]string{}
	for _, s := range w.All() {
		r := w.do(http.MethodDelete, s.URL+"/v1/intent/subject/alice?tenant_id=acme", nil, nil)
		maps.Copy(direct, withoutTimes(t, r.Body))
	}
	cascaded := withoutTimes(t, w.ask(w.Coordinator, "erase", "acme", "bob").Body)
	if len(direct) != 7 || !maps.Equal(direct, cascaded) {
		t.Errorf("direct:\n%v\ncascade:\n%v", direct, cascaded)
	}
}

// withoutTimes are the receipts of an answer as they were sent, but for their times, by cell and store.
func withoutTimes(t *testing.T, body []byte) map[string]string {
	t.Helper()
	var answer struct{ Receipts []map[string]json.RawMessage }
	if err := json.Unmarshal(body, &answer); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, r := range answer.Receipts {
		if r["started_at"] == nil || r["finished_at"] == nil {
			t.Errorf("a receipt without its times: %s", body)
		}
		delete(r, "started_at")
		delete(r, "finished_at")
		rest, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		out[string(r["cell"])+string(r["store"])] = string(rest)
	}
	return out
}

func TestAnotherTenantsPersonOfTheSameIDIsLeftAlone(t *testing.T) {
	w := start(t)
	w.write("acme", "alice")
	w.write("globex", "alice")
	if r := w.ask(w.Coordinator, "erase", "acme", "alice"); r.Code != http.StatusOK {
		t.Fatalf("%s", r.Body)
	}
	if w.held("acme", "alice") != 0 || w.held("globex", "alice") != 7 {
		t.Errorf("%d and %d rows", w.held("acme", "alice"), w.held("globex", "alice"))
	}
	if r := w.do(http.MethodPost, w.Coordinator.URL+"/v1/intent/subject/alice:erase", nil, nil); r.Code != http.StatusBadRequest {
		t.Errorf("without a tenant: %d", r.Code)
	}
}

func TestAnAccessShowsEverythingButSecretsAndOtherPeople(t *testing.T) {
	w := start(t)
	w.write("acme", "alice")
	record := map[string]any{
		"tenant_id": "acme", "identity_id": "alice", "source": "s", "source_ref": "1", "consent_basis": "c", "event_type": "v",
		"occurred_at": "2026-11-01T10:00:00Z", "payload": map[string]any{"password": "hunter2", "deep": []any{map[string]any{"api_key": "k", "n": 1.5}}},
	}
	w.do(http.MethodPost, w.Ingest.URL+"/v1/intent/events", encode(t, record), jsonBody)
	r := w.ask(w.Ingest, "access", "acme", "alice")
	if r.Code != http.StatusOK || *r.Answer.Receipts[0].Count != 2 || len(r.Answer.Receipts[0].Rows) != 2 {
		t.Fatalf("%d %s", r.Code, r.Body)
	}
	if strings.Contains(string(r.Body), "hunter2") || fmt.Sprint(r.Answer.Receipts[0].Scrubbed) != "[api_key password]" || !strings.Contains(string(r.Body), `"deep":[{"n":1.5}]`) {
		t.Errorf("%s", r.Body)
	}
	if r := w.ask(w.Coordinator, "access", "acme", "alice"); !strings.Contains(string(r.Body), `"score":0.5`) {
		t.Errorf("what was computed about the person is not shown: %s", r.Body)
	}
	if r := w.ask(w.Causal, "access", "acme", "nobody"); r.Code != http.StatusOK || *r.Answer.Receipts[0].Count != 0 {
		t.Errorf("nobody: %d %s", r.Code, r.Body)
	}
}

func TestAnAccessToAnEdgeHidesItsOtherEndFromEither(t *testing.T) {
	w := start(t, only("graph"))
	w.do(http.MethodPost, w.Graph.URL+"/v1/intent/graph/edges", encode(t, map[string]any{
		"tenant_id": "acme", "identity_id": "alice", "related_id": "bob", "relation": "knows", "source": "s", "source_ref": "1", "consent_basis": "c",
	}), jsonBody)
	for person, hidden := range map[string]struct{ field, other string }{"alice": {"related_id", "bob"}, "bob": {"identity_id", "alice"}} {
		r := w.ask(w.Graph, "access", "acme", person)
		if r.Code != http.StatusOK || len(r.Answer.Receipts) != 2 || strings.Contains(string(r.Body), hidden.other) {
			t.Errorf("%s: %d %s", person, r.Code, r.Body)
		}
		for _, receipt := range r.Answer.Receipts {
			if len(receipt.Rows) != 1 || !slices.Equal(receipt.Scrubbed, []string{hidden.field}) {
				t.Errorf("%s: %+v", person, receipt)
			}
		}
	}
}

func TestAPeerThatIsDownFailsItsReceiptAloneAndARetryMendsIt(t *testing.T) {
	w := start(t)
	w.write("acme", "alice")
	if err := w.Causal.Kill(); err != nil {
		t.Fatal(err)
	}
	r := w.ask(w.Coordinator, "erase", "acme", "alice")
	got := statuses(r.Answer.Receipts)
	if r.Code != http.StatusBadGateway || got["causal/*"] != "failed peer_unreachable" || got["ingest/intent_events"] != "erased" || got["graph/graph"] != "erased" {
		t.Fatalf("%d %v", r.Code, got)
	}
	if err := w.Causal.StartAgain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := w.ask(w.Coordinator, "erase", "acme", "alice"); r.Code != http.StatusOK || w.held("acme", "alice") != 0 {
		t.Errorf("%d %s", r.Code, r.Body)
	}
}

func TestManyAreErasedAtOnceInTheOrderAsked(t *testing.T) {
	w := start(t)
	var people []string
	for i := range 200 {
		people = append(people, fmt.Sprintf("person-%03d@example.com", i))
	}
	w.write("acme", people...)
	r := w.do(http.MethodPost, w.Coordinator.URL+"/v1/intent/subject:batchErase", encode(t, map[string]any{"tenant_id": "acme", "identity_ids": people}), jsonBody)
	if r.Code != http.StatusOK || r.Answer.Status != "erased" || len(r.Answer.Results) != 200 {
		t.Fatalf("%d %.300s", r.Code, r.Body)
	}
	if found := filesWith(t, w.dir, people[0], people[99], people[199]); len(found) > 0 {
		t.Error(found)
	}
	if r := w.do(http.MethodPost, w.Ingest.URL+"/v1/intent/subject:batchErase", encode(t, map[string]any{"tenant_id": "acme", "identity_ids": people}), jsonBody); r.Code != http.StatusMethodNotAllowed {
		t.Errorf("a cell that coordinates nobody: %d", r.Code)
	}
}

func TestACellInFrontOfAnOwnersTableIsErasedWithTheRest(t *testing.T) {
	dir := t.TempDir()
	config := ownersTable(t, dir, "CREATE TABLE invoices(id INTEGER PRIMARY KEY, tenant TEXT, customer_id TEXT, memo TEXT)",
		"INSERT INTO invoices(tenant, customer_id, memo) VALUES ('acme','alice','zq-1'),('acme','alice','zq-2'),('acme','bob','3'),('globex','alice','4')")
	billing := startCell(t, "/ready", map[string]string{"CELL_CONFIG": config, "DATA_DIR": filepath.Join(dir, "data")})
	w := start(t, own("coordinator", map[string]string{"CASCADE_EXTRA_PEERS": "billing=" + billing.URL, "CASCADE_EXPECTED_STORES": "billing=invoices"}))
	r := w.ask(w.Coordinator, "erase", "acme", "alice")
	if r.Code != http.StatusOK || statuses(r.Answer.Receipts)["billing/invoices"] != "erased" {
		t.Fatalf("%d %s", r.Code, r.Body)
	}
	for _, receipt := range r.Answer.Receipts {
		if receipt.Cell == "billing" && (*receipt.Before != 2 || *receipt.Deleted != 2) {
			t.Errorf("%+v", receipt)
		}
	}
	if found := filesWith(t, dir, "zq-"); len(found) > 0 {
		t.Errorf("left behind in the owner's database: %v", found)
	}
	if got := w.ask(billing, "count", "globex", "alice").Answer.Receipts[0]; *got.Count != 1 {
		t.Errorf("another tenant's row: %+v", got)
	}
}

func TestAnOwnersTableThatCanNotBeCountedTrulyStopsTheStart(t *testing.T) {
	for name, schema := range map[string]string{
		"an INTEGER key": "CREATE TABLE invoices(tenant TEXT, customer_id INTEGER)",
		"a NOCASE key":   "CREATE TABLE invoices(tenant TEXT, customer_id TEXT COLLATE NOCASE)",
		"a view":         "CREATE TABLE t(tenant TEXT, customer_id TEXT); CREATE VIEW invoices AS SELECT * FROM t",
		"no such column": "CREATE TABLE invoices(tenant TEXT, customer TEXT)",
		"no such table":  "CREATE TABLE bills(tenant TEXT, customer_id TEXT)",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			out := refusedStart(t, "cell", map[string]string{"AUTH_MODE": "off", "LISTEN_ADDR": "127.0.0.1:0", "DATA_DIR": dir, "CELL_CONFIG": ownersTable(t, dir, schema)})
			if !strings.Contains(out, "invoices") {
				t.Errorf("the error doesn't name the table:\n%s", out)
			}
		})
	}
}

func TestACallerWhoHangsUpDoesNotStopACascade(t *testing.T) {
	t.Parallel()
	w := start(t, withSlowPeer(t, time.Second, nil))
	w.write("acme", "alice")
	impatient := &http.Client{Timeout: 50 * time.Millisecond}
	if _, err := try(impatient, http.MethodPost, w.Coordinator.URL+"/v1/intent/subject:erase",
		encode(t, map[string]string{"tenant_id": "acme", "identity_id": "alice"}), jsonBody); err == nil {
		t.Fatal("the caller waited")
	}
	audit := filepath.Join(w.dir, "coordinator", "audit.db")
	eventually(t, "the cascade stopped with its caller", func() bool { return len(auditRows(t, audit)) == 8 })
	for _, row := range auditRows(t, audit) {
		if row["status"] != "erased" {
			t.Errorf("%v", row)
		}
	}
	if n := w.held("acme", "alice"); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

func TestLimitsAnswer429AndWhenToCallAgain(t *testing.T) {
	w := start(t, only("ingest"), everywhere(map[string]string{"RATE_LIMIT": "5"}))
	refused := 0
	for range 20 {
		if r := w.ask(w.Ingest, "count", "acme", "alice"); r.Code == http.StatusTooManyRequests {
			refused++
			checkTooMany(t, r)
		}
	}
	if refused < 8 {
		t.Errorf("%d of 20 were refused at 5 a second", refused)
	}
	if r := w.do(http.MethodGet, w.Ingest.URL+"/health", nil, nil); r.Code != http.StatusOK {
		t.Errorf("health is limited: %d", r.Code)
	}
}

func checkTooMany(t *testing.T, r reply) {
	t.Helper()
	if wait, err := strconv.Atoi(r.Header.Get("Retry-After")); err != nil || wait < 1 || !strings.HasPrefix(r.Answer.Type, "urn:recount:problem:") {
		t.Errorf("%v %s", r.Header, r.Body)
	}
}

func TestMoreRequestsAtATimeThanAnInstanceTakesAreRefused(t *testing.T) {
	t.Parallel()
	w := start(t, withSlowPeer(t, time.Second, map[string]string{"MAX_IN_FLIGHT": "2"}))
	var replies []<-chan reply
	for i := range 6 {
		replies = append(replies, w.later(w.Coordinator, "erase", "acme", fmt.Sprintf("person-%d", i)))
	}
	codes := map[int]int{}
	for _, answered := range replies {
		r := <-answered
		codes[r.Code]++
		if r.Code == http.StatusTooManyRequests {
			checkTooMany(t, r)
		}
	}
	if codes[http.StatusOK] != 2 || codes[http.StatusTooManyRequests] != 4 {
		t.Errorf("%v", codes)
	}
	if r := w.ask(w.Coordinator, "erase", "acme", "person-0"); r.Code != http.StatusOK {
		t.Errorf("the room did not come back: %d", r.Code)
	}
}

func TestEveryFaultOfTheEnvironmentStopsTheStartAndIsNamed(t *testing.T) {
	for binary, env := range map[string]map[string]string{
		"coordinator": {
			"LISTEN_ADDR": "nonsense", "CASCADE_TIMEOUT": "1s", "INTENT_SUBJECT_SALT": "hush", "INTENT_GRAPH_URL": "http://example.com",
			"INTENT_CAUSAL_URL": "https://user:hush@example.com", "CASCADE_EXTRA_PEERS": "hush", "LOG_LEVEL": "loud", "ALLOWED_CALLER_SA": "nobody", "AUTH_AUDIENCE": "",
		},
		"cell": {
			"CELL": "scoring", "STORE_TIMEOUT": "soon", "STORE_BACKEND": "floppy", "INTENT_SUBJECT_SALT": "hush", "RATE_LIMIT": "0", "MAX_IN_FLIGHT": "many",
			"BIGQUERY_EMULATOR_HOST": "127.0.0.1:1", "INTENT_GRAPH_DURABLE_PROJECT": "p", "ALLOWED_CALLER_SA": "", "AUTH_AUDIENCE": "",
		},
	} {
		out := refusedStart(t, binary, env)
		for name := range env {
			if !strings.Contains(out, name+":") {
				t.Errorf("%s: %s is not named:\n%s", binary, name, out)
			}
		}
		if strings.Contains(out, "hush") {
			t.Errorf("%s: a secret is printed:\n%s", binary, out)
		}
	}
}

func TestTheDocumentIsServedAsItIsInTheRepository(t *testing.T) {
	w := start(t, only("ingest"))
	document, err := os.ReadFile("../../api/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if r := w.do(http.MethodGet, w.Ingest.URL+"/openapi.yaml", nil, nil); string(r.Body) != string(document) {
		t.Error("they differ")
	}
}
