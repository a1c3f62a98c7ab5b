package sqlite

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"recount/internal/stores"
	"recount/internal/subject"
)

const (
	pageBytes = 4 << 20 // a page ends early past this
	scanRows  = 500     // rows of a scan that are held at once
)

// ErrCursor says that a cursor was not made by this store for this subject, or by an earlier process.
var ErrCursor = errors.New("the cursor is not one of this store")

// Read shows the subject's rows in the order in which they were inserted.
func (t *Table) Read(ctx context.Context, s subject.Subject, cursor string, limit int) (subject.Page, error) {
	args := []any{s.Tenant(), t.key(s), limit + 1}
	if cursor != "" {
		after, err := t.openCursor(s, cursor)
		if err != nil {
			return subject.Page{}, err
		}
		args = append(args, after)
	}
	var page subject.Page
	err := t.read(ctx, func(q querier, live *shape) error {
		if err := refuseBlobs(ctx, q, live.sql.blobOne, s.Tenant(), t.key(s)); err != nil {
			return err
		}
		query := live.sql.first
		if cursor != "" {
			query = live.sql.next
		}
		page = subject.Page{}
		size, last := 0, int64(0)
		return each(ctx, q, len(live.columns), query, args, func(rowid int64, values []any) (bool, error) {
			if len(page.Rows) == limit || size > pageBytes {
				page.Next = t.makeCursor(s, last)
				return false, nil
			}
			row, n, err := t.show(live.columns, values)
			page.Rows, size, last = append(page.Rows, row), size+n, rowid
			return true, err
		})
	})
	if err != nil {
		return subject.Page{}, err
	}
	return page, nil
}

// each calls yield with the rows of a query until it answers false: the rowid, and so many columns.
func each(ctx context.Context, q querier, columns int, query string, args []any, yield func(rowid int64, values []any) (bool, error)) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err //nolint:wrapcheck // read names it
	}
	defer rows.Close() //nolint:errcheck // Err below tells
	for rows.Next() {
		var rowid int64
		values := make([]any, columns)
		into := make([]any, 1, len(values)+1)
		into[0] = &rowid
		for i := range values {
			into = append(into, &values[i])
		}
		if err := rows.Scan(into...); err != nil {
			return err //nolint:wrapcheck // read names it
		}
		if more, err := yield(rowid, values); err != nil || !more {
			return err
		}
	}
	return rows.Err() //nolint:wrapcheck // read names it
}

// show makes a row a JSON object, and answers about how large it is.
func (t *Table) show(columns []string, values []any) (row map[string]any, size int, err error) {
	row = make(map[string]any, len(values))
	for i, name := range columns {
		value := values[i]
		switch v := value.(type) {
		case string:
			size += len(v)
			if t.kind(i) == stores.JSON {
				if value, err = parseJSON(v); err != nil {
					return nil, 0, fmt.Errorf("column %s: %w", name, err)
				}
			} else {
				value = strings.ToValidUTF8(v, "\uFFFD")
			}
		case []byte:
			size += len(v)
			value = base64.StdEncoding.EncodeToString(v)
		case float64:
			if math.IsInf(v, 0) { // JSON has no word for it
				value = fmt.Sprint(v)
			}
		}
		row[name] = value
		size += len(name) + 16
	}
	return row, size, nil
}

// kind is Text for every column of an owner's table: what is shown is what the column holds.
func (t *Table) kind(i int) stores.Kind {
	if t.spec.Columns == nil {
		return stores.Text
	}
	return t.spec.Columns[i].Kind
}

func parseJSON(text string) (value any, err error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&value); err != nil {
		return nil, errors.New("the text is no JSON")
	}
	return value, nil
}

// Scan calls yield with every row of a table that is ours, in the order in which they were inserted. It holds a few
// hundred rows at a time, and no transaction while yield runs. Rows that are appended meanwhile are among them.
func (t *Table) Scan(ctx context.Context, yield func(stores.Row) error) error {
	if t.spec.Columns == nil {
		return fmt.Errorf("store %s: the table is an owner's, and is not replayed", t.spec.Store)
	}
	after := int64(math.MinInt64)
	for {
		var rows []stores.Row
		err := t.read(ctx, func(q querier, live *shape) error {
			size := 0
			return each(ctx, q, len(live.columns), live.sql.scan, []any{after, scanRows}, func(rowid int64, values []any) (bool, error) {
				row, n, err := t.restore(values)
				rows, after, size = append(rows, row), rowid, size+n
				return size < pageBytes, err
			})
		})
		if err != nil || len(rows) == 0 {
			return err
		}
		for _, row := range rows {
			if err := yield(row); err != nil {
				return err
			}
		}
	}
}

// restore turns stored values into those that were appended.
func (t *Table) restore(values []any) (stores.Row, int, error) {
	size := 0
	for i, c := range t.spec.Columns {
		text, ok := values[i].(string)
		size += len(text)
		if !ok || c.Kind != stores.Instant {
			continue
		}
		at, err := time.Parse(instantLayout, text)
		if err != nil {
			return nil, 0, fmt.Errorf("column %s holds no instant", c.Name)
		}
		values[i] = at
	}
	return values, size, nil
}

// makeCursor seals the rowid: an owner's rowid may be a key of the row.
func (t *Table) makeCursor(s subject.Subject, rowid int64) string {
	sealed := t.db.cursors.Seal(nil, nil, binary.BigEndian.AppendUint64(nil, uint64(rowid)), t.cursorFor(s)) //nolint:gosec // the same bits
	return base64.RawURLEncoding.EncodeToString(sealed)
}

func (t *Table) openCursor(s subject.Subject, cursor string) (int64, error) {
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil {
		return 0, ErrCursor
	}
	plain, err := t.db.cursors.Open(nil, nil, sealed, t.cursorFor(s))
	if err != nil || len(plain) != 8 {
		return 0, ErrCursor
	}
	return int64(binary.BigEndian.Uint64(plain)), nil //nolint:gosec // the same bits
}

// cursorFor binds a cursor to its store and subject.
func (t *Table) cursorFor(s subject.Subject) []byte {
	return bytes.Join([][]byte{[]byte(t.spec.Store), []byte(s.Tenant()), []byte(s.Identity())}, []byte{0})
}
