package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"recount/internal/stores"
	"recount/internal/stores/sqlite"
	"recount/internal/stores/storetest"
	"recount/internal/subject"
)

// foreign is another program's connection to the file.
func foreign(t *testing.T, path string) *sql.Conn {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(conn.Close(), db.Close()) })
	return conn
}

func do(t *testing.T, conn *sql.Conn, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := conn.ExecContext(context.Background(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// holdReader keeps a read transaction open in another connection.
func holdReader(t *testing.T, conn *sql.Conn) (release func()) {
	t.Helper()
	do(t, conn, "BEGIN")
	var n int
	if err := conn.QueryRowContext(t.Context(), "SELECT count(*) FROM events").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return func() { do(t, conn, "ROLLBACK") }
}

func TestAReaderThatKeepsTheLogFailsTheErasureUntilItIsGone(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "cell.db")
	db := open(t, path)
	events := table(t, db, storetest.EventsTable())
	alice := who(t, "alice@example.test")
	add(t, events, rowsOf(storetest.EventsTable(), alice.Identity(), 3)...)
	release := holdReader(t, foreign(t, path))

	start := time.Now()
	r := verdict(t.Context(), events, alice)
	if r.Status() != subject.Failed || r.Reason() != subject.ReasonCheckpointBusy {
		t.Fatalf("%s (%s), want failed (checkpoint_busy)", r.Status(), r.Reason())
	}
	if n, _ := r.Counts().Deleted.Value(); n != 3 || !r.Counts().Remaining.IsZero() {
		t.Errorf("counts = %+v, want 3 deleted and 0 remaining", r.Counts())
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("the reader was waited for %s", took)
	}
	if residue(t, folder, []string{alice.Identity()}) == 0 {
		t.Error("the bytes are gone: the test shows nothing")
	}
	// Nothing is left to delete, and still it is not erased: the bytes are in the log.
	if r := verdict(t.Context(), events, alice); r.Reason() != subject.ReasonCheckpointBusy {
		t.Errorf("%s (%s) on a retry, want failed (checkpoint_busy)", r.Status(), r.Reason())
	}
	add(t, events, rowsOf(storetest.EventsTable(), "bob", 1)...) // who writes is not held up
	release()
	wantErased(t, verdict(t.Context(), events, alice))
	if found := residue(t, folder, []string{alice.Identity()}); found > 0 {
		t.Error("the identity is in the files after the retry")
	}
}

// An append that shares its transaction with an erasure whose checkpoint is busy is still acknowledged, and there.
func TestAnAppendIsTakenWhileAReaderKeepsTheLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cell.db")
	events := table(t, open(t, path), storetest.EventsTable())
	add(t, events, rowsOf(storetest.EventsTable(), "alice", 1)...)
	release := holdReader(t, foreign(t, path))
	defer release()
	rows := rowsOf(storetest.EventsTable(), "bob", 20)
	var wg sync.WaitGroup
	for i := range rows {
		wg.Go(func() {
			if i%5 == 0 {
				verdict(t.Context(), events, who(t, "alice"))
			}
			if _, err := events.Append(t.Context(), rows[i:i+1], 0); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := count(t, events, "bob"); n != 20 {
		t.Errorf("%d rows, want 20", n)
	}
}

func TestOwnReadersDoNotKeepTheLog(t *testing.T) {
	events := table(t, open(t, filepath.Join(t.TempDir(), "cell.db")), storetest.EventsTable())
	add(t, events, rowsOf(storetest.EventsTable(), "reader", 100)...)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if _, err := events.Read(ctx, who(t, "reader"), "", 50); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range 26 {
		identity := "alice" + string(rune('a'+i%26))
		add(t, events, rowsOf(storetest.EventsTable(), identity, 1)...)
		wantErased(t, verdict(t.Context(), events, who(t, identity)))
	}
	cancel()
	wg.Wait()
}

func TestALockedDatabaseFailsWithItsReasonAndLosesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cell.db")
	events := table(t, open(t, path), storetest.EventsTable())
	add(t, events, rowsOf(storetest.EventsTable(), "alice", 2)...)
	other := foreign(t, path)
	do(t, other, "BEGIN IMMEDIATE")
	r := verdict(t.Context(), events, who(t, "alice"))
	if r.Status() != subject.Failed || r.Reason() != subject.ReasonStoreLocked {
		t.Fatalf("%s (%s), want failed (store_locked)", r.Status(), r.Reason())
	}
	if n, measured := r.Counts().Remaining.Value(); !measured || n != 2 {
		t.Errorf("remaining = %s, want 2", r.Counts().Remaining)
	}
	_, err := events.Append(t.Context(), rowsOf(storetest.EventsTable(), "bob", 1), 0)
	var fault *subject.Fault
	if !errors.As(err, &fault) || fault.Reason != subject.ReasonStoreLocked {
		t.Errorf("Append: %v, want store_locked", err)
	}
	do(t, other, "ROLLBACK")
	wantErased(t, verdict(t.Context(), events, who(t, "alice")))
}

func TestWhatIsNoDatabaseIsNotOpened(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cell.db")
	if err := os.WriteFile(path, []byte("this is a text of alice, and no database at all"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, options := range map[string][]sqlite.Option{"ours": nil, "an owner's": {sqlite.Owners()}} {
		db, err := sqlite.Open(t.Context(), path, options...)
		var fault *subject.Fault
		if !errors.As(err, &fault) || fault.Reason != subject.ReasonNotFound {
			t.Errorf("%s: %v, %v, want store_not_found", name, db, err)
		}
	}
}

// A caller who gives up takes back what has not been begun: the row is not written later, behind its back.
func TestACancelledRequestIsDroppedOrDoneButNeverLeftHalfway(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cell.db")
	events := table(t, open(t, path), storetest.EventsTable())
	other := foreign(t, path)
	do(t, other, "BEGIN IMMEDIATE")
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = events.Append(t.Context(), rowsOf(storetest.EventsTable(), "first", 1), 0) }) // the writer waits with it
	time.Sleep(50 * time.Millisecond)
	rows := rowsOf(storetest.EventsTable(), "late", 8)
	for i := range rows {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			start := time.Now()
			if _, err := events.Append(ctx, rows[i:i+1], 0); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Append: %v, want the deadline", err)
			}
			if took := time.Since(start); took > 500*time.Millisecond {
				t.Errorf("a dropped request was held for %s", took)
			}
		})
	}
	time.Sleep(200 * time.Millisecond)
	do(t, other, "ROLLBACK")
	wg.Wait()
	if n := count(t, events, "late"); n != 0 {
		t.Errorf("%d rows were written after their callers had given up", n)
	}
	if n := count(t, events, "first"); n != 1 {
		t.Errorf("%d rows of the first, want 1", n)
	}
}

