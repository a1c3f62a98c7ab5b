package storetest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"recount/internal/stores"
	"recount/internal/subject"
)

// testConcurrent writes, counts and erases from many goroutines. What was acknowledged is counted; who is not erased
// keeps every row; and when all is quiet, an erasure leaves nothing.
func testConcurrent(t *testing.T, b *bench) {
	if _, ok := b.store.(stores.Appender); !ok {
		return
	}
	workers, rounds := 8, 20
	if b.h.Slow {
		workers, rounds = 4, 5
	}
	a, ctx := b.appender(t), bounded(t)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			own, shared := who(t, fmt.Sprintf("own-%d", w)), who(t, "shared")
			for i := range rounds {
				rows := []stores.Row{b.row(tenant, own.Identity()), b.row(tenant, "shared"), b.row(tenant, own.Identity())}
				if _, err := a.Append(ctx, rows, 0); err != nil {
					t.Errorf("Append: %v", err)
					return
				}
				if n, err := b.store.Count(ctx, own); err != nil || n != int64(2*(i+1)) {
					t.Errorf("Count = %d, %v after %d acknowledged rows", n, err, 2*(i+1))
					return
				}
				if err := b.eraseOne(ctx, shared); err != nil {
					t.Errorf("erasing while others write: %v", err)
					return
				}
			}
			if w%2 == 0 {
				if err := b.eraseOne(ctx, own); err != nil {
					t.Errorf("erasing: %v", err)
				}
			}
		})
	}
	wg.Wait()
	for w := range workers {
		b.wantCount(t, who(t, fmt.Sprintf("own-%d", w)), int64(w%2*2*rounds))
	}
	b.delete(t, who(t, "shared"))
	b.wantCount(t, who(t, "shared"), 0)
}

// eraseOne erases in the best way that the store has.
func (b *bench) eraseOne(ctx context.Context, s subject.Subject) error {
	if atomic, ok := b.store.(subject.Atomic); ok {
		measured := atomic.Erase(ctx, []subject.Subject{s})
		if len(measured) != 1 || verdict(measured[0]) != subject.Erased {
			return fmt.Errorf("measured %+v", measured)
		}
		return nil
	}
	_, err := b.store.Delete(ctx, s)
	return err //nolint:wrapcheck // for the test's own message
}

// testModel drives the store and the reference with the same random calls. Every round has tenants of its own.
func testModel(t *testing.T, b *bench) {
	rounds, limit := 0, 1000
	if b.h.Slow {
		limit = 10
	}
	ctx := bounded(t)
	rapid.Check(t, func(rt *rapid.T) {
		if rounds++; rounds > limit {
			return
		}
		d := &duel{bench: b, t: t, rt: rt, ctx: ctx, model: NewModel(b.table), tenants: []string{
			fmt.Sprintf("t%d", serial.Add(1)), fmt.Sprintf("t%d", serial.Add(1)),
		}}
		rt.Repeat(map[string]func(*rapid.T){
			"append": d.append, "count": d.count, "delete": d.delete, "read": d.read, "batch": d.batch, "erase": d.erase,
		})
		for _, tenant := range d.tenants {
			for _, id := range duelists {
				d.compare(whoIn(rt, tenant, id))
			}
		}
	})
}

var duelists = []string{"a", "A", "b", "e\u0301", "\u00e9", "a/b", "a%2Fb", "7"}

type duel struct {
	*bench
	t       *testing.T
	rt      *rapid.T
	ctx     context.Context //nolint:containedctx // one round of a test
	model   *Model
	tenants []string
}

func (d *duel) subject(rt *rapid.T) subject.Subject {
	return whoIn(rt, rapid.SampledFrom(d.tenants).Draw(rt, "tenant"), rapid.SampledFrom(duelists).Draw(rt, "identity"))
}

