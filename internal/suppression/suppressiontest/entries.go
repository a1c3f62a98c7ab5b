package suppressiontest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"recount/internal/subject"
	"recount/internal/suppression"
)

func testRecords(t *testing.T, b *bench) {
	if err := b.Ready(bounded(t)); err != nil {
		t.Fatalf("not ready: %v", err)
	}
	lookalikes := []subject.Source{
		src(t, tenant, "crm", "12"), src(t, tenant, "crm1", "2"), src(t, tenant, "c", "rm12"), src(t, tenant, "CRM", "1"), src(t, tenant, "crm", "1 "),
		src(t, tenant, "crm", "a@x.io"), src(t, tenant, "crm", "A@x.io"), src(t, tenant, "crm", "é"), src(t, tenant, "crm", "e\u0301"),
	}
	one := src(t, tenant, "crm", "1")
	b.admitted(t, append(lookalikes, one)...)
	b.record(t, 1, entry(one, "a1", "r1"))
	b.record(t, 0, entry(one, "a1", "r1"), entry(one, "a2", "r2"))
	b.suppressed(t, one)
	b.admitted(t, lookalikes...)
	b.record(t, 2, entry(lookalikes[0], "a3", "r3"), entry(lookalikes[1], "a3", "r3"), entry(lookalikes[0], "a3", "r3"))
	b.suppressed(t, lookalikes[:2]...)
	b.admitted(t, lookalikes[2:]...)
	if n, err := b.Record(bounded(t), nil); n != 0 || err != nil {
		t.Errorf("recording nothing: %d, %v", n, err)
	}
	if a, err := b.Check(bounded(t), nil); err != nil || len(a.Verdicts) != 0 || a.Generation == 0 {
		t.Errorf("checking nothing: %+v, %v", a, err)
	}
}

func testFirstIsKept(t *testing.T, b *bench) {
	s := src(t, tenant, "crm", "1")
	b.record(t, 1, entry(s, "a1", "r1"))
	later := entry(s, "a2", "r2")
	later.Reason, later.ErasedAt = "another", erasedAt.Add(time.Hour)
	b.record(t, 0, later)
	list, next, err := b.List(bounded(t), tenant, "", 10)
	if err != nil || next != "" || len(list) != 1 || list[0].Source != s || list[0].Reason != suppression.ReasonSubject || !list[0].ErasedAt.Equal(erasedAt) {
		t.Fatalf("%d entries, %v", len(list), err)
	}
	for i, want := range []int{1, 0} {
		got, err := b.Recorded(bounded(t), tenant, []subject.Ref{subject.Ref(fmt.Sprintf("r%d", i+1))})
		if err != nil || len(got) != 1 || len(got[0]) != want {
			t.Errorf("erasure %d: %d, %v", i+1, len(got), err)
		}
	}
}

func testParents(t *testing.T, b *bench) {
	parent, child, other := src(t, tenant, "crm", "1"), src(t, tenant, "score", "1"), src(t, tenant, "crm", "2")
	b.record(t, 1, entry(parent, "a1", "r1"))
	a, err := b.Check(bounded(t), []subject.Record{
		{Source: child, Parents: []subject.Source{other, parent}}, {Source: child, Parents: []subject.Source{other}}, {Source: parent, Parents: []subject.Source{parent}},
	})
	if err != nil || !slices.Equal(a.Verdicts, []suppression.Verdict{suppression.Suppressed, suppression.Admitted, suppression.Suppressed}) {
		t.Fatalf("%v, %v", a.Verdicts, err)
	}
	if a.Parents[0] != parent || len(a.Parents) != 1 {
		t.Errorf("%d records are said to be suppressed by a parent", len(a.Parents))
	}
	if err := b.RecordDerived(bounded(t), map[subject.Source]subject.Source{child: parent, other: src(t, tenant, "crm", "never recorded")}); err != nil {
		t.Fatal(err)
	}
	b.suppressed(t, child)
	b.admitted(t, other)
	got, err := b.Recorded(bounded(t), tenant, []subject.Ref{"r1"})
	if err != nil || len(got[0]) != 2 {
		t.Fatalf("the erasure has %d entries, %v", len(got[0]), err)
	}
	for _, e := range got[0] {
		if want := map[subject.Source]string{parent: suppression.ReasonSubject, child: suppression.ReasonDerived}[e.Source]; e.Reason != want {
			t.Errorf("reason %q, want %q", e.Reason, want)
		}
	}
}

