package storetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"recount/internal/stores"
	"recount/internal/subject"
)

// sourced is the store's ability, unless it has none, or no source columns.
func (b *bench) sourced(t *testing.T) subject.Sourced {
	t.Helper()
	s, ok := b.store.(subject.Sourced)
	if !ok || !s.NamesSources() {
		return nil
	}
	return s
}

func source(t *testing.T, tenant, name, ref string) subject.Source {
	t.Helper()
	s, err := subject.NewSource(tenant, name, ref)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Derived is a row of a table that is ours which names what it was derived from.
func Derived(table stores.Table, tenant, name, ref, identity string, parents ...subject.Source) stores.Row {
	listed := make([]stores.Parent, len(parents))
	for i, p := range parents {
		listed[i] = stores.Parent{Source: p.Origin(), SourceRef: p.Reference()}
	}
	text, err := json.Marshal(listed)
	if err != nil {
		panic(err) // strings always marshal
	}
	row := NewRow(table, tenant, name, ref, identity)
	row[columnIndex(table, table.DerivedFrom)] = string(text)
	return row
}

// inOrder sorts sources, to compare sets of them.
func inOrder(sources []subject.Source) []subject.Source {
	slices.SortFunc(sources, func(a, b subject.Source) int {
		if c := strings.Compare(a.Origin(), b.Origin()); c != 0 {
			return c
		}
		return strings.Compare(a.Reference(), b.Reference())
	})
	return sources
}

func testSources(t *testing.T, b *bench) {
	s := b.sourced(t)
	if s == nil {
		return
	}
	b.seed(t, NewRow(b.table, tenant, "crm", "1", "alice"), NewRow(b.table, tenant, "crm", "2", "alice"),
		NewRow(b.table, tenant, "web", "a@x.io", "alice"), NewRow(b.table, tenant, "crm", "3", "bob"),
		NewRow(b.table, otherTenant, "crm", "4", "alice"))
	people := []subject.Subject{who(t, "alice"), who(t, "nobody"), who(t, "bob"), who(t, "alice")}
	got, err := s.Sources(bounded(t), people)
	if err != nil || len(got) != len(people) {
		t.Fatalf("Sources: %d lists, %v", len(got), err)
	}
	alices := []subject.Source{source(t, tenant, "crm", "1"), source(t, tenant, "crm", "2"), source(t, tenant, "web", "a@x.io")}
	for i, want := range [][]subject.Source{alices, nil, {source(t, tenant, "crm", "3")}, alices} {
		if !slices.Equal(inOrder(got[i]), want) {
			t.Errorf("person %d has %d sources, or others than the %d wanted", i, len(got[i]), len(want))
		}
	}
	if got, err := s.Sources(bounded(t), nil); err != nil || len(got) != 0 {
		t.Errorf("Sources of nobody: %d lists, %v", len(got), err)
	}
	const many = 2500
	rows := make([]stores.Row, many)
	for i := range rows {
		rows[i] = NewRow(b.table, tenant, "many", fmt.Sprint(i), "carol")
	}
	b.seed(t, rows...)
	if got, err := s.Sources(bounded(t), []subject.Subject{who(t, "carol")}); err != nil || len(got) != 1 || len(got[0]) != many {
		t.Errorf("Sources of a person with %d rows: %v", many, err)
	}
}

func testBySource(t *testing.T, b *bench) {
	s := b.sourced(t)
	if s == nil {
		return
	}
	b.seed(t, NewRow(b.table, tenant, "crm", "1", "alice"), NewRow(b.table, tenant, "crm", "2", "bob"), NewRow(b.table, tenant, "cr", "m2", "bob"),
		NewRow(b.table, tenant, "web", "1", "alice"), NewRow(b.table, otherTenant, "crm", "1", "alice"))
	asked := []subject.Source{source(t, tenant, "crm", "1"), source(t, tenant, "crm", "none"), source(t, tenant, "crm", "2")}
	check := func(want ...int64) {
		t.Helper()
		if got, err := s.CountSources(bounded(t), asked); err != nil || !slices.Equal(got, want) {
			t.Fatalf("CountSources = %v, %v, want %v", got, err, want)
		}
	}
	check(1, 0, 1)
	for range 2 { // again: deleting nothing is no error
		if _, err := s.DeleteSources(bounded(t), asked); err != nil {
			t.Fatalf("DeleteSources: %v", err)
		}
		check(0, 0, 0)
	}
	b.wantCount(t, who(t, "alice"), 1)
	b.wantCount(t, who(t, "bob"), 1)
	b.wantCount(t, whoIn(t, otherTenant, "alice"), 1)
	b.wantPhysical(t, 3)
	if _, err := s.DeleteSources(bounded(t), nil); err != nil {
		t.Errorf("DeleteSources of none: %v", err)
	}
	const many = 1100 // more than any adapter puts into one statement
	rows, sources := make([]stores.Row, many), make([]subject.Source, many)
	for i := range rows {
		rows[i], sources[i] = NewRow(b.table, tenant, "many", fmt.Sprint(i), "carol"), source(t, tenant, "many", fmt.Sprint(i))
	}
	b.seed(t, rows...)
	if _, err := s.DeleteSources(bounded(t), sources); err != nil {
		t.Fatalf("DeleteSources of %d: %v", many, err)
	}
	if got, err := s.CountSources(bounded(t), sources); err != nil || len(got) != many || slices.Max(got) != 0 {
		t.Fatalf("CountSources of %d: %v", many, err)
	}
	b.wantCount(t, who(t, "carol"), 0)
}

func testDerivedFrom(t *testing.T, b *bench) {
	s := b.sourced(t)
	if s == nil || b.table.DerivedFrom == "" {
		return
	}
	p1, p2, other := source(t, tenant, "crm", "1"), source(t, tenant, "crm", "2"), source(t, otherTenant, "crm", "1")
	c1, c2 := source(t, tenant, "score", "1"), source(t, tenant, "score", "2")
	b.seed(t, NewRow(b.table, tenant, "crm", "1", "alice"), Derived(b.table, tenant, "score", "1", "bob", p1, p2),
		Derived(b.table, tenant, "score", "2", "carol", p2), Derived(b.table, tenant, "score", "3", "dave", c1),
		Derived(b.table, otherTenant, "score", "1", "bob", other))
	ask := func(parents ...subject.Source) []subject.Derivation {
		t.Helper()
		got, err := s.DerivedFrom(bounded(t), parents)
		if err != nil {
			t.Fatalf("DerivedFrom: %v", err)
		}
		return got
	}
	has := func(got []subject.Derivation, want ...subject.Derivation) {
		t.Helper()
		for _, w := range want {
			if !slices.Contains(got, w) {
				t.Errorf("a derivation is missing of %d", len(want))
			}
		}
		for _, g := range got {
			if !slices.Contains(want, g) {
				t.Errorf("a derivation too many, in %d", len(got))
			}
		}
	}
	has(ask(p1), subject.Derivation{Parent: p1, Child: c1})
	has(ask(p1, p2), subject.Derivation{Parent: p1, Child: c1}, subject.Derivation{Parent: p2, Child: c1}, subject.Derivation{Parent: p2, Child: c2})
	has(ask(source(t, tenant, "crm", "none")))
	b.delete(t, who(t, "bob")) // what is gone derives from nothing
	has(ask(p1))
	has(ask(c1), subject.Derivation{Parent: c1, Child: source(t, tenant, "score", "3")})
}
