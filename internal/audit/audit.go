// Package audit writes down who had what erased or shown, from which store, and what was measured: never whose data it
// was beyond a reference, and never at the cost of the erasure itself.
package audit

import (
	"time"

	"recount/internal/stores"
	"recount/internal/subject"
)

// TableName is the table that rows go to, in every backend.
const TableName = "intent_erasure_audit"

// Row is what is written down about one store in one operation.
type Row struct {
	RequestID  string
	TenantID   string
	SubjectRef subject.Ref
	Cell       string
	Store      string
	Operation  string
	Status     string
	Before     subject.Count
	Deleted    subject.Count
	Remaining  subject.Count
	Actor      string // the caller's account, which is not the subject's data
	Detail     string // a word of the vocabulary; of an allow, its reason and the reference of the consent
	OccurredAt time.Time
}

// Columns is the row as a table takes it, and the allow-list: a column that isn't here is never written. Strings,
// int64 or nil for what was counted, and a time in UTC, cut to microseconds as tables keep it.
func (r Row) Columns() map[string]any {
	return map[string]any{
		"request_id":  r.RequestID,
		"tenant_id":   r.TenantID,
		"subject_ref": string(r.SubjectRef),
		"cell":        r.Cell,
		"store":       r.Store,
		"operation":   r.Operation,
		"status":      r.Status,
		"before":      number(r.Before),
		"deleted":     number(r.Deleted),
		"remaining":   number(r.Remaining),
		"actor":       r.Actor,
		"detail":      r.Detail,
		"occurred_at": r.OccurredAt.UTC().Truncate(time.Microsecond),
	}
}

// number is nil for what was not measured, never 0.
func number(c subject.Count) any {
	if n, measured := c.Value(); measured {
		return n
	}
	return nil
}

// Table says which column of the audit table is a subject's key, for those who look for keys that no store covers. The
// audit is no store: its references outlive the erasure that they prove.
func Table() stores.Table {
	return stores.Table{Name: TableName, Tenant: "tenant_id", Identities: []string{"subject_ref"}}
}

// Event is an operation on one subject.
type Event struct {
	RequestID string
	TenantID  string
	Ref       subject.Ref
	Operation string
	Actor     string
	At        time.Time // when it was answered
}

func (e Event) row(cell, store string) Row {
	return Row{
		RequestID: e.RequestID, TenantID: e.TenantID, SubjectRef: e.Ref, Operation: e.Operation, Actor: e.Actor,
		OccurredAt: e.At, Cell: cell, Store: store,
	}
}

// FromReceipts is one row per receipt of an erasure. One that ended without any receipt is written down too, as failed,
// for the given cell.
func FromReceipts(e Event, cell string, receipts []subject.Receipt) []Row {
	if len(receipts) == 0 {
		return e.nothing(cell)
	}
	rows := make([]Row, len(receipts))
	for i, r := range receipts {
		counts := r.Counts()
		rows[i] = e.row(r.Cell(), r.Store())
		rows[i].Status, rows[i].Detail = r.Status().String(), string(r.Reason())
		rows[i].Before, rows[i].Deleted, rows[i].Remaining = counts.Before, counts.Deleted, counts.Remaining
	}
	return rows
}

// FromAccess is one row per receipt of an access: remaining is how many rows the store held, and nothing was deleted.
func FromAccess(e Event, cell string, receipts []subject.AccessReceipt) []Row {
	if len(receipts) == 0 {
		return e.nothing(cell)
	}
	rows := make([]Row, len(receipts))
	for i, r := range receipts {
		rows[i] = e.row(r.Cell, r.Store)
		rows[i].Status, rows[i].Remaining, rows[i].Detail = "read", r.Count, string(r.Reason)
		if r.Reason != subject.ReasonNone {
			rows[i].Status, rows[i].Remaining = subject.Failed.String(), subject.Unmeasured()
		}
	}
	return rows
}

// LedgerStore is the store of a row about a cell's suppression ledger.
const LedgerStore = "suppression_ledger"

// Ledger is the row of an operation on a cell's suppression ledger.
func (e Event) Ledger(cell, status, detail string) Row {
	row := e.row(cell, LedgerStore)
	row.Status, row.Detail = status, detail
	return row
}

func (e Event) nothing(cell string) []Row {
	row := e.row(cell, subject.AnyStore)
	row.Status, row.Detail = subject.Failed.String(), string(subject.ReasonNothingVerified)
	return []Row{row}
}
