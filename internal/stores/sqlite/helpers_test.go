package sqlite_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"recount/internal/stores"
	"recount/internal/stores/sqlite"
	"recount/internal/stores/storetest"
	"recount/internal/subject"
)

const tenant = "acme"

func open(t testing.TB, path string, options ...sqlite.Option) *sqlite.DB {
	t.Helper()
	db, err := sqlite.Open(t.Context(), path, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return db
}

func table(t testing.TB, db *sqlite.DB, spec stores.Table) *sqlite.Table {
	t.Helper()
	store, err := db.Table(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func who(t testing.TB, identity string) subject.Subject {
	t.Helper()
	s, err := subject.New(tenant, identity)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func add(t testing.TB, store *sqlite.Table, rows ...stores.Row) {
	t.Helper()
	if _, err := store.Append(t.Context(), rows, 0); err != nil {
		t.Fatal(err)
	}
}

func count(t testing.TB, store *sqlite.Table, identity string) int64 {
	t.Helper()
	n, err := store.Count(t.Context(), who(t, identity))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// verdict is the receipt of an erasure of one subject.
func verdict(ctx context.Context, store *sqlite.Table, s subject.Subject) subject.Receipt {
	e := subject.Eraser{Cell: "test", Groups: []subject.Group{{Stores: []subject.Store{store}}}, Timeout: 1 << 36}
	return e.Erase(ctx, subject.Target{Tenant: s.Tenant(), Subject: s}).Receipts[0]
}

func wantErased(t testing.TB, r subject.Receipt) {
	t.Helper()
	if r.Status() != subject.Erased {
		t.Fatalf("%s (%s), want erased", r.Status(), r.Reason())
	}
}

var serial atomic.Int64

// rowsOf are n records that name the identity, and hold it in their payload and reference, too.
func rowsOf(spec stores.Table, identity string, n int) []stores.Row {
	rows := make([]stores.Row, n)
	for i := range rows {
		n := serial.Add(1)
		rows[i] = storetest.NewRow(spec, tenant, "crm", fmt.Sprintf("%s-ref-%d", identity, n), identity)
		rows[i][spec.Index("payload")] = fmt.Sprintf(`{"who":%q,"note":%q}`, identity, bytes.Repeat([]byte("x"), int(n%200)))
	}
	return rows
}

// mark ends the identities that are searched for in their thousands.
const mark = "@example.test"

// residue copies the folder with another process, because closing a file of an open database drops SQLite's locks on
// it, and counts the words that are found in any byte of it.
func residue(t testing.TB, folder string, words []string) int {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "copy")
	if out, err := exec.CommandContext(t.Context(), "cp", "-r", folder, copied).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	wanted, lengths, found := map[string]bool{}, map[int]bool{}, map[string]bool{}
	for _, word := range words {
		if !strings.HasSuffix(word, mark) {
			t.Fatalf("%q lacks the mark", word)
		}
		wanted[word], lengths[len(word)] = true, true
	}
	err := filepath.WalkDir(copied, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		for end := 0; ; {
			at := bytes.Index(content[end:], []byte(mark))
			if at < 0 {
				return err
			}
			end += at + len(mark)
			for n := range lengths {
				if n <= end && wanted[string(content[end-n:end])] {
					found[string(content[end-n:end])] = true
				}
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return len(found)
}
