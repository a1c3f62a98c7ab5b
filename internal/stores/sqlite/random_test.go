package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"recount/internal/stores"
	"recount/internal/stores/sqlite"
	"recount/internal/stores/storetest"
	"recount/internal/subject"
)

// known is what has been acknowledged of each subject: the row ids of rows that an erasure must take.
type known struct {
	mu   sync.Mutex
	rows map[string]map[string]bool
}

func (k *known) add(identity string, ids ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.rows[identity] == nil {
		k.rows[identity] = map[string]bool{}
	}
	for _, id := range ids {
		k.rows[identity][id] = true
	}
}

func (k *known) of(identity string) map[string]bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.rows[identity])
}

// Several goroutines append, erase and count in random order, some give up early, and another connection's reader
// comes and goes. No erasure may answer erased while a row that was acknowledged before it began is left.
func TestNoInterleavingErasesFalsely(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cell.db")
	edges := table(t, open(t, path), storetest.EdgesTable())
	other, round := foreign(t, path), 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		k := &known{rows: map[string]map[string]bool{}}
		name := func(i int) string { return fmt.Sprintf("round-%d-%d", round, i) }
		var plans [][]int
		for range rapid.IntRange(2, 6).Draw(rt, "workers") {
			plans = append(plans, rapid.SliceOfN(rapid.IntRange(0, 59), 1, 12).Draw(rt, "plan"))
		}
		reading := rapid.IntRange(0, 9).Draw(rt, "reader") == 0
		var wg sync.WaitGroup
		for _, plan := range plans {
			wg.Go(func() {
				for _, step := range plan {
					if err := act(t, edges, k, step/3, name(step%3), name((step+1)%3)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		if reading {
			do(t, other, "BEGIN")
			_, _ = other.ExecContext(context.Background(), "SELECT count(*) FROM edges")
			time.Sleep(5 * time.Millisecond)
			do(t, other, "ROLLBACK")
		}
		wg.Wait()
		if t.Failed() {
			rt.FailNow()
		}
	})
}

func act(t *testing.T, edges *sqlite.Table, k *known, step int, identity, related string) error {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	spec := storetest.EdgesTable()
	switch {
	case step < 10:
		row := storetest.NewRow(spec, tenant, "crm", fmt.Sprint(serial.Add(1)), identity, related)
		if step == 9 {
			ctx, cancel = context.WithTimeout(ctx, 50*time.Microsecond) // a caller in a hurry
			defer cancel()
		}
		_, err := edges.Append(ctx, []stores.Row{row}, 0)
		if err == nil {
			id, _ := row[0].(string)
			k.add(identity, id)
			k.add(related, id)
		} else if !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	case step < 13:
		before := k.of(identity)
		n, err := edges.Count(ctx, who(t, identity))
		if err != nil || n < 0 {
			return fmt.Errorf("count: %d of %d, %w", n, len(before), err)
		}
	default:
		return eraseAndLook(ctx, t, edges, k, identity)
	}
	return nil
}

func eraseAndLook(ctx context.Context, t *testing.T, edges *sqlite.Table, k *known, identity string) error {
	before := k.of(identity)
	if verdict(ctx, edges, who(t, identity)).Status() != subject.Erased {
		return nil
	}
	page, err := edges.Read(ctx, who(t, identity), "", 1000)
	if err != nil {
		return err //nolint:wrapcheck // for the test's own message
	}
	for _, row := range page.Rows {
		if id, _ := row[stores.RowIDColumn].(string); before[id] {
			return errors.New("erased, and a row is left that was acknowledged before")
		}
	}
	return nil
}

func TestAScanAnswersEveryRowInTheOrderOfTheAppends(t *testing.T) {
	edges := table(t, open(t, filepath.Join(t.TempDir(), "cell.db")), storetest.EdgesTable())
	var want []stores.Row
	for range 3 {
		rows := rowsOf(storetest.EdgesTable(), "alice", 700)
		add(t, edges, rows...)
		want = append(want, rows...)
	}
	at := 0
	err := edges.Scan(t.Context(), func(row stores.Row) error {
		if fmt.Sprint(row) != fmt.Sprint(want[at]) {
			return fmt.Errorf("row %d = %v, want %v", at, row, want[at])
		}
		if at++; at == 10 { // a scan holds up neither a write nor an erasure
			add(t, edges, rowsOf(storetest.EdgesTable(), "bob", 1)...)
			wantErased(t, verdict(t.Context(), edges, who(t, "bob")))
		}
		return nil
	})
	if err != nil || at != len(want) {
		t.Errorf("%d rows of %d, %v", at, len(want), err)
	}
	if err := edges.Scan(t.Context(), func(stores.Row) error { return context.Canceled }); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the callback's error", err)
	}
}

func TestAnAppendOfManyKnowsWhichRowsAreNew(t *testing.T) {
	events := table(t, open(t, filepath.Join(t.TempDir(), "cell.db")), storetest.EventsTable())
	rapid.Check(t, func(rt *rapid.T) {
		source := fmt.Sprint(serial.Add(1))
		seen := map[int]bool{}
		for range rapid.IntRange(1, 4).Draw(rt, "appends") {
			refs := rapid.SliceOfN(rapid.IntRange(0, 300), 1, 200).Draw(rt, "refs")
			rows := make([]stores.Row, len(refs))
			for i, ref := range refs {
				rows[i] = storetest.NewRow(storetest.EventsTable(), tenant, source, fmt.Sprint(ref), "alice")
			}
			created, err := events.Append(t.Context(), rows, 0)
			if err != nil {
				rt.Fatal(err)
			}
			for i, ref := range refs {
				if created[i] == seen[ref] {
					rt.Fatalf("created[%d] = %v", i, created[i])
				}
				seen[ref] = true
			}
		}
	})
}

// Two stores of one cell are erased at once for the same subject: they share transactions, and both are right.
func TestStoresOfOneFileAreErasedTogether(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "cell.db"))
	a, b := table(t, db, storetest.EventsTable()), table(t, db, storetest.EdgesTable())
	e := subject.Eraser{Cell: "test", Groups: []subject.Group{{Stores: []subject.Store{a}}, {Stores: []subject.Store{b}}}, Timeout: time.Minute}
	var wg sync.WaitGroup
	for i := range 40 {
		identity := fmt.Sprintf("person-%d", i)
		add(t, a, rowsOf(storetest.EventsTable(), identity, i%3)...)
		add(t, b, rowsOf(storetest.EdgesTable(), identity, i%4)...)
		wg.Go(func() {
			for at, r := range e.Erase(t.Context(), subject.Target{Tenant: "acme", Subject: who(t, identity)}).Receipts {
				want := []int64{int64(i % 3), int64(i % 4)}[at]
				if n, _ := r.Counts().Before.Value(); r.Status() != subject.Erased || n != want {
					t.Errorf("%s: %s (%s), before %d, want %d", r.Store(), r.Status(), r.Reason(), n, want)
				}
			}
		})
	}
	wg.Wait()
}
