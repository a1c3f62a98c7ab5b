package bigquery_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"recount/internal/stores"
	"recount/internal/stores/bigquery/bqemu"
	"recount/internal/subject"
)

func auditRow(request string) map[string]any {
	return map[string]any{
		"request_id": request, "tenant_id": "acme", "subject_ref": strings.Repeat("0", 64), "cell": "ingest", "store": "intent_events",
		"operation": "erase", "status": "failed", "before": int64(3), "deleted": nil, "remaining": nil, "actor": "dsar@example.com",
		"detail": "access_denied", "occurred_at": time.Date(2026, 12, 1, 1, 2, 3, 4000, time.UTC),
	}
}

func TestConcurrentAppendsOfOneRecordMakeItOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tab := w.events()
	var created atomic.Int64
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			got := w.append(tab, row("acme", "same", "alice"), row("acme", fmt.Sprintf("own-%d", i), "alice"))
			if got[0] {
				created.Add(1)
			}
			if !got[1] {
				t.Error("a record of its own was taken for a duplicate")
			}
		})
	}
	wg.Wait()
	if created.Load() != 1 {
		t.Errorf("one record was created %d times", created.Load())
	}
	w.wantCount(tab, w.alice(), 13)
}

func TestALostAnswerOfAnAppendWritesNothingTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tab := w.events()
	w.server.Inject(bqemu.Fault{At: bqemu.AtInsertAll, Drop: bqemu.DropAfter, Times: 2})
	if got := w.append(tab, row("acme", "1", "alice"), row("acme", "2", "alice")); slices.Contains(got, false) {
		t.Errorf("created = %v", got)
	}
	w.wantCount(tab, w.alice(), 2)
}

func TestRowsThatFailInPassingAreSentAgainAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tab := w.events()
	w.server.Inject(bqemu.Fault{At: bqemu.AtInsertRows, Rows: []int{1}, Reason: "timeout"})
	w.append(tab, row("acme", "1", "alice"), row("acme", "2", "alice"), row("acme", "3", "alice"))
	w.wantCount(tab, w.alice(), 3)
}

func TestAnAppendThatFailsIsMadeWholeByARetry(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tab := w.events()
	var rows []stores.Row
	for i := range 1200 { // three requests
		rows = append(rows, row("acme", fmt.Sprint(i), "alice"))
	}
	w.server.Inject(bqemu.Fault{At: bqemu.AtInsertAll, After: 1, Times: -1, Code: 403, Reason: "accessDenied"})
	created, err := tab.Append(t.Context(), rows, 0)
	var fault *subject.Fault
	if created != nil || !errors.As(err, &fault) || fault.Reason != subject.ReasonAccessDenied {
		t.Fatalf("Append = %d answers, %v", len(created), err)
	}
	w.server.Heal()
	created = w.append(tab, rows...)
	if slices.Contains(created[:500], true) || slices.Contains(created[500:], false) {
		t.Error("the retry does not tell what was written before from what is new")
	}
	w.wantCount(tab, w.alice(), 1200)
}

func TestARowThatThePlatformRefusesTakesTheOthersWithIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tab := w.events()
	w.server.Inject(bqemu.Fault{At: bqemu.AtInsertRows, Rows: []int{0, 1}, Reason: "invalid", Message: "alice@example.com is no number"})
	_, err := tab.Append(t.Context(), []stores.Row{row("acme", "1", "alice"), row("acme", "2", "alice")}, 0)
	if err == nil || strings.Contains(err.Error(), "alice") {
		t.Errorf("Append answered %v", err)
	}
	w.wantCount(tab, w.alice(), 0)
}

func TestAuditRowsAreAppendedAsTheyAreAndOnce(t *testing.T) {
	t.Parallel()
	w := auditWorld(t)
	for range 2 { // the outbox may send a row again
		if err := w.client.InsertAudit(t.Context(), []map[string]any{auditRow("1"), auditRow("2")}); err != nil {
			t.Fatal(err)
		}
	}
	if got := physical(t, w, "intent_erasure_audit WHERE `before` = 3 AND remaining IS NULL"); got != 2 {
		t.Errorf("%d audit rows", got)
	}
	bad := auditRow("3")
	bad["identity_id"] = "alice"
	if err := w.client.InsertAudit(t.Context(), []map[string]any{bad}); err == nil || strings.Contains(err.Error(), "alice") {
		t.Errorf("a column too many: %v", err)
	}
	if err := w.client.InsertAudit(t.Context(), nil); err != nil {
		t.Errorf("no rows: %v", err)
	}
}

func auditWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	for _, s := range mustDDL(t) {
		w.exec("%s", s)
	}
	return w
}

func TestAMissingAuditTableIsAnErrorAndIsNotMade(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var fault *subject.Fault
	for range 2 {
		err := w.client.InsertAudit(t.Context(), []map[string]any{auditRow("1")})
		if !errors.As(err, &fault) || fault.Reason != subject.ReasonNotFound {
			t.Errorf("InsertAudit answered %v", err)
		}
	}
}
