package cell

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"recount/internal/stores"
)

const goodFile = `
cell: billing
stores:
  - store: invoices
    backend: sqlite
    path: billing.db
    table: invoices
    tenant_column: tenant
    identity_columns: [customer_id, payer_id]
    source_column: src
    source_ref_column: ref
    match: casefold
    about: {purposes: [billing], retention: ten years, source: the customer}
`

func load(t testing.TB, text string) (OwnerConfig, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cell.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return LoadOwnerConfig(path)
}

func TestAGoodCellFileBecomesATable(t *testing.T) {
	c, err := load(t, goodFile)
	if err != nil {
		t.Fatal(err)
	}
	if s := c.Stores[0]; !filepath.IsAbs(s.Path) || filepath.Base(s.Path) != "billing.db" {
		t.Errorf("the path is not taken from the file's own folder: %s", s.Path)
	}
	got := c.Stores[0].AsTable()
	if got.Store != "invoices" || got.Tenant != "tenant" || len(got.Identities) != 2 || got.Match != stores.MatchCasefold || got.SourceRef != "ref" ||
		got.Columns != nil || got.Card.Retention != "ten years" {
		t.Errorf("%+v", got)
	}
}

func TestEveryFaultOfACellFileIsNamedAtOnce(t *testing.T) {
	_, err := load(t, `
cell: Billing
stores:
  - store: Invoices
    backend: sqlite
    project: p
    identity_columns: [tenant, "", a, a]
    tenant_column: tenant
    source_column: src
    match: fuzzy
  - {store: b, backend: tape, about: {purposes: [x], retention: y, source: z}}
  - {store: b, backend: firestore, table: t, about: {purposes: [x], retention: y, source: z}, tenant_column: t, identity_columns: [i]}
`)
	if err == nil {
		t.Fatal("taken")
	}
	for _, want := range []string{
		`cell: "Billing"`, "store must match", "path is required", "table is required", "project has no meaning", `identity_columns[0]`,
		"identity_columns[1]", "identity_columns[3]", "source_column and source_ref_column go together", `match "fuzzy"`, "Art. 15(1) card",
		`backend "tape"`, "two stores of one name", "collection is required", "table has no meaning for backend firestore", "tenant_column is required",
		"name at least one column",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in:\n%v", want, err)
		}
	}
}

func TestAnUnknownOrRepeatedFieldOfACellFileIsAnErrorWithItsPlace(t *testing.T) {
	for name, text := range map[string]string{
		"unknown":  strings.Replace(goodFile, "table: invoices", "tabel: invoices", 1),
		"repeated": strings.Replace(goodFile, "table: invoices", "table: invoices\n    table: other", 1),
		"no YAML":  "cell: [",
		"empty":    "",
	} {
		if _, err := load(t, text); err == nil || !strings.Contains(err.Error(), "CELL_CONFIG") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := LoadOwnerConfig(filepath.Join(t.TempDir(), "missing.yaml")); err == nil {
		t.Error("a missing file was taken")
	}
}

func FuzzOwnerConfig(f *testing.F) {
	f.Add(goodFile)
	f.Add("cell: a\nstores: []")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := load(t, text)
		if err == nil && (len(c.Stores) == 0 || c.Stores[0].TenantColumn == "" || len(c.Stores[0].IdentityColumns) == 0) {
			t.Fatalf("taken, and can count nothing: %+v", c)
		}
	})
}
