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

// append writes the rows that the guard admits: the one way from a body into a store.
func (t *taking) append(ctx context.Context, rows []stores.Row) (out appended) {
	records := make([]subject.Record, len(rows))
	for i, row := range rows {
		var err error
		if records[i], err = t.record(row); err != nil {
			return appended{err: err}
		}
	}
	var created []bool
	var places []int // of the admitted rows
	d, err := t.Guard.Write(ctx, records, func(ctx context.Context, d suppression.Decision) (err error) {
		admitted := make([]stores.Row, 0, len(rows))
		for i, v := range d.Verdicts {
			if v == suppression.Admitted {
				admitted, places = append(admitted, rows[i]), append(places, i)
			}
		}
		created, err = t.Store.Append(ctx, admitted, d.Generation)
		return err
	})
	if err != nil {
		return appended{err: err}
	}
	return t.tell(ctx, records, d, places, created)
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
