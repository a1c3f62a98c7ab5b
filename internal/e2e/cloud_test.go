package e2e

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	ddl "recount/deploy/bigquery"
	"recount/internal/fleet"
	"recount/internal/stores/bigquery/bqemu"
	"recount/internal/stores/firestore/firestoretest"
)

// onBigQuery starts the fleet on an emulator with the deployment's own tables, and Firestore's for the ledgers. The graph
// is in memory alone, unless more says something else.
func onBigQuery(t *testing.T, change func(*bqemu.Server), more ...func(*fleet.Options)) (*world, *bqemu.Server) {
	t.Helper()
	ledgers := firestoretest.Host(t)
	tables, err := ddl.Statements()
	if err != nil {
		t.Fatal(err)
	}
	emulator, err := bqemu.Start(t.Context(), bqemu.Options{DDL: tables})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(emulator.Close)
	if change != nil {
		change(emulator)
	}
	return start(t, append([]func(*fleet.Options){everywhere(map[string]string{
		"STORE_BACKEND": "gcp", "GCP_PROJECT": emulator.Project(), "BIGQUERY_DATASET": emulator.Dataset(), "BIGQUERY_EMULATOR_HOST": emulator.Host(),
		"FIRESTORE_EMULATOR_HOST": ledgers, "FIRESTORE_DATABASE": firestoretest.Project(), // a name of its own
	})}, more...)...), emulator
}

// TestManyErasuresAtATimeOnBigQueryAndFirestoreAreAllMeasured: each changes the one document of its cell's ledger.
func TestManyErasuresAtATimeOnBigQueryAndFirestoreAreAllMeasured(t *testing.T) {
	w, _ := onBigQuery(t, nil, own("graph", map[string]string{"INTENT_GRAPH_DURABLE_PROJECT": firestoretest.Project()}))
	crowd := crowd("many", 32)
	w.write("acme", crowd...)
	var wg sync.WaitGroup
	for _, person := range crowd {
		wg.Go(func() {
			r := w.ask(w.Coordinator, "erase", "acme", person)
			if r.Code != http.StatusOK {
				t.Errorf("%d %s", r.Code, r.Body)
			}
			for _, receipt := range r.Answer.Receipts {
				if receipt.Before == nil || *receipt.Before == 0 {
					t.Errorf("%s/%s held nothing of what was written", receipt.Cell, receipt.Store)
				}
			}
		})
	}
	wg.Wait()
	for _, person := range crowd {
		if n := w.held("acme", person); n != 0 {
			t.Errorf("%d rows", n)
		}
	}
}

func TestRowsInTheStreamingBufferArePendingAndErasedOnceItHasFlushed(t *testing.T) {
	w, emulator := onBigQuery(t, func(e *bqemu.Server) { e.SetStreaming(bqemu.Streaming{Window: 90 * time.Minute, Whole: true}) })
	w.write("acme", "alice")
	r := w.ask(w.Coordinator, "erase", "acme", "alice")
	if r.Code != http.StatusConflict || r.Answer.Status != "pending" {
		t.Fatalf("%d %s", r.Code, r.Body)
	}
	if wait, err := strconv.Atoi(r.Header.Get("Retry-After")); err != nil || wait <= 0 || !strings.Contains(string(r.Body), fmt.Sprintf(`"retry_after_s":%d`, wait)) {
		t.Errorf("Retry-After %q %s", r.Header.Get("Retry-After"), r.Body)
	}
	for _, receipt := range r.Answer.Receipts {
		if receipt.Backend == "bigquery" && (receipt.Status != "pending" || receipt.Detail != "streaming_buffer" || *receipt.Remaining != 1) {
			t.Errorf("%+v", receipt)
		}
		if receipt.Backend == "bigquery" && receipt.RecoverableUntil == nil {
			t.Errorf("%s keeps nothing?", receipt.Store)
		}
		if receipt.Backend == "memory" && receipt.Status != "erased" {
			t.Errorf("%+v", receipt)
		}
	}
	if r := w.ask(w.Coordinator, "erase", "acme", "nobody"); r.Code != http.StatusOK {
		t.Errorf("a subject without rows, while others' are in the buffer: %d %s", r.Code, r.Body)
	}
	emulator.Advance(2 * time.Hour)
	if r := w.ask(w.Coordinator, "erase", "acme", "alice"); r.Code != http.StatusOK || r.Answer.Status != "erased" {
		t.Fatalf("after the flush: %d %s", r.Code, r.Body)
	}
	if n := w.held("acme", "alice"); n != 0 {
		t.Errorf("%d rows", n)
	}
}

