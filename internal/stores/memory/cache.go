package memory

import (
	"context"
	"strings"
	"sync"
	"time"
	"unique"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"recount/internal/stores"
	"recount/internal/subject"
)

// Cache holds the latest row of each subject, for at most so many subjects; whoever was not touched for longest goes
// first. It is a copy, never the only one: what it does not hold is no loss.
type Cache struct {
	layout
	packed []int
	at     int // the column that says which of two rows is the later

	mu      sync.Mutex
	latest  *simplelru.LRU[subject.Subject, cached]
	records map[recordKey]subject.Subject // whose row bears the source
	derived derivations
}

type cached struct {
	at     time.Time
	data   string
	record recordKey
}

// NewCache makes an empty cache for so many subjects of a table that is ours, with one identity column; a subject's
// latest row is the one with the latest instant in the column named. Errors: a table of another shape, no room for
// anyone.
func NewCache(table stores.Table, latestBy string, subjects int) (*Cache, error) {
	l, err := newLayout(table)
	if err != nil {
		return nil, err
	}
	if len(l.identities) != 1 {
		return nil, errOneIdentity
	}
	c := &Cache{layout: l, packed: l.allBut(l.tenant, l.identities[0]), at: -1}
	for i, column := range table.Columns {
		if column.Name == latestBy && column.Kind == stores.Instant && !column.Nullable {
			c.at = i
		}
	}
	if c.at < 0 {
		return nil, errLatestBy
	}
	c.records, c.derived = map[recordKey]subject.Subject{}, newDerivations()
	if c.latest, err = simplelru.NewLRU(subjects, func(_ subject.Subject, gone cached) { c.forget(gone) }); err != nil {
		return nil, errNoRoom
	}
	return c, nil
}

// forget keeps what is known of records in step with the rows that are held.
func (c *Cache) forget(gone cached) {
	delete(c.records, gone.record)
	c.derived.remove(gone.record)
}

// Name is the table's store.
func (c *Cache) Name() string { return c.table.Store }

// Backend is "memory".
func (c *Cache) Backend() string { return Backend }

// About is the table's card.
func (c *Cache) About() subject.Card { return c.table.Card }

// Fill takes in those rows of the table that were new, and keeps each unless a later one of its subject is held already.
// A row that does not fit is left out: the cache may miss any.
func (c *Cache) Fill(rows []stores.Row, created []bool) {
	for i, row := range rows {
		if created[i] {
			c.put(row)
		}
	}
}

func (c *Cache) put(row stores.Row) {
	if c.check(row) != nil {
		return
	}
	// Clones: the keys must not pin the buffer that the row was cut from.
	s, err := subject.New(strings.Clone(c.text(row, c.tenant)), strings.Clone(c.text(row, c.identities[0])))
	if err != nil {
		return
	}
	at, _ := row[c.at].(time.Time)
	entry := cached{at: at, data: string(c.pack(row, c.packed, nil)), record: recordKey{
		tenant: unique.Make(c.text(row, c.tenant)), source: unique.Make(c.text(row, c.source)), ref: strings.Clone(c.text(row, c.ref)),
	}}
	parents := c.parents(row)
	c.mu.Lock()
	defer c.mu.Unlock()
	held, ok := c.latest.Peek(s)
	if ok && held.at.After(at) {
		return
	}
	if ok {
		c.forget(held)
	}
	if whose, known := c.records[entry.record]; known { // under another identity: a record is one row
		c.latest.Remove(whose)
	}
	c.latest.Add(s, entry)
	c.records[entry.record] = s
	c.derived.add(entry.record, parents)
}

// Count is 1 when a row of the subject is held, else 0.
func (c *Cache) Count(ctx context.Context, s subject.Subject) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err //nolint:wrapcheck // a context's own error says it all
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count(s), nil
}

// Delete drops the subject's row.
func (c *Cache) Delete(ctx context.Context, s subject.Subject) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err //nolint:wrapcheck // a context's own error says it all
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.remove(s), nil
}

// Erase counts, drops and recounts all the subjects under one lock.
func (c *Cache) Erase(ctx context.Context, subjects []subject.Subject) []subject.Measurement {
	out := make([]subject.Measurement, len(subjects))
	c.mu.Lock()
	defer c.mu.Unlock()
	err := ctx.Err() // asked here: waiting for the lock may have taken the rest of the time
	for i, s := range subjects {
		if out[i].DeleteErr = err; err != nil {
			continue
		}
		out[i].Before = subject.Measured(c.count(s))
		out[i].Deleted = subject.Measured(c.remove(s))
		out[i].Remaining = subject.Measured(c.count(s))
	}
	return out
}

// Read shows the subject's row, in one page.
func (c *Cache) Read(ctx context.Context, s subject.Subject, cursor string, _ int) (subject.Page, error) {
	if err := ctx.Err(); err != nil {
		return subject.Page{}, err //nolint:wrapcheck // a context's own error says it all
	}
	if cursor != "" {
		return subject.Page{}, errCursor
	}
	c.mu.Lock()
	entry, ok := c.latest.Peek(s) // being asked for one's data is no use of it
	c.mu.Unlock()
	if !ok {
		return subject.Page{}, nil
	}
	row := make(stores.Row, len(c.table.Columns))
	row[c.tenant], row[c.identities[0]] = s.Tenant(), s.Identity()
	c.unpack(entry.data, c.packed, row)
	shown, err := c.show(row)
	if err != nil {
		return subject.Page{}, err
	}
	return subject.Page{Rows: []map[string]any{shown}}, nil
}

func (c *Cache) count(s subject.Subject) int64 {
	if c.latest.Contains(s) {
		return 1
	}
	return 0
}

func (c *Cache) remove(s subject.Subject) int64 {
	if c.latest.Remove(s) {
		return 1
	}
	return 0
}
