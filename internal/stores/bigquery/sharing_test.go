package bigquery_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"recount/internal/stores"
	"recount/internal/stores/bigquery/bqemu"
	"recount/internal/stores/storetest"
	"recount/internal/subject"
)

func TestAThousandSubjectsTakeThreeStatements(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tab := w.events()
	var targets []subject.Target
	var rows []stores.Row
	for i := range 1000 {
		id := fmt.Sprintf("person-%d", i)
		targets = append(targets, subject.Target{Tenant: "acme", Subject: who(t, "acme", id)})
		rows = append(rows, row("acme", fmt.Sprint(i), id))
	}
	w.append(tab, rows...)
	before := len(w.server.Statements())
	e := subject.Eraser{Cell: "test", Groups: []subject.Group{{Stores: []subject.Store{tab}}}, Timeout: 30 * time.Second}
	for i, erasure := range e.EraseAll(t.Context(), targets) {
		receipts := erasure.Receipts
		if receipts[0].Status() != subject.Erased {
			t.Fatalf("subject %d: %s %s", i, receipts[0].Status(), receipts[0].Reason())
		}
	}
	if got := len(w.server.Statements()) - before; got > 3 {
		t.Errorf("%d statements for 1,000 subjects", got)
	}
}

func TestConcurrentCallsShareStatements(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tab := w.events()
	const n = 40
	var ids []string
	for i := range n {
		ids = append(ids, fmt.Sprintf("person-%d", i))
	}
	w.seed(append(ids, ids[0], ids[0])...)
	before := len(w.server.Statements())
	w.server.Inject(bqemu.Fault{At: bqemu.AtJobHold, Kind: "delete", DelayMS: 200}) // while it runs, the others gather
	var wg sync.WaitGroup
	for i, id := range ids {
		wg.Go(func() {
			got := w.receipt(tab, who(t, "acme", id))
			deleted, _ := got.Counts().Deleted.Value()
			want := int64(1)
			if i == 0 {
				want = 3
			}
			if got.Status() != subject.Erased || deleted != want {
				t.Errorf("%s: %s, deleted %d of its %d rows", id, got.Status(), deleted, want)
			}
		})
	}
	wg.Wait()
	if got := len(w.server.Statements()) - before; got > n {
		t.Errorf("%d statements for %d concurrent erasures", got, n)
	}
}

func TestARecountNeverJoinsAStatementThatHasBegun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tab := w.events()
	w.server.Inject(bqemu.Fault{At: bqemu.AtQueryResults, Kind: "select", DelayMS: 300})
	early := make(chan int64)
	go func() {
		n, err := tab.Count(t.Context(), w.alice())
		if err != nil {
			t.Error(err)
		}
		early <- n
	}()
	for len(w.statements("select")) == 0 { // the first count was measured, and its answer is on its way
		time.Sleep(time.Millisecond)
	}
	w.exec("INSERT INTO events (row_id, tenant_id, identity_id) VALUES ('r', 'acme', 'alice')")
	w.wantCount(tab, w.alice(), 1)
	if n := <-early; n != 0 {
		t.Errorf("the early count answered %d: this test proves nothing", n)
	}
}

func TestTenantsDoNotShareStatements(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tab := w.events()
	if _, err := tab.Counts(t.Context(), []subject.Subject{w.alice(), who(t, "globex", "alice")}); err == nil {
		t.Error("a statement for two tenants answered no error")
	}
	if _, err := tab.DeleteAll(t.Context(), []subject.Subject{w.alice(), who(t, "globex", "alice")}); err == nil {
		t.Error("a delete for two tenants answered no error")
	}
}

func TestCasefoldMatchesAllSpellingsAndNoOtherPerson(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(owners("orders", "tenant", "customer", "payer"))
	table := ordersTable()
	table.Match = stores.MatchCasefold
	table.Identities = []string{"customer", "payer"}
	tab := w.table(table)
	for _, pair := range [][2]string{{"Straße", "x"}, {"STRASSE", "strasse"}, {"x", "STRAẞE"}, {"strase", "x"}, {"ALICE", "alice"}, {"alicee", ""}} {
		w.exec("INSERT INTO orders (tenant, customer, payer) VALUES ('acme', '%s', '%s')", pair[0], pair[1])
	}
	w.exec("INSERT INTO orders (tenant, customer, payer) VALUES ('acme', NULL, 'Alice')")
	w.exec("INSERT INTO orders (tenant, customer, payer) VALUES ('ACME', 'alice', 'alice')") // the tenant is exact
	counts, err := tab.Counts(t.Context(), []subject.Subject{who(t, "acme", "strasse"), w.alice(), who(t, "acme", "ALICE"), who(t, "acme", "ß")})
	if err != nil || fmt.Sprint(counts) != "[3 2 2 0]" {
		t.Fatalf("Counts = %v, %v", counts, err)
	}
	w.wantReceipt(tab, subject.Erased, subject.ReasonNone)
	w.wantCount(tab, who(t, "acme", "straße"), 3)
	if got := physical(t, w, "orders"); got != 6 {
		t.Errorf("%d rows are left, want 6", got)
	}
}

