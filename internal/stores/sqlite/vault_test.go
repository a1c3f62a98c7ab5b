package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"recount/internal/stores"
	"recount/internal/stores/sqlite"
	"recount/internal/stores/storetest"
	"recount/internal/subject"
	"recount/internal/suppression"
)

// vaulted is a file with two tables of ours and a ledger.
type vaulted struct {
	path   string
	db     *sqlite.DB
	ledger *sqlite.Ledger
	events *sqlite.Table
	edges  *sqlite.Table
	vault  *sqlite.Vault
}

type failing interface {
	Helper()
	Fatal(args ...any)
}

func openVault(t failing, path string) *vaulted {
	t.Helper()
	v := &vaulted{path: path}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx := context.Background()
	var err error
	v.db, err = sqlite.Open(ctx, path)
	check(err)
	keys, err := suppression.ParseKeys("a suppression secret of the tests")
	check(err)
	v.ledger, err = v.db.Ledger(ctx, keys)
	check(err)
	v.events, err = v.db.Table(ctx, storetest.EventsTable())
	check(err)
	v.edges, err = v.db.Table(ctx, storetest.EdgesTable())
	check(err)
	v.vault = v.ledger.Vault("ingest", v.events, v.edges)
	return v
}

func newVault(t *testing.T) *vaulted {
	t.Helper()
	v := openVault(t, filepath.Join(t.TempDir(), "recount.db"))
	t.Cleanup(func() { _ = v.db.Close() })
	return v
}

func person(t failing, identity string) subject.Target {
	t.Helper()
	s, err := subject.New("acme", identity)
	if err != nil {
		t.Fatal(err)
	}
	return subject.Target{Tenant: "acme", Subject: s, Ref: subject.Ref("ref of " + identity)}
}

