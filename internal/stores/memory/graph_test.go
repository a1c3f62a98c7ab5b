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

func newGraph(t testing.TB) *Graph {
	t.Helper()
	g, err := NewGraph(storetest.EdgesTable())
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func who(t testing.TB, identity string) subject.Subject {
	t.Helper()
	s, err := subject.New("acme", identity)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTheGraphConforms(t *testing.T) {
	storetest.Run(t, storetest.Harness{
		Tables: []stores.Table{storetest.EdgesTable()},
		New: func(t *testing.T, table stores.Table) subject.Store {
			g, err := NewGraph(table)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { wantSound(t, g) })
			return g
		},
		Physical: func(_ *testing.T, store subject.Store) int64 { return int64(len(store.(*Graph).records)) },
	})
}

// wantSound checks that the indexes say the same as a walk over every edge: an edge that is in one and not in another
// would be counted as erased while it can still be read.
func wantSound(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, g *Graph,
) {
	t.Helper()
	ends := 0
	for key, e := range g.records {
		if key.ref != e.ref || key.source != e.source || key.tenant != e.ends[0].tenant || e.ends[0].tenant != e.ends[1].tenant {
			t.Fatalf("a record's key is not that of its edge")
		}
		for i, n := range e.ends {
			if g.nodes[n.nodeKey] != n {
				t.Fatalf("an edge ends at a node that is not in the graph")
			}
			if i == 1 && e.ends[0] == n {
				continue
			}
			ends++
			if int(e.places[i]) >= len(n.edges) || n.edges[e.places[i]] != e {
				t.Fatalf("an edge is not where it says")
			}
		}
	}
	for key, n := range g.nodes {
		if key != n.nodeKey || len(n.edges) == 0 {
			t.Fatalf("a node without edges, or under another's key")
		}
		ends -= len(n.edges)
		for _, e := range n.edges[len(n.edges):cap(n.edges)] {
			if e != nil {
				t.Fatalf("an edge that left is still held")
			}
		}
	}
	if ends != 0 {
		t.Fatalf("%d ends too few or too many in the nodes' lists", ends)
	}
}

func TestTheIndexesAgreeAfterAnyWritesAndErasures(t *testing.T) {
	table := storetest.EdgesTable()
	people := []string{"a", "b", "c", "d", "hub"}
	rapid.Check(t, func(rt *rapid.T) {
		g, ref := newGraph(t), 0
		person := rapid.SampledFrom(people)
		rt.Repeat(map[string]func(*rapid.T){
			"": func(rt *rapid.T) { wantSound(rt, g) },
			"append": func(rt *rapid.T) {
				var rows []stores.Row
				for range rapid.IntRange(1, 40).Draw(rt, "edges") {
					ref++
					rows = append(rows, storetest.NewRow(table, "acme", "s", fmt.Sprint(ref), person.Draw(rt, "from"), person.Draw(rt, "to")))
				}
				if _, err := g.Append(t.Context(), rows, 0); err != nil {
					rt.Fatalf("Append: %v", err)
				}
			},
			"erase": func(rt *rapid.T) {
				if _, err := g.Delete(t.Context(), who(t, person.Draw(rt, "person"))); err != nil {
					rt.Fatalf("Delete: %v", err)
				}
			},
		})
		for _, p := range people {
			if _, err := g.Delete(t.Context(), who(t, p)); err != nil {
				rt.Fatalf("Delete: %v", err)
			}
		}
		if len(g.nodes)+len(g.records) != 0 {
			rt.Fatalf("%d nodes and %d records are left of nobody", len(g.nodes), len(g.records))
		}
	})
}

func TestAPageOfLargeRowsEndsEarly(t *testing.T) {
	table, g := storetest.EdgesTable(), newGraph(t)
	payload := slices.IndexFunc(table.Columns, func(c stores.Column) bool { return c.Name == "payload" })
	text := `"` + string(slices.Repeat([]byte("x"), maxPageBytes/2)) + `"`
	for i := range 5 {
		row := storetest.NewRow(table, "acme", "s", fmt.Sprint(i), "alice")
		row[payload] = text
		if _, err := g.Append(t.Context(), []stores.Row{row}, 0); err != nil {
			t.Fatal(err)
		}
	}
	var pages []int
	for cursor := ""; ; {
		page, err := g.Read(t.Context(), who(t, "alice"), cursor, 100)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, len(page.Rows))
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	if !slices.Equal(pages, []int{2, 2, 1}) {
		t.Errorf("pages of %v rows", pages)
	}
}

func TestATableOfAnotherShapeIsRefused(t *testing.T) {
	folding, nullable, sourceless := storetest.EdgesTable(), storetest.EdgesTable(), storetest.EdgesTable()
	folding.Match = stores.MatchCasefold
	nullable.Columns = slices.Clone(nullable.Columns)
	nullable.Columns[2].Nullable = true
	sourceless.Source = ""
	for name, table := range map[string]stores.Table{
		"one end": storetest.EventsTable(), "casefold": folding, "nullable identity": nullable, "no source": sourceless,
	} {
		if _, err := NewGraph(table); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	for name, build := range map[string]func() (*Cache, error){
		"two ends":   func() (*Cache, error) { return NewCache(storetest.EdgesTable(), "ingested_at", 1) },
		"no room":    func() (*Cache, error) { return NewCache(storetest.EventsTable(), "ingested_at", 0) },
		"no instant": func() (*Cache, error) { return NewCache(storetest.EventsTable(), "source", 1) },
	} {
		if _, err := build(); err == nil {
			t.Errorf("cache, %s: taken", name)
		}
	}
}

func TestARowThatNobodyCouldEraseOrReadIsRefused(t *testing.T) {
	table := storetest.EdgesTable()
	column := func(name string) int {
		return slices.IndexFunc(table.Columns, func(c stores.Column) bool { return c.Name == name })
	}
	for name, spoil := range map[string]func(stores.Row){
		"empty identity":   func(r stores.Row) { r[column("identity_id")] = "" },
		"identity too big": func(r stores.Row) { r[column("related_id")] = string(make([]byte, 600)) },
		"tenant":           func(r stores.Row) { r[column("tenant_id")] = "ACME" },
		"no row id":        func(r stores.Row) { r[column("row_id")] = "" },
		"broken JSON":      func(r stores.Row) { r[column("payload")] = `{"a":` },
	} {
		row := storetest.NewRow(table, "acme", "s", "1", "alice", "bob")
		spoil(row)
		if _, err := newGraph(t).Append(t.Context(), []stores.Row{row}, 0); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

func FuzzAPackedRowComesBackAsItWas(f *testing.F) {
	f.Add("id", "ref", "text", int64(1), 0.5, true)
	f.Fuzz(func(t *testing.T, id, ref, text string, micros int64, score float64, null bool) {
		l, err := newLayout(storetest.EventsTable())
		if err != nil {
			t.Fatal(err)
		}
		row := stores.Row{id, "acme", "alice", text, ref, text, nil, time.UnixMicro(micros).UTC(), text, score}
		if null {
			row[8], row[9] = nil, nil
		}
		columns, back := l.allBut(l.tenant), make(stores.Row, len(row))
		back[l.tenant] = "acme"
		data := string(l.pack(row, columns, nil))
		l.unpack(data, columns, back)
		if gotID, rest := packedText(data); gotID != id {
			t.Errorf("row id %q, want %q", gotID, id)
		} else if gotRef, _ := packedText(rest); gotRef != ref {
			t.Errorf("reference %q, want %q", gotRef, ref)
		}
		for i := range row {
			if want := fmt.Sprint(row[i]); want != fmt.Sprint(back[i]) { // as text, because NaN is not itself
				t.Errorf("column %d = %v, want %s", i, back[i], want)
			}
		}
	})
}
