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
			if _, err := model.Append(ctx, []stores.Row{row}); err != nil {
				rt.Fatal(err)
			}
		}
		plan := storetest.DrawPlan(rt, storetest.Faults()...)
		plan.Cancel = cancel
		eraser := subject.Eraser{
			Cell: "test", Timeout: 8 * time.Millisecond,
			Groups: []subject.Group{{Stores: []subject.Store{storetest.Faulty(rt, model, plan)}}},
		}
		var subjects []subject.Subject
		for _, p := range people[:rapid.IntRange(1, len(people)).Draw(rt, "subjects")] {
			s, err := subject.New("acme", p)
			if err != nil {
				rt.Fatal(err)
			}
			subjects = append(subjects, s)
		}
		for i, receipts := range eraser.EraseAll(ctx, subjects) {
			left, err := model.Count(t.Context(), subjects[i])
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
