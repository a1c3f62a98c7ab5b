package sqlite

import (
	"context"
	"database/sql"
	"time"

	"recount/internal/subject"
	"recount/internal/suppression"
)

const fenceTable = "main.recount_fence"

// fenceDDL keeps who may not be written for. A tag is of one tenant and one identity, and says neither.
const fenceDDL = "CREATE TABLE IF NOT EXISTS " + fenceTable +
	" (attempt TEXT NOT NULL, tag BLOB NOT NULL, until_us INTEGER NOT NULL, PRIMARY KEY (attempt, tag)) STRICT, WITHOUT ROWID"

// fences are the tags that are up, and until when (microseconds).
type fences map[string]int64

func readFences(rows *sql.Rows) (fences, error) {
	up := fences{}
	return up, visitAll(rows, func(rows *sql.Rows) error {
		var tag []byte
		var until int64
		if err := rows.Scan(&tag, &until); err != nil {
			return err //nolint:wrapcheck // visitAll names it
		}
		up[string(tag)] = max(up[string(tag)], until)
		return nil
	})
}

const fenceQuery = "SELECT tag, until_us FROM " + fenceTable

// behind reports whether any identity of the record is behind a fence.
func (l *Ledger) behind(r subject.Record, up fences) bool {
	if len(up) == 0 {
		return false
	}
	now := time.Now().UnixMicro()
	for _, identity := range r.Identities {
		for _, tag := range l.keys.Fence(r.Source.Tenant(), identity) {
			if up[string(tag)] > now {
				return true
			}
		}
	}
	return false
}

// Fence keeps suppression.Ledger. Erasures from the tables of this file need none, because they record in the transaction
// that deletes; a freeze does. An owner's importers can't be held back.
func (l *Ledger) Fence(ctx context.Context, attempt suppression.AttemptID, subjects []subject.Subject, until time.Time) error {
	return unreadable(l.db.submit(ctx, &request{work: func(w *writer) error {
		for _, s := range subjects {
			tag := l.keys.Fence(s.Tenant(), s.Identity())[0]
			if err := w.exec("INSERT INTO "+fenceTable+" VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET until_us = max(until_us, excluded.until_us)",
				string(attempt), tag, until.UnixMicro()); err != nil {
				return err
			}
		}
		return w.refence(l)
	}}))
}

// Lower keeps suppression.Ledger.
func (l *Ledger) Lower(ctx context.Context, attempt suppression.AttemptID) error {
	return unreadable(l.db.submit(ctx, &request{work: func(w *writer) error {
		n, err := w.execRows("DELETE FROM "+fenceTable+" WHERE attempt = ?1 OR until_us < ?2", string(attempt), time.Now().UnixMicro())
		if err != nil || n == 0 {
			return err
		}
		return w.refence(l)
	}}))
}

// refence moves the generation on: whoever asked before has to ask again.
func (w *writer) refence(l *Ledger) error {
	if _, err := w.generation(l); err != nil {
		return err
	}
	w.ledger.to++
	w.ledger.refenced = true
	return unreadable(w.exec("UPDATE "+stateTable+" SET generation = ?1", int64(w.ledger.to)))
}

// fenced reports *subject.Fault with fenced when any of the records is behind a fence, in this transaction.
func (w *writer) fenced(l *Ledger, records []subject.Record) error {
	rows, err := w.query(fenceQuery, nil)
	if err != nil {
		return unreadable(err)
	}
	up, err := readFences(rows)
	if err != nil {
		return unreadable(err)
	}
	for _, r := range records {
		if l.behind(r, up) {
			return &subject.Fault{Reason: subject.ReasonFenced}
		}
	}
	return nil
}