func (d *duel) subjects(rt *rapid.T) []subject.Subject {
	tenant := rapid.SampledFrom(d.tenants).Draw(rt, "tenant")
	var out []subject.Subject
	for _, id := range rapid.SliceOfN(rapid.SampledFrom(duelists), 0, 5).Draw(rt, "identities") {
		out = append(out, whoIn(rt, tenant, id))
	}
	return out
}

func (d *duel) append(rt *rapid.T) {
	var rows []stores.Row
	for range rapid.IntRange(1, 6).Draw(rt, "rows") {
		ref := fmt.Sprintf("r%d", rapid.IntRange(0, 30).Draw(rt, "ref"))
		rows = append(rows, NewRow(d.table, rapid.SampledFrom(d.tenants).Draw(rt, "tenant"), "duel", ref,
			rapid.SampledFrom(duelists).Draw(rt, "identity"), rapid.SampledFrom(duelists).Draw(rt, "related")))
	}
	want, err := d.model.Append(d.ctx, rows, 0)
	if err != nil {
		rt.Fatalf("the reference refused: %v", err)
	}
	if a, ok := d.store.(stores.Appender); ok {
		got, err := a.Append(d.ctx, rows, 0)
		if err != nil || !slices.Equal(got, want) {
			rt.Fatalf("created = %v, %v, want %v", got, err, want)
		}
		return
	}
	var fresh []stores.Row // a seed knows no duplicates
	for i, row := range rows {
		if want[i] {
			fresh = append(fresh, row)
		}
	}
	d.seed(d.t, fresh...)
}

func (d *duel) count(rt *rapid.T) { d.compare(d.subject(rt)) }

func (d *duel) compare(s subject.Subject) {
	want, _ := d.model.Count(d.ctx, s)
	got, err := d.store.Count(d.ctx, s)
	if err != nil || got != want {
		d.rt.Fatalf("Count(%s/%q) = %d, %v, want %d", s.Tenant(), s.Identity(), got, err, want)
	}
}

func (d *duel) delete(rt *rapid.T) {
	s := d.subject(rt)
	_, _ = d.model.Delete(d.ctx, s)
	if _, err := d.store.Delete(d.ctx, s); err != nil {
		rt.Fatalf("Delete: %v", err)
	}
	d.compare(s)
}

func (d *duel) read(rt *rapid.T) {
	r, ok := d.store.(subject.Reader)
	if !ok {
		return
	}
	s, limit := d.subject(rt), rapid.IntRange(1, 9).Draw(rt, "limit")
	got := slices.Sorted(slices.Values(d.walk(d.t, r, s, limit, nil)))
	want := slices.Sorted(slices.Values(d.walk(d.t, d.model, s, limit, nil)))
	if !slices.Equal(got, want) {
		rt.Fatalf("%d rows shown, want %d", len(got), len(want))
	}
}

func (d *duel) batch(rt *rapid.T) {
	batch, ok := d.store.(subject.Batch)
	if !ok {
		return
	}
	subjects := d.subjects(rt)
	want, _ := d.model.Counts(d.ctx, subjects)
	got, err := batch.Counts(d.ctx, subjects)
	if err != nil || !slices.Equal(got, want) {
		rt.Fatalf("Counts = %v, %v, want %v", got, err, want)
	}
	if rapid.Bool().Draw(rt, "delete") {
		_, _ = d.model.DeleteAll(d.ctx, subjects)
		if _, err := batch.DeleteAll(d.ctx, subjects); err != nil {
			rt.Fatalf("DeleteAll: %v", err)
		}
	}
}

func (d *duel) erase(rt *rapid.T) {
	atomic, ok := d.store.(subject.Atomic)
	if !ok {
		return
	}
	subjects := d.subjects(rt)
	_, _ = d.model.DeleteAll(d.ctx, subjects)
	for i, m := range atomic.Erase(d.ctx, subjects) {
		if verdict(m) != subject.Erased {
			rt.Fatalf("measurement %d = %+v, want erased", i, m)
		}
	}
}
