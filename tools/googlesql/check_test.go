package googlesql

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	sql "github.com/goccy/go-googlesql"
)

const (
	statementsFile = "../../internal/stores/bigquery/testdata/statements.json"
	ddlFiles       = "../../deploy/bigquery/*.sql"
)

// emitted is one entry of the file that the adapter's own test keeps up to date.
type emitted struct {
	Name    string            `json:"name"`
	Table   []string          `json:"table"`
	Columns map[string]string `json:"columns"`
	Params  map[string]string `json:"params"`
	SQL     string            `json:"sql"`
}

// analyser is one catalog, and what analysing against it needs.
type analyser struct {
	t       *testing.T
	catalog *sql.SimpleCatalog
	options *sql.AnalyzerOptions
	types   *sql.TypeFactory
}

func must[T any](t *testing.T) func(T, error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func check(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func newAnalyser(t *testing.T) *analyser {
	t.Helper()
	check(t, sql.Init())
	a := &analyser{t: t}
	language := must[*sql.LanguageOptions](t)(sql.NewLanguageOptions())
	check(t, language.EnableMaximumLanguageFeatures(), language.SetSupportsAllStatementKinds(), language.SetProductMode(sql.ProductModeProductExternal))
	a.types = must[*sql.TypeFactory](t)(sql.NewTypeFactory())
	a.catalog = must[*sql.SimpleCatalog](t)(sql.NewSimpleCatalog("root", a.types))
	check(t, a.catalog.AddBuiltinFunctionsAndTypes(&sql.BuiltinFunctionOptions{LanguageOptions: language}))
	a.options = must[*sql.AnalyzerOptions](t)(sql.NewAnalyzerOptions2())
	check(t, a.options.SetLanguage(language))
	return a
}

func (a *analyser) typeOf(name string) sql.Googlesql_TypeNode {
	a.t.Helper()
	return must[sql.Googlesql_TypeNode](a.t)(sql.AnalyzeType(name, a.options, a.catalog, a.types))
}

// add puts a table under its path, project and dataset included.
func (a *analyser) add(path []string, columns map[string]string) {
	a.t.Helper()
	table := must[*sql.SimpleTable](a.t)(sql.NewSimpleTable(path[len(path)-1], 0))
	for _, name := range slices.Sorted(maps.Keys(columns)) {
		pseudo := strings.HasPrefix(name, "_") // a pseudo-column is no part of SELECT *
		column := must[*sql.SimpleColumn](a.t)(sql.NewSimpleColumn(path[len(path)-1], name, a.typeOf(columns[name]), pseudo, !pseudo))
		check(a.t, table.AddColumn2(column, false))
	}
	catalog := a.catalog
	for _, name := range path[:len(path)-1] {
		inner := must[*sql.SimpleCatalog](a.t)(sql.NewSimpleCatalog(name, a.types))
		check(a.t, catalog.AddCatalog(inner))
		catalog = inner
	}
	check(a.t, catalog.AddTable(table))
}

func (a *analyser) analyse(text string) error {
	_, err := sql.AnalyzeStatement(text, a.options, a.catalog, a.types)
	return err
}

func (a *analyser) declare(params map[string]string) {
	a.t.Helper()
	for _, name := range slices.Sorted(maps.Keys(params)) {
		check(a.t, a.options.AddQueryParameter(name, a.typeOf(params[name])))
	}
}

func statements(t *testing.T) []emitted {
	t.Helper()
	text := must[[]byte](t)(os.ReadFile(statementsFile))
	var out []emitted
	check(t, json.Unmarshal(text, &out))
	if len(out) == 0 {
		t.Fatal("no statements to check")
	}
	return out
}

func TestEveryStatementIsGoogleSQL(t *testing.T) {
	for _, s := range statements(t) {
		t.Run(s.Name, func(t *testing.T) {
			a := newAnalyser(t)
			a.add(s.Table, s.Columns)
			a.declare(s.Params)
			if err := a.analyse(s.SQL); err != nil {
				t.Errorf("%v\n%s", err, s.SQL)
			}
		})
	}
}

func TestEveryDDLFileIsGoogleSQL(t *testing.T) {
	files := must[[]string](t)(filepath.Glob(ddlFiles))
	if len(files) == 0 {
		t.Fatal("no DDL to check")
	}
	for _, file := range files {
		text := must[[]byte](t)(os.ReadFile(file))
		if err := newAnalyser(t).analyse(string(text)); err != nil {
			t.Errorf("%s: %v", filepath.Base(file), err)
		}
	}
}

// TestTheCheckRefuses shows that the analyser is no rubber stamp: each of these would pass SQLite.
func TestTheCheckRefuses(t *testing.T) {
	s := statements(t)[0]
	table := "`" + strings.Join(s.Table, "`.`") + "`"
	for name, text := range map[string]string{
		"a delete without a condition": "DELETE FROM %s AS t",
		"a reserved word as a name":    "SELECT t.score AS select FROM %s AS t",
		"an undeclared parameter":      "SELECT t.score FROM %s AS t WHERE t.tenant_id = @nobody",
		"a mistyped parameter":         "SELECT t.score FROM %s AS t WHERE t.score = @tenant",
		"an unknown column":            "SELECT t.nothing FROM %s AS t",
	} {
		a := newAnalyser(t)
		a.add(s.Table, s.Columns)
		a.declare(s.Params)
		if a.analyse(fmt.Sprintf(text, table)) == nil {
			t.Errorf("%s was taken", name)
		}
	}
}
