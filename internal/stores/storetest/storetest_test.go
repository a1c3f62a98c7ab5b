package storetest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"recount/internal/stores"
	"recount/internal/stores/storetest"
	"recount/internal/subject"
)

func TestTheReferenceStoreConforms(t *testing.T) {
	storetest.Run(t, storetest.Harness{New: func(_ *testing.T, table stores.Table) subject.Store { return storetest.NewModel(table) }})
}

func TestAStoreWrappedWithoutFaultsConforms(t *testing.T) {
	for _, hide := range [][]storetest.Op{nil, {storetest.OpCounts}, {storetest.OpErase, storetest.OpRead}} {
		t.Run(fmt.Sprint(hide), func(t *testing.T) {
			inner := map[subject.Store]*storetest.Model{}
			storetest.Run(t, storetest.Harness{
				New: func(t *testing.T, table stores.Table) subject.Store {
					model := storetest.NewModel(table)
					store := storetest.Faulty(t, model, storetest.Plan{Hide: hide})
					inner[store] = model
					return store
				},
				Seed: func(t *testing.T, store subject.Store, rows []stores.Row) {
					if _, err := inner[store].Append(t.Context(), rows, 0); err != nil {
						t.Fatal(err)
					}
				},
			})
		})
	}
}

func TestTheWrapperShowsTheAbilitiesThatItDoesNotHide(t *testing.T) {
	for mask := range 8 {
		var hide []storetest.Op
		for bit, op := range []storetest.Op{storetest.OpCounts, storetest.OpErase, storetest.OpRead} {
			if mask>>bit&1 == 1 {
				hide = append(hide, op)
			}
		}
		store := storetest.Faulty(t, storetest.NewModel(storetest.EventsTable()), storetest.Plan{Hide: hide})
		_, batch := store.(subject.Batch)
		_, atomic := store.(subject.Atomic)
		_, reader := store.(subject.Reader)
		if got := [3]bool{!batch, !atomic, !reader}; got != [3]bool{mask&1 == 1, mask&2 == 2, mask&4 == 4} {
			t.Errorf("hiding %v hid %v", hide, got)
		}
	}
}

func TestEveryFaultOfADeleteLeavesWhatItSays(t *testing.T) {
	for fault, want := range map[storetest.Fault]struct {
		fails bool
		left  int64
	}{
		storetest.Fail: {true, 3}, storetest.FailLate: {true, 0}, storetest.FailHalfway: {true, 1}, storetest.NotYet: {true, 3},
		storetest.Hang: {true, 3}, storetest.Lie: {false, 3}, storetest.Partial: {false, 1}, storetest.Negative: {false, 0},
		storetest.Cancel: {true, 3}, storetest.Short: {false, 0}, storetest.Blank: {false, 0},
	} {
		t.Run(string(fault), func(t *testing.T) {
			table := storetest.EventsTable()
			model := storetest.NewModel(table)
			for i := range 3 {
				if _, err := model.Append(t.Context(), []stores.Row{storetest.NewRow(table, "acme", "s", fmt.Sprint(i), "alice")}, 0); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			store := storetest.Faulty(t, model, storetest.Plan{
				Faults: map[storetest.Op][]storetest.Fault{storetest.OpDelete: {fault}}, Cancel: cancel,
			})
			alice, err := subject.New("acme", "alice")
			if err != nil {
				t.Fatal(err)
			}
			_, err = store.Delete(ctx, alice)
			if (err != nil) != want.fails {
				t.Errorf("Delete answered %v", err)
			}
			if left, _ := model.Count(t.Context(), alice); left != want.left {
				t.Errorf("%d rows are left, want %d", left, want.left)
			}
			var notYet *subject.NotYet
			if errors.As(err, &notYet) != (fault == storetest.NotYet) {
				t.Errorf("Delete answered %v", err)
			}
			if _, err := store.Delete(t.Context(), alice); err != nil {
				t.Errorf("the call after the plan's last answered %v", err)
			}
		})
	}
}

// The suite is tested by stores that each break one promise: every one of them must be found out. A failing suite
// can't run inside a passing test, so each runs in a process of its own.
func TestTheSuiteFindsBrokenStores(t *testing.T) {
	const env = "STORETEST_BROKEN"
	if name := os.Getenv(env); name != "" {
		storetest.Run(t, storetest.Harness{
			New:  func(_ *testing.T, table stores.Table) subject.Store { return broken[name](storetest.NewModel(table)) },
			Slow: true,
		})
		return
	}
	for name := range broken {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestTheSuiteFindsBrokenStores$", "-test.timeout=120s", "-test.failfast", "-rapid.nofailfile")
			cmd.Env = append(os.Environ(), env+"="+name)
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Fatal("the suite passed a store that breaks its contract")
			}
			if !strings.Contains(string(out), "--- FAIL") {
				t.Fatalf("the suite ended without a verdict:\n%s", out)
			}
		})
	}
}
