package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"recount/internal/stores"
	"recount/internal/subject"
	"recount/internal/suppression"
)

// Model is the reference store: a slice that is searched from end to end under one lock. It has every ability.
type Model struct {
	table stores.Table
	at    struct { // where a row has its keys
		rowID, tenant, source, ref int
		identities                 []int
	}

	mu   sync.Mutex
	rows []stores.Row
}

// NewModel makes an empty reference store for a table that is ours and matches exactly.
func NewModel(table stores.Table) *Model {
	m := &Model{table: table}
	m.at.rowID, m.at.tenant = columnIndex(table, stores.RowIDColumn), columnIndex(table, table.Tenant)
	m.at.source, m.at.ref = columnIndex(table, table.Source), columnIndex(table, table.SourceRef)
	for _, c := range table.Identities {
		m.at.identities = append(m.at.identities, columnIndex(table, c))
	}
	return m
}

// Name is the table's store.
func (m *Model) Name() string { return m.table.Store }

// Backend is "model".
func (m *Model) Backend() string { return "model" }

// About is the table's card.
func (m *Model) About() subject.Card { return m.table.Card }

// IdentityFields are the table's identity columns.
func (m *Model) IdentityFields() []string { return m.table.Identities }

// Ready answers nil.
func (m *Model) Ready(context.Context) error { return nil }

// Deferred answers nil: the model deletes at once.
func (m *Model) Deferred(context.Context, subject.Subject) (*subject.NotYet, error) { return nil, nil } //nolint:nilnil // the contract's "can't say so"

// RecoverableUntil answers the zero time: nothing is kept.
func (m *Model) RecoverableUntil(context.Context, time.Time) (time.Time, error) {
	return time.Time{}, nil
}

// Count counts the subject's rows.
func (m *Model) Count(ctx context.Context, s subject.Subject) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err //nolint:wrapcheck // a context's own error says it all
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.count(s), nil
}

// Delete removes the subject's rows.
func (m *Model) Delete(ctx context.Context, s subject.Subject) (int64, error) {
	return m.DeleteSome(ctx, s, 0)
}

// DeleteSome removes the subject's rows but for the last ones that it is told to keep.
func (m *Model) DeleteSome(ctx context.Context, s subject.Subject, keep int64) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err //nolint:wrapcheck // a context's own error says it all
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.delete(s, keep), nil
}

// Counts counts each subject's rows.
func (m *Model) Counts(ctx context.Context, subjects []subject.Subject) ([]int64, error) {
	counts := make([]int64, len(subjects))
	for i, s := range subjects {
		n, err := m.Count(ctx, s)
		if err != nil {
			return nil, err
		}
		counts[i] = n
	}
	return counts, ctx.Err() //nolint:wrapcheck // a context's own error says it all
}

// DeleteAll removes every subject's rows.
func (m *Model) DeleteAll(ctx context.Context, subjects []subject.Subject) (int64, error) {
	var deleted int64
	for _, s := range subjects {
		n, err := m.Delete(ctx, s)
		if err != nil {
			return deleted, err
		}
		deleted += n
	}
	return deleted, ctx.Err() //nolint:wrapcheck // a context's own error says it all
}

// Erase counts, deletes and recounts under one lock.
func (m *Model) Erase(ctx context.Context, subjects []subject.Subject) []subject.Measurement {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]subject.Measurement, len(subjects))
	for i, s := range subjects {
		out[i].Before = subject.Measured(m.count(s))
		out[i].DeleteErr = ctx.Err()
	}
	for i, s := range subjects {
		if out[i].DeleteErr == nil {
			out[i].Deleted = subject.Measured(m.delete(s, 0))
		}
	}
	for i, s := range subjects {
		out[i].Remaining = subject.Measured(m.count(s))
	}
	return out
}

// Append takes in rows.
func (m *Model) Append(ctx context.Context, rows []stores.Row, _ suppression.Generation) ([]bool, error) {
	if err := ctx.Err(); err != nil {
		return nil, err //nolint:wrapcheck // a context's own error says it all
	}
	for _, row := range rows {
		if !m.fits(row) {
			return nil, errors.New("a row does not fit its table")
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	created := make([]bool, len(rows))
	for i, row := range rows {
		if created[i] = !slices.ContainsFunc(m.rows, func(r stores.Row) bool { return m.sameRecord(r, row) }); created[i] {
			m.rows = append(m.rows, slices.Clone(row))
		}
	}
	return created, nil
}

// Read pages in the order of the row ids. The cursor is a row id.
func (m *Model) Read(ctx context.Context, s subject.Subject, cursor string, limit int) (subject.Page, error) {
	if err := ctx.Err(); err != nil {
		return subject.Page{}, err //nolint:wrapcheck // a context's own error says it all
	}
	if cursor != "" && len(cursor) != len(newRowID()) {
		return subject.Page{}, errors.New("not a cursor of this store")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	byID := map[string]stores.Row{}
	var ids []string
	for _, row := range m.rows {
		if id, _ := row[m.at.rowID].(string); m.matches(row, s) && id > cursor {
			byID[id] = row
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	var page subject.Page
	for i, id := range ids {
		if i == limit {
			page.Next = ids[i-1]
			break
		}
		row, err := m.show(byID[id])
		if err != nil {
			return subject.Page{}, err
		}
		page.Rows = append(page.Rows, row)
	}
	return page, nil
}

func (m *Model) show(row stores.Row) (map[string]any, error) {
	out := make(map[string]any, len(row))
	for i, c := range m.table.Columns {
		switch v := row[i].(type) {
		case time.Time:
			out[c.Name] = v.UTC().Format(time.RFC3339Nano)
		case string:
			out[c.Name] = v
			if c.Kind == stores.JSON {
				var value any
				if err := json.Unmarshal([]byte(v), &value); err != nil {
					return nil, fmt.Errorf("column %s holds no JSON", c.Name)
				}
				out[c.Name] = value
			}
		default:
			out[c.Name] = v
		}
	}
	return out, nil
}

func (m *Model) fits(row stores.Row) bool {
	if len(row) != len(m.table.Columns) {
		return false
	}
	for i, c := range m.table.Columns {
		ok := false
		switch row[i].(type) {
		case nil:
			ok = c.Nullable
		case string:
			ok = c.Kind == stores.Text || c.Kind == stores.JSON
		case float64:
			ok = c.Kind == stores.Real
		case time.Time:
			ok = c.Kind == stores.Instant
		}
		if !ok {
			return false
		}
	}
	return true
}

func (m *Model) count(s subject.Subject) (n int64) {
	for _, row := range m.rows {
		if m.matches(row, s) {
			n++
		}
	}
	return n
}

func (m *Model) delete(s subject.Subject, keep int64) int64 {
	doomed := max(m.count(s)-keep, 0)
	left := doomed
	m.rows = slices.DeleteFunc(m.rows, func(r stores.Row) bool {
		if left == 0 || !m.matches(r, s) {
			return false
		}
		left--
		return true
	})
	return doomed
}

func (m *Model) matches(row stores.Row, s subject.Subject) bool {
	return row[m.at.tenant] == s.Tenant() && slices.ContainsFunc(m.at.identities, func(i int) bool { return row[i] == s.Identity() })
}

func (m *Model) sameRecord(a, b stores.Row) bool {
	return a[m.at.ref] == b[m.at.ref] && a[m.at.source] == b[m.at.source] && a[m.at.tenant] == b[m.at.tenant]
}
