package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"recount/internal/stores"
	"recount/internal/stores/sqlite"
	"recount/internal/subject"
)

// wantRefused checks that nothing is said of a table that can't be counted truly any more.
func wantRefused(t *testing.T, store *sqlite.Table, s subject.Subject, reason subject.Reason, ready bool) {
	t.Helper()
	ctx := t.Context()
	if r := verdict(ctx, store, s); r.Status() != subject.Failed || r.Reason() != reason {
		t.Errorf("%s (%s), want failed (%s)", r.Status(), r.Reason(), reason)
	}
	for what, ask := range map[string]func() error{
		"Ready":     func() error { return store.Ready(ctx) },
		"Count":     func() error { _, err := store.Count(ctx, s); return err },
		"Counts":    func() error { _, err := store.Counts(ctx, []subject.Subject{s, who(t, "zoe")}); return err },
		"Read":      func() error { _, err := store.Read(ctx, s, "", 10); return err },
		"Delete":    func() error { _, err := store.Delete(ctx, s); return err },
		"DeleteAll": func() error { _, err := store.DeleteAll(ctx, []subject.Subject{s, who(t, "zoe")}); return err },
	} {
		err := ask()
		var fault *subject.Fault
		switch {
		case what == "Ready" && ready:
			if err != nil {
				t.Errorf("Ready: %v", err)
			}
		case !errors.As(err, &fault) || fault.Reason != reason:
			t.Errorf("%s: %v, want %s", what, err, reason)
		}
	}
}

const plainPeople = "CREATE TABLE people (tenant TEXT, person TEXT)"

func rowsIn(t *testing.T, conn *sql.Conn, table string) (n int) {
	t.Helper()
	if err := conn.QueryRowContext(context.Background(), "SELECT count(*) FROM "+table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestAMigrationThatMakesATableUncountableFailsItsErasures(t *testing.T) {
	for name, c := range map[string]struct {
		migration []string
		reason    subject.Reason
		identity  string
	}{
		"untyped column": {[]string{
			"DROP TABLE people", "CREATE TABLE people (tenant TEXT, person)", "INSERT INTO people VALUES ('acme', 4711), ('acme', 'alice')",
		}, subject.ReasonUnsupported, "4711"},
		"nocase": {[]string{
			"DROP TABLE people", "CREATE TABLE people (tenant TEXT, person TEXT COLLATE NOCASE)", "INSERT INTO people VALUES ('acme', 'ALICE'), ('acme', 'bob')",
		}, subject.ReasonUnsupported, "alice"},
		"delete trigger": {[]string{
			"INSERT INTO people VALUES ('acme', 'bob')", "CREATE TABLE kept (person TEXT)",
			"CREATE TRIGGER keep AFTER DELETE ON people BEGIN INSERT INTO kept VALUES (old.person); END",
		}, subject.ReasonUnsupported, "alice"},
		"dropped table":  {[]string{"CREATE TABLE persons AS SELECT 1 UNION SELECT 2", "DROP TABLE people", "CREATE TABLE people (tenant TEXT)"}, subject.ReasonNotFound, "alice"},
		"renamed column": {[]string{"ALTER TABLE people RENAME COLUMN person TO human"}, subject.ReasonNotFound, "alice"},
	} {
		t.Run(name, func(t *testing.T) {
			path := ownersFile(t, plainPeople, "INSERT INTO people VALUES ('acme', 'alice')")
			db := open(t, path, sqlite.Owners())
			store := table(t, db, people())
			other := foreign(t, escape(path))
			do(t, other, c.migration...)
			before := rowsIn(t, other, "people")
			wantRefused(t, store, who(t, c.identity), c.reason, false)
			if after := rowsIn(t, other, "people"); after != before {
				t.Errorf("%d rows, want %d", after, before)
			}
		})
	}
}

func TestAHarmlessMigrationIsFollowed(t *testing.T) {
	path := ownersFile(t, plainPeople, "INSERT INTO people VALUES ('acme', 'alice'), ('acme', 'bob')")
	store := table(t, open(t, path, sqlite.Owners()), people())
	other := foreign(t, escape(path))
	do(t, other, "ALTER TABLE people ADD COLUMN room TEXT DEFAULT 'x'")
	wantErased(t, verdict(t.Context(), store, who(t, "alice")))
	do(t, other, "ALTER TABLE people ADD COLUMN phone TEXT DEFAULT '1'")
	page, err := store.Read(t.Context(), who(t, "bob"), "", 10)
	if err != nil || len(page.Rows) != 1 || page.Rows[0]["phone"] != "1" || page.Rows[0]["room"] != "x" {
		t.Errorf("%v, %v, want the new columns, too", page.Rows, err)
	}
	// What was refused is taken again once it is mended.
	do(t, other, "CREATE TRIGGER keep AFTER DELETE ON people BEGIN SELECT 1; END")
	wantRefused(t, store, who(t, "bob"), subject.ReasonUnsupported, false)
	do(t, other, "DROP TRIGGER keep")
	wantErased(t, verdict(t.Context(), store, who(t, "bob")))
}

func TestABlobThatIsASubjectsKeyFailsItsErasure(t *testing.T) {
	for name, row := range map[string]string{
		"key": "('acme', CAST('carol' AS BLOB))", "tenant": "(CAST('acme' AS BLOB), 'carol')", "both": "(CAST('acme' AS BLOB), CAST('carol' AS BLOB))",
	} {
		for _, match := range []stores.Match{stores.MatchExact, stores.MatchCasefold} {
			t.Run(name+" "+string(match), func(t *testing.T) {
				path := ownersFile(t, plainPeople, "CREATE INDEX by_person ON people (tenant, person)",
					"INSERT INTO people VALUES ('acme', 'alice'), ('acme', 'bob'), ('acme', 'dave'), ('globex', 'bob')")
				spec := people()
				spec.Match = match
				store := table(t, open(t, path, sqlite.Owners()), spec)
				other := foreign(t, escape(path))
				do(t, other, "INSERT INTO people VALUES "+row)
				wantRefused(t, store, who(t, "carol"), subject.ReasonUnsupported, true)
				wantErased(t, verdict(t.Context(), store, who(t, "alice"))) // nobody else is held up
				if n, err := store.DeleteAll(t.Context(), []subject.Subject{who(t, "bob"), who(t, "dave")}); n != 2 || err != nil {
					t.Errorf("%d, %v", n, err)
				}
				if n := rowsIn(t, other, "people"); n != 2 {
					t.Errorf("%d rows, want 2", n)
				}
			})
		}
	}
}