func origin(t failing, ref string) subject.Source {
	t.Helper()
	s, err := subject.NewSource("acme", "crm", ref)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (v *vaulted) add(t failing, table *sqlite.Table, rows ...stores.Row) []bool {
	t.Helper()
	created, err := table.Append(context.Background(), rows, 0)
	if err != nil {
		t.Fatal(err)
	}
	return created
}

func (v *vaulted) erase(t failing, targets ...subject.Target) []subject.Vaulted {
	t.Helper()
	out := v.vault.EraseTogether(context.Background(), targets)
	if len(out) != len(targets) {
		t.Fatal(len(out), "answers for", len(targets), "targets")
	}
	return out
}

// numbers are before, deleted, remaining, suppressed and derived, as a text.
func numbers(m subject.Measurement) string {
	return fmt.Sprint(m.Before, " ", m.Deleted, " ", m.Remaining, " ", m.Suppressed, " ", m.Derived)
}

func TestWhatWasErasedDoesNotComeBackAndOthersDo(t *testing.T) {
	v := newVault(t)
	rows := []stores.Row{
		storetest.NewRow(v.table(), "acme", "crm", "1", "alice"), storetest.NewRow(v.table(), "acme", "crm", "2", "alice"),
		storetest.NewRow(v.table(), "acme", "crm", "3", "bob"),
	}
	v.add(t, v.events, rows...)
	got := v.erase(t, person(t, "alice"))[0]
	if numbers(got.Measured[0]) != "2 2 0 2 0" || numbers(got.Measured[1]) != "0 0 0 0 0" || len(got.Sources) != 2 {
		t.Fatalf("%s, %s, %d sources", numbers(got.Measured[0]), numbers(got.Measured[1]), len(got.Sources))
	}
	for range 2 {
		if created := v.add(t, v.events, rows...); slices.Contains(created, true) {
			t.Fatalf("came back: %v", created)
		}
	}
	if created := v.add(t, v.events, storetest.NewRow(v.table(), "acme", "crm", "4", "alice")); !created[0] {
		t.Error("a new record of the same person was refused")
	}
	if removed, err := v.ledger.Allow(t.Context(), origin(t, "1")); err != nil || !removed {
		t.Fatal(removed, err)
	}
	if created := v.add(t, v.events, rows...); !slices.Equal(created, []bool{true, false, false}) {
		t.Errorf("after the one was allowed: %v", created)
	}
}

func (v *vaulted) table() stores.Table { return storetest.EventsTable() }

func TestDerivedItemsGoWithTheirParentAcrossTablesPeopleAndCycles(t *testing.T) {
	v := newVault(t)
	table := storetest.EdgesTable()
	v.add(t, v.events, storetest.NewRow(v.table(), "acme", "crm", "1", "alice"), storetest.NewRow(v.table(), "acme", "crm", "other", "bob"))
	v.add(t, v.edges,
		storetest.Derived(table, "acme", "crm", "2", "bob", origin(t, "1"), origin(t, "4")), // and in a cycle with 4
		storetest.Derived(table, "acme", "crm", "3", "carol", origin(t, "2")),
		storetest.Derived(table, "acme", "crm", "4", "dave", origin(t, "3")),
		storetest.Derived(table, "acme", "crm", "5", "erin", origin(t, "unrelated")))
	got := v.erase(t, person(t, "alice"))[0]
	if numbers(got.Measured[0]) != "1 1 0 1 0" || numbers(got.Measured[1]) != "0 0 0 3 3" || len(got.Sources) != 4 {
		t.Fatalf("%s, %s, %d sources", numbers(got.Measured[0]), numbers(got.Measured[1]), len(got.Sources))
	}
	for identity, want := range map[string]int64{"bob": 1, "carol": 0, "dave": 0, "erin": 1} {
		n := int64(0)
		for _, table := range []*sqlite.Table{v.events, v.edges} {
			held, err := table.Count(t.Context(), person(t, identity).Subject)
			if err != nil {
				t.Fatal(err)
			}
			n += held
		}
		if n != want {
			t.Errorf("%s has %d rows, want %d", identity, n, want)
		}
	}
	if created := v.add(t, v.edges, storetest.Derived(table, "acme", "crm", "late", "frank", origin(t, "3"))); created[0] {
		t.Error("what derives from something suppressed was taken")
	}
	again := v.erase(t, person(t, "alice"))[0]
	if len(again.Sources) != 4 {
		t.Errorf("a repeated erasure knows of %d sources, want the 4 that the first recorded", len(again.Sources))
	}
}

func TestASourceIsSuppressedWhereNoRowOfItIs(t *testing.T) {
	v := newVault(t)
	target := subject.Target{Tenant: "acme", Sources: []subject.Source{origin(t, "1")}, Ref: "r"}
	if got := v.erase(t, target)[0]; numbers(got.Measured[0]) != "0 0 0 1 0" {
		t.Fatal(numbers(got.Measured[0]))
	}
	if created := v.add(t, v.events, storetest.NewRow(v.table(), "acme", "crm", "1", "alice")); created[0] {
		t.Error("it was taken")
	}
	v.add(t, v.events, storetest.NewRow(v.table(), "acme", "crm", "2", "alice"))
	target.Sources = []subject.Source{origin(t, "2")}
	if got := v.erase(t, target)[0]; numbers(got.Measured[0]) != "1 1 0 1 0" {
		t.Error(numbers(got.Measured[0]))
	}
}

// TestAnErasureThatCanNotRecordDeletesNothing takes the ledger's table away.
func TestAnErasureThatCanNotRecordDeletesNothing(t *testing.T) {
	v := newVault(t)
	v.add(t, v.events, storetest.NewRow(v.table(), "acme", "crm", "1", "alice"))
	hide, err := sql.Open("sqlite", v.path)
	if err != nil {
		t.Fatal(err)
	}
	defer hide.Close() //nolint:errcheck // a test's
	if _, err := hide.ExecContext(t.Context(), "ALTER TABLE recount_suppression RENAME TO hidden"); err != nil {
		t.Fatal(err)
	}
	got := v.erase(t, person(t, "alice"))[0].Measured[0]
	if got.DeleteErr == nil || subject.ReasonOf(got.DeleteErr) != subject.ReasonSuppression {
		t.Errorf("the erasure answers %v", got.DeleteErr)
	}
	if n, _ := got.Remaining.Value(); n != 1 {
		t.Errorf("%s remain", got.Remaining)
	}
	if _, err := v.ledger.Check(t.Context(), []subject.Record{{Source: origin(t, "2")}}); err == nil {
		t.Error("a ledger that is gone was taken for an empty one")
	}
	if v.ledger.Ready(t.Context()) == nil {
		t.Error("ready")
	}
	if _, err := v.events.Append(t.Context(), []stores.Row{storetest.NewRow(v.table(), "acme", "crm", "2", "bob")}, 1); err == nil {
		t.Error("a row was taken that nobody could check")
	}
}

// TestImportsHammeringWhatIsErasedNeverBringItBack is the race: the same records are imported for as long as they are
// erased, by writers that asked the ledger, and were admitted, before.
func TestImportsHammeringWhatIsErasedNeverBringItBack(t *testing.T) {
	v := newVault(t)
	table := v.table()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	var erased [20]atomic.Bool
	for range 4 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				who := i % len(erased)
				row := storetest.NewRow(table, "acme", "crm", fmt.Sprint(who), fmt.Sprint("p", who))
				was := erased[who].Load()
				a, err := v.ledger.Check(ctx, []subject.Record{{Source: origin(t, fmt.Sprint(who))}})
				if err != nil || a.Verdicts[0] != suppression.Admitted {
					continue
				}
				if i%3 == 0 {
					time.Sleep(time.Millisecond) // and may have been erased meanwhile
				}
				if created, err := v.events.Append(ctx, []stores.Row{row}, a.Generation); err == nil && created[0] && was {
					t.Errorf("record %d came back", who)
					return
				}
			}
		})
	}
	for who := range erased {
		target := person(t, fmt.Sprint("p", who))
		for {
			if n, err := v.events.Count(t.Context(), target.Subject); err != nil || n > 0 {
				break
			}
			time.Sleep(time.Millisecond)
		}
		if m := v.erase(t, target)[0].Measured[0]; !m.Remaining.IsZero() || m.DeleteErr != nil {
			t.Fatalf("%s, %v", numbers(m), m.DeleteErr)
		}
		erased[who].Store(true)
		for range 20 {
			if n, err := v.events.Count(t.Context(), target.Subject); err != nil || n != 0 {
				t.Fatalf("%d rows after the erasure, %v", n, err)
			}
		}
	}
	cancel()
	wg.Wait()
}

