package sqlite_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"recount/internal/stores"
	"recount/internal/stores/sqlite"
	"recount/internal/stores/storetest"
	"recount/internal/subject"
)

// Thousands of people are erased in random order, some alone, some in crowds, while others arrive. No byte of any file
// may hold who was erased, neither while the process runs nor after it closed.
func TestNothingOfAnErasedSubjectIsLeftInAnyFile(t *testing.T) {
	folder := t.TempDir()
	db := open(t, filepath.Join(folder, "cell.db"))
	events, edges := table(t, db, storetest.EventsTable()), table(t, db, storetest.EdgesTable())
	const people = 3000
	names := make([]string, people)
	var ofEvents, ofEdges []stores.Row
	for i := range names {
		names[i] = fmt.Sprintf("person-%08x-%d@example.test", rand.Uint32(), i)
		ofEvents = append(ofEvents, rowsOf(storetest.EventsTable(), names[i], 1+i%4)...)
		ofEdges = append(ofEdges, rowsOf(storetest.EdgesTable(), names[i], i%3)...)
		if i%20 == 19 {
			add(t, events, ofEvents...)
			add(t, edges, ofEdges...)
			ofEvents, ofEdges = nil, nil
		}
	}
	rand.Shuffle(people, func(i, j int) { names[i], names[j] = names[j], names[i] })
	gone, stay := names[:people*9/10], names[people*9/10:]
	if found := residue(t, folder, gone[:50]); found == 0 {
		t.Fatal("the search finds nobody at all")
	}
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() { eraseInTurn(t, gone, w, events, edges) })
	}
	wg.Wait()
	if found := residue(t, folder, gone); found > 0 {
		t.Errorf("%d of %d erased identities are in the files of the running process", found, len(gone))
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if found := residue(t, folder, gone); found > 0 {
		t.Errorf("%d of %d erased identities are in the files after Close", found, len(gone))
	}
	if found := residue(t, folder, stay); found < len(stay) {
		t.Errorf("only %d of %d others are still there", found, len(stay))
	}
}

// eraseInTurn erases every eighth identity, now and then many at once.
func eraseInTurn(t *testing.T, names []string, w int, tables ...*sqlite.Table) {
	t.Helper()
	for i := w; i < len(names); i += 8 {
		crowd := []subject.Subject{who(t, names[i])}
		for ; i%5 == 0 && i+8 < len(names) && len(crowd) < 20; i += 8 {
			crowd = append(crowd, who(t, names[i+8]))
		}
		for _, store := range tables {
			for _, m := range store.Erase(t.Context(), crowd) {
				if m.CountErr != nil || m.DeleteErr != nil || m.RecountErr != nil || m.PurgeErr != nil || !m.Remaining.IsZero() {
					t.Errorf("measured %+v", m)
				}
			}
		}
	}
}

// SQLite keeps the log of a linked file beside the file, not beside the link.
func TestALinkedFileIsPurgedToo(t *testing.T) {
	folder := t.TempDir()
	if err := open(t, filepath.Join(folder, "real.db")).Close(); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link.db")
	if err := os.Symlink(filepath.Join(folder, "real.db"), link); err != nil {
		t.Fatal(err)
	}
	events := table(t, open(t, link), storetest.EventsTable())
	add(t, events, rowsOf(storetest.EventsTable(), "alice@example.test", 3)...)
	wantErased(t, verdict(t.Context(), events, who(t, "alice@example.test")))
	if found := residue(t, folder, []string{"alice@example.test"}); found > 0 {
		t.Error("the identity is in the files behind the link")
	}
}