func TestAClosedDatabaseAnswersSo(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "cell.db"))
	events := table(t, db, storetest.EventsTable())
	add(t, events, rowsOf(storetest.EventsTable(), "alice", 1)...)
	if err := errors.Join(db.Close(), db.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := events.Append(t.Context(), rowsOf(storetest.EventsTable(), "alice", 1), 0); !errors.Is(err, sqlite.ErrClosed) {
		t.Errorf("Append: %v", err)
	}
	if r := verdict(t.Context(), events, who(t, "alice")); r.Status() != subject.Failed {
		t.Errorf("%s, want failed", r.Status())
	}
	if err := events.Ready(t.Context()); err == nil {
		t.Error("a closed database is ready")
	}
}

// A failing request must not take down those that it shares a transaction with.
func TestARequestFailsAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "owner.db")
	owner := foreign(t, path)
	do(t, owner, "PRAGMA journal_mode=WAL", "CREATE TABLE people (id INTEGER PRIMARY KEY, tenant TEXT, person TEXT)",
		"CREATE TABLE orders (of INTEGER REFERENCES people(id))",
		"INSERT INTO people (tenant, person) VALUES ('acme','p0'),('acme','p1'),('acme','p2'),('acme','p3'),('acme','p4'),('acme','p5')",
		"INSERT INTO orders SELECT id FROM people WHERE person='p3'")
	db := open(t, path, sqlite.Owners())
	people := table(t, db, stores.Table{Store: "people", Name: "people", Tenant: "tenant", Identities: []string{"person"}})
	for range 3 {
		var wg sync.WaitGroup
		for i := range 6 {
			identity := "p" + string(rune('0'+i))
			wg.Go(func() {
				r := verdict(t.Context(), people, who(t, identity))
				if want := map[bool]subject.Status{true: subject.Failed, false: subject.Erased}[i == 3]; r.Status() != want {
					t.Errorf("%s: %s (%s), want %s", identity, r.Status(), r.Reason(), want)
				}
			})
		}
		wg.Wait()
	}
	if n := count(t, people, "p3"); n != 1 {
		t.Errorf("%d rows of the one that failed, want 1", n)
	}
}
