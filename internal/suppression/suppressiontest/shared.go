package suppressiontest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"recount/internal/subject"
	"recount/internal/suppression"
)

func testGeneration(t *testing.T, b *bench) {
	last := suppression.Generation(0)
	grown := func(want bool, what string) {
		t.Helper()
		g, err := b.Generation(bounded(t))
		if err != nil || want != (g > last) || g < last {
			t.Fatalf("%s: generation %d after %d, %v", what, g, last, err)
		}
		a, err := b.Check(bounded(t), []subject.Record{{Source: src(t, tenant, "crm", "any")}})
		if err != nil || a.Generation != g {
			t.Fatalf("%s: Check says %d, Generation %d, %v", what, a.Generation, g, err)
		}
		last = g
	}
	grown(true, "at the start")
	grown(false, "after nothing")
	b.record(t, 1, entry(src(t, tenant, "crm", "1"), "a1", "r1"))
	grown(true, "after a record")
	if err := b.RecordDerived(bounded(t), map[subject.Source]subject.Source{src(t, tenant, "score", "1"): src(t, tenant, "crm", "1")}); err != nil {
		t.Fatal(err)
	}
	grown(true, "after a derived record")
	if err := b.Fence(bounded(t), "a2", []subject.Subject{person(t, "alice")}, time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	grown(true, "after a fence")
}

func person(t fataler, identity string) subject.Subject {
	t.Helper()
	s, err := subject.New(tenant, identity)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func testFences(t *testing.T, b *bench) {
	second := b.open(t, "ingest", b.keys)
	of := func(tenant string, identities ...string) subject.Record {
		return subject.Record{Source: src(t, tenant, "crm", "1"), Identities: identities}
	}
	alice, bob := person(t, "alice"), person(t, "bob")
	if err := b.Fence(bounded(t), "a1", []subject.Subject{alice, bob}, time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if err := b.Fence(bounded(t), "a2", []subject.Subject{alice}, time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	for _, l := range []suppression.Ledger{b, second} {
		b.verdict(t, l, of(tenant, "alice"), suppression.Fenced)
		b.verdict(t, l, of(tenant, "carol", "bob"), suppression.Fenced) // at the other end of an edge
		b.verdict(t, l, of(tenant, "carol"), suppression.Admitted)
		b.verdict(t, l, of(otherTenant, "alice"), suppression.Admitted)
	}
	if err := b.Lower(bounded(t), "a1"); err != nil {
		t.Fatal(err)
	}
	for _, l := range []suppression.Ledger{b, second} {
		b.verdict(t, l, of(tenant, "alice"), suppression.Fenced) // by the other attempt
		b.verdict(t, l, of(tenant, "bob"), suppression.Admitted)
	}
	b.record(t, 1, entry(src(t, tenant, "crm", "1"), "a2", "r2"))
	b.verdict(t, second, of(tenant, "alice"), suppression.Suppressed) // rather than fenced: it needn't be sent again
	if err := second.Lower(bounded(t), "a2"); err != nil {
		t.Fatal(err)
	}
	if err := b.Fence(bounded(t), "a3", []subject.Subject{bob}, time.Now().Add(50*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(60 * time.Millisecond)
	b.verdict(t, second, subject.Record{Source: src(t, tenant, "crm", "2"), Identities: []string{"bob"}}, suppression.Admitted) // its time is over
}

func testMany(t *testing.T, b *bench) {
	const n = 3000
	records := make([]subject.Record, n)
	var entries []suppression.Entry
	for i := range records {
		records[i] = subject.Record{Source: src(t, tenant, "crm", fmt.Sprint(i)), Identities: []string{fmt.Sprint(i)}}
		if i%7 == 0 {
			entries = append(entries, entry(records[i].Source, "a1", "r1"))
		}
	}
	b.record(t, len(entries), entries...)
	a, err := b.Check(bounded(t), records)
	if err != nil || len(a.Verdicts) != n {
		t.Fatalf("%d verdicts, %v", len(a.Verdicts), err)
	}
	for i, v := range a.Verdicts {
		want := suppression.Admitted
		if i%7 == 0 {
			want = suppression.Suppressed
		}
		if v != want {
			t.Fatalf("record %d: %d, want %d", i, v, want)
		}
	}
}

func testRotation(t *testing.T, b *bench) {
	old, fresh := src(t, tenant, "crm", "old"), src(t, tenant, "crm", "new")
	b.record(t, 1, entry(old, "a1", "r1"))
	rotated := b.open(t, "ingest", keys(t, secretTwo, secretOne))
	if n, err := rotated.Record(bounded(t), []suppression.Entry{entry(fresh, "a2", "r1"), entry(old, "a2", "r1")}); err != nil || n != 1 {
		t.Fatalf("recorded %d under the second key, %v", n, err)
	}
	for _, s := range []subject.Source{old, fresh} {
		b.verdict(t, rotated, subject.Record{Source: s}, suppression.Suppressed)
	}
	got, err := rotated.Recorded(bounded(t), tenant, []subject.Ref{"r1"})
	if err != nil || len(got[0]) != 2 {
		t.Errorf("the erasure has %d entries, %v", len(got[0]), err)
	}
	if list, _, err := rotated.List(bounded(t), tenant, "", 10); err != nil || len(list) != 2 {
		t.Errorf("%d entries are listed, %v", len(list), err)
	}
	if removed, err := rotated.Allow(bounded(t), old); !removed || err != nil {
		t.Errorf("an entry under an old key was not allowed: %v", err)
	}
	for _, k := range []*suppression.Keys{keys(t, secretOne), keys(t, "a third suppression secret")} {
		if _, err := b.h.Open(t, b.place, "ingest", k); !errors.Is(err, suppression.ErrKeyMissing) {
			t.Errorf("opened without the key of an entry: %v", err)
		}
	}
	// Who was open before the rotation, and can't see the new entries, must not say that they are not there.
	if a, err := b.Check(bounded(t), []subject.Record{{Source: fresh}}); err == nil && a.Verdicts[0] == suppression.Admitted {
		t.Error("an instance without the new key admits what was recorded under it")
	}
}

func testSealed(t *testing.T, b *bench) {
	if b.h.Stored == nil {
		t.Skip("what is stored can't be seen")
	}
	s := src(t, tenant, "the-origin", "alice.sealed@example.com")
	e := entry(s, "a1", "a-reference")
	e.Reason = "the-reason-why"
	b.record(t, 1, e)
	if err := b.Fence(bounded(t), "a2", []subject.Subject{person(t, "alice.sealed")}, time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	stored := b.h.Stored(t, b.place)
	if stored == "" {
		t.Fatal("nothing is stored")
	}
	for _, plain := range []string{"alice.sealed", "the-origin", "the-reason-why", "a-reference", secretOne} {
		if strings.Contains(stored, plain) {
			t.Errorf("%q is stored in plaintext", plain)
		}
	}
}

func testProcesses(t *testing.T, b *bench) {
	second := b.open(t, "ingest", b.keys)
	for i := range 20 {
		s := src(t, tenant, "crm", fmt.Sprint(i))
		writer, reader := suppression.Ledger(b), second
		if i%2 == 1 {
			writer, reader = second, b
		}
		b.verdict(t, reader, subject.Record{Source: s}, suppression.Admitted)
		if _, err := writer.Record(bounded(t), []suppression.Entry{entry(s, "a1", "r1")}); err != nil {
			t.Fatal(err)
		}
		b.verdict(t, reader, subject.Record{Source: s}, suppression.Suppressed)
	}
}

func testConcurrent(t *testing.T, b *bench) {
	callers, each := 8, 30
	if b.h.Slow {
		callers, each = 4, 8
	}
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := range each {
				own, shared := src(t, tenant, "crm", fmt.Sprintf("%d-%d", c, i)), src(t, tenant, "shared", fmt.Sprint(i))
				if _, err := b.Record(bounded(t), []suppression.Entry{entry(own, suppression.AttemptID(fmt.Sprint(c)), "r"), entry(shared, "s", "r")}); err != nil {
					t.Error(err)
					return
				}
				a, err := b.Check(bounded(t), []subject.Record{{Source: own}, {Source: shared}})
				if err != nil || a.Verdicts[0] != suppression.Suppressed || a.Verdicts[1] != suppression.Suppressed {
					t.Errorf("recorded, and not suppressed: %v", err)
				}
			}
		})
	}
	wg.Wait()
	got, err := b.Recorded(bounded(t), tenant, []subject.Ref{"r"})
	if want := callers*each + each; err != nil || len(got[0]) != want {
		t.Errorf("%d entries, want %d, %v", len(got[0]), want, err)
	}
}

func testModel(t *testing.T, b *bench) {
	rounds := 0
	rapid.Check(t, func(rt *rapid.T) {
		if rounds++; b.h.Slow && rounds > 15 {
			return
		}
		model := NewModel()
		cell := fmt.Sprintf("cell%d", rounds)
		tested, err := b.h.Open(t, b.place, cell, b.keys)
		if err != nil {
			rt.Fatal(err)
		}
		refs := rapid.SampledFrom([]string{"1", "2", "3", "4"})
		draw := func(label string) subject.Source {
			return src(rt, rapid.SampledFrom([]string{tenant, otherTenant}).Draw(rt, label+" tenant"), "crm", refs.Draw(rt, label))
		}
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			s := draw("source")
			switch rapid.IntRange(0, 3).Draw(rt, "step") {
			case 0:
				e := entry(s, suppression.AttemptID(refs.Draw(rt, "attempt")), subject.Ref(refs.Draw(rt, "ref")))
				n, err := tested.Record(bounded(t), []suppression.Entry{e})
				if want, _ := model.Record(t.Context(), []suppression.Entry{e}); err != nil || n != want {
					rt.Fatalf("recorded %d, want %d, %v", n, want, err)
				}
			case 1:
				removed, err := tested.Allow(bounded(t), s)
				if want, _ := model.Allow(t.Context(), s); err != nil || removed != want {
					rt.Fatalf("removed %t, want %t, %v", removed, want, err)
				}
			case 2:
				attempt := suppression.AttemptID(refs.Draw(rt, "attempt"))
				if err := tested.Withdraw(bounded(t), s.Tenant(), attempt); err != nil {
					rt.Fatal(err)
				}
				_ = model.Withdraw(t.Context(), s.Tenant(), attempt)
			case 3:
				child := src(rt, s.Tenant(), "child", refs.Draw(rt, "child"))
				derived := map[subject.Source]subject.Source{child: s}
				if err := tested.RecordDerived(bounded(t), derived); err != nil {
					rt.Fatal(err)
				}
				_ = model.RecordDerived(t.Context(), derived)
			}
			records := []subject.Record{{Source: draw("a")}, {Source: draw("b")}, {Source: src(rt, s.Tenant(), "child", refs.Draw(rt, "c")), Parents: []subject.Source{s}}}
			got, err := tested.Check(bounded(t), records)
			want, _ := model.Check(t.Context(), records)
			if err != nil || !slices.Equal(got.Verdicts, want.Verdicts) {
				rt.Fatalf("%v, want %v, %v", got.Verdicts, want.Verdicts, err)
			}
		}
	})
}