func TestAMissingAuditTableNeverBlocksAnErasure(t *testing.T) {
	w, _ := onBigQuery(t, func(e *bqemu.Server) {
		if err := e.DropTable("intent_erasure_audit"); err != nil {
			t.Fatal(err)
		}
	})
	w.write("acme", "alice")
	if r := w.ask(w.Coordinator, "erase", "acme", "alice"); r.Code != http.StatusOK {
		t.Fatalf("%d %s", r.Code, r.Body)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		metrics := string(w.do(http.MethodGet, w.Coordinator.URL+"/metrics", nil, nil).Body)
		if strings.Contains(metrics, "recount_audit_failures_total ") && !strings.Contains(metrics, "recount_audit_failures_total 0\n") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("nobody counted the audit's failures")
		}
	}
}

func TestATableThatIsGoneIsAFailedReceiptAndNeverACountOfZero(t *testing.T) {
	w, emulator := onBigQuery(t, nil)
	w.write("acme", "alice")
	if err := emulator.DropTable("outcomes"); err != nil {
		t.Fatal(err)
	}
	r := w.ask(w.Coordinator, "erase", "acme", "alice")
	got := statuses(r.Answer.Receipts)
	if r.Code != http.StatusBadGateway || got["causal/outcomes"] != "failed store_not_found" || got["causal/holdout_assignments"] != "erased" {
		t.Errorf("%d %v", r.Code, got)
	}
}

// TestWhatABackendSaysIsRepeatedNowhere has BigQuery quote a person in its errors, at each kind of call.
func TestWhatABackendSaysIsRepeatedNowhere(t *testing.T) {
	w, emulator := onBigQuery(t, nil)
	writeMarked(w)
	var answers strings.Builder
	for _, fault := range []bqemu.Fault{
		{At: bqemu.AtJobWait, Kind: "delete"},
		{At: bqemu.AtJobStatus, Kind: "delete"},
		{At: bqemu.AtJobsInsert, Kind: "delete"},
		{At: bqemu.AtJobWait, Kind: "select"},
		{At: bqemu.AtInsertAll},
	} {
		fault.Times, fault.Code, fault.Reason, fault.Message = -1, http.StatusBadRequest, "invalidQuery", "bad value "+markedPerson
		emulator.Inject(fault)
		r := w.ask(w.Coordinator, "erase", "acme", markedPerson)
		if failed := r.Code == http.StatusBadGateway; failed != (fault.At != bqemu.AtInsertAll) {
			t.Errorf("%s: %d %s", fault.At, r.Code, r.Body)
		}
		answers.Write(r.Body)
		answers.Write(w.ask(w.Ingest, "access", "acme", "somebody").Body)
		record := map[string]any{"tenant_id": "acme", "identity_id": markedPerson, "source": "s", "source_ref": markedRef + fault.At, "consent_basis": "c", "model_version": "m", "score": 1}
		answers.Write(w.do(http.MethodPost, w.Coordinator.URL+"/v1/intent/scores", encode(t, record), jsonBody).Body)
		emulator.Heal()
	}
	for _, s := range w.All() {
		answers.Write(w.do(http.MethodGet, s.URL+"/metrics", nil, nil).Body)
	}
	w.Stop()
	if found := filesWith(t, w.dir, marks...); len(found) > 0 || strings.Contains(answers.String(), "zq-") {
		t.Errorf("%v\n%s", found, answers.String())
	}
}
