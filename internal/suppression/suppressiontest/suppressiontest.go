// Package suppressiontest is the one conformance suite that every suppression ledger runs, and a reference ledger that is
// too simple to be wrong.
package suppressiontest

import (
	"context"
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

// Harness is how the suite gets at an adapter.
type Harness struct {
	// Open opens the ledger of a cell with these keys. Two calls with one place are two processes at one ledger; a place
	// that was not named before is empty.
	Open func(t *testing.T, place, cell string, keys *suppression.Keys) (suppression.Ledger, error)
	// Stored answers everything that is stored at a place, to be searched for plaintext; nil where it can't be had.
	Stored func(t *testing.T, place string) string
	// Slow is set for a ledger behind an emulator.
	Slow bool
}

const (
	secretOne   = "the first suppression secret"
	secretTwo   = "the second suppression secret"
	tenant      = "acme"
	otherTenant = "globex"
	callLimit   = 60 * time.Second
)

// Run checks everything that the contract of suppression.Ledger says.
func Run(t *testing.T, h Harness) {
	t.Helper()
	for _, c := range []struct {
		name  string
		check func(*testing.T, *bench)
	}{
		{"suppresses exactly what was recorded", testRecords},
		{"keeps the first reason, date and erasure", testFirstIsKept},
		{"suppresses what derives from what was recorded", testParents},
		{"keeps tenants and cells apart", testApart},
		{"finds an erasure's entries again", testRecorded},
		{"withdraws what is an attempt's alone and nothing else", testWithdraw},
		{"allows one source alone", testAllow},
		{"lists page by page", testList},
		{"grows its generation with everything that suppresses", testGeneration},
		{"fences", testFences},
		{"checks very many in one call", testMany},
		{"knows its entries after a rotation of keys, and refuses to start without one", testRotation},
		{"keeps nothing in plaintext", testSealed},
		{"is one ledger for two processes", testProcesses},
		{"takes concurrent callers", testConcurrent},
		{"agrees with the reference ledger", testModel},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := &bench{h: h, place: strings.NewReplacer("/", "-", " ", "-", ",", "").Replace(t.Name()), keys: keys(t, secretOne)}
			b.Ledger = b.open(t, "ingest", b.keys)
			c.check(t, b)
		})
	}
}

// bench is one fresh ledger under test.
type bench struct {
	suppression.Ledger

	h     Harness
	place string
	keys  *suppression.Keys
}

func (b *bench) open(t *testing.T, cell string, k *suppression.Keys) suppression.Ledger {
	t.Helper()
	l, err := b.h.Open(t, b.place, cell, k)
	if err != nil {
		t.Fatalf("opening: %v", err)
	}
	return l
}

func keys(t *testing.T, secrets ...string) *suppression.Keys {
	t.Helper()
	k, err := suppression.ParseKeys(strings.Join(secrets, ","))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), callLimit)
	t.Cleanup(cancel)
	return ctx
}

type fataler interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

func src(t fataler, tenant, source, ref string) subject.Source {
	t.Helper()
	s, err := subject.NewSource(tenant, source, ref)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var erasedAt = time.Date(2026, 3, 4, 5, 6, 7, 891011000, time.UTC)

func entry(s subject.Source, attempt suppression.AttemptID, ref subject.Ref) suppression.Entry {
	return suppression.Entry{Source: s, Reason: suppression.ReasonSubject, ErasedAt: erasedAt, Erasure: ref, Attempt: attempt}
}

func (b *bench) record(t *testing.T, want int, entries ...suppression.Entry) {
	t.Helper()
	got, err := b.Record(bounded(t), entries)
	if err != nil || got != want {
		t.Fatalf("Record inserted %d, %v, want %d", got, err, want)
	}
}

func (b *bench) verdict(t *testing.T, l suppression.Ledger, r subject.Record, want suppression.Verdict) {
	t.Helper()
	a, err := l.Check(bounded(t), []subject.Record{r})
	if err != nil || len(a.Verdicts) != 1 {
		t.Fatalf("Check: %d verdicts, %v", len(a.Verdicts), err)
	}
	if a.Verdicts[0] != want {
		t.Fatalf("the verdict is %d, want %d", a.Verdicts[0], want)
	}
}

func (b *bench) suppressed(t *testing.T, sources ...subject.Source) {
	t.Helper()
	for _, s := range sources {
		b.verdict(t, b, subject.Record{Source: s}, suppression.Suppressed)
	}
}

func (b *bench) admitted(t *testing.T, sources ...subject.Source) {
	t.Helper()
	for _, s := range sources {
		b.verdict(t, b, subject.Record{Source: s}, suppression.Admitted)
	}
}

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
