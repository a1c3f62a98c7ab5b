package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"recount/internal/stores"
)

// listed walks all pages of a tenant's list.
func listed(t testing.TB, s stores.Documents, tenant string, limit int) (ids []string) {
	t.Helper()
	pages, err := walkDocuments(t, s, tenant, limit)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range slices.Concat(pages...) {
		ids = append(ids, d.ID)
	}
	return ids
}

func walkDocuments(t testing.TB, s stores.Documents, tenant string, limit int) (pages [][]stores.Document, err error) {
	t.Helper()
	for cursor := ""; ; {
		page, next, err := s.List(t.Context(), tenant, cursor, limit)
		switch {
		case err != nil:
			return nil, fmt.Errorf("listing: %w", err)
		case len(page) > limit || next != "" && len(page) == 0:
			return nil, fmt.Errorf("a page of %d where at most %d were asked for", len(page), limit)
		}
		for _, d := range page {
			if d.Tenant != tenant {
				return nil, errors.New("another tenant's document is listed")
			}
		}
		if pages = append(pages, page); next == "" {
			return pages, nil
		}
		cursor = next
	}
}

func documentsListed(t *testing.T, open func() stores.Documents) {
	s := open()
	want := []string{"z", "b-0", "b", "abc", "a9", "a-1", "a", "00", "0", "-"}
	for i := range want {
		at := (i*7 + 3) % len(want) // in no order
		created(t, s, stores.Document{ID: want[at], Tenant: tenant, Body: []byte(want[at])})
	}
	for limit := 1; limit <= len(want)+1; limit++ {
		pages, err := walkDocuments(t, s, tenant, limit)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for i, page := range pages {
			if i < len(pages)-1 && len(page) != limit {
				t.Errorf("page %d of small documents has %d of %d", i, len(page), limit)
			}
			for _, d := range page {
				got = append(got, d.ID)
				if string(d.Body) != d.ID || d.Version != 1 {
					t.Errorf("%s is listed as another", d.ID)
				}
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v by %d, want %v", got, limit, want)
		}
	}
	_, cursor, err := s.List(t.Context(), tenant, "", 3)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"abc", "a9"} { // the page's last and the next
		if err := s.Delete(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	created(t, s, stores.Document{ID: "aa", Tenant: tenant})
	if page, _, err := s.List(t.Context(), tenant, cursor, 2); err != nil || len(page) != 2 || page[0].ID != "aa" && page[0].ID != "abc" {
		t.Errorf("a list that changes between its pages goes on with %d, %v", len(page), err)
	}
	if page, next, err := s.List(t.Context(), tenant, "", 0); err != nil || len(page) != 0 || next != "" {
		t.Errorf("none are asked for, and %d listed, %v", len(page), err)
	}
}

func documentsApart(t *testing.T, open func() stores.Documents) {
	s := open()
	tenants := []string{"a", "a/", "A", "a\x00", "ab", "", "a/b", strings.Repeat("a", 512)}
	for i := range 24 {
		created(t, s, stores.Document{ID: fmt.Sprintf("d%02d", i), Tenant: tenants[i%len(tenants)]})
	}
	for i, own := range tenants {
		want := []string{fmt.Sprintf("d%02d", i+16), fmt.Sprintf("d%02d", i+8), fmt.Sprintf("d%02d", i)}
		if got := listed(t, s, own, 2); !slices.Equal(got, want) {
			t.Errorf("tenant %d has %v, want %v", i, got, want)
		}
		_, cursor, err := s.List(t.Context(), own, "", 2)
		if err != nil || cursor == "" {
			t.Fatalf("no cursor behind 2 of 3: %v", err)
		}
		for j, other := range tenants {
			page, _, err := s.List(t.Context(), other, cursor, 10) // refused, or its own documents
			for _, d := range page {
				if err != nil || d.Tenant != other {
					t.Errorf("the cursor of tenant %d shows tenant %d what is not its own", i, j)
				}
			}
		}
	}
	if got := listed(t, s, "nobody", 2); len(got) != 0 {
		t.Errorf("a tenant without documents has %v", got)
	}
}

func documentsAwake(t *testing.T, open func() stores.Documents) {
	s := open()
	for i := range 6 {
		created(t, s, stores.Document{ID: fmt.Sprintf("w%d", i), Tenant: ofTwo(i), Wake: noon.Add(time.Duration(5-i) * time.Microsecond), Open: i%2 == 0})
	}
	created(t, s, stores.Document{ID: "never", Tenant: tenant, Open: true, Due: noon.Add(-time.Hour)})
	for _, c := range []struct {
		at    time.Time
		limit int
		want  []string
	}{
		{noon.Add(-1), 9, nil},
		{noon, 9, []string{"w5"}},
		{noon.Add(1500), 9, []string{"w5", "w4"}},
		{noon.Add(5 * time.Microsecond), 9, []string{"w5", "w4", "w3", "w2", "w1", "w0"}},
		{noon.Add(time.Hour).In(time.FixedZone("", -3600)), 2, []string{"w5", "w4"}},
		{noon.Add(time.Hour), 0, nil},
		{time.Time{}, 9, nil},
	} {
		if got, err := s.Awake(t.Context(), c.at, c.limit); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("awake at %s, at most %d: %v, %v, want %v", c.at, c.limit, got, err, c.want)
		}
	}
}

func ofTwo(i int) string { return []string{tenant, otherTenant}[i%2] }

func documentsDue(t *testing.T, open func() stores.Documents) {
	s := open()
	for i := range 4 {
		created(t, s, stores.Document{ID: fmt.Sprintf("o%d", i), Tenant: ofTwo(i), Open: true, Due: noon.Add(time.Duration(i) * time.Microsecond)})
		created(t, s, stores.Document{ID: fmt.Sprintf("c%d", i), Tenant: tenant, Due: noon.Add(-time.Hour), Wake: noon})
		created(t, s, stores.Document{ID: fmt.Sprintf("n%d", i), Tenant: tenant, Open: true, Wake: noon})
	}
	for _, c := range []struct {
		before time.Time
		want   int64
	}{
		{time.Time{}, 0},
		{noon, 0},
		{noon.Add(1), 1},
		{noon.Add(time.Microsecond), 1},
		{noon.Add(time.Microsecond + 1), 2},
		{noon.Add(time.Hour).In(time.FixedZone("", 3600)), 4},
	} {
		if got, err := s.CountDue(t.Context(), c.before); err != nil || got != c.want {
			t.Errorf("due before %s: %d, %v, want %d", c.before, got, err, c.want)
		}
	}
}

// documentRounds bounds the random test: a store may answer from behind an emulator.
const (
	documentRounds   = 30
	documentPatience = 10 * time.Second
)

// documentsRandom drives the store and a map with the same random calls.
func documentsRandom(t *testing.T, open func() stores.Documents) {
	openings := []stores.Documents{open(), open()}
	rounds, end, failed := 0, time.Now().Add(documentPatience), false
	rapid.Check(t, func(rt *rapid.T) {
		if rounds++; !failed && (rounds > documentRounds || time.Now().After(end)) {
			return
		}
		was := failed
		failed = true // unless the round comes to its end: then it is made smaller for as long as it takes
		m := &documentModel{t: t, openings: openings, docs: map[string]stores.Document{}}
		for i := range modelIDs {
			if err := openings[0].Delete(t.Context(), fmt.Sprintf("d%d", i)); err != nil {
				rt.Fatal(err)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"create": m.create, "update": m.update, "delete": m.remove, "get": m.get, "list": m.list, "awake": m.awake, "count": m.countDue,
		})
		failed = was
	})
}

const modelIDs = 7

type documentModel struct {
	t        *testing.T
	openings []stores.Documents
	docs     map[string]stores.Document
}

func (m *documentModel) store(rt *rapid.T) stores.Documents {
	return rapid.SampledFrom(m.openings).Draw(rt, "opening")
}

func drawID(rt *rapid.T) string {
	return fmt.Sprintf("d%d", rapid.IntRange(0, modelIDs-1).Draw(rt, "id"))
}

// drawTime is zero every now and then.
func drawTime(rt *rapid.T, what string) time.Time {
	n := rapid.IntRange(0, 5).Draw(rt, what)
	if n == 0 {
		return time.Time{}
	}
	return noon.Add(time.Duration(n) * time.Microsecond)
}

func drawDocument(rt *rapid.T) stores.Document {
	return stores.Document{
		ID: drawID(rt), Tenant: rapid.SampledFrom([]string{tenant, otherTenant}).Draw(rt, "tenant"), Open: rapid.Bool().Draw(rt, "open"),
		Due: drawTime(rt, "due"), Wake: drawTime(rt, "wake"), Body: rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(rt, "body"),
	}
}

func (m *documentModel) create(rt *rapid.T) {
	d := drawDocument(rt)
	var want error
	if _, there := m.docs[d.ID]; there {
		want = stores.ErrDocumentExists
	}
	if err := m.store(rt).Create(m.t.Context(), d); !errors.Is(err, want) {
		rt.Fatalf("create %s: %v, want %v", d.ID, err, want)
	}
	if want == nil {
		d.Version = 1
		m.docs[d.ID] = d
	}
}

func (m *documentModel) update(rt *rapid.T) {
	d := drawDocument(rt)
	there, ok := m.docs[d.ID]
	d.Version = there.Version + int64(rapid.SampledFrom([]int{0, 0, 0, -1, 1}).Draw(rt, "step"))
	var want error
	switch {
	case !ok:
		want = stores.ErrDocumentNotFound
	case d.Version != there.Version:
		want = stores.ErrDocumentStale
	}
	got, err := m.store(rt).Update(m.t.Context(), d)
	if !errors.Is(err, want) {
		rt.Fatalf("update %s: %v, want %v", d.ID, err, want)
	}
	if want == nil {
		d.Version++
		m.docs[d.ID] = d
		if !sameDocument(got, d) {
			rt.Fatalf("an update answers %s, want %s", brief(got), brief(d))
		}
	}
}

func (m *documentModel) remove(rt *rapid.T) {
	id := drawID(rt)
	delete(m.docs, id)
	if err := m.store(rt).Delete(m.t.Context(), id); err != nil {
		rt.Fatalf("delete: %v", err)
	}
}

func (m *documentModel) get(rt *rapid.T) {
	id := drawID(rt)
	want, ok := m.docs[id]
	got, err := m.store(rt).Get(m.t.Context(), id)
	if ok && (err != nil || !sameDocument(got, want)) || !ok && !errors.Is(err, stores.ErrDocumentNotFound) {
		rt.Fatalf("got %s, %v, want %s", brief(got), err, brief(want))
	}
}

func (m *documentModel) list(rt *rapid.T) {
	for _, of := range []string{tenant, otherTenant} {
		var want []stores.Document
		for _, d := range m.docs {
			if d.Tenant == of {
				want = append(want, d)
			}
		}
		slices.SortFunc(want, func(a, b stores.Document) int { return strings.Compare(b.ID, a.ID) })
		pages, err := walkDocuments(m.t, m.store(rt), of, rapid.IntRange(1, 4).Draw(rt, "limit"))
		if got := slices.Concat(pages...); err != nil || !slices.EqualFunc(got, want, sameDocument) {
			rt.Fatalf("%d documents are listed, %v, want %d", len(got), err, len(want))
		}
	}
}

func (m *documentModel) awake(rt *rapid.T) {
	at, limit := noon.Add(time.Duration(rapid.IntRange(0, 6000).Draw(rt, "at"))), rapid.IntRange(1, modelIDs).Draw(rt, "limit")
	var want []time.Time
	for _, d := range m.docs {
		if !d.Wake.IsZero() && !d.Wake.After(at) {
			want = append(want, d.Wake)
		}
	}
	slices.SortFunc(want, time.Time.Compare)
	want = want[:min(limit, len(want))]
	ids, err := m.store(rt).Awake(m.t.Context(), at, limit)
	if err != nil || len(ids) != len(want) || len(slices.Compact(slices.Sorted(slices.Values(ids)))) != len(ids) {
		rt.Fatalf("awake are %v, %v, want %d", ids, err, len(want))
	}
	for i, id := range ids { // those of one moment may come in any order
		if !m.docs[id].Wake.Equal(want[i]) {
			rt.Fatalf("place %d is %s, which wakes at %s, want %s", i, id, m.docs[id].Wake, want[i])
		}
	}
}

func (m *documentModel) countDue(rt *rapid.T) {
	before := noon.Add(time.Duration(rapid.IntRange(0, 6000).Draw(rt, "before")))
	want := int64(0)
	for _, d := range m.docs {
		if d.Open && !d.Due.IsZero() && d.Due.Before(before) {
			want++
		}
	}
	if got, err := m.store(rt).CountDue(m.t.Context(), before); err != nil || got != want {
		rt.Fatalf("%d are due, %v, want %d", got, err, want)
	}
}
