package bigquery

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	bq "cloud.google.com/go/bigquery"

	"recount/internal/stores"
)

var update = flag.Bool("update", false, "write testdata/statements.json anew")

// emitted is one statement that the product can emit, with all that the grammar check in tools/googlesql needs.
type emitted struct {
	Name    string            `json:"name"`
	Table   []string          `json:"table"`
	Columns map[string]string `json:"columns"`
	Params  map[string]string `json:"params"`
	SQL     string            `json:"sql"`
}

func TestEveryStatementIsInTheGoldenFile(t *testing.T) {
	t.Parallel()
	text, err := json.MarshalIndent(everyStatement(t), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, '\n')
	file := filepath.Join("testdata", "statements.json")
	if *update {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(golden) != string(text) {
		t.Error("testdata/statements.json is stale: run this test with -update, then the grammar check in tools/googlesql")
	}
}

// everyStatement makes each shape in each of its variants: ours or an owner's, one identity column or two, exact or
// casefold, and every kind of required partition filter.
func everyStatement(t *testing.T) []emitted {
	t.Helper()
	ours := stores.Table{
		Name: "intent_scores", Tenant: "tenant_id", Identities: []string{"identity_id"}, Source: "source", SourceRef: "source_ref", DerivedFrom: "derived_from",
		Columns: []stores.Column{
			{Name: stores.RowIDColumn},
			{Name: "tenant_id"},
			{Name: "identity_id"},
			{Name: "source"},
			{Name: "source_ref"},
			{Name: "consent_basis"},
			{Name: "derived_from", Kind: stores.JSON},
			{Name: "ingested_at", Kind: stores.Instant},
			{Name: "model_version"},
			{Name: "score", Kind: stores.Real},
			{Name: "features", Kind: stores.JSON},
		},
	}
	partitions := map[string]string{"ingested_at": "TIMESTAMP", "day": "DATE", "at": "DATETIME", "number": "INTEGER", "_PARTITIONTIME": ""}
	var out []emitted
	for _, filter := range []string{"", "ingested_at"} {
		out = append(out, shapesOf(t, "ours, filter "+filter, ours, filter, partitions[filter])...)
	}
	for _, identities := range [][]string{{"customer"}, {"customer", "group"}} { // "group" is a reserved word
		for _, match := range []stores.Match{stores.MatchExact, stores.MatchCasefold} {
			owners := stores.Table{Name: "select", Tenant: "order", Identities: identities, Match: match, Source: "from", SourceRef: "ref"}
			for _, filter := range []string{"", "day", "at", "number", "_PARTITIONTIME"} {
				name := fmt.Sprintf("owner's, %d identity columns, %s, filter %s", len(identities), match, filter)
				out = append(out, shapesOf(t, name, owners, filter, partitions[filter])...)
			}
		}
	}
	return out
}

func shapesOf(t *testing.T, name string, table stores.Table, filter, kind string) []emitted {
	t.Helper()
	partition := ""
	if filter != "" {
		partition = always(filter, kind)
	}
	s := newShape("my-project", "intent", table, partition)
	statements := map[string]statement{
		"count":  s.count("acme", []string{"a", "b"}),
		"delete": s.delete("acme", []string{"a", "b"}),

		"sources":      s.sources("acme", []string{"a", "b"}),
		"skeletons":    s.skeletons(stores.Skeletons{Tenant: table.Tenant, Source: table.Source, Ref: table.SourceRef, ErasedAt: table.Tenant}, 11, 20),
		"count pairs":  s.countPairs("acme", []pair{{}, {}}),
		"delete pairs": s.deletePairs("acme", []pair{{}, {}}),
	}
	if table.Columns == nil {
		statements["page at"] = s.pageAt("acme", "a", 20, 11)
	} else {
		statements["page"] = s.page("acme", "a", "row", 11)
		statements["children"] = s.children("acme", []pair{{}, {}})
		statements["known"] = s.known([]record{{Tenant: "acme"}, {Tenant: "globex"}})
	}
	var out []emitted
	for _, what := range []string{"count", "delete", "page", "page at", "known", "sources", "children", "count pairs", "delete pairs", "skeletons"} {
		if st, ok := statements[what]; ok {
			out = append(out, emitted{
				Name: what + ": " + name, Table: []string{"my-project", "intent", table.Name}, Columns: columnTypes(table),
				Params: paramTypes(t, st.params), SQL: st.sql,
			})
		}
	}
	return out
}

func columnTypes(table stores.Table) map[string]string {
	out := map[string]string{"day": "DATE", "at": "DATETIME", "number": "INT64", "_PARTITIONTIME": "TIMESTAMP"}
	for _, c := range append([]string{table.Tenant}, table.Identities...) {
		out[c] = "STRING"
	}
	out[table.Source], out[table.SourceRef] = "INT64", "STRING" // an owner's may be of any type
	for _, c := range table.Columns {
		out[c.Name] = map[stores.Kind]string{stores.Text: "STRING", stores.JSON: "STRING", stores.Real: "FLOAT64", stores.Instant: "TIMESTAMP"}[c.Kind]
	}
	return out
}

// paramTypes are the types that the client declares for the parameters.
func paramTypes(t *testing.T, params []bq.QueryParameter) map[string]string {
	t.Helper()
	types := map[reflect.Type]string{
		reflect.TypeFor[string]():   "STRING",
		reflect.TypeFor[[]string](): "ARRAY<STRING>",
		reflect.TypeFor[[]pair]():   "ARRAY<STRUCT<pos INT64, source STRING, source_ref STRING>>",
		reflect.TypeFor[[]record](): "ARRAY<STRUCT<pos INT64, tenant STRING, source STRING, source_ref STRING>>",
	}
	out := map[string]string{}
	for _, p := range params {
		known, ok := types[reflect.TypeOf(p.Value)]
		if !ok {
			t.Fatalf("parameter %s has a type that this test does not know: %T", p.Name, p.Value)
		}
		out[p.Name] = known
	}
	return out
}
