package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"recount/internal/stores"
)

// Documents runs the suite of stores.Documents. open answers the same place each time it is called, as another process
// would open it; the place is new and empty for every test.
func Documents(t *testing.T, place func(t *testing.T) (open func() stores.Documents)) {
	for name, test := range map[string]func(*testing.T, func() stores.Documents){
		"a document is created once, as version 1":                 documentCreated,
		"a document comes back as it was given, in microseconds":   documentKept,
		"a body may have 900 KiB, and no more":                     documentLarge,
		"what is not of the form is refused":                       documentForm,
		"an update replaces the version that it names":             documentUpdated,
		"an update of a changed or a missing document is refused":  documentStale,
		"of all that update one version one succeeds":              documentRaced,
		"of all that create one id one succeeds":                   documentCreatedOnce,
		"a delete removes for good, and may be repeated":           documentDeleted,
		"a tenant's documents are listed, the greatest first":      documentsListed,
		"a list stays within its tenant, whoever's the cursor is":  documentsApart,
		"those that are to be looked at come, the earliest first":  documentsAwake,
		"open documents that are due are counted, and no others":   documentsDue,
		"another opening sees what was answered":                   documentsShared,
		"random calls do what they would do to a map":              documentsRandom,
		"a call whose context has ended changes and shows nothing": documentsEnded,
	} {
		t.Run(name, func(t *testing.T) { test(t, place(t)) })
	}
}

// noon is a moment of whole microseconds.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC)

func created(t testing.TB, s stores.Documents, d stores.Document) stores.Document {
	t.Helper()
	if err := s.Create(t.Context(), d); err != nil {
		t.Fatalf("create %s: %v", d.ID, err)
	}
	d.Version = 1
	return d
}

func wantDocument(t testing.TB, s stores.Documents, want stores.Document) {
	t.Helper()
	got, err := s.Get(t.Context(), want.ID)
	if err != nil {
		t.Fatalf("get %s: %v", want.ID, err)
	}
	if !sameDocument(got, want) {
		t.Fatalf("got %s, want %s", brief(got), brief(want))
	}
}

func sameDocument(a, b stores.Document) bool {
	body := bytes.Equal(a.Body, b.Body)
	a.Body, b.Body = nil, nil
	return body && fmt.Sprint(a) == fmt.Sprint(b) && a.Due.Equal(b.Due) && a.Wake.Equal(b.Wake)
}

func brief(d stores.Document) string {
	return fmt.Sprintf("{%s of %q, open %v, due %s, wake %s, version %d, %d bytes}", d.ID, d.Tenant, d.Open, d.Due, d.Wake, d.Version, len(d.Body))
}

func documentCreated(t *testing.T, open func() stores.Documents) {
	s := open()
	if _, err := s.Get(t.Context(), "d1"); !errors.Is(err, stores.ErrDocumentNotFound) {
		t.Fatalf("a document that nobody made: %v", err)
	}
	d := created(t, s, stores.Document{ID: "d1", Tenant: tenant, Body: []byte("first"), Version: 7})
	other := stores.Document{ID: "d1", Tenant: otherTenant, Body: []byte("second")}
	if err := s.Create(t.Context(), other); !errors.Is(err, stores.ErrDocumentExists) {
		t.Fatalf("a second of the same id: %v", err)
	}
	wantDocument(t, s, d)
}