// TestTheVaultAgreesWithANaiveModel draws imports, erasures of people and sources, and allowances.
func TestTheVaultAgreesWithANaiveModel(t *testing.T) {
	dir := t.TempDir()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		v := openVault(rt, filepath.Join(dir, fmt.Sprint(n), "recount.db"))
		defer v.db.Close() //nolint:errcheck // a test's
		type row struct {
			who     string
			parents []string
		}
		rows, suppressed := map[string]row{}, map[string]bool{}
		refs := []string{"1", "2", "3", "4", "5", "6"}
		ref, who := rapid.SampledFrom(refs), rapid.SampledFrom([]string{"alice", "bob", "carol"})
		closeOver := func(gone map[string]bool) {
			for again := true; again; {
				again = false
				for r, held := range rows {
					if !gone[r] && slices.ContainsFunc(held.parents, func(p string) bool { return gone[p] }) {
						gone[r], again = true, true
					}
				}
			}
			for r := range gone {
				suppressed[r] = true
				delete(rows, r)
			}
		}
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			switch rapid.IntRange(0, 4).Draw(rt, "step") {
			case 0:
				name := who.Draw(rt, "erased")
				gone := map[string]bool{}
				for r, held := range rows {
					if held.who == name {
						gone[r] = true
					}
				}
				before := len(gone)
				closeOver(gone)
				got := v.erase(rt, person(rt, name))[0].Measured[0]
				if n, _ := got.Before.Value(); n != int64(before) || !got.Remaining.IsZero() || numbers(got) != fmt.Sprintf("%d %d 0 %d %d", before, before, len(gone), len(gone)-before) {
					rt.Fatalf("%s: %s, want %d own and %d in all", name, numbers(got), before, len(gone))
				}
			case 1:
				r := ref.Draw(rt, "source")
				gone := map[string]bool{r: true}
				closeOver(gone)
				v.erase(rt, subject.Target{Tenant: "acme", Sources: []subject.Source{origin(rt, r)}, Ref: subject.Ref("source " + r + fmt.Sprint(rapid.IntRange(0, 1e6).Draw(rt, "nonce")))})
			case 2:
				r := ref.Draw(rt, "allowed")
				if removed, err := v.ledger.Allow(context.Background(), origin(rt, r)); err != nil || removed != suppressed[r] {
					rt.Fatalf("allowed %t, %v, want %t", removed, err, suppressed[r])
				}
				delete(suppressed, r)
			default:
				r, name := ref.Draw(rt, "ref"), who.Draw(rt, "who")
				parents := rapid.SliceOfNDistinct(ref, 0, 2, rapid.ID).Draw(rt, "parents")
				line := storetest.NewRow(v.table(), "acme", "crm", r, name)
				if len(parents) > 0 {
					var sources []subject.Source
					for _, p := range parents {
						sources = append(sources, origin(rt, p))
					}
					line = storetest.Derived(v.table(), "acme", "crm", r, name, sources...)
				}
				_, known := rows[r]
				want := !known && !suppressed[r] && !slices.ContainsFunc(parents, func(p string) bool { return suppressed[p] })
				if created := v.add(rt, v.events, line); created[0] != want {
					rt.Fatalf("record %s created: %t, want %t", r, created[0], want)
				}
				if want {
					rows[r] = row{name, parents}
				}
			}
			for _, name := range []string{"alice", "bob", "carol"} {
				held := 0
				for _, r := range rows {
					if r.who == name {
						held++
					}
				}
				if got, err := v.events.Count(context.Background(), person(rt, name).Subject); err != nil || got != int64(held) {
					rt.Fatalf("%s has %d rows, want %d, %v", name, got, held, err)
				}
			}
		}
	})
}

