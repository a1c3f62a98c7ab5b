package storetest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"recount/internal/stores"
	"recount/internal/stores/storetest"
	"recount/internal/subject"
)

// The one property above all, over every way in which a store can be asked and every fault that the wrapper knows.
func TestNoScheduleOfFaultsSaysErasedWhileARowIsLeft(t *testing.T) {
	people := []string{"alice", "bob", "carol"}
	table := storetest.EdgesTable()
	erased := 0
	rapid.Check(t, func(rt *rapid.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		model := storetest.NewModel(table)
		for i := range rapid.IntRange(0, 6).Draw(rt, "rows") {
			row := storetest.NewRow(table, "acme", "s", fmt.Sprint(i), rapid.SampledFrom(people).Draw(rt, "from"), rapid.SampledFrom(people).Draw(rt, "to"))
			if _, err := model.Append(ctx, []stores.Row{row}, 0); err != nil {
				rt.Fatal(err)
			}
		}
		plan := storetest.DrawPlan(rt, storetest.Faults()...)
		plan.Cancel = cancel
		eraser := subject.Eraser{
			Cell: "test", Timeout: 8 * time.Millisecond,
			Groups: []subject.Group{{Stores: []subject.Store{storetest.Faulty(rt, model, plan)}}},
		}
		var targets []subject.Target
		for _, p := range people[:rapid.IntRange(1, len(people)).Draw(rt, "subjects")] {
			s, err := subject.New("acme", p)
			if err != nil {
				rt.Fatal(err)
			}
			targets = append(targets, subject.Target{Tenant: s.Tenant(), Subject: s})
		}
		for i, erasure := range eraser.EraseAll(ctx, targets) {
			receipts := erasure.Receipts
			left, err := model.Count(t.Context(), targets[i].Subject)
			if err != nil || len(receipts) != 1 {
				rt.Fatalf("%d receipts, %v", len(receipts), err)
			}
			if receipts[0].Status() == subject.Erased {
				erased++
				if left > 0 {
					rt.Fatalf("erased, and %d rows are left", left)
				}
			}
		}
	})
	if erased == 0 {
		t.Error("nothing was ever erased: the schedules prove nothing")
	}
}