func documentKept(t *testing.T, open func() stores.Documents) {
	s := open()
	berlin := time.FixedZone("berlin", 3600)
	for _, d := range []stores.Document{
		{ID: "empty"},
		{ID: "all-0", Tenant: "Ä/b\x01'\"", Open: true, Due: noon, Wake: noon.Add(time.Microsecond), Body: []byte("\x00\xff\n")},
		{ID: "old", Tenant: tenant, Due: time.Date(1969, 12, 31, 23, 59, 59, 999999000, time.UTC)},
		{ID: strings.Repeat("z", 64), Tenant: tenant, Wake: noon},
	} {
		wantDocument(t, s, created(t, s, d))
	}
	d := created(t, s, stores.Document{ID: "finer", Tenant: tenant, Due: noon.Add(999).In(berlin), Wake: noon.Add(1).In(berlin)})
	d.Due, d.Wake = noon, noon
	wantDocument(t, s, d)
	d.Wake = noon.Add(time.Hour + 7).In(berlin)
	changed, err := s.Update(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	d.Wake, d.Version = noon.Add(time.Hour), 2
	if !sameDocument(changed, d) {
		t.Errorf("an update answers %s, want %s", brief(changed), brief(d))
	}
	wantDocument(t, s, d)
}

func documentLarge(t *testing.T, open func() stores.Documents) {
	s := open()
	body := bytes.Repeat([]byte("0123456789abcdef"), 900<<10/16)
	d := created(t, s, stores.Document{ID: "large", Tenant: tenant, Open: true, Due: noon, Wake: noon, Body: body})
	wantDocument(t, s, d)
	d.Body = append([]byte("z"), body[1:]...)
	if _, err := s.Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	d.Version = 2
	wantDocument(t, s, d)
	for i := range 6 {
		created(t, s, stores.Document{ID: fmt.Sprintf("large-%d", i), Tenant: tenant, Body: body})
	}
	if ids := listed(t, s, tenant, 50); len(ids) != 7 {
		t.Errorf("%d large documents of 7 are listed", len(ids))
	}
	for name, change := range map[string]func(stores.Document) error{
		"create": func(d stores.Document) error { d.ID = "larger"; return s.Create(t.Context(), d) },
		"update": func(d stores.Document) error { _, err := s.Update(t.Context(), d); return err },
	} {
		d := d
		d.Body = append(d.Body[:len(d.Body):len(d.Body)], 'x')
		if err := change(d); !errors.Is(err, stores.ErrDocumentForm) {
			t.Errorf("%s with a byte more: %v", name, err)
		}
	}
	wantDocument(t, s, d)
}

func documentForm(t *testing.T, open func() stores.Documents) {
	s := open()
	for _, id := range []string{"", "A", "a_b", "a/b", "..", "a b", "é", "a\x00", "~", strings.Repeat("a", 65)} {
		d := stores.Document{ID: id, Tenant: tenant, Version: 1}
		if err := s.Create(t.Context(), d); !errors.Is(err, stores.ErrDocumentForm) {
			t.Errorf("create %q: %v", id, err)
		}
		if _, err := s.Get(t.Context(), id); !errors.Is(err, stores.ErrDocumentNotFound) {
			t.Errorf("get %q: %v", id, err)
		}
		if _, err := s.Update(t.Context(), d); !errors.Is(err, stores.ErrDocumentNotFound) {
			t.Errorf("update %q: %v", id, err)
		}
		if err := s.Delete(t.Context(), id); err != nil {
			t.Errorf("delete %q: %v", id, err)
		}
	}
	broken := "no-utf8-\xff"
	if err := s.Create(t.Context(), stores.Document{ID: "d", Tenant: broken}); !errors.Is(err, stores.ErrDocumentForm) || strings.Contains(err.Error(), broken) {
		t.Errorf("a tenant that is no text: %v", err)
	}
	for _, cursor := range []string{"~", "A", "../x", "é"} {
		if page, _, err := s.List(t.Context(), tenant, cursor, 5); err == nil {
			t.Errorf("a cursor that no list made lists %d documents", len(page))
		}
	}
}

func documentUpdated(t *testing.T, open func() stores.Documents) {
	s := open()
	d := created(t, s, stores.Document{ID: "d", Tenant: tenant, Open: true, Due: noon, Wake: noon, Body: []byte("1")})
	for _, next := range []stores.Document{
		{Tenant: tenant, Body: []byte("2"), Wake: noon.Add(time.Second)},
		{Tenant: otherTenant, Open: true, Due: noon.Add(time.Hour)},
		{Tenant: tenant},
	} {
		next.ID, next.Version = d.ID, d.Version
		changed, err := s.Update(t.Context(), next)
		if next.Version++; err != nil || !sameDocument(changed, next) {
			t.Fatalf("an update answers %s, %v, want %s", brief(changed), err, brief(next))
		}
		wantDocument(t, s, changed)
		d = changed
	}
	if ids := listed(t, s, otherTenant, 5); len(ids) != 0 {
		t.Errorf("a document that changed its tenant is listed by the old one: %v", ids)
	}
	if ids, err := s.Awake(t.Context(), noon.Add(time.Hour), 5); err != nil || len(ids) != 0 {
		t.Errorf("a document whose wake was taken back is answered: %v, %v", ids, err)
	}
}

func documentStale(t *testing.T, open func() stores.Documents) {
	s := open()
	d := created(t, s, stores.Document{ID: "d", Tenant: tenant, Body: []byte("1")})
	d, err := s.Update(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range []int64{-1, 0, 1, 3} {
		stale := d
		stale.Version, stale.Body = version, []byte("stale")
		if _, err := s.Update(t.Context(), stale); !errors.Is(err, stores.ErrDocumentStale) {
			t.Errorf("version %d of 2: %v", version, err)
		}
	}
	wantDocument(t, s, d)
	if _, err := s.Update(t.Context(), stores.Document{ID: "other", Tenant: tenant, Version: 1}); !errors.Is(err, stores.ErrDocumentNotFound) {
		t.Errorf("a document that nobody made: %v", err)
	}
	if err := s.Delete(t.Context(), "d"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Update(t.Context(), d); !errors.Is(err, stores.ErrDocumentNotFound) {
		t.Errorf("a deleted document: %v", err)
	}
}

// documentRaced has a hundred goroutines over two openings update each of some versions.
func documentRaced(t *testing.T, open func() stores.Documents) {
	openings := []stores.Documents{open(), open()}
	d := created(t, openings[0], stores.Document{ID: "d", Tenant: tenant})
	for range 3 {
		won := race(t, func(i int) error {
			mine := d
			mine.Body = fmt.Append(nil, i)
			_, err := openings[i%2].Update(t.Context(), mine)
			return err
		}, stores.ErrDocumentStale)
		d.Version, d.Body = d.Version+1, fmt.Append(nil, won)
		wantDocument(t, openings[1], d)
	}
}

func documentCreatedOnce(t *testing.T, open func() stores.Documents) {
	openings := []stores.Documents{open(), open()}
	won := race(t, func(i int) error {
		return openings[i%2].Create(t.Context(), stores.Document{ID: "d", Tenant: tenant, Body: fmt.Append(nil, i)})
	}, stores.ErrDocumentExists)
	wantDocument(t, openings[0], stores.Document{ID: "d", Tenant: tenant, Version: 1, Body: fmt.Append(nil, won)})
}

// race answers the one of a hundred whose call succeeded, where all others lose with that error.
func race(t *testing.T, call func(i int) error, lost error) (won int) {
	t.Helper()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var winners []int
	start := make(chan struct{})
	for i := range 100 {
		wg.Go(func() {
			<-start
			switch err := call(i); {
			case err == nil:
				mu.Lock()
				winners = append(winners, i)
				mu.Unlock()
			case !errors.Is(err, lost):
				t.Errorf("the loser %d: %v", i, err)
			}
		})
	}
	close(start)
	wg.Wait()
	if len(winners) != 1 {
		t.Fatalf("%d of 100 won", len(winners))
	}
	return winners[0]
}

func documentDeleted(t *testing.T, open func() stores.Documents) {
	s := open()
	d := stores.Document{ID: "d", Tenant: tenant, Open: true, Due: noon, Wake: noon, Body: []byte("x")}
	stays := created(t, s, stores.Document{ID: "stays", Tenant: tenant})
	for range 2 {
		created(t, s, d) // version 1 again
		for range 2 {
			if err := s.Delete(t.Context(), d.ID); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Get(t.Context(), d.ID); !errors.Is(err, stores.ErrDocumentNotFound) {
			t.Fatalf("a deleted document: %v", err)
		}
	}
	ids, err := s.Awake(t.Context(), noon, 5)
	n, countErr := s.CountDue(t.Context(), noon.Add(1))
	if all := listed(t, s, tenant, 5); err != nil || countErr != nil || len(ids) != 0 || n != 0 || !slices.Equal(all, []string{"stays"}) {
		t.Errorf("a deleted document is answered: %v, %d, %v", ids, n, all)
	}
	wantDocument(t, s, stays)
}

func documentsShared(t *testing.T, open func() stores.Documents) {
	first, second := open(), open()
	d := created(t, first, stores.Document{ID: "d", Tenant: tenant, Open: true, Due: noon, Wake: noon, Body: []byte("1")})
	wantDocument(t, second, d)
	d, err := second.Update(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	wantDocument(t, first, d)
	if err := first.Delete(t.Context(), d.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := second.Get(t.Context(), d.ID); !errors.Is(err, stores.ErrDocumentNotFound) {
		t.Errorf("what the other opening deleted: %v", err)
	}
}

func documentsEnded(t *testing.T, open func() stores.Documents) {
	s := open()
	d := created(t, s, stores.Document{ID: "d", Tenant: tenant, Open: true, Due: noon, Wake: noon})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, getErr := s.Get(ctx, "d")
	_, updateErr := s.Update(ctx, d)
	_, _, listErr := s.List(ctx, tenant, "", 5)
	_, awakeErr := s.Awake(ctx, noon, 5)
	_, countErr := s.CountDue(ctx, noon.Add(1))
	for i, err := range []error{s.Create(ctx, stores.Document{ID: "e"}), getErr, updateErr, s.Delete(ctx, "d"), listErr, awakeErr, countErr} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("call %d answers %v", i, err)
		}
	}
	wantDocument(t, s, d)
}
