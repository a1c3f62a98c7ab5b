package sqlite

import (
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
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
		if _, err := events.Append(t.Context(), []stores.Row{row}, 0); err != nil {
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
	if r := eraser(events).Erase(t.Context(), subject.Target{Tenant: "acme", Subject: person(t, "alice")}).Receipts[0]; r.Status() != subject.Erased { // a delete needs no room
		t.Errorf("%s (%s)", r.Status(), r.Reason())
	}
}

func TestAReadOnlyDatabaseFailsWithItsReasonAndItsRows(t *testing.T) {
	spec := storetest.EventsTable()
	db, events := openInside(t, spec)
	if _, err := events.Append(t.Context(), []stores.Row{storetest.NewRow(spec, "acme", "crm", "1", "alice")}, 0); err != nil {
		t.Fatal(err)
	}
	tell(t, db, "PRAGMA query_only=1")
	r := eraser(events).Erase(t.Context(), subject.Target{Tenant: "acme", Subject: person(t, "alice")}).Receipts[0]
	if n, measured := r.Counts().Remaining.Value(); r.Reason() != subject.ReasonStoreReadOnly || !measured || n != 1 {
		t.Errorf("%s (%s), remaining %s, want store_read_only and 1", r.Status(), r.Reason(), r.Counts().Remaining)
	}
	if n, _ := r.Counts().Deleted.Value(); n != 0 {
		t.Errorf("deleted %d", n)
	}
}

func TestErrorsOfSQLiteAreNamedAndNeverQuoted(t *testing.T) {
	db, _ := openInside(t, storetest.EventsTable())
	tooMany := "SELECT " + strings.TrimSuffix(strings.Repeat("?,", 40000), ",")
	for statement, want := range map[string]subject.Reason{
		"SELECT * FROM alice": subject.ReasonNotFound,
		tooMany:               subject.ReasonTooManyVariables,
		"INSERT INTO events (row_id) VALUES ('alice')": subject.ReasonNone,
		"SELECT json('alice')":                         subject.ReasonNone,
		"CREATE TABLE events (alice TEXT)":             subject.ReasonNone,
		"ATTACH '/nowhere/alice.db' AS alice":          subject.ReasonNotFound,
		"SELECT 1 FROM events WHERE alice = 1":         subject.ReasonNotFound,
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
		texts := table.shape.Load().sql
		for _, query := range []string{
			texts.countOne, texts.tallyOne, texts.deleteOne, texts.tallySet, texts.deleteSet, texts.first, texts.next,
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
	db2 := &DB{path: db.path, origin: db.origin, queue: make(chan *request, queueSize)}
	for i := range 20 {
		identity := fmt.Sprintf("p%d", i)
		if _, err := events.Append(t.Context(), []stores.Row{storetest.NewRow(spec, "acme", "crm", fmt.Sprint(i), identity)}, 0); err != nil {
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
	if w.statements[events.shape.Load().sql.tallySet] == nil || w.statements[events.shape.Load().sql.tallyOne] != nil {
		t.Error("the erasures did not share their statements")
	}
	if size, err := w.logSize(); err != nil || size != 0 {
		t.Errorf("the log has %d bytes, %v", size, err)
	}
}

// A reader of our own that takes its time holds the checkpoint up: it never fails it.
func TestAnOwnReaderIsWaitedFor(t *testing.T) {
	spec := storetest.EventsTable()
	db, events := openInside(t, spec)
	if _, err := events.Append(t.Context(), []stores.Row{storetest.NewRow(spec, "acme", "crm", "1", "alice")}, 0); err != nil {
		t.Fatal(err)
	}
	reading, done := make(chan struct{}), make(chan error)
	go func() {
		done <- db.read(t.Context(), func(pool querier) error {
			rows, err := pool.QueryContext(t.Context(), events.shape.Load().sql.probe)
			if err != nil {
				return err
			}
			rows.Next()
			close(reading)
			time.Sleep(patience + patience/2)
			return errors.Join(rows.Err(), rows.Close())
		})
	}()
	<-reading
	if r := eraser(events).Erase(t.Context(), subject.Target{Tenant: "acme", Subject: person(t, "alice")}).Receipts[0]; r.Status() != subject.Erased {
		t.Errorf("%s (%s), want erased", r.Status(), r.Reason())
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
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

// A deferred foreign key is only looked at by the commit.
func TestADeferredForeignKeyFailsItsOwnErasureOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "owner.db")
	other, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close() //nolint:errcheck // a test's own file
	for _, statement := range []string{
		"PRAGMA journal_mode=WAL", "CREATE TABLE people (id INTEGER PRIMARY KEY, tenant TEXT, person TEXT)",
		"CREATE TABLE notes (of INTEGER REFERENCES people(id) DEFERRABLE INITIALLY DEFERRED)",
		"INSERT INTO people VALUES (1, 'acme', 'alice'), (2, 'acme', 'bob'), (3, 'acme', 'carol')", "INSERT INTO notes VALUES (2)",
	} {
		if _, err := other.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	db, err := Open(t.Context(), path, Owners())
	if err != nil {
		t.Fatal(err)
	}
	people, err := db.Table(t.Context(), stores.Table{Store: "people", Name: "people", Tenant: "tenant", Identities: []string{"person"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	w, err := openWriter(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	defer w.close() //nolint:errcheck // a test's own file
	var batch []*request
	for _, identity := range []string{"alice", "bob", "carol"} {
		batch = append(batch, &request{table: people, subjects: []subject.Subject{person(t, identity)}})
	}
	w.commit(batch)
	for i, r := range batch {
		if fails := i == 1; (r.err != nil) != fails || !fails && (r.measured[0].PurgeErr != nil || !r.measured[0].Remaining.IsZero() || r.measured[0].Before != subject.Measured(1)) {
			t.Errorf("%d: %v, %+v", i, r.err, r.measured)
		}
	}
	var left string
	if err := other.QueryRowContext(t.Context(), "SELECT group_concat(person) FROM people").Scan(&left); err != nil || left != "bob" {
		t.Errorf("%q is left, %v, want bob", left, err)
	}
}
