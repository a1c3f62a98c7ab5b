package bigquery

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	bq "cloud.google.com/go/bigquery"
)

// AuditTable is where audit rows go. deploy/bigquery makes it.
const AuditTable = "intent_erasure_audit"

// auditColumns are all that an audit row may hold.
var auditColumns = []string{
	"request_id", "tenant_id", "subject_ref", "cell", "store", "operation", "status", "before", "deleted", "remaining", "actor",
	"detail", "occurred_at",
}

// InsertAudit appends rows to the audit table: request_id, tenant_id, subject_ref, cell, store, operation, status, actor
// and detail as string; before, deleted and remaining as int64 or nil; occurred_at as time.Time. A row with any other
// column is refused, and so is a missing table, which is never made here. A row that is sent again soon is taken once.
func (c *Client) InsertAudit(ctx context.Context, rows []map[string]any) error {
	pending := make([]*pendingRow, len(rows))
	for i, row := range rows {
		p := &pendingRow{values: make(map[string]bq.Value, len(row))}
		for name, v := range row {
			if !slices.Contains(auditColumns, name) {
				return fmt.Errorf("bigquery: an audit row has no column %q", name)
			}
			p.values[name] = v
		}
		text, err := json.Marshal(row) // its keys come sorted
		if err != nil {
			return &failure{"an audit row", errors.New("not of the documented types")}
		}
		p.id, p.size = hex.EncodeToString(c.digest("audit", string(text))[:16]), len(text)
		pending[i] = p
	}
	return c.insert(ctx, AuditTable, pending)
}