func TestAnOwnersTableIsPagedCompletely(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(owners("orders", "tenant", "customer", "item"))
	tab := w.table(ordersTable())
	for i := range 7 {
		w.exec("INSERT INTO orders (tenant, customer, item) VALUES ('acme', 'alice', 'item %d'), ('acme', 'bob', 'item')", i/2)
	}
	seen := map[any]int{}
	for cursor, page := "", 0; page == 0 || cursor != ""; page++ {
		got, err := tab.Read(t.Context(), w.alice(), cursor, 3)
		if err != nil || page > 3 {
			t.Fatalf("page %d: %v", page, err)
		}
		for _, r := range got.Rows {
			seen[r["item"]]++
		}
		cursor = got.Next
		if _, err := tab.Read(t.Context(), who(t, "acme", "bob"), cursor, 3); cursor != "" && err == nil {
			t.Error("a cursor of another subject was taken")
		}
	}
	if fmt.Sprint(seen) != "map[item 0:2 item 1:2 item 2:2 item 3:1]" {
		t.Errorf("shown: %v", seen)
	}
	if _, err := tab.Append(t.Context(), []stores.Row{{}}, 0); err == nil {
		t.Error("an owner's table was written to")
	}
}

func TestAPageStopsEarlyWhenItsRowsAreLarge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tab := w.events()
	big := `{"text":"` + strings.Repeat("x", 3<<20) + `"}`
	var rows []stores.Row
	for i := range 3 {
		r := row("acme", fmt.Sprint(i), "alice")
		for j, c := range storetest.EventsTable().Columns {
			if c.Name == "payload" {
				r[j] = big
			}
		}
		rows = append(rows, r)
	}
	w.append(tab, rows...)
	total := 0
	for cursor, page := "", 0; page == 0 || cursor != ""; page++ {
		got, err := tab.Read(t.Context(), w.alice(), cursor, 100)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Rows) > 2 {
			t.Errorf("a page of %d rows of 3 MiB", len(got.Rows))
		}
		total, cursor = total+len(got.Rows), got.Next
	}
	if total != 3 {
		t.Errorf("%d rows were shown", total)
	}
}

// TestNoScheduleOfFaultsMakesAFalseErased is the one property that matters, at this store.
func TestNoScheduleOfFaultsMakesAFalseErased(t *testing.T) {
	t.Parallel()
	w := newWorld(t, impatient(300*time.Millisecond))
	tab := w.events()
	ats := []string{
		bqemu.AtJobsInsert, bqemu.AtJobsGet, bqemu.AtQueryResults, bqemu.AtJobWait, bqemu.AtJobStatus, bqemu.AtJobHold, bqemu.AtTablesGet,
	}
	reasons := []string{"backendError", "invalidQuery", "notFound", "jobBackendError", "stopped", "duplicate", "rateLimitExceeded"}
	messages := []string{streamingMessage, "Could not serialize access to table t", "Already Exists: Job x", "any"}
	serial := 0
	rounds := 0
	rapid.Check(t, func(rt *rapid.T) {
		if rounds++; rounds > 25 {
			return
		}
		serial++
		s := who(t, "acme", fmt.Sprintf("person-%d", serial))
		w.server.Heal()
		w.server.SetStreaming(bqemu.Streaming{})
		w.seed(s.Identity(), s.Identity())
		if rapid.Bool().Draw(rt, "buffer") {
			w.server.SetStreaming(bqemu.Streaming{Window: time.Hour, At: rapid.SampledFrom(ats[3:5]).Draw(rt, "refused at")})
		}
		for range rapid.IntRange(0, 4).Draw(rt, "faults") {
			f := bqemu.Fault{
				At: rapid.SampledFrom(ats).Draw(rt, "at"), Kind: rapid.SampledFrom([]string{"", "select", "delete"}).Draw(rt, "kind"),
				After: rapid.IntRange(0, 2).Draw(rt, "after"), Times: rapid.IntRange(-1, 2).Draw(rt, "times"),
				Code: rapid.SampledFrom([]int{0, 400, 403, 404, 409, 500, 503}).Draw(rt, "code"), Reason: rapid.SampledFrom(reasons).Draw(rt, "reason"),
				Message: rapid.SampledFrom(messages).Draw(rt, "message"), DelayMS: rapid.SampledFrom([]int64{0, 1, 50}).Draw(rt, "delay"),
				Drop: rapid.SampledFrom([]string{"", bqemu.DropBefore, bqemu.DropAfter}).Draw(rt, "drop"), Done: rapid.Bool().Draw(rt, "done"),
			}
			w.server.Inject(f)
		}
		e := subject.Eraser{Cell: "test", Groups: []subject.Group{{Stores: []subject.Store{tab}}}, Timeout: time.Second}
		got := e.Erase(t.Context(), subject.Target{Tenant: s.Tenant(), Subject: s}).Receipts[0]
		w.server.Heal()
		left := physicalOf(t, w, s.Identity())
		if got.Status() == subject.Erased && left != 0 {
			rt.Fatalf("erased, and %d rows are there", left)
		}
		if got.Status() != subject.Erased && got.Reason() == subject.ReasonNone {
			rt.Fatalf("%s without a reason", got.Status())
		}
	})
}

func physicalOf(t *testing.T, w *world, identity string) int64 {
	t.Helper()
	return physical(t, w, "events WHERE identity_id = '"+identity+"'")
}
