package storetest

import (
	"testing"

	"recount/internal/subject"
)

func testAtomic(t *testing.T, b *bench) {
	store, ok := b.store.(subject.Atomic)
	if !ok {
		return
	}
	if got := store.Erase(bounded(t), nil); len(got) != 0 {
		t.Fatalf("Erase of no subjects answered %d measurements", len(got))
	}
	alice, bob, nobody, carol := who(t, "alice"), who(t, "bob"), who(t, "nobody"), who(t, "carol")
	b.seed(t, b.row(tenant, "alice", "bob"), b.row(tenant, "alice"), b.row(tenant, "bob"), b.row(tenant, "carol"),
		b.row(otherTenant, "alice"))
	subjects := []subject.Subject{alice, nobody, alice, bob}
	befores := []int64{2, 0, -1, int64(len(b.table.Identities))} // a repeated subject may read either way
	for round := range 2 {
		measured := store.Erase(bounded(t), subjects)
		if len(measured) != len(subjects) {
			t.Fatalf("Erase answered %d measurements for %d subjects", len(measured), len(subjects))
		}
		for i, m := range measured {
			wantErased(t, i, m)
			want := befores[i]
			if round > 0 {
				want = 0
			}
			if got, _ := m.Before.Value(); want >= 0 && got != want {
				t.Errorf("round %d, subject %d: before = %d, want %d", round, i, got, want)
			}
		}
		b.wantCount(t, alice, 0)
		b.wantCount(t, bob, 0)
		b.wantCount(t, carol, 1)
		b.wantCount(t, whoIn(t, otherTenant, "alice"), 1)
		b.wantPhysical(t, 2)
	}
}

func wantErased(t *testing.T, i int, m subject.Measurement) {
	t.Helper()
	for step, err := range map[string]error{"count": m.CountErr, "delete": m.DeleteErr, "purge": m.PurgeErr, "recount": m.RecountErr} {
		if err != nil {
			t.Errorf("subject %d: %s answered %v", i, step, err)
		}
	}
	if n, measured := m.Before.Value(); !measured || n < 0 {
		t.Errorf("subject %d: before = %s, want a number", i, m.Before)
	}
	if n, measured := m.Deleted.Value(); measured && n < 0 {
		t.Errorf("subject %d: deleted = %d", i, n)
	}
	if !m.Remaining.IsZero() {
		t.Errorf("subject %d: remaining = %s, want 0", i, m.Remaining)
	}
}

func verdict(m subject.Measurement) subject.Status {
	name := func(_ error, otherwise subject.Reason) subject.Reason { return otherwise }
	return subject.Judge(subject.Label{}, subject.Times{}, m, name).Status()
}
