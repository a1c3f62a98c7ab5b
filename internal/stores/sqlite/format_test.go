package sqlite

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

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
	for _, s := range []string{
		"PRAGMA page_size=512", "PRAGMA auto_vacuum=1", "CREATE TABLE t (a TEXT)", "CREATE INDEX i ON t(a)",
		"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<9000) INSERT INTO t SELECT 'person-'||i FROM n",
	} {
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
	file, err := os.ReadFile(path)
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
	log, err := os.ReadFile(path + logSuffix)
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
		if err := readLog(bufio.NewReader(bytes.NewReader(log)), func(pgno uint32, page []byte) {
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
	err := readLog(bufio.NewReader(&brokenReader{bytes.NewReader(log[:1000]), failing}), func(uint32, []byte) {})
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
		_ = readLog(bufio.NewReader(bytes.NewReader(log)), func(pgno uint32, page []byte) {
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
