package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"

	"recount/internal/stores"
	"recount/internal/stores/storetest"
	"recount/internal/subject"
)

func openInside(t *testing.T, spec stores.Table) (*DB, *Table) {
	t.Helper()
	db, err := Open(t.Context(), filepath.Join(t.TempDir(), "cell.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	table, err := db.Table(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return db, table
}

// tell has the writer run a statement.
func tell(t *testing.T, db *DB, statement string) {
	t.Helper()
	if err := db.submit(t.Context(), &request{setup: []string{statement}}); err != nil {
		t.Fatal(err)
	}
}

func eraser(table *Table) *subject.Eraser {
	return &subject.Eraser{Cell: "test", Groups: []subject.Group{{Stores: []subject.Store{table}}}, Timeout: 1 << 36}
}

func person(t *testing.T, identity string) subject.Subject {
	t.Helper()
	s, err := subject.New("acme", identity)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAFullDiskFailsWithItsReason(t *testing.T) {
	spec := storetest.EventsTable()
	db, events := openInside(t, spec)
	tell(t, db, "PRAGMA max_page_count=1") // the least is what there is
	var fault *subject.Fault
	for i := range 1000 {
		row := storetest.NewRow(spec, "acme", "crm", fmt.Sprint(i), "alice")
		row[spec.Index("payload")] = `{"much":"` + strings.Repeat("x", 3000) + `"}`
		if _, err := events.Append(t.Context(), []stores.Row{row}); err != nil {
			errors.As(err, &fault)
			break
		}
	}
	if fault == nil || fault.Reason != subject.ReasonStoreFull {
		t.Fatalf("%v, want store_full", fault)
	}
	if n, err := events.Count(t.Context(), person(t, "alice")); err != nil || n > 500 {
		t.Errorf("%d, %v", n, err)
	}
	if r := eraser(events).Erase(t.Context(), person(t, "alice"))[0]; r.Status() != subject.Erased { // a delete needs no room
		t.Errorf("%s (%s)", r.Status(), r.Reason())
	}
}

func TestAReadOnlyDatabaseFailsWithItsReasonAndItsRows(t *testing.T) {
	spec := storetest.EventsTable()
	db, events := openInside(t, spec)
	if _, err := events.Append(t.Context(), []stores.Row{storetest.NewRow(spec, "acme", "crm", "1", "alice")}); err != nil {
		t.Fatal(err)
	}
	tell(t, db, "PRAGMA query_only=1")
	r := eraser(events).Erase(t.Context(), person(t, "alice"))[0]
	if n, measured := r.Counts().Remaining.Value(); r.Reason() != subject.ReasonStoreReadOnly || !measured || n != 1 {
		t.Errorf("%s (%s), remaining %s, want store_read_only and 1", r.Status(), r.Reason(), r.Counts().Remaining)
	}
	if n, _ := r.Counts().Deleted.Value(); n != 0 {
		t.Errorf("deleted %d", n)
	}
}

func TestErrorsOfSQLiteAreNamedAndNeverQuoted(t *testing.T) {
	db, _ := openInside(t, storetest.EventsTable())
	for statement, want := range map[string]subject.Reason{
		"SELECT * FROM alice": subject.ReasonNotFound,
		"SELECT " + strings.TrimSuffix(strings.Repeat("?,", 40000), ","): subject.ReasonTooManyVariables,
		"INSERT INTO events (row_id) VALUES ('alice')":                   subject.ReasonNone,
		"SELECT json('alice')":                                           subject.ReasonNone,
		"CREATE TABLE events (alice TEXT)":                               subject.ReasonNone,
		"ATTACH '/nowhere/alice.db' AS alice":                            subject.ReasonNotFound,
		"SELECT 1 FROM events WHERE alice = 1":                           subject.ReasonNotFound,
	} {
		err := db.submit(t.Context(), &request{setup: []string{statement}})
		var fault *subject.Fault
		switch {
		case err == nil:
			t.Errorf("%.30s: no error", statement)
		case strings.Contains(err.Error(), "alice"):
			t.Errorf("%.30s: quoted in %q", statement, err)
		case errors.As(err, &fault) != (want != subject.ReasonNone), fault != nil && fault.Reason != want:
			t.Errorf("%.30s: %v, want %q", statement, err, want)
		}
	}
}

// No statement may walk a tenant, let alone the table.
func TestEveryStatementFindsItsRowsByAnIndex(t *testing.T) {
	for _, spec := range []stores.Table{storetest.EventsTable(), storetest.EdgesTable()} {
		db, table := openInside(t, spec)
		for _, query := range []string{
			table.sql.countOne, table.sql.tallyOne, table.sql.deleteOne, table.sql.tallySet, table.sql.deleteSet, table.sql.first, table.sql.next,
		} {
			rows, err := db.reads.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+query, "acme", `["a"]`, 10, 1)
			if err != nil {
				t.Fatal(err)
			}
			for rows.Next() {
				var id, parent, unused int
				var detail string
				if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
					t.Fatal(err)
				}
				byIdentity := strings.Contains(detail, "_by_") && strings.Contains(detail, "tenant_id=? AND ") || strings.Contains(detail, "INTEGER PRIMARY KEY (rowid")
				if strings.Contains(detail, spec.Name) && !byIdentity {
					t.Errorf("%s\n%s", query, detail)
				}
			}
			if err := errors.Join(rows.Err(), rows.Close()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Erasures that wait together are one transaction, the same statements, and one purge.
func TestWaitingErasuresShareATransaction(t *testing.T) {
	spec := storetest.EventsTable()
	db, events := openInside(t, spec)
	db2 := &DB{path: db.path, queue: make(chan *request, queueSize)}
	for i := range 20 {
		identity := fmt.Sprintf("p%d", i)
		if _, err := events.Append(t.Context(), []stores.Row{storetest.NewRow(spec, "acme", "crm", fmt.Sprint(i), identity)}); err != nil {
			t.Fatal(err)
		}
		db2.queue <- &request{table: events, subjects: []subject.Subject{person(t, identity)}}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	w, err := openWriter(t.Context(), db2)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close() //nolint:errcheck // a test's own file
	batch := w.gather(<-db2.queue)
	if len(batch) != 20 {
		t.Fatalf("%d of 20 waiting requests were gathered", len(batch))
	}
	w.commit(batch)
	for i, r := range batch {
		if m := r.measured[0]; r.err != nil || m.PurgeErr != nil || m.Before != subject.Measured(1) || !m.Remaining.IsZero() {
			t.Errorf("%d: %v, %+v", i, r.err, m)
		}
	}
	if w.statements[events.sql.tallySet] == nil || w.statements[events.sql.tallyOne] != nil {
		t.Error("the erasures did not share their statements")
	}
	if size, err := w.logSize(); err != nil || size != 0 {
		t.Errorf("the log has %d bytes, %v", size, err)
	}
}

func TestAGapIsFoundInSoundBTreePagesOnly(t *testing.T) {
	l := layout{pageSize: 512, usable: 512}
	leaf := make([]byte, 512)
	leaf[0] = 0x0d
	binary.BigEndian.PutUint16(leaf[3:], 2)
	binary.BigEndian.PutUint16(leaf[5:], 400)
	binary.BigEndian.PutUint16(leaf[8:], 400)
	binary.BigEndian.PutUint16(leaf[10:], 450)
	if from, to, ok := l.gap(3, leaf); !ok || from != 12 || to != 400 {
		t.Errorf("%d, %d, %v", from, to, ok)
	}
	for name, c := range map[string]struct {
		pgno   uint32
		l      layout
		change func([]byte)
	}{
		"overflow page":         {3, l, func(p []byte) { p[0] = 0 }},
		"pointer past the end":  {3, l, func(p []byte) { binary.BigEndian.PutUint16(p[8:], 512) }},
		"pointer into the gap":  {3, l, func(p []byte) { binary.BigEndian.PutUint16(p[8:], 300) }},
		"cells past the end":    {3, l, func(p []byte) { binary.BigEndian.PutUint16(p[5:], 513) }},
		"pointers over cells":   {3, l, func(p []byte) { binary.BigEndian.PutUint16(p[3:], 240) }},
		"pointer map":           {2, layout{pageSize: 512, usable: 512, pointerMaps: true}, func([]byte) {}},
		"another page's number": {1, l, func([]byte) {}},
		"too large a file":      {maxPages, l, func([]byte) {}},
		"too large a page":      {3, layout{pageSize: 1024, usable: 1024}, func([]byte) {}},
	} {
		page := bytes.Clone(leaf)
		c.change(page)
		if _, _, ok := c.l.gap(c.pgno, page); ok {
			t.Errorf("%s: has a gap", name)
		}
	}
}

func TestStalePointersAreNoResidueAndTextIs(t *testing.T) {
	l := layout{pageSize: 4096, usable: 4096}
	for gap, want := range map[string]bool{
		"": false, "\x00\x00\x00\x00": false, "\x0f\xf0\x0e\x10\x00\x00": false, "\x0f\xf0\x00\x00\x0e\x10": true,
		"al": true, "\x0f\xf0alice": true, "\x00\x00\x00\x00\x00\x00\x00\x00\x00a": true, "\x0fa\x0eb\x00\x00c": true,
	} {
		if got := l.holdsResidue([]byte(gap)); got != want {
			t.Errorf("%q: %v, want %v", gap, got, want)
		}
	}
	// In a large page, an offset could be text.
	if !(layout{pageSize: 65536, usable: 65536}).holdsResidue([]byte("alice.")) {
		t.Error("text was taken for pointers")
	}
}

// Where pointer maps lie is checked against SQLite: it says which pages are b-trees.
func TestPointerMapsAreFoundWhereSQLitePutsThem(t *testing.T) {
	path := filepath.Join(t.TempDir(), "auto.db")
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	for _, s := range []string{"PRAGMA page_size=512", "PRAGMA auto_vacuum=1", "CREATE TABLE t (a TEXT)", "CREATE INDEX i ON t(a)",
		"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<9000) INSERT INTO t SELECT 'person-'||i FROM n"} {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	trees := map[uint32]bool{}
	rows, err := db.QueryContext(t.Context(), "SELECT pageno FROM dbstat WHERE pagetype IN ('leaf', 'internal')")
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var pgno uint32
		if err := rows.Scan(&pgno); err != nil {
			t.Fatal(err)
		}
		trees[pgno] = true
	}
	if err := errors.Join(rows.Err(), rows.Close(), db.Close()); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(path) //nolint:gosec // a test's own file
	if err != nil {
		t.Fatal(err)
	}
	l, ok := layoutOf(file[:512])
	if !ok || !l.pointerMaps {
		t.Fatalf("%+v, %v", l, ok)
	}
	for pgno := uint32(1); int(pgno)*512 <= len(file); pgno++ {
		if _, _, ok := l.gap(pgno, file[(pgno-1)*512:pgno*512]); ok != trees[pgno] {
			t.Errorf("page %d: gap %v, b-tree %v", pgno, ok, trees[pgno])
		}
	}
}

// logOf is the log of a file that holds a few rows, with its connection still open.
func logOf(t testing.TB) []byte {
	path := filepath.Join(t.TempDir(), "a.db")
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=wal_autocheckpoint(0)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(1)
	for _, s := range []string{"PRAGMA page_size=512", "PRAGMA journal_mode=WAL", "CREATE TABLE t (a TEXT)", "INSERT INTO t VALUES ('alice')", "DELETE FROM t"} {
		if _, err := db.ExecContext(context.Background(), s); err != nil {
			t.Fatal(err)
		}
	}
	log, err := os.ReadFile(path + logSuffix) //nolint:gosec // a test's own file
	if err != nil {
		t.Fatal(err)
	}
	return log
}

func TestALogIsReadUpToItsLastFrame(t *testing.T) {
	log := logOf(t)
	frames := 0
	read := func(log []byte) int {
		frames = 0
		if err := readLog(bytes.NewReader(log), func(pgno uint32, page []byte) {
			if pgno == 0 || len(page) != 512 {
				t.Errorf("page %d of %d bytes", pgno, len(page))
			}
			frames++
		}); err != nil {
			t.Fatal(err)
		}
		return frames
	}
	all := (len(log) - walHeaderSize) / (frameHeaderSize + 512)
	if got := read(log); got != all || all < 4 {
		t.Errorf("%d frames of %d", got, all)
	}
	if got := read(log[:len(log)-1]); got != all-1 { // torn
		t.Errorf("%d frames of a torn log of %d", got, all)
	}
	stale := bytes.Clone(log)
	stale[walHeaderSize+2*(frameHeaderSize+512)+8]++ // the third frame is of an earlier log
	if got := read(stale); got != 2 {
		t.Errorf("%d frames before a stale one, want 2", got)
	}
	if read(nil) != 0 || read([]byte("no log at all, but longer than a header is")) != 0 {
		t.Error("frames of no log")
	}
	failing := errors.New("broken disk")
	err := readLog(&brokenReader{bytes.NewReader(log[:1000]), failing}, func(uint32, []byte) {})
	if !errors.Is(err, failing) {
		t.Errorf("%v, want the reader's error", err)
	}
}

type brokenReader struct {
	r   *bytes.Reader
	err error
}

func (b *brokenReader) Read(p []byte) (int, error) {
	if b.r.Len() == 0 {
		return 0, b.err
	}
	return b.r.Read(p) //nolint:wrapcheck // io.Reader's contract
}

// FuzzLog feeds the parsers anything: they never panic, and a gap they find never touches a cell or its pointer.
func FuzzLog(f *testing.F) {
	f.Add(logOf(f), uint32(2))
	f.Add([]byte{}, uint32(0))
	f.Fuzz(func(t *testing.T, log []byte, shift uint32) {
		_ = readLog(bytes.NewReader(log), func(pgno uint32, page []byte) {
			l, ok := layoutOf(page)
			if !ok {
				l = layout{pageSize: len(page), usable: len(page)}
			}
			from, to, ok := l.gap(pgno+shift, page)
			if !ok {
				return
			}
			if from < 8 || from > to || to > l.usable {
				t.Fatalf("gap %d to %d of %d bytes", from, to, l.usable)
			}
			before := bytes.Clone(page)
			clear(page[from:to])
			if f2, t2, ok := l.gap(pgno+shift, page); !ok || f2 != from || t2 != to || !bytes.Equal(before[:from], page[:from]) {
				t.Fatal("clearing the gap changed what the page says of itself")
			}
			if l.holdsResidue(page[from:to]) {
				t.Fatal("a cleared gap holds residue")
			}
		})
	})
}

func TestFoldingMakesCasesEqual(t *testing.T) {
	for _, same := range [][]string{{"Ꭰ", "ꭰ"}, {"STRASSE", "straße"}, {"ǆ", "ǅ", "Ǆ"}, {"Ω", "ω", "\u2126"}} {
		for _, text := range same {
			if fold(text) != fold(same[0]) {
				t.Errorf("%q and %q differ", text, same[0])
			}
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.String().Draw(rt, "text")
		once := fold(text)
		if fold(once) != once {
			rt.Fatalf("%q, then %q", once, fold(once))
		}
		for _, r := range text { // simple case pairs, as SQLite's lower() would have them beyond ASCII
			for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
				if fold(string(r)) != fold(string(other)) {
					rt.Fatalf("%q and %q differ", r, other)
				}
			}
		}
	})
	if bad := "A\xffB"; fold(bad) != bad {
		t.Error("what is not UTF-8 was folded")
	}
}

func TestACursorIsOfItsStoreAndSubjectAlone(t *testing.T) {
	spec := storetest.EventsTable()
	_, events := openInside(t, spec)
	alice, bob := person(t, "alice"), person(t, "bob")
	rapid.Check(t, func(rt *rapid.T) {
		rowid := rapid.Int64().Draw(rt, "rowid")
		cursor := events.makeCursor(alice, rowid)
		if got, err := events.openCursor(alice, cursor); err != nil || got != rowid {
			rt.Fatalf("%d, %v, want %d", got, err, rowid)
		}
		if _, err := events.openCursor(bob, cursor); !errors.Is(err, ErrCursor) {
			rt.Fatal("another subject's cursor was taken")
		}
		bent := []byte(cursor)
		at := rapid.IntRange(0, len(bent)-1).Draw(rt, "at")
		bent[at] ^= 1
		if _, err := events.openCursor(alice, string(bent)); err == nil {
			rt.Fatal("a bent cursor was taken")
		}
	})
}
