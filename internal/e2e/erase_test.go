package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
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
	w := start(t, only("ingest"))
	for ref, identity := range map[string]string{"1": "a/b", "2": "a%2Fb"} {
		record := map[string]any{
			"tenant_id": "acme", "identity_id": identity, "source": "s", "source_ref": ref, "consent_basis": "c", "event_type": "v",
			"occurred_at": "2026-11-01T10:00:00Z",
		}
		if r := w.do(http.MethodPost, w.Ingest.URL+"/v1/intent/events", encode(t, record), jsonBody); r.Code != http.StatusOK {
			t.Fatalf("%s", r.Body)
		}
	}
	r := w.do(http.MethodDelete, w.Ingest.URL+"/v1/intent/subject/a%252Fb?tenant_id=acme", nil, nil)
	if r.Code != http.StatusOK || *r.Answer.Receipts[0].Deleted != 1 {
		t.Fatalf("%d %s", r.Code, r.Body)
	}
	if w.held("acme", "a%2Fb") != 0 || w.held("acme", "a/b") != 1 {
		t.Error("the wrong person was erased")
	}
	if r := w.do(http.MethodDelete, w.Ingest.URL+"/v1/intent/subject/a%2Fb?tenant_id=acme", nil, nil); r.Code != http.StatusOK || w.held("acme", "a/b") != 0 {
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
	direct := w.do(http.MethodDelete, w.Ingest.URL+"/v1/intent/subject/alice?tenant_id=acme", nil, nil).Answer.Receipts[0]
	for _, r := range w.ask(w.Coordinator, "erase", "acme", "bob").Answer.Receipts {
		if r.Cell == "ingest" && fmt.Sprint(r.Cell, r.Store, r.Backend, r.Status, *r.Before, *r.Deleted, *r.Remaining, r.Detail, r.RecoverableUntil) !=
			fmt.Sprint(direct.Cell, direct.Store, direct.Backend, direct.Status, *direct.Before, *direct.Deleted, *direct.Remaining, direct.Detail, direct.RecoverableUntil) {
			t.Errorf("%+v and %+v", r, direct)
		}
	}
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
		"tenant_id": "acme", "identity_id": "alice", "source": "s", "source_ref": "secret-1", "consent_basis": "c", "event_type": "v",
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
	for _, r := range w.ask(w.Graph, "access", "acme", "somebody-else").Answer.Receipts {
		if fmt.Sprint(r.Scrubbed) != "[identity_id]" || strings.Contains(fmt.Sprint(r.Rows), "alice") && !strings.Contains(fmt.Sprint(r.Rows), "ref-alice") {
			t.Errorf("the other end of the edge is shown: %+v", r)
		}
	}
	if r := w.ask(w.Causal, "access", "acme", "nobody"); r.Code != http.StatusOK || *r.Answer.Receipts[0].Count != 0 {
		t.Errorf("nobody: %d %s", r.Code, r.Body)
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
	config := ownersTable(t, dir, "CREATE TABLE invoices(id INTEGER PRIMARY KEY, tenant TEXT, customer_id TEXT, amount REAL)",
		"INSERT INTO invoices(tenant, customer_id, amount) VALUES ('acme','alice',1),('acme','alice',2),('acme','bob',3),('globex','alice',4)")
	billing := startCell(t, dir, map[string]string{"CELL_CONFIG": config})
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
	slow := slowPeer(t, time.Second)
	w := start(t, own("coordinator", map[string]string{"CASCADE_EXTRA_PEERS": "slow=" + slow.URL, "CASCADE_EXPECTED_STORES": "slow=rows"}))
	w.write("acme", "alice")
	impatient := &http.Client{Timeout: 200 * time.Millisecond}
	if _, err := try(impatient, http.MethodPost, w.Coordinator.URL+"/v1/intent/subject:erase",
		encode(t, map[string]string{"tenant_id": "acme", "identity_id": "alice"}), jsonBody); err == nil {
		t.Fatal("the caller waited")
	}
	for deadline := time.Now().Add(10 * time.Second); w.held("acme", "alice") != 0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the cascade stopped with its caller")
		}
	}
	audited := func() int { return len(auditRows(t, filepath.Join(w.dir, "coordinator", "audit.db"))) }
	for deadline := time.Now().Add(10 * time.Second); audited() < 8; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d audit rows", audited())
		}
	}
}

func TestLimitsAnswer429AndWhenToCallAgain(t *testing.T) {
	w := start(t, only("ingest"), everywhere(map[string]string{"RATE_LIMIT": "3"}))
	refused := 0
	for range 20 {
		if r := w.ask(w.Ingest, "count", "acme", "alice"); r.Code == http.StatusTooManyRequests {
			refused++
			if r.Header.Get("Retry-After") == "" || !strings.HasPrefix(r.Answer.Type, "urn:recount:problem:") {
				t.Errorf("%v %s", r.Header, r.Body)
			}
		}
	}
	if refused < 10 {
		t.Errorf("%d of 20 were refused at 3 a second", refused)
	}
}

func TestEveryFaultOfTheEnvironmentStopsTheStartAndIsNamed(t *testing.T) {
	out := refusedStart(t, "coordinator", map[string]string{
		"AUTH_MODE": "idtoken", "LISTEN_ADDR": "nonsense", "CASCADE_TIMEOUT": "1s", "INTENT_SUBJECT_SALT": "hush", "INTENT_GRAPH_URL": "http://example.com",
	})
	for _, name := range []string{"LISTEN_ADDR", "CASCADE_TIMEOUT", "INTENT_SUBJECT_SALT", "AUTH_AUDIENCE", "ALLOWED_CALLER_SA"} {
		if !strings.Contains(out, name) {
			t.Errorf("%s is not named:\n%s", name, out)
		}
	}
	if strings.Contains(out, "hush") {
		t.Error("a secret is printed")
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
