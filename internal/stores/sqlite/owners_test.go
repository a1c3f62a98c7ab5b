package sqlite_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"recount/internal/stores"
	"recount/internal/stores/sqlite"
	"recount/internal/stores/storetest"
	"recount/internal/subject"
)

// ownersFile is a file that another program made.
func ownersFile(t *testing.T, statements ...string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "owner's file #1?.db")
	do(t, foreign(t, escape(path)), append([]string{"PRAGMA journal_mode=WAL"}, statements...)...)
	return path
}

func escape(path string) string {
	return strings.NewReplacer("#", "%23", "?", "%3f", " ", "%20").Replace(path)
}

func people() stores.Table {
	return stores.Table{Store: "people", Name: "people", Tenant: "tenant", Identities: []string{"person"}}
}

func TestATableThatCanNotBeCountedTrulyIsRefused(t *testing.T) {
	const plain = "CREATE TABLE people (tenant TEXT, person TEXT)"
	for name, c := range map[string]struct {
		schema []string
		change func(*stores.Table)
		says   []string
	}{
		"no table":         {[]string{"CREATE TABLE persons (tenant TEXT, person TEXT)"}, nil, []string{"people", "no such table"}},
		"no tenant":        {[]string{"CREATE TABLE people (person TEXT)"}, nil, []string{"no column tenant"}},
		"no identity":      {[]string{"CREATE TABLE people (tenant TEXT)"}, nil, []string{"no column person"}},
		"no source":        {[]string{plain}, func(s *stores.Table) { s.Source, s.SourceRef = "source", "ref" }, []string{"no column source"}},
		"view":             {[]string{"CREATE TABLE p (tenant TEXT, person TEXT)", "CREATE VIEW people AS SELECT * FROM p"}, nil, []string{"view"}},
		"virtual table":    {[]string{"CREATE VIRTUAL TABLE people USING fts5(tenant, person)"}, nil, []string{"virtual"}},
		"shadow table":     {[]string{"CREATE VIRTUAL TABLE f USING fts5(tenant, person)"}, func(s *stores.Table) { s.Name = "f_content" }, []string{"shadow"}},
		"integer identity": {[]string{"CREATE TABLE people (tenant TEXT, person INTEGER)"}, nil, []string{"column person", "INTEGER", "declare it TEXT"}},
		"integer tenant":   {[]string{"CREATE TABLE people (tenant INT, person TEXT)"}, nil, []string{"column tenant"}},
		"untyped identity": {[]string{"CREATE TABLE people (tenant TEXT, person)"}, nil, []string{"column person"}},
		"charint":          {[]string{"CREATE TABLE people (tenant TEXT, person CHARINT)"}, nil, []string{"column person"}},
		"numeric identity": {[]string{"CREATE TABLE people (tenant TEXT, person UUID)"}, nil, []string{"column person"}},
		"nocase identity":  {[]string{"CREATE TABLE people (tenant TEXT, person TEXT COLLATE NOCASE)"}, nil, []string{"column person", "COLLATE BINARY"}},
		"nocase, indexed":  {[]string{"CREATE TABLE people (tenant TEXT, person TEXT COLLATE NOCASE PRIMARY KEY)"}, nil, []string{"column person"}},
		"rtrim tenant":     {[]string{"CREATE TABLE people (tenant TEXT COLLATE RTRIM, person TEXT)"}, nil, []string{"column tenant"}},
		"stored blob":      {[]string{plain, "INSERT INTO people VALUES ('acme', x'616c696365')"}, nil, []string{"column person", "blob", "CAST"}},
		"blob tenant":      {[]string{plain, "INSERT INTO people VALUES (x'61', 'a')"}, nil, []string{"column tenant", "blob"}},
		"without rowid":    {[]string{"CREATE TABLE people (tenant TEXT, person TEXT PRIMARY KEY) WITHOUT ROWID"}, nil, []string{"WITHOUT ROWID"}},
		"hidden rowid":     {[]string{"CREATE TABLE people (tenant TEXT, person TEXT, rowid TEXT, _rowid_ TEXT, oid TEXT)"}, nil, []string{"rowid"}},
		"delete trigger": {[]string{
			plain, "CREATE TABLE kept (p TEXT)",
			"CREATE TRIGGER keep AFTER DELETE ON people BEGIN INSERT INTO kept VALUES (old.person); END",
		}, nil, []string{"trigger", "people"}},
		"trigger below a cascade": {[]string{
			"CREATE TABLE people (id INTEGER PRIMARY KEY, tenant TEXT, person TEXT)",
			"CREATE TABLE notes (of INTEGER REFERENCES people(id) ON DELETE CASCADE, note TEXT)", "CREATE TABLE kept (p TEXT)",
			"CREATE TRIGGER keep BEFORE DELETE ON notes BEGIN INSERT INTO kept VALUES (old.note); END",
		}, nil, []string{"trigger", "notes"}},
		"rows cut loose": {[]string{
			"CREATE TABLE people (id INTEGER PRIMARY KEY, tenant TEXT, person TEXT)",
			"CREATE TABLE notes (of INTEGER REFERENCES people(id) ON DELETE SET NULL, note TEXT)",
		}, nil, []string{"notes", "SET NULL", "CASCADE"}},
	} {
		t.Run(name, func(t *testing.T) {
			db := open(t, ownersFile(t, c.schema...), sqlite.Owners())
			spec := people()
			if c.change != nil {
				c.change(&spec)
			}
			_, err := db.Table(t.Context(), spec)
			if err == nil {
				t.Fatal("the table was taken")
			}
			for _, words := range c.says {
				if !strings.Contains(err.Error(), words) {
					t.Errorf("%q does not say %q", err, words)
				}
			}
		})
	}
}

