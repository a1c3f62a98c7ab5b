package memory

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"recount/internal/stores"
	"recount/internal/stores/storetest"
	"recount/internal/subject"
)

// erasing is what the two memories do for the writer of the table that they are filled from.
type erasing interface {
	Fill(rows []stores.Row, created []bool)
	EraseTargets(targets []subject.Target, derived [][]subject.Source) []subject.Measurement
	subject.Store
	subject.Sourced
}

func origin(t interface{ Fatal(...any) }, ref string) subject.Source {
	s, err := subject.NewSource("acme", "crm", ref)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func somebody(t interface{ Fatal(...any) }, identity string) subject.Subject {
	s, err := subject.New("acme", identity)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestErasedTargetsLeaveNothingAndTheRestIsKept compares a graph with a list of records under random work.
func TestErasedTargetsLeaveNothingAndTheRestIsKept(t *testing.T) {
	table := storetest.EdgesTable()
	rapid.Check(t, func(rt *rapid.T) {
		g, err := NewGraph(table)
		if err != nil {
			rt.Fatal(err)
		}
		type record struct {
			ends    [2]string
			parents []string
		}
		model := map[string]record{}
		person := rapid.SampledFrom([]string{"alice", "bob", "carol"})
		ref := rapid.SampledFrom([]string{"1", "2", "3", "4", "5"})
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			if rapid.IntRange(0, 2).Draw(rt, "step") > 0 {
				r, drawn := ref.Draw(rt, "ref"), record{ends: [2]string{person.Draw(rt, "from"), person.Draw(rt, "to")}}
				var parents []subject.Source
				for _, p := range rapid.SliceOfN(ref, 0, 2).Draw(rt, "parents") {
					drawn.parents, parents = append(drawn.parents, p), append(parents, origin(rt, p))
				}
				row := storetest.NewRow(table, "acme", "crm", r, drawn.ends[:]...)
				if len(parents) > 0 {
					row = storetest.Derived(table, "acme", "crm", r, drawn.ends[0], parents...)
					row[table.Index("related_id")] = drawn.ends[1]
				}
				g.Fill([]stores.Row{row}, []bool{true})
				if _, known := model[r]; !known {
					model[r] = drawn
				}
				continue
			}
			who, by := person.Draw(rt, "erased"), rapid.SliceOfNDistinct(ref, 0, 2, rapid.ID).Draw(rt, "derived")
			var before, apart int64
			for r, m := range model {
				if slices.Contains(m.ends[:], who) {
					before++
				} else if slices.Contains(by, r) {
					apart++
				}
			}
			var derived []subject.Source
			for _, r := range by {
				derived = append(derived, origin(rt, r))
			}
			s := somebody(rt, who)
			m := g.EraseTargets([]subject.Target{{Tenant: "acme", Subject: s}}, [][]subject.Source{derived})[0]
			if want := (subject.Counts{Before: subject.Measured(before), Deleted: subject.Measured(before), Remaining: subject.Measured(0), Derived: subject.Measured(apart)}); m.Counts != want {
				rt.Fatalf("measured %+v, want %+v", m.Counts, want)
			}
			for r, m := range model {
				if slices.Contains(m.ends[:], who) || slices.Contains(by, r) {
					delete(model, r)
				}
			}
		}
		children, parentsOf := 0, map[string]bool{}
		for _, m := range model {
			if len(m.parents) > 0 {
				children++
			}
			for _, p := range m.parents {
				parentsOf[p] = true
			}
		}
		if len(g.records) != len(model) || len(g.derived.parents) != children || len(g.derived.children) != len(parentsOf) {
			rt.Fatalf("%d records, %d that derive from %d others, want %d, %d, %d",
				len(g.records), len(g.derived.parents), len(g.derived.children), len(model), children, len(parentsOf))
		}
		wantSound(t, g)
	})
}

func TestTheCacheKnowsTheSourcesOfTheRowsItHoldsAndNoOthers(t *testing.T) {
	table := storetest.EventsTable()
	rapid.Check(t, func(rt *rapid.T) {
		c, err := NewCache(table, "ingested_at", 3)
		if err != nil {
			rt.Fatal(err)
		}
		at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		for i := range rapid.IntRange(1, 40).Draw(rt, "steps") {
			who := fmt.Sprint("p", rapid.IntRange(0, 5).Draw(rt, "who"))
			switch rapid.IntRange(0, 3).Draw(rt, "step") {
			case 0:
				c.EraseTargets([]subject.Target{{Tenant: "acme", Subject: somebody(rt, who)}}, [][]subject.Source{nil})
			case 1:
				s := origin(rt, fmt.Sprint(rapid.IntRange(0, 40).Draw(rt, "ref")))
				m := c.EraseTargets([]subject.Target{{Tenant: "acme", Sources: []subject.Source{s}}}, [][]subject.Source{nil})[0]
				if !m.Remaining.IsZero() || c.bears(s) != 0 {
					rt.Fatalf("erased by source, and %s remain", m.Remaining)
				}
			default:
				row := storetest.Derived(table, "acme", "crm", fmt.Sprint(i), who, origin(rt, "parent"))
				row[table.Index("ingested_at")] = at.Add(time.Duration(rapid.IntRange(0, 10).Draw(rt, "at")) * time.Hour)
				c.Fill([]stores.Row{row}, []bool{true})
			}
			if len(c.records) != c.latest.Len() || len(c.derived.parents) != c.latest.Len() || len(c.derived.children) != min(1, c.latest.Len()) {
				rt.Fatalf("%d rows, %d sources, %d that derive from %d", c.latest.Len(), len(c.records), len(c.derived.parents), len(c.derived.children))
			}
		}
	})
}

func TestTwoWhoNameTheSameAreBothToldWhatThereWas(t *testing.T) {
	graph, err := NewGraph(storetest.EdgesTable())
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]erasing{"graph": graph, "cache": newCache(t, 10)} {
		table := storetest.EventsTable()
		if name == "graph" {
			table = storetest.EdgesTable()
		}
		m.Fill([]stores.Row{storetest.NewRow(table, "acme", "crm", "1", "alice")}, []bool{true})
		alice := subject.Target{Tenant: "acme", Subject: somebody(t, "alice")}
		bySource := subject.Target{Tenant: "acme", Sources: []subject.Source{origin(t, "1")}}
		for i, got := range m.EraseTargets([]subject.Target{alice, alice, bySource}, make([][]subject.Source, 3)) {
			if n, _ := got.Before.Value(); n != 1 || !got.Remaining.IsZero() {
				t.Errorf("%s, target %d: %+v", name, i, got.Counts)
			}
		}
	}
}
