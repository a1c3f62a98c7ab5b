package bigquery

import (
	"context"
	"crypto/hmac"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"

	bq "cloud.google.com/go/bigquery"

	"recount/internal/stores"
	"recount/internal/subject"
)

const (
	pageBytes  = 4 << 20
	cursorMAC  = 16
	instantFmt = "2006-01-02T15:04:05.999999Z07:00"
)

var errCursor = errors.New("bigquery: not a cursor of this store and subject")

// Read answers a page of the subject's rows. A table that is ours is paged by its row ids, so that no row is shown twice
// or left out while others come and go. An owner's table is paged by offset in the order of the rows' content: there, a
// row that is written or deleted between two pages may shift another across their border.
func (t *Table) Read(ctx context.Context, s subject.Subject, cursor string, limit int) (subject.Page, error) {
	if err := ctx.Err(); err != nil {
		return subject.Page{}, &failure{"the read", err}
	}
	if limit < 1 {
		return subject.Page{}, &failure{"the read", errors.New("a page of no rows")}
	}
	shape, err := t.current(ctx)
	if err != nil {
		return subject.Page{}, t.refusal("the read", err)
	}
	after, err := t.openCursor(s, cursor)
	if err != nil {
		return subject.Page{}, err
	}
	offset := 0
	st := shape.page(s.Tenant(), s.Identity(), after, limit+1)
	if t.table.Columns == nil {
		if after != "" {
			if offset, err = strconv.Atoi(after); err != nil {
				return subject.Page{}, errCursor
			}
		}
		st = shape.pageAt(s.Tenant(), s.Identity(), offset, limit+1)
	}
	page, more, err := t.fetch(ctx, st, limit)
	if err != nil {
		return subject.Page{}, judge(err).read("the read", err)
	}
	if more {
		next := strconv.Itoa(offset + len(page.Rows))
		if t.table.Columns != nil {
			next, _ = page.Rows[len(page.Rows)-1][stores.RowIDColumn].(string)
		}
		page.Next = t.sealCursor(s, next)
	}
	return page, nil
}

// fetch takes rows until the page is full, and reports whether there are more.
func (t *Table) fetch(ctx context.Context, st statement, limit int) (page subject.Page, more bool, err error) {
	size := 0
	var shown error
	err = t.c.query(ctx, st, func(row map[string]bq.Value) bool {
		if len(page.Rows) == limit || size > pageBytes {
			more = true
			return false
		}
		out, n, err := t.show(row)
		if shown = err; err != nil {
			return false
		}
		page.Rows, size = append(page.Rows, out), size+n
		return true
	})
	return page, more, errors.Join(err, shown)
}

// show turns a row into the values of a JSON object, and answers about how many bytes it has.
func (t *Table) show(row map[string]bq.Value) (map[string]any, int, error) {
	out := make(map[string]any, len(row))
	size := 0
	for name, v := range row {
		shown, n := plain(v)
		out[name], size = shown, size+n+len(name)
	}
	for _, c := range t.table.Columns {
		text, ok := out[c.Name].(string)
		if c.Kind != stores.JSON || !ok {
			continue
		}
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		var v any
		if err := d.Decode(&v); err != nil {
			return nil, 0, fmt.Errorf("column %s does not hold JSON", c.Name)
		}
		out[c.Name] = v
	}
	return out, size, nil
}

// plain turns a value of the platform into one of JSON's, and answers about how many bytes it has.
func plain(v bq.Value) (any, int) {
	switch v := v.(type) {
	case nil:
		return nil, 4
	case bool, int64:
		return v, 8
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Sprint(v), 8
		}
		return v, 8
	case string:
		return v, len(v)
	case []byte:
		return base64.StdEncoding.EncodeToString(v), len(v)
	case time.Time:
		return v.UTC().Format(instantFmt), 32
	case *big.Rat:
		return json.Number(bq.BigNumericString(v)), 16
	case []bq.Value:
		out, size := make([]any, len(v)), 0
		for i, e := range v {
			shown, n := plain(e)
			out[i], size = shown, size+n
		}
		return out, size
	case map[string]bq.Value:
		out, size := make(map[string]any, len(v)), 0
		for name, e := range v {
			shown, n := plain(e)
			out[name], size = shown, size+n+len(name)
		}
		return out, size
	default: // dates, times, intervals and ranges print as themselves
		text := fmt.Sprint(v)
		return text, len(text)
	}
}

// sealCursor makes a cursor that only this store takes, and only for this subject.
func (t *Table) sealCursor(s subject.Subject, position string) string {
	return base64.RawURLEncoding.EncodeToString(append(t.cursorMAC(s, position), position...))
}

func (t *Table) cursorMAC(s subject.Subject, position string) []byte {
	return t.c.digest("cursor", t.table.Name, s.Tenant(), s.Identity(), position)[:cursorMAC]
}

func (t *Table) openCursor(s subject.Subject, cursor string) (string, error) {
	if cursor == "" {
		return "", nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(raw) <= cursorMAC {
		return "", errCursor
	}
	position := string(raw[cursorMAC:])
	if !hmac.Equal([]byte(cursor), []byte(t.sealCursor(s, position))) { // the whole text: base64 has several for the same bytes
		return "", errCursor
	}
	return position, nil
}
