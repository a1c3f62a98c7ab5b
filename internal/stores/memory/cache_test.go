package memory

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"recount/internal/stores"
	"recount/internal/stores/storetest"
	"recount/internal/subject"
)

func newCache(t testing.TB, room int) *Cache {
	t.Helper()
	c, err := NewCache(storetest.EventsTable(), "ingested_at", room)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func score(tenant, identity string, at time.Time) stores.Row {
	table := storetest.EventsTable()
	row := storetest.NewRow(table, tenant, "model", fmt.Sprint(identity, at.UnixNano()), identity)
	row[slices.IndexFunc(table.Columns, func(c stores.Column) bool { return c.Name == "ingested_at" })] = at
	return row
}

func put(t testing.TB, c *Cache, rows ...stores.Row) {
	t.Helper()
	c.Fill(rows, slices.Repeat([]bool{true}, len(rows)))
}

func wantCount(t *testing.T, c *Cache, s subject.Subject, want int64) {
	t.Helper()
	if n, err := c.Count(t.Context(), s); err != nil || n != want {
		t.Errorf("Count = %d, %v, want %d", n, err, want)
	}
}

// The suite's own checks append many rows of one subject, and the cache keeps one: each subject gets one row here.
func TestTheCacheTellsLookalikesApart(t *testing.T) {
	ids := storetest.Lookalikes()
	c, at := newCache(t, 2*len(ids)), time.Now()
	for _, id := range ids {
		put(t, c, score("acme", id, at), score("globex", id, at))
	}
	for i, id := range ids {
		wantCount(t, c, who(t, id), 1)
		if i%2 == 0 {
			if n, err := c.Delete(t.Context(), who(t, id)); err != nil || n != 1 {
				t.Errorf("Delete = %d, %v", n, err)
			}
		}
	}
	for i, id := range ids {
		wantCount(t, c, who(t, id), int64(i%2))
		other, err := subject.New("globex", id)
		if err != nil {
			t.Fatal(err)
		}
		wantCount(t, c, other, 1)
	}
}

func TestTheCacheKeepsTheLatestRow(t *testing.T) {
	c, noon := newCache(t, 10), time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	put(t, c, score("acme", "alice", noon), score("acme", "alice", noon.Add(time.Minute)), score("acme", "alice", noon.Add(-time.Minute)))
	wantCount(t, c, who(t, "alice"), 1)
	page, err := c.Read(t.Context(), who(t, "alice"), "", 10)
	if err != nil || len(page.Rows) != 1 || page.Next != "" {
		t.Fatalf("Read = %v, %v", page, err)
	}
	if got := page.Rows[0]["ingested_at"]; got != "2026-01-02T12:01:00Z" {
		t.Errorf("the row of %v is held", got)
	}
	if page.Rows[0]["identity_id"] != "alice" || page.Rows[0]["tenant_id"] != "acme" || page.Rows[0]["source"] != "model" {
		t.Errorf("the row is %v", page.Rows[0])
	}
	if _, err := c.Read(t.Context(), who(t, "alice"), "1", 10); err == nil {
		t.Error("a cursor was taken")
	}
}

func TestAFullCacheForgetsAndStillErases(t *testing.T) {
	c, at := newCache(t, 100), time.Now()
	for i := range 1000 {
		put(t, c, score("acme", fmt.Sprint("p", i), at))
	}
	held := int64(0)
	for i := range 1000 {
		s := who(t, fmt.Sprint("p", i))
		n, err := c.Count(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		held += n
		if m := c.Erase(t.Context(), []subject.Subject{s, s}); len(m) != 2 || !m[0].Remaining.IsZero() || !m[1].Remaining.IsZero() {
			t.Errorf("Erase = %v", m)
		}
		wantCount(t, c, s, 0)
	}
	if held != 100 || c.latest.Len() != 0 {
		t.Errorf("%d were held, %d are left", held, c.latest.Len())
	}
}

func TestTheCacheAnswersAnErrorForAContextThatHasEnded(t *testing.T) {
	c, alice := newCache(t, 10), who(t, "alice")
	put(t, c, score("acme", "alice", time.Now()))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, countErr := c.Count(ctx, alice)
	_, deleteErr := c.Delete(ctx, alice)
	_, readErr := c.Read(ctx, alice, "", 1)
	m := c.Erase(ctx, []subject.Subject{alice})
	for what, err := range map[string]error{"Count": countErr, "Delete": deleteErr, "Read": readErr, "Erase": m[0].DeleteErr} {
		if err == nil || strings.Contains(err.Error(), "alice") {
			t.Errorf("%s answered %v", what, err)
		}
	}
	if _, measured := m[0].Remaining.Value(); measured {
		t.Error("Erase measured what it did not look at")
	}
	wantCount(t, c, alice, 1)
}

func TestTheCacheTakesConcurrentWritesAndErasures(t *testing.T) {
	c := newCache(t, 50)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 200 {
				s := who(t, fmt.Sprint("p", (w*31+i)%80))
				put(t, c, score("acme", s.Identity(), time.Now()))
				if m := c.Erase(t.Context(), []subject.Subject{s}); !m[0].Remaining.IsZero() {
					t.Errorf("Erase = %v", m)
				}
			}
		})
	}
	wg.Wait()
	for i := range 80 {
		wantCount(t, c, who(t, fmt.Sprint("p", i)), 0)
	}
}

func TestTheCacheLeavesOutARowThatDoesNotFitOrWasNotNew(t *testing.T) {
	c := newCache(t, 10)
	row := score("acme", "alice", time.Now())
	put(t, c, row[:3], score("acme", "", time.Now()))
	c.Fill([]stores.Row{row}, []bool{false})
	if c.latest.Len() != 0 {
		t.Errorf("%d rows were taken", c.latest.Len())
	}
	if c.Name() != "events" || c.Backend() != Backend || c.About().Source != storetest.EventsTable().Card.Source {
		t.Errorf("the cache says it is %s, %s, %v", c.Name(), c.Backend(), c.About())
	}
}
