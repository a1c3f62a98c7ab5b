package storetest

import (
	"fmt"
	"slices"
	"testing"

	"recount/internal/stores"
)

type appender struct{ stores.Appender }

func (b *bench) appender(t *testing.T) appender {
	t.Helper()
	a, ok := b.store.(stores.Appender)
	if !ok {
		t.Fatalf("the store can't append, and its harness has no Seed")
	}
	return appender{a}
}

func (a appender) append(t *testing.T, rows ...stores.Row) []bool {
	t.Helper()
	created, err := a.Append(bounded(t), rows, 0)
	if err != nil {
		t.Fatalf("Append: %v", err)
	}
	if len(created) != len(rows) {
		t.Fatalf("Append answered for %d of %d rows", len(created), len(rows))
	}
	return created
}

func testAppend(t *testing.T, b *bench) {
	if _, ok := b.store.(stores.Appender); !ok {
		return
	}
	a := b.appender(t)
	row := func(tenant, source, ref, identity string) stores.Row {
		return NewRow(b.table, tenant, source, ref, identity)
	}
	check := func(got []bool, want ...bool) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("created = %v, want %v", got, want)
		}
	}
	check(a.append(t))
	check(a.append(t,
		row(tenant, "crm", "1", "alice"), row(tenant, "crm", "1", "alice"), // twice in one call
		row(otherTenant, "crm", "1", "alice"), // another tenant's record
		row(tenant, "web", "1", "alice"),      // another source's
		row(tenant, "crm", "2", "bob"), row(tenant, "cr", "m1", "bob"),
	), true, false, true, true, true, true)
	b.wantCount(t, who(t, "alice"), 2)
	b.wantCount(t, whoIn(t, otherTenant, "alice"), 1)
	b.wantCount(t, who(t, "bob"), 2)

	check(a.append(t, row(tenant, "crm", "1", "mallory"), row(tenant, "crm", "3", "alice")), false, true)
	b.wantCount(t, who(t, "mallory"), 0) // a duplicate changes nothing
	b.wantCount(t, who(t, "alice"), 3)

	b.delete(t, who(t, "alice"))
	check(a.append(t, row(tenant, "crm", "1", "alice"), row(tenant, "crm", "2", "bob")), true, false)
	b.wantCount(t, who(t, "alice"), 1)
	testAppendKeys(t, b, a)
	testAppendMany(t, b, a)
}

// testAppendMany repeats records at the far end of a large call, and in the next one.
func testAppendMany(t *testing.T, b *bench, a appender) {
	t.Helper()
	const n = 900
	var rows []stores.Row
	for i := range n {
		rows = append(rows, NewRow(b.table, tenant, "many", fmt.Sprint(i%(n-2)), "dave"))
	}
	for call, want := range []bool{true, false} {
		for i, created := range a.append(t, rows...) {
			if created != (want && i < n-2) {
				t.Fatalf("call %d, row %d: created = %t", call, i, created)
			}
		}
	}
	b.wantCount(t, who(t, "dave"), n-2)
}

// testAppendKeys writes records whose references only differ in what a careless key would lose.
func testAppendKeys(t *testing.T, b *bench, a appender) {
	t.Helper()
	var rows []stores.Row
	for i, ref := range Lookalikes() {
		rows = append(rows, NewRow(b.table, tenant, "keys", ref, fmt.Sprintf("keyed-%d", i)))
	}
	if got := a.append(t, rows...); slices.Contains(got, false) {
		t.Errorf("reference %q was taken for another", Lookalikes()[slices.Index(got, false)])
	}
	if got := a.append(t, rows...); slices.Contains(got, true) {
		t.Errorf("reference %q was not recognised", Lookalikes()[slices.Index(got, true)])
	}
}

func testAppendRefused(t *testing.T, b *bench) {
	if _, ok := b.store.(stores.Appender); !ok {
		return
	}
	short := b.row(tenant, "alice")
	short = short[:len(short)-1]
	wrong := b.row(tenant, "alice")
	wrong[columnIndex(b.table, b.table.Identities[0])] = 7 // would be another person's, or nobody's
	missing := b.row(tenant, "alice")
	missing[columnIndex(b.table, b.table.Identities[0])] = nil
	for name, bad := range map[string]stores.Row{"short": short, "number for text": wrong, "null identity": missing} {
		_, err := b.appender(t).Append(bounded(t), []stores.Row{b.row(tenant, "alice"), bad, b.row(tenant, "alice")}, 0)
		if err == nil {
			t.Errorf("a %s row was taken", name)
		}
		wantDiscreet(t, "Append", err, who(t, "alice"))
		b.wantCount(t, who(t, "alice"), 0) // all or none
	}
}
