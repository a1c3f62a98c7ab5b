package sqlite

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"recount/internal/stores"
)

// auditTable is where audit rows go.
const auditTable = "intent_erasure_audit"

// auditColumns are all that an audit row may hold, with the type that each is declared with.
var auditColumns = []struct{ name, declared string }{
	{"request_id", "TEXT NOT NULL"},
	{"tenant_id", "TEXT NOT NULL"},
	{"subject_ref", "TEXT NOT NULL"},
	{"cell", "TEXT NOT NULL"},
	{"store", "TEXT NOT NULL"},
	{"operation", "TEXT NOT NULL"},
	{"status", "TEXT NOT NULL"},
	{"before", "INTEGER"},
	{"deleted", "INTEGER"},
	{"remaining", "INTEGER"},
	{"actor", "TEXT"},
	{"detail", "TEXT"},
	{"occurred_at", "TEXT NOT NULL"},
}

// auditKey are the columns that name an audit row. Those of one person come first, which is how they are looked up.
const auditKey = `"tenant_id", "subject_ref", "request_id", "cell", "store", "operation", "occurred_at"`

// Audit is the audit table of an open file. It is safe for concurrent use.
type Audit struct{ table *Table }

// Audit opens the file's audit table, which is created when missing.
func (db *DB) Audit(ctx context.Context) (*Audit, error) {
	names, declared := make([]string, len(auditColumns)), make([]string, len(auditColumns))
	spec := stores.Table{Store: auditTable, Name: auditTable}
	for i, c := range auditColumns {
		names[i] = quote(c.name)
		declared[i] = names[i] + " " + c.declared
		spec.Columns = append(spec.Columns, stores.Column{Name: c.name})
	}
	setup := []string{
		"CREATE TABLE IF NOT EXISTS main." + quote(auditTable) + " (" + strings.Join(declared, ", ") + ") STRICT",
		"CREATE UNIQUE INDEX IF NOT EXISTS main." + quote(auditTable+"_row") + " ON " + quote(auditTable) + " (" + auditKey + ")",
	}
	if err := db.submit(ctx, &request{setup: setup}); err != nil {
		return nil, fmt.Errorf("the audit table: %w", err)
	}
	insert := "INSERT INTO main." + quote(auditTable) + " (" + strings.Join(names, ", ") + ") VALUES "
	table := &Table{db: db, spec: spec}
	table.shape.Store(&shape{sql: statements{insert: insert}})
	return &Audit{table: table}, nil
}

// InsertAudit appends rows, all or none: request_id, tenant_id, subject_ref, cell, store, operation, status, actor and
// detail as string; before, deleted and remaining as int64 or nil; occurred_at as time.Time. A row with any other column
// is refused. A row that is sent again is taken once.
func (a *Audit) InsertAudit(ctx context.Context, rows []map[string]any) error {
	values := make([]any, 0, len(rows)*len(auditColumns))
	for _, row := range rows {
		known := 0
		for _, c := range auditColumns {
			v, given := row[c.name]
			if given {
				known++
			}
			if at, ok := v.(time.Time); ok {
				v = at.UTC().Format(instantLayout)
			}
			values = append(values, v)
		}
		if known != len(row) {
			return errors.New("sqlite: an audit row has columns that the table does not know")
		}
	}
	if len(rows) == 0 {
		return nil
	}
	return a.table.db.submit(ctx, &request{table: a.table, rows: len(rows), values: values})
}
