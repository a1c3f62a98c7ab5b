package sqlite

import (
	"database/sql"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func auditRow(changes map[string]any) map[string]any {
	row := map[string]any{
		"request_id": "r1", "tenant_id": "acme", "subject_ref": strings.Repeat("ab", 32), "cell": "ingest", "store": "intent_events",
		"operation": "erase", "status": "erased", "before": int64(3), "deleted": nil, "remaining": int64(0), "actor": "bot@x.io",
		"detail": "", "occurred_at": time.Date(2026, 12, 1, 10, 0, 0, 123456000, time.FixedZone("", 3600)),
	}
	maps.Copy(row, changes)
	return row
}

func TestAuditRowsAreTakenOnceAndNothingElseIs(t *testing.T) {
	db, err := Open(t.Context(), filepath.Join(t.TempDir(), "cell.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close() //nolint:errcheck // the test is over
	var audit *Audit
	for range 2 { // a second start finds it
		if audit, err = db.Audit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	var rows []map[string]any
	for _, store := range strings.Fields("a b c d e f g h i j") {
		rows = append(rows, auditRow(map[string]any{"store": store}))
	}
	for _, some := range [][]map[string]any{nil, rows[:3], rows, rows} {
		if err := audit.InsertAudit(t.Context(), some); err != nil {
			t.Fatal(err)
		}
	}
	for name, bad := range map[string]map[string]any{
		"another column":       auditRow(map[string]any{"identity_id": "alice@example.com"}),
		"a nil status":         auditRow(map[string]any{"status": nil}),
		"a count that is text": auditRow(map[string]any{"before": "three"}),
	} {
		if err := audit.InsertAudit(t.Context(), []map[string]any{auditRow(map[string]any{"store": "new"}), bad}); err == nil {
			t.Errorf("%s: taken", name)
		} else if strings.Contains(err.Error(), "alice") || strings.Contains(err.Error(), "identity_id") {
			t.Errorf("%s: the error tells it: %v", name, err)
		}
	}
	err = db.read(t.Context(), func(pool querier) error {
		var n int
		var before, deleted, remaining sql.NullInt64
		var at string
		if err := pool.QueryRowContext(t.Context(), `SELECT count(*) FROM intent_erasure_audit`).Scan(&n); err != nil {
			return err
		}
		if n != len(rows) {
			t.Errorf("%d rows, want %d", n, len(rows))
		}
		err := pool.QueryRowContext(t.Context(), `SELECT "before", deleted, remaining, occurred_at FROM intent_erasure_audit WHERE store = 'a'`).
			Scan(&before, &deleted, &remaining, &at)
		if before.Int64 != 3 || deleted.Valid || !remaining.Valid || remaining.Int64 != 0 || at != "2026-12-01T09:00:00.123456Z" {
			t.Errorf("%v %v %v %v", before, deleted, remaining, at)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
