package intake

import (
	"context"

	"recount/internal/stores"
	"recount/internal/subject"
	"recount/internal/suppression"
)

// appended is what became of a batch of rows.
type appended struct {
	accepted, duplicates, suppressed, unreadable int
	err                                          error
}

// batch is rows on their way to the store.
type batch struct {
	rows    []stores.Row
	records []subject.Record
	ahead   *suppression.Decision
}

// batch reads what the rows say of themselves, and asks the guard ahead of their turn where that is possible.
func (t *taking) batch(ctx context.Context, rows []stores.Row) (b batch, err error) {
	b = batch{rows: rows, records: make([]subject.Record, len(rows))}
	for i, row := range rows {
		if b.records[i], err = t.record(row); err != nil {
			return b, err
		}
	}
	b.ahead = t.Guard.Ahead(ctx, b.records)
	return b, nil
}

// append writes the rows that the guard admits: the one way from a body into a store.
func (t *taking) append(ctx context.Context, b batch) (out appended) {
	var created []bool
	var places []int // of the admitted rows
	d, err := t.Guard.Write(ctx, b.records, b.ahead, func(ctx context.Context, d suppression.Decision) (err error) {
		admitted := make([]stores.Row, 0, len(b.rows))
		for i, v := range d.Verdicts {
			if v == suppression.Admitted {
				admitted, places = append(admitted, b.rows[i]), append(places, i)
			}
		}
		created, err = t.Store.Append(ctx, admitted, d.Generation)
		return err
	})
	if err != nil {
		return appended{err: err}
	}
	return t.tell(ctx, b.records, d, places, created)
}

// tell counts what became of the records. One that was admitted and is not new may have been suppressed meanwhile: it is
// no duplicate then.
func (t *taking) tell(ctx context.Context, records []subject.Record, d suppression.Decision, places []int, created []bool) (out appended) {
	var doubtful []subject.Record
	for i, at := range places {
		if created[i] {
			out.accepted++
		} else {
			doubtful = append(doubtful, records[at])
		}
	}
	for _, v := range d.Verdicts {
		switch v {
		case suppression.Suppressed:
			out.suppressed++
		case suppression.Unreadable:
			out.unreadable++
		}
	}
	if len(doubtful) == 0 {
		return out
	}
	for _, v := range t.Guard.Recheck(ctx, doubtful, d).Verdicts {
		if v == suppression.Suppressed {
			out.suppressed++
		} else {
			out.duplicates++
		}
	}
	return out
}
