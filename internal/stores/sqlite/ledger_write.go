package sqlite

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

	"recount/internal/subject"
	"recount/internal/suppression"
)

// transaction is what one transaction of the writer did to the ledger.
type transaction struct {
	ledger   *Ledger
	from, to suppression.Generation // before it, and now; 0 while it was not asked
	added    []suppression.MAC
	refenced bool // who is fenced has changed
}

// generation is the ledger's in this transaction.
func (w *writer) generation(l *Ledger) (suppression.Generation, error) {
	if w.ledger.to == 0 {
		err := w.each(generationQuery, nil, func(rows *sql.Rows) error {
			var some bool
			return rows.Scan(&w.ledger.from, &some) //nolint:wrapcheck // each names it
		})
		if err != nil {
			return 0, unreadable(err)
		}
		w.ledger.ledger, w.ledger.to = l, w.ledger.from
	}
	if w.ledger.to == 0 { // the row of the state is gone
		return 0, &subject.Fault{Reason: subject.ReasonSuppression}
	}
	return w.ledger.to, nil
}

// entryChunks are how many entries one insert may take, as chunks is for rows.
var entryChunks = []int{16, 4, 1}

// record adds entries that are not in the ledger yet, and answers how many those were.
func (w *writer) record(l *Ledger, entries []suppression.Entry) (inserted int, err error) {
	if len(entries) == 0 {
		return 0, nil
	}
	if _, err := w.generation(l); err != nil {
		return 0, err
	}
	if l.keys.Width() > 1 {
		if entries, err = w.unrecorded(l, entries); err != nil {
			return 0, err
		}
	}
	values := make([]any, 0, len(entries)*7)
	macs := make([]suppression.MAC, len(entries))
	tags := map[subject.Ref][]byte{}
	for i, e := range entries {
		macs[i] = l.keys.MAC(e.Source)
		tag := tags[e.Erasure]
		if tag == nil {
			tag = l.keys.Erasure(e.Source.Tenant(), e.Erasure)[0]
			tags[e.Erasure] = tag
		}
		var attempt any
		if e.Attempt != "" {
			attempt = string(e.Attempt)
		}
		values = append(values, e.Source.Tenant(), macs[i][:], l.keys.Current(), tag, attempt,
			l.keys.Seal(e.Source, e.Reason, macs[i]), e.ErasedAt.UTC().Format(instantLayout))
	}
	for at := 0; at < len(entries); {
		n := entryChunks[slices.IndexFunc(entryChunks, func(n int) bool { return n <= len(entries)-at })]
		row := "(?,?,?,?,?,?,?)"
		fresh, err := w.execRows("INSERT INTO "+ledgerTable+" (tenant_id, mac, key_id, erasure, attempt, sealed, erased_at) VALUES "+row+strings.Repeat(","+row, n-1)+" ON CONFLICT DO NOTHING", values[at*7:(at+n)*7]...)
		if err != nil {
			return 0, unreadable(err)
		}
		inserted += int(fresh)
		if int(fresh) < n {
			if err := w.share(l, entries[at:at+n]); err != nil {
				return 0, err
			}
		}
		at += n
	}
	if inserted == 0 {
		return 0, nil
	}
	w.ledger.added = append(w.ledger.added, macs...) // those that were there already do no harm
	w.ledger.to++
	return inserted, unreadable(w.exec("UPDATE "+stateTable+" SET generation = ?1", int64(w.ledger.to)))
}

// share makes entries nobody's that another attempt inserted.
func (w *writer) share(l *Ledger, entries []suppression.Entry) error {
	for _, e := range entries {
		for _, m := range l.keys.AppendMACs(nil, e.Source) {
			if err := w.exec("UPDATE "+ledgerTable+" SET attempt = NULL WHERE mac = ?1 AND attempt <> ?2", m[:], string(e.Attempt)); err != nil {
				return unreadable(err)
			}
		}
	}
	return nil
}

// unrecorded leaves out the entries that an older key finds.
func (w *writer) unrecorded(l *Ledger, entries []suppression.Entry) ([]suppression.Entry, error) {
	held, err := w.held(l, sourcesOf(entries))
	if err != nil {
		return nil, err
	}
	var old []suppression.Entry
	fresh := slices.DeleteFunc(slices.Clone(entries), func(e suppression.Entry) bool {
		if held[e.Source] {
			old = append(old, e)
		}
		return held[e.Source]
	})
	return fresh, w.share(l, old)
}

func sourcesOf(entries []suppression.Entry) []subject.Source {
	sources := make([]subject.Source, len(entries))
	for i, e := range entries {
		sources[i] = e.Source
	}
	return sources
}

// held finds which of the sources are in the ledger, in this transaction.
func (w *writer) held(l *Ledger, sources []subject.Source) (map[subject.Source]bool, error) {
	doubts := make(map[subject.Source][]suppression.MAC, len(sources))
	for _, s := range sources {
		doubts[s] = l.keys.AppendMACs(nil, s)
	}
	held := map[subject.Source]bool{}
	return held, unreadable(l.hold(doubts, held, w.query))
}

