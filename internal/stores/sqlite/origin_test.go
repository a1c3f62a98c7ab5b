package sqlite_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"recount/internal/stores"
	"recount/internal/stores/sqlite"
	"recount/internal/stores/storetest"
	"recount/internal/subject"
)

func wantNotFound(t *testing.T, what string, err error) {
	t.Helper()
	var fault *subject.Fault
	if !errors.As(err, &fault) || fault.Reason != subject.ReasonNotFound {
		t.Errorf("%s: %v, want store_not_found", what, err)
	}
}

// moved is how a file leaves its path while it is open, and what lies there then.
var moved = map[string]func(t *testing.T, path, other string){
	"replaced": func(t *testing.T, path, other string) { must(t, os.Rename(other, path)) },
	"deleted":  func(t *testing.T, path, _ string) { must(t, os.Remove(path)) },
	"replaced with its log": func(t *testing.T, path, other string) {
		must(t, errors.Join(os.Remove(path+"-wal"), os.Remove(path+"-shm"), os.Rename(other, path)))
	},
	"put back later": func(t *testing.T, path, other string) {
		must(t, errors.Join(os.Rename(path, path+".old"), os.Rename(other, path)))
	},
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantLost checks that nothing more is answered by a store whose file is gone from its path.
func wantLost(t *testing.T, store *sqlite.Table, alice subject.Subject) {
	t.Helper()
	ctx := t.Context()
	if r := verdict(ctx, store, alice); r.Status() != subject.Failed || r.Reason() != subject.ReasonNotFound {
		t.Errorf("%s (%s), want failed (store_not_found)", r.Status(), r.Reason())
	}
	wantNotFound(t, "Ready", store.Ready(ctx))
	_, err := store.Count(ctx, alice)
	wantNotFound(t, "Count", err)
	_, err = store.Counts(ctx, []subject.Subject{alice, who(t, "bob")})
	wantNotFound(t, "Counts", err)
	_, err = store.Read(ctx, alice, "", 10)
	wantNotFound(t, "Read", err)
	_, err = store.Delete(ctx, alice)
	wantNotFound(t, "Delete", err)
}

func TestAReplacedFileFailsEverything(t *testing.T) {
	for name, move := range moved {
		t.Run(name, func(t *testing.T) {
			spec := storetest.EventsTable()
			path, other := filepath.Join(t.TempDir(), "cell.db"), filepath.Join(t.TempDir(), "new.db")
			fresh := open(t, other)
			add(t, table(t, fresh, spec), rowsOf(spec, "alice", 5)...)
			must(t, fresh.Close())
			db, err := sqlite.Open(t.Context(), path)
			must(t, err)
			defer db.Close() //nolint:errcheck // its file is gone
			store := table(t, db, spec)
			add(t, store, rowsOf(spec, "alice", 2)...)
			move(t, path, other)
			wantLost(t, store, who(t, "alice"))
			_, err = store.Append(t.Context(), rowsOf(spec, "alice", 1), 0)
			wantNotFound(t, "Append", err)
			if name == "put back later" {
				must(t, errors.Join(os.Rename(path, other), os.Rename(path+".old", path)))
				wantLost(t, store, who(t, "alice"))
				must(t, os.Rename(other, path))
			}
			wantNotFound(t, "Close", db.Close())
			if name == "deleted" {
				return
			}
			if n := count(t, table(t, open(t, path), spec), "alice"); n != 5 {
				t.Errorf("%d rows are in the new file, want all 5", n)
			}
		})
	}
}

func TestAReplacedFileOfAnOwnerFailsEverything(t *testing.T) {
	schema := []string{"CREATE TABLE people (tenant TEXT, person TEXT)", "INSERT INTO people VALUES ('acme', 'alice')", "PRAGMA wal_checkpoint(TRUNCATE)"}
	for name, move := range moved {
		t.Run(name, func(t *testing.T) {
			path, other := ownersFile(t, schema...), ownersFile(t, schema...)
			content, err := os.ReadFile(other)
			must(t, err)
			db, err := sqlite.Open(t.Context(), path, sqlite.Owners())
			must(t, err)
			defer db.Close() //nolint:errcheck // its file is gone
			store := table(t, db, people())
			move(t, path, other)
			wantLost(t, store, who(t, "alice"))
			if name == "deleted" {
				return
			}
			if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, content) {
				t.Errorf("the new file was touched (%v)", err)
			}
		})
	}
}

func TestALinkThatIsPointedElsewhereFailsEverything(t *testing.T) {
	schema := []string{"CREATE TABLE people (tenant TEXT, person TEXT)", "INSERT INTO people VALUES ('acme', 'alice')"}
	first, second, link := ownersFile(t, schema...), ownersFile(t, schema...), filepath.Join(t.TempDir(), "current.db")
	must(t, os.Symlink(first, link))
	db, err := sqlite.Open(t.Context(), link, sqlite.Owners())
	must(t, err)
	defer db.Close() //nolint:errcheck // its file is gone
	store := table(t, db, people())
	must(t, errors.Join(os.Remove(link), os.Symlink(second, link)))
	wantLost(t, store, who(t, "alice"))
}

// A text with a NUL is another than its start.
func TestFoldingReadsTheWholeText(t *testing.T) {
	path := ownersFile(t, "CREATE TABLE people (tenant TEXT, person TEXT)",
		"INSERT INTO people VALUES ('acme', 'ALICE'), ('acme', 'ALICE'||char(0)||'smith'), ('acme', 'alice'||char(0))")
	spec := people()
	spec.Match = stores.MatchCasefold
	db := open(t, path, sqlite.Owners())
	wide := table(t, db, spec)
	if n := count(t, wide, "alice"); n != 1 {
		t.Errorf("count = %d, want 1", n)
	}
	r := verdict(t.Context(), wide, who(t, "alice"))
	wantErased(t, r)
	if n, _ := r.Counts().Deleted.Value(); n != 1 {
		t.Errorf("deleted %d, want 1", n)
	}
}

func TestAReplacedLogFailsTheErasure(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cell.db")
	db, err := sqlite.Open(t.Context(), path)
	must(t, err)
	defer db.Close() //nolint:errcheck // its log is gone
	events := table(t, db, storetest.EventsTable())
	add(t, events, rowsOf(storetest.EventsTable(), "alice", 2)...)
	must(t, errors.Join(os.Rename(path+"-wal", path+"-gone"), os.WriteFile(path+"-wal", nil, 0o600)))
	if r := verdict(t.Context(), events, who(t, "alice")); r.Status() != subject.Failed || r.Reason() != subject.ReasonResidue {
		t.Errorf("%s (%s), want failed (residue)", r.Status(), r.Reason())
	}
}