func TestTheTablesOfAnEarlierVersionAreTakenOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "recount.db")
	v := openVault(t, path)
	v.add(t, v.events, storetest.Derived(v.table(), "acme", "crm", "2", "bob", origin(t, "1")))
	if err := v.db.Close(); err != nil {
		t.Fatal(err)
	}
	raw, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"recount_derivations", "recount_suppression", "recount_suppression_state"} { // as it was then
		if _, err := raw.ExecContext(t.Context(), "DROP TABLE "+table); err != nil {
			t.Fatal(err)
		}
	}
	if err := raw.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // twice: it is done once
		v = openVault(t, path)
		got, err := v.events.DerivedFrom(t.Context(), []subject.Source{origin(t, "1")})
		if err != nil || len(got) != 1 || got[0].Child != origin(t, "2") {
			t.Fatalf("%d derivations, %v", len(got), err)
		}
		if err := v.db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNoIndexIsMissedByTheStatementsOfAnErasure(t *testing.T) {
	v := newVault(t)
	raw, err := sql.Open("sqlite", v.path)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close() //nolint:errcheck // a test's
	for name, query := range sqlite.EraseStatements(v.events) {
		rows, err := raw.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+query, "acme", `["a","b"]`)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for rows.Next() {
			var id, parent, unused int
			var detail string
			if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(detail, "SCAN") && !strings.Contains(detail, "json_each") && !strings.Contains(detail, "VIRTUAL") && !strings.Contains(detail, "SUBQUERY") && !strings.Contains(detail, "SCAN t") && !strings.Contains(detail, "SCAN e") {
				t.Errorf("%s walks a table: %s", name, detail)
			}
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
	}
}