func (w *writer) query(query string, args []any) (*sql.Rows, error) {
	s, err := w.prepared(query) //nolint:sqlclosecheck // it is kept, and closed with the connection
	if err != nil {
		return nil, err
	}
	rows, err := s.QueryContext(context.Background(), args...)
	return rows, named(err)
}

// land commits. The ledger's filter learns what was recorded before anybody can find it behind. Then memories are filled
// and erased in the order in which the requests ran, before anybody is answered.
func (w *writer) land() error {
	l := w.ledger.ledger
	if w.ledger.to == w.ledger.from {
		l = nil
	}
	if l != nil {
		l.mu.Lock()
	}
	err := w.exec("COMMIT")
	if l != nil {
		if err == nil {
			if w.ledger.refenced {
				l.upTo = 0 // to be loaded when it is asked
			} else {
				l.learn(w.ledger.from, w.ledger.to, w.ledger.added)
			}
		}
		l.mu.Unlock()
	}
	if err != nil {
		return err
	}
	for _, r := range w.order {
		r.mirror()
	}
	return nil
}

// recheck finds, once more and in the transaction that appends, which rows of a request are suppressed by now.
func (w *writer) recheck(r *request) (skip []bool, err error) {
	l := w.db.ledger.Load()
	if l == nil || !r.table.guarded() {
		return nil, nil
	}
	g, err := w.generation(l)
	if err != nil || g == r.seen {
		return nil, err
	}
	width := len(r.table.spec.Columns)
	records := make([]subject.Record, r.rows)
	var all []subject.Source
	for i := range records {
		if records[i], err = r.table.record(r.values[i*width : (i+1)*width]); err != nil {
			return nil, err
		}
		all = append(append(all, records[i].Source), records[i].Parents...)
	}
	held, err := w.held(l, all)
	if err == nil {
		err = w.fenced(l, records)
	}
	if err != nil || len(held) == 0 {
		return nil, err
	}
	skip = make([]bool, r.rows)
	a := suppression.Answer{Verdicts: make([]suppression.Verdict, r.rows), Parents: map[int]subject.Source{}}
	for i, record := range records {
		judge(record, i, held, &a)
		skip[i] = a.Verdicts[i] == suppression.Suppressed
	}
	return skip, nil
}

// guarded reports whether rows of the table are recognised when they come again.
func (t *Table) guarded() bool { return t.spec.Columns != nil && t.spec.Source != "" }

// Record keeps suppression.Ledger.
func (l *Ledger) Record(ctx context.Context, entries []suppression.Entry) (inserted int, err error) {
	if len(entries) == 0 {
		return 0, ctx.Err() //nolint:wrapcheck // a context's own error says it all
	}
	err = l.db.submit(ctx, &request{work: func(w *writer) (err error) {
		inserted, err = w.record(l, entries)
		return err
	}})
	return inserted, unreadable(err)
}

// RecordDerived keeps suppression.Ledger.
func (l *Ledger) RecordDerived(ctx context.Context, children map[subject.Source]subject.Source) error {
	return unreadable(l.db.submit(ctx, &request{work: func(w *writer) error {
		for child, parent := range children {
			if err := w.recordChild(l, child, parent); err != nil {
				return err
			}
		}
		return nil
	}}))
}

func (w *writer) recordChild(l *Ledger, child, parent subject.Source) error {
	held, err := w.held(l, []subject.Source{child, parent})
	if err != nil || held[child] || !held[parent] {
		return err
	}
	if _, err := w.generation(l); err != nil {
		return err
	}
	for _, parentMAC := range l.keys.AppendMACs(nil, parent) {
		mac := l.keys.MAC(child)
		n, err := w.execRows("INSERT INTO "+ledgerTable+" (tenant_id, mac, key_id, erasure, sealed, erased_at) SELECT tenant_id, ?2, ?3, erasure, ?4, ?5 FROM "+
			ledgerTable+" WHERE mac = ?1 ON CONFLICT DO NOTHING", parentMAC[:], mac[:], l.keys.Current(),
			l.keys.Seal(child, suppression.ReasonDerived, mac), time.Now().UTC().Format(instantLayout))
		if err != nil {
			return unreadable(err)
		}
		if n > 0 {
			w.ledger.added = append(w.ledger.added, mac)
			w.ledger.to++
			return unreadable(w.exec("UPDATE "+stateTable+" SET generation = ?1", int64(w.ledger.to)))
		}
	}
	return nil
}

// Withdraw keeps suppression.Ledger.
func (l *Ledger) Withdraw(ctx context.Context, tenant string, attempt suppression.AttemptID) error {
	return unreadable(l.db.submit(ctx, &request{work: func(w *writer) error {
		return w.exec("DELETE FROM "+ledgerTable+" WHERE attempt = ?1 AND tenant_id = ?2", string(attempt), tenant)
	}}))
}

// Allow keeps suppression.Ledger.
func (l *Ledger) Allow(ctx context.Context, s subject.Source) (removed bool, err error) {
	err = l.db.submit(ctx, &request{work: func(w *writer) error {
		removed = false
		for _, mac := range l.keys.AppendMACs(nil, s) {
			n, err := w.execRows("DELETE FROM "+ledgerTable+" WHERE mac = ?1", mac[:])
			if err != nil {
				return err
			}
			removed = removed || n > 0
		}
		return nil
	}})
	return removed, unreadable(err)
}