func testApart(t *testing.T, b *bench) {
	ours, theirs := src(t, tenant, "crm", "1"), src(t, otherTenant, "crm", "1")
	b.record(t, 1, entry(ours, "a1", "r1"))
	b.admitted(t, theirs)
	graph := b.open(t, "graph", b.keys)
	b.verdict(t, graph, subject.Record{Source: ours}, suppression.Admitted)
	if list, _, err := b.List(bounded(t), otherTenant, "", 10); err != nil || len(list) != 0 {
		t.Errorf("another tenant lists %d entries, %v", len(list), err)
	}
	if list, _, err := graph.List(bounded(t), tenant, "", 10); err != nil || len(list) != 0 {
		t.Errorf("another cell lists %d entries, %v", len(list), err)
	}
	if removed, err := b.Allow(bounded(t), theirs); removed || err != nil {
		t.Errorf("another tenant's was allowed: %t, %v", removed, err)
	}
	if removed, err := graph.Allow(bounded(t), ours); removed || err != nil {
		t.Errorf("another cell allowed it: %t, %v", removed, err)
	}
	if got, err := b.Recorded(bounded(t), otherTenant, []subject.Ref{"r1"}); err != nil || len(got[0]) != 0 {
		t.Errorf("another tenant's erasure has %d entries, %v", len(got), err)
	}
	if err := b.Withdraw(bounded(t), otherTenant, "a1"); err != nil {
		t.Fatal(err)
	}
	b.suppressed(t, ours)
}

func testRecorded(t *testing.T, b *bench) {
	var want []subject.Source
	var entries []suppression.Entry
	for i := range 700 {
		s := src(t, tenant, "crm", fmt.Sprint(i))
		want = append(want, s)
		entries = append(entries, entry(s, "a1", "r1"))
	}
	b.record(t, 700, entries...)
	b.record(t, 1, entry(src(t, tenant, "crm", "other"), "a2", "r2"))
	got, err := b.Recorded(bounded(t), tenant, []subject.Ref{"r2", "r1", "none"})
	if err != nil || len(got) != 3 || len(got[0]) != 1 || len(got[1]) != 700 || len(got[2]) != 0 {
		t.Fatalf("%d lists, %v", len(got), err)
	}
	for _, e := range got[1] {
		if !slices.Contains(want, e.Source) || e.Reason != suppression.ReasonSubject || !e.ErasedAt.Equal(erasedAt) {
			t.Fatal("an entry is not what was recorded")
		}
	}
}

func testWithdraw(t *testing.T, b *bench) {
	before, shared, mine := src(t, tenant, "crm", "1"), src(t, tenant, "crm", "2"), src(t, tenant, "crm", "3")
	b.record(t, 2, entry(before, "a1", "r1"), entry(shared, "a1", "r1"))
	b.record(t, 1, entry(shared, "a2", "r2"), entry(mine, "a2", "r2"))
	for range 2 {
		if err := b.Withdraw(bounded(t), tenant, "a2"); err != nil {
			t.Fatal(err)
		}
		b.admitted(t, mine)
		b.suppressed(t, before, shared)
	}
	b.record(t, 1, entry(mine, "a3", "r3"))
	b.suppressed(t, mine)
	if err := b.Withdraw(bounded(t), tenant, "never was"); err != nil {
		t.Fatal(err)
	}
	b.suppressed(t, before, shared, mine)
	if err := b.Withdraw(bounded(t), tenant, "a1"); err != nil { // a2 came to rely on what they share
		t.Fatal(err)
	}
	b.admitted(t, before)
	b.suppressed(t, shared, mine)
}

func testAllow(t *testing.T, b *bench) {
	one, two := src(t, tenant, "crm", "1"), src(t, tenant, "crm", "2")
	b.record(t, 2, entry(one, "a1", "r1"), entry(two, "a1", "r1"))
	for i, want := range []bool{true, false} {
		if removed, err := b.Allow(bounded(t), one); removed != want || err != nil {
			t.Fatalf("call %d: removed %t, %v", i, removed, err)
		}
		b.admitted(t, one)
		b.suppressed(t, two)
	}
	if got, err := b.Recorded(bounded(t), tenant, []subject.Ref{"r1"}); err != nil || len(got[0]) != 1 {
		t.Errorf("the erasure has %d entries, %v", len(got[0]), err)
	}
	b.record(t, 1, entry(one, "a2", "r2"))
	b.suppressed(t, one)
}

func testList(t *testing.T, b *bench) {
	var entries []suppression.Entry
	want := map[subject.Source]bool{}
	for i := range 25 {
		s := src(t, tenant, "crm", fmt.Sprintf("person-%d@example.com", i))
		want[s] = true
		entries = append(entries, entry(s, "a1", "r1"))
	}
	b.record(t, 25, entries...)
	b.record(t, 1, entry(src(t, otherTenant, "crm", "x"), "a1", "r1"))
	cursor, pages := "", 0
	for {
		list, next, err := b.List(bounded(t), tenant, cursor, 10)
		if err != nil || len(list) > 10 {
			t.Fatalf("%d entries, %v", len(list), err)
		}
		for _, e := range list {
			if !want[e.Source] {
				t.Fatal("an entry came twice, or was never recorded")
			}
			delete(want, e.Source)
		}
		pages++
		if cursor = next; cursor == "" {
			break
		}
		if strings.Contains(cursor, "example") {
			t.Error("the cursor holds a reference")
		}
	}
	if len(want) != 0 || pages != 3 {
		t.Errorf("%d entries are missing from %d pages", len(want), pages)
	}
	if _, _, err := b.List(bounded(t), tenant, "no cursor of mine", 10); !errors.Is(err, suppression.ErrCursor) {
		t.Errorf("a made-up cursor: %v", err)
	}
}
