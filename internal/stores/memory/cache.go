package memory

import (
	"context"
	"strings"
	"sync"
	"time"

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

	mu     sync.Mutex
	latest *simplelru.LRU[subject.Subject, cached]
}

type cached struct {
	at   time.Time
	data string
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
	if c.latest, err = simplelru.NewLRU[subject.Subject, cached](subjects, nil); err != nil {
		return nil, errNoRoom
	}
	return c, nil
}

// Name is the table's store.
func (c *Cache) Name() string { return c.table.Store }

// Backend is "memory".
func (c *Cache) Backend() string { return Backend }

// About is the table's card.
func (c *Cache) About() subject.Card { return c.table.Card }

// Put keeps the row unless a later one of its subject is already held. It MUST be called under the lock that an
// erasure of the subject takes, or a write in flight would bring back what was erased. Errors: a row that does not fit.
func (c *Cache) Put(row stores.Row) error {
	if err := c.check(row); err != nil {
		return err
	}
	// Clones: the key must not pin the buffer that the row was cut from.
	s, err := subject.New(strings.Clone(c.text(row, c.tenant)), strings.Clone(c.text(row, c.identities[0])))
	if err != nil {
		return errRow
	}
	at, _ := row[c.at].(time.Time)
	entry := cached{at: at, data: string(c.pack(row, c.packed, nil))}
	c.mu.Lock()
	defer c.mu.Unlock()
	if held, ok := c.latest.Peek(s); ok && held.at.After(at) {
		return nil
	}
	c.latest.Add(s, entry)
	return nil
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
