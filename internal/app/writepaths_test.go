package app

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// rowWriters are the calls by which a row can get into a store, everywhere and inside single stores.
var rowWriters = map[string][]string{
	"":                 {"Append", "Fill"},
	"stores/sqlite":    {"insert"},
	"stores/memory":    {"add", "put"},
	"stores/bigquery":  {"insert", "put", "Put"},
	"stores/firestore": {"create", "Create", "Set"},
}

// guardedPaths are the functions that make such calls, each with a word that stands in it and says how the ledger is asked.
// A function that is not here fails the test: let it ask the ledger, then add it.
var guardedPaths = map[string]string{
	"intake/append.go append": "Guard", // the one way from a body into a store
	"cell/paired.go Append":   "seen",  // called by way of the guard, and hands on what it answered
	"app/lease.go flush":      "admit", // the replay of a journal
	"app/lease.go replay":     "admit", // which calls flush

	"stores/sqlite/append.go append":          "recheck", // in the transaction
	"stores/sqlite/append.go insert":          "created", // called by append alone
	"stores/sqlite/vault.go mirror":           "created", // what the table took, in its order
	"stores/memory/graph.go Append":           "admitted",
	"stores/memory/graph.go Fill":             "draft",   // rows that a journal took
	"stores/memory/graph.go add":              "records", // called by Append and Fill
	"stores/memory/cache.go Fill":             "created", // rows that the table took
	"stores/bigquery/append.go Append":        "admit",
	"stores/bigquery/append.go insert":        "pendingRow", // called by Append, and by the audit
	"stores/bigquery/append.go put":           "pendingRow",
	"stores/firestore/journal.go appendBatch": "seen",   // which calls create
	"stores/firestore/journal.go create":      "ledger", // in the transaction
}

// noRows are calls of the same names that write no row of a store.
var noRows = map[string]bool{
	"stores/bigquery/audit.go InsertAudit": true, "stores/firestore/lease.go take": true, "stores/firestore/lease.go release": true,
	"stores/firestore/ledger_turn.go commit": true, "stores/firestore/ledger_turn.go write": true, // the ledger itself
	"stores/firestore/ledger_write.go Record": true, "stores/firestore/ledger_write.go RecordDerived": true, "stores/firestore/journal_sourced.go listParents": true,
	// Documents and the ledger of erasure requests hold no rows of a store.
	"stores/firestore/documents.go Create": true, "stores/firestore/erasure_append.go write": true, "stores/firestore/erasure_ledger.go found": true,
	"stores/firestore/erasure_programs.go Write": true, "stores/firestore/erasure_proofs.go Checkpoint": true,
	"stores/memory/cache.go put": true, "stores/sqlite/ledger.go load": true,
}

// TestEveryWritePathAsksTheLedger finds the functions that write rows, and fails for one that nobody has looked at.
func TestEveryWritePathAsksTheLedger(t *testing.T) {
	seen := map[string]bool{}
	rooms := []string{"intake", "cell", "app"}
	for _, adapter := range adapters {
		room := "stores/" + adapter
		if rooms = append(rooms, room); rowWriters[room] == nil {
			t.Errorf("nobody has said by which calls a row gets into %s", room)
		}
	}
	for _, room := range rooms {
		files, err := filepath.Glob(filepath.Join("..", room, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, decl := range parsed.Decls {
				f, ok := decl.(*ast.FuncDecl)
				if !ok || !writesRows(room, f) {
					continue
				}
				name := strings.TrimPrefix(filepath.ToSlash(file), "../") + " " + f.Name.Name
				seen[name] = true
				word, known := guardedPaths[name]
				switch {
				case noRows[name]:
				case !known:
					t.Errorf("%s writes rows, and nobody has said how it asks the suppression ledger", name)
				case !mentions(f, word):
					t.Errorf("%s writes rows and has lost what asks the suppression ledger: %s", name, word)
				}
			}
		}
	}
	for name := range guardedPaths {
		if !seen[name] && name != "app/lease.go replay" && !strings.HasPrefix(name, "stores/memory/graph.go add") && name != "stores/sqlite/append.go insert" && name != "stores/bigquery/append.go put" {
			t.Errorf("%s writes no rows any more", name)
		}
	}
}

func writesRows(room string, f *ast.FuncDecl) (found bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		selector, ok := call.Fun.(*ast.SelectorExpr)
		found = found || ok && slices.Contains(slices.Concat(rowWriters[""], rowWriters[room]), selector.Sel.Name)
		return true
	})
	return found
}

func mentions(f *ast.FuncDecl, word string) (found bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok {
			found = found || strings.Contains(id.Name, word)
		}
		return true
	})
	return found
}