func TestATableOfAnOwnerIsCountedErasedAndShown(t *testing.T) {
	path := ownersFile(t,
		`CREATE TABLE "pe""ople [x]" (id INTEGER PRIMARY KEY, "ten ant" VARCHAR(64), "e-mail" TEXT, born DATE, rowid TEXT, photo BLOB, weight REAL, ok BOOLEAN)`,
		`CREATE TABLE notes (of INTEGER REFERENCES "pe""ople [x]"(id) ON DELETE CASCADE, note TEXT)`,
		`INSERT INTO "pe""ople [x]" VALUES (7, 'acme', 'alice', '2001-02-03', 'r', x'00ff', 9e999, 1), (8, 'acme', 'ALICE', NULL, NULL, NULL, 1.5, 0),
		(9, 'globex', 'alice', NULL, NULL, NULL, NULL, NULL), (10, 'acme', 7, NULL, NULL, NULL, NULL, NULL), (11, 'acme', '007', NULL, NULL, NULL, NULL, NULL)`,
		`INSERT INTO notes VALUES (7, 'a note about alice@example.test'), (8, 'another')`,
		`CREATE TRIGGER harmless AFTER INSERT ON notes BEGIN SELECT 1; END`)
	db := open(t, path, sqlite.Owners())
	spec := stores.Table{Store: "people", Name: `pe"ople [x]`, Tenant: "ten ant", Identities: []string{"e-mail"}}
	store := table(t, db, spec)
	for identity, want := range map[string]int64{"alice": 1, "ALICE": 1, "Alice": 0, "7": 1, "007": 1} {
		if got := count(t, store, identity); got != want {
			t.Errorf("count(%s) = %d, want %d", identity, got, want)
		}
	}
	page, err := store.Read(t.Context(), who(t, "alice"), "", 10)
	if err != nil || len(page.Rows) != 1 {
		t.Fatalf("%v, %v", page, err)
	}
	for column, want := range map[string]any{"id": int64(7), "born": "2001-02-03", "photo": "AP8=", "weight": "+Inf", "ok": int64(1), "rowid": "r"} {
		if got := page.Rows[0][column]; got != want {
			t.Errorf("%s = %#v, want %#v", column, got, want)
		}
	}
	wantErased(t, verdict(t.Context(), store, who(t, "alice")))
	if found := residue(t, filepath.Dir(path), []string{"a note about alice@example.test"}); found > 0 {
		t.Error("what hung below the row is still in the file")
	}
	if count(t, store, "ALICE") != 1 {
		t.Error("somebody else was erased")
	}
	if _, err := store.Append(t.Context(), []stores.Row{{"x"}}, 0); err == nil {
		t.Error("a row was appended to an owner's table")
	}
	spec.Match = stores.MatchCasefold
	wide := table(t, db, spec)
	wantErased(t, verdict(t.Context(), wide, who(t, "aLiCe")))
	if count(t, store, "ALICE") != 0 || count(t, store, "007") != 1 {
		t.Error("casefold erased another than it should")
	}
}

func TestAnOwnersFileIsNeverMadeOrChanged(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing.db")
	_, err := sqlite.Open(t.Context(), missing, sqlite.Owners())
	var fault *subject.Fault
	if !errors.As(err, &fault) || fault.Reason != subject.ReasonNotFound {
		t.Errorf("%v, want store_not_found", err)
	}
	if _, err := os.Stat(missing); err == nil {
		t.Error("the file was made")
	}
	path := filepath.Join(t.TempDir(), "rollback.db")
	do(t, foreign(t, path), "PRAGMA journal_mode=DELETE", "CREATE TABLE people (tenant TEXT, person TEXT)")
	if _, err = sqlite.Open(t.Context(), path, sqlite.Owners()); err == nil || !strings.Contains(err.Error(), "PRAGMA journal_mode=WAL") {
		t.Errorf("%v, want a word about the journal mode", err)
	}
}

func TestAFileOfOursIsItsOwnersAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "cell.db")
	add(t, table(t, open(t, path), storetest.EventsTable()), rowsOf(storetest.EventsTable(), "alice", 1)...)
	for _, name := range []string{path, path + "-wal"} {
		info, err := os.Stat(name)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v, want mode 0600", info.Mode(), err)
		}
	}
}

func TestTheSurveyFindsKeysThatNoStoreCovers(t *testing.T) {
	db := open(t, ownersFile(t, "CREATE TABLE people (tenant TEXT, person_id TEXT, contact_email TEXT, weight REAL)",
		"CREATE VIRTUAL TABLE words USING fts5(customer)", "CREATE VIEW v AS SELECT * FROM people"), sqlite.Owners())
	got, err := db.Survey(t.Context(), []stores.Table{{Name: "People", Identities: []string{"PERSON_ID"}}})
	want := []stores.Suspect{{Table: "people", Column: "contact_email"}, {Table: "words", Column: "customer"}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
}

func TestAFileWhoseTextsAreNotUTF8IsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "wide.db")
	do(t, foreign(t, path), "PRAGMA encoding='UTF-16le'", "PRAGMA journal_mode=WAL", "CREATE TABLE people (tenant TEXT, person TEXT)")
	db, err := sqlite.Open(t.Context(), path, sqlite.Owners())
	if err == nil {
		_ = db.Close()
		t.Fatal("it was opened")
	}
	if !strings.Contains(err.Error(), "UTF-16le") {
		t.Errorf("the error doesn't say why: %v", err)
	}
}
