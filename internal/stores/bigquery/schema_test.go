package bigquery_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	rest "google.golang.org/api/bigquery/v2"

	ddl "recount/deploy/bigquery"
	"recount/internal/stores"
	"recount/internal/stores/bigquery"
	"recount/internal/stores/bigquery/bqemu"
	"recount/internal/stores/storetest"
)

func eventsTable() stores.Table { return storetest.EventsTable() }

func ordersTable() stores.Table {
	return stores.Table{Store: "orders", Name: "orders", Tenant: "tenant", Identities: []string{"customer"}, Match: stores.MatchExact}
}

func TestRefusesWhatItCannotCountTruly(t *testing.T) {
	t.Parallel()
	field := func(m *rest.Table, i int) *rest.TableFieldSchema { return m.Schema.Fields[i] }
	for name, c := range map[string]struct {
		change func(*rest.Table)
		column string
		says   string
	}{
		"a view":              {func(m *rest.Table) { m.Type = "VIEW" }, "", "view"},
		"a materialized view": {func(m *rest.Table) { m.Type = "MATERIALIZED_VIEW" }, "", "materialized view"},
		"an external table":   {func(m *rest.Table) { m.Type = "EXTERNAL" }, "", "external"},
		"a snapshot":          {func(m *rest.Table) { m.Type = "SNAPSHOT" }, "", "snapshot"},
		"stale answers":       {func(m *rest.Table) { m.MaxStaleness = "0-0 0 4:0:0" }, "", "max_staleness"},
		"a number":            {func(m *rest.Table) { field(m, 1).Type = "INTEGER" }, "customer", "INTEGER"},
		"bytes as tenant":     {func(m *rest.Table) { field(m, 0).Type = "BYTES" }, "tenant", "BYTES"},
		"a list":              {func(m *rest.Table) { field(m, 1).Mode = "REPEATED" }, "customer", "repeated STRING"},
		"a collation":         {func(m *rest.Table) { field(m, 1).Collation = "und:ci" }, "customer", "und:ci"},
		"a policy tag": {func(m *rest.Table) {
			field(m, 1).PolicyTags = &rest.TableFieldSchemaPolicyTags{Names: []string{"projects/p/locations/eu/taxonomies/1/policyTags/2"}}
		}, "customer", "policy"},
		"a data policy":        {func(m *rest.Table) { field(m, 0).DataPolicies = []*rest.DataPolicyOption{{Name: "mask"}} }, "tenant", "policy"},
		"a missing column":     {func(m *rest.Table) { m.Schema.Fields = m.Schema.Fields[:1] }, "customer", "does not exist"},
		"a column case change": {func(m *rest.Table) { field(m, 1).Name = "client" }, "customer", "client"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.create(owners("orders", "tenant", "customer"))
			tab := w.table(ordersTable())
			if err := w.server.ChangeTable("orders", c.change); err != nil {
				t.Fatal(err)
			}
			_, err := w.client.Table(t.Context(), ordersTable())
			var refused *bigquery.RefusedError
			if !errors.As(err, &refused) || refused.Table != "orders" || refused.Column != c.column || refused.Mend == "" || !strings.Contains(err.Error(), c.says) {
				t.Errorf("Table answered %v", err)
			}
			if tab.Ready(t.Context()) == nil {
				t.Error("a store whose table has become uncountable is ready")
			}
		})
	}
}

func TestRefusesRowAccessPolicies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(owners("orders", "tenant", "customer"))
	post(t, w.server.URL()+"/_emulator/tables/policies", `{"table":"orders","filters":["region = 'EU'"]}`)
	var refused *bigquery.RefusedError
	if _, err := w.client.Table(t.Context(), ordersTable()); !errors.As(err, &refused) || !strings.Contains(err.Error(), "row access policies") {
		t.Errorf("Table answered %v", err)
	}
	if err := w.server.SetRowPolicies("orders"); err != nil {
		t.Fatal(err)
	}
	w.server.Inject(bqemu.Fault{At: bqemu.AtRowPolicies, Code: 403, Reason: "accessDenied"})
	if _, err := w.client.Table(t.Context(), ordersTable()); !errors.As(err, &refused) || !strings.Contains(err.Error(), "bigquery.rowAccessPolicies.list") {
		t.Errorf("Table answered %v", err)
	}
	w.table(ordersTable())
}

func TestNamesEveryFaultAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	meta := owners("orders", "tenant", "customer")
	meta.Schema.Fields[0].Type, meta.Schema.Fields[1].Type = "BYTES", "INTEGER"
	w.create(meta)
	_, err := w.client.Table(t.Context(), ordersTable())
	for _, part := range []string{"column tenant", "column customer"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not name %s", err, part)
		}
	}
}

func TestRefusesAMissingTableAndBadNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, name := range []string{"orders", "", "a`b", "other.orders"} {
		table := ordersTable()
		table.Name = name
		var refused *bigquery.RefusedError
		if _, err := w.client.Table(t.Context(), table); !errors.As(err, &refused) || refused.Mend == "" {
			t.Errorf("table %q: %v", name, err)
		}
	}
}

func TestOpensOnlyWhereTheDatasetIs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, change := range map[string]func(*bigquery.Config){
		"wrong location": func(c *bigquery.Config) { c.Location = "US" },
		"no dataset":     func(c *bigquery.Config) { c.Dataset = "nothing" },
		"no project":     func(c *bigquery.Config) { c.Project = "" },
		"no key":         func(c *bigquery.Config) { c.Key = nil },
		"bad emulator":   func(c *bigquery.Config) { c.EmulatorHost = "localhost" },
		"bad deadline":   func(c *bigquery.Config) { c.JobTimeout = -1 },
	} {
		cfg := config(w.server)
		change(&cfg)
		if c, err := bigquery.Open(t.Context(), cfg); err == nil {
			t.Errorf("%s: opened", name)
			_ = c.Close()
		}
	}
	open(t, w.server, func(c *bigquery.Config) { c.Location = "eu" })
}

func mustDDL(t *testing.T) []string {
	t.Helper()
	statements, err := ddl.Statements()
	if err != nil {
		t.Fatal(err)
	}
	return statements
}

func TestTheDDLMakesTablesThatOurStoresTake(t *testing.T) {
	t.Parallel()
	server, err := bqemu.Start(t.Context(), bqemu.Options{DDL: mustDDL(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	client := open(t, server)
	text := func(names ...string) (out []stores.Column) {
		for _, n := range names {
			out = append(out, stores.Column{Name: n})
		}
		return out
	}
	number := func(n string) stores.Column { return stores.Column{Name: n, Kind: stores.Real} }
	object := func(n string) stores.Column { return stores.Column{Name: n, Kind: stores.JSON, Nullable: true} }
	instant := func(n string) stores.Column { return stores.Column{Name: n, Kind: stores.Instant} }
	for name, own := range map[string][]stores.Column{
		"intent_events":       append(text("event_type"), instant("occurred_at"), object("payload")),
		"intent_scores":       append(text("model_version"), number("score"), object("features")),
		"holdout_assignments": text("experiment", "identity_kind", "assignment"),
		"outcomes":            append(text("experiment", "metric"), number("value")),
	} {
		table := stores.Table{Store: name, Name: name, Tenant: "tenant_id", Identities: []string{"identity_id"}, Source: "source", SourceRef: "source_ref"}
		table.Columns = append(text(stores.RowIDColumn, "tenant_id", "identity_id", "source", "source_ref", "consent_basis"), object("derived_from"), instant("ingested_at"))
		table.Columns = append(table.Columns, own...)
		tab, err := client.Table(t.Context(), table)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, err := tab.Append(t.Context(), []stores.Row{storetest.NewRow(table, "acme", "crm", "1", "alice")}, 0); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSurveyFindsTheColumnsThatNoStoreCovers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	orders := owners("orders", "tenant", "customer", "email", "total")
	orders.Schema.Fields = append(orders.Schema.Fields, &rest.TableFieldSchema{
		Name: "ship_to", Type: "RECORD", Fields: []*rest.TableFieldSchema{{Name: "phone", Type: "STRING"}, {Name: "street", Type: "STRING"}},
	})
	w.create(orders)
	w.create(owners("tickets", "requester_email"))
	view := owners("orders_view", "customer")
	view.Type = "VIEW"
	w.create(view)
	got, err := w.client.Survey(t.Context(), []stores.Table{ordersTable()})
	want := "[{orders email} {orders ship_to.phone} {tickets requester_email}]"
	if err != nil || fmt.Sprint(got) != want {
		t.Errorf("Survey = %v, %v, want %s", got, err, want)
	}
	w.server.Inject(bqemu.Fault{At: bqemu.AtTablesGet, Code: 403, Reason: "accessDenied"})
	if _, err := w.client.Survey(t.Context(), nil); err == nil {
		t.Error("a survey that could not see a table answered no error")
	}
}
