package sqlite_test

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"recount/internal/stores"
	"recount/internal/stores/sqlite"
	"recount/internal/stores/storetest"
)

func documents(t testing.TB, db *sqlite.DB, collection string) *sqlite.Documents {
	t.Helper()
	d, err := db.Documents(t.Context(), collection)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDocumentsKeepTheirContract(t *testing.T) {
	storetest.Documents(t, func(t *testing.T) func() stores.Documents {
		db := open(t, filepath.Join(t.TempDir(), "cell.db")) // one file has one DB in a process
		return func() stores.Documents { return documents(t, db, "requests") }
	})
}

func TestDocumentsAreThereAfterTheFileWasClosed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cell.db")
	db := open(t, path)
	if err := documents(t, db, "requests").Create(t.Context(), stores.Document{ID: "d", Tenant: tenant, Body: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if d, err := documents(t, open(t, path), "requests").Get(t.Context(), "d"); err != nil || string(d.Body) != "x" {
		t.Errorf("%d bytes, %v", len(d.Body), err)
	}
}

func TestCollectionsAreApart(t *testing.T) {
	db := open(t, filepath.Join(t.TempDir(), "cell.db"))
	one, two := documents(t, db, "one"), documents(t, db, "two")
	for _, c := range []*sqlite.Documents{one, two} {
		if err := c.Create(t.Context(), stores.Document{ID: "d", Tenant: tenant}); err != nil {
			t.Fatal(err)
		}
	}
	if err := one.Delete(t.Context(), "d"); err != nil {
		t.Fatal(err)
	}
	if _, err := two.Get(t.Context(), "d"); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"", "A", `a"b`, "a.b"} {
		if _, err := db.Documents(t.Context(), name); err == nil {
			t.Errorf("a collection of the name %q", name)
		}
	}
}

// A document grows and shrinks over many pages before it is deleted: what each version left behind must go as well.
func TestNothingOfADeletedDocumentIsLeftInAnyFile(t *testing.T) {
	folder := t.TempDir()
	db := open(t, filepath.Join(folder, "cell.db"))
	docs := documents(t, db, "requests")
	var gone, stay []string
	for i := range 40 {
		var d stores.Document
		for version, size := range []int{10, 60_000, 900, 5_000} {
			word := fmt.Sprintf("document-%d-%d%s", i, version, mark)
			d = stores.Document{ID: fmt.Sprintf("d%d", i), Tenant: tenant, Version: int64(version), Body: []byte(strings.Repeat(word+" ", 1+size/len(word)))}
			var err error
			if version == 0 {
				err = docs.Create(t.Context(), d)
			} else {
				_, err = docs.Update(t.Context(), d)
			}
			if err != nil {
				t.Fatalf("version %d: %v", version, err)
			}
			if i%4 > 0 {
				gone = append(gone, word)
			} else if version == 3 {
				stay = append(stay, word)
			}
		}
	}
	if found := residue(t, folder, gone); found == 0 {
		t.Fatal("the search finds nothing at all")
	}
	for i := range 40 {
		if i%4 > 0 {
			if err := docs.Delete(t.Context(), fmt.Sprintf("d%d", i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if found := residue(t, folder, gone); found > 0 {
		t.Errorf("%d of %d versions of deleted documents are in the files of the running process", found, len(gone))
	}
	if found := residue(t, folder, stay); found != len(stay) {
		t.Errorf("only %d of %d others are still there", found, len(stay))
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if found := residue(t, folder, gone); found > 0 {
		t.Errorf("%d of %d versions of deleted documents are in the files after Close", found, len(gone))
	}
}

func TestQuestionsAboutDocumentsAreAnsweredByAnIndex(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cell.db")
	db := open(t, path)
	docs := documents(t, db, "requests")
	now := time.Now()
	for i := range 500 {
		err := docs.Create(t.Context(), stores.Document{ID: fmt.Sprintf("d%d", i), Tenant: "other", Open: i%2 == 0, Due: now, Wake: now})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil { // nothing else may open an open file
		t.Fatal(err)
	}
	for name, query := range sqlite.DocumentStatements(docs) {
		plan := strings.Join(explained(t, path, query), "; ")
		if !strings.Contains(plan, "SEARCH") || strings.Contains(plan, "SCAN") || strings.Contains(plan, "TEMP B-TREE") {
			t.Errorf("%s: %s", name, plan)
		}
		want := map[string]string{
			"list": "recount_documents_requests_tenant (tenant=? AND id<?)", "awake": "COVERING INDEX recount_documents_requests_wake (wake_us<?)",
			"due": "COVERING INDEX recount_documents_requests_due (due_us<?)",
		}[name]
		if !strings.Contains(plan, want) {
			t.Errorf("%s: %s, want %s", name, plan, want)
		}
	}
}

// explained asks SQLite how it would run a statement.
func explained(t *testing.T, path, query string) (plan []string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close() //nolint:errcheck // a test's
	rows, err := db.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+query, make([]any, strings.Count(query, "?"))...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close() //nolint:errcheck // a test's
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		plan = append(plan, detail)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return plan
}
