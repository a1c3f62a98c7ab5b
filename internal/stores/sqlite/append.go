package sqlite

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"recount/internal/stores"
	"recount/internal/suppression"
)

// instantLayout is how an instant is stored: text that sorts like time, in UTC.
const instantLayout = "2006-01-02T15:04:05.000000Z"

// chunks are how many rows one insert may take, largest first: each size is a prepared statement.
var chunks = []int{64, 8, 1}

// Append writes rows, all or none, and answers which of them were new.
func (t *Table) Append(ctx context.Context, rows []stores.Row, seen suppression.Generation) ([]bool, error) {
	if t.spec.Columns == nil {
		return nil, fmt.Errorf("store %s: the table is an owner's, nothing is appended to it", t.spec.Store)
	}
	if len(rows) == 0 {
		return nil, ctx.Err() //nolint:wrapcheck // a context's own error says it all
	}
	values := make([]any, 0, len(rows)*len(t.spec.Columns))
	for i, row := range rows {
		var err error
		if values, err = t.flatten(values, row); err != nil {
			return nil, fmt.Errorf("store %s, row %d: %w", t.spec.Store, i, err)
		}
	}
	r := &request{table: t, rows: len(rows), values: values, seen: seen}
	if t.mirror != nil {
		r.given = rows
	}
	if err := t.db.submit(ctx, r); err != nil {
		return nil, err
	}
	return r.created, nil
}

// flatten appends a row's values in the form that they are stored in.
func (t *Table) flatten(values []any, row stores.Row) ([]any, error) {
	if len(row) != len(t.spec.Columns) {
		return nil, fmt.Errorf("%d values for %d columns", len(row), len(t.spec.Columns))
	}
	for i, c := range t.spec.Columns {
		ok := false
		value := row[i]
		switch v := value.(type) {
		case nil:
			ok = c.Nullable
		case string:
			ok = c.Kind == stores.Text || c.Kind == stores.JSON
		case float64:
			ok = c.Kind == stores.Real
		case time.Time:
			ok = c.Kind == stores.Instant
			value = v.UTC().Format(instantLayout)
		}
		if !ok {
			return nil, fmt.Errorf("column %s does not take a %T", c.Name, row[i])
		}
		values = append(values, value)
	}
	return values, nil
}

// errMixed says that a statement found new rows and others, and can't tell which. The request is done again row by row.
var errMixed = errors.New("some rows of a statement were there already")

// append inserts a request's rows in few statements, or row by row where the last append to the table was mixed.
func (w *writer) append(r *request) error {
	r.created = make([]bool, r.rows)
	skip, err := w.recheck(r)
	if err != nil {
		return err
	}
	fresh := 0
	for at := 0; at < r.rows; {
		if skip != nil && skip[at] {
			at++
			continue
		}
		n := 1
		if !r.table.mixed && skip == nil {
			n = chunkFor(r.rows - at)
		}
		inserted, err := w.insert(r, at, n)
		if err != nil {
			return err
		}
		if inserted != 0 && inserted != n {
			r.table.mixed = true
			return errMixed
		}
		fresh += inserted
		at += n
	}
	r.table.mixed = r.table.mixed && fresh != 0 && fresh != r.rows
	return w.link(r)
}

func chunkFor(left int) int {
	for _, n := range chunks {
		if n <= left {
			return n
		}
	}
	return 1
}

// insert writes n rows in one statement, and answers how many were new.
func (w *writer) insert(r *request, at, n int) (int, error) {
	width := len(r.table.spec.Columns)
	inserted, err := w.execRows(r.table.insertion(n), r.values[at*width:(at+n)*width]...)
	for i := at; i < at+n; i++ {
		r.created[i] = inserted == int64(n)
	}
	return int(inserted), err
}

func (t *Table) insertion(rows int) string {
	row := "(?" + strings.Repeat(",?", len(t.spec.Columns)-1) + ")"
	return t.shape.Load().sql.insert + row + strings.Repeat(","+row, rows-1) + " ON CONFLICT DO NOTHING"
}
