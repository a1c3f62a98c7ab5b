package bigquery_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	bq "cloud.google.com/go/bigquery"
	rest "google.golang.org/api/bigquery/v2"
	"google.golang.org/api/option"

	"recount/internal/stores"
	"recount/internal/stores/bigquery"
	"recount/internal/stores/bigquery/bqemu"
	"recount/internal/stores/storetest"
	"recount/internal/subject"
)

const key = "0123456789abcdef"

// world is an emulator, a client of ours, and the tools of a test.
type world struct {
	t      *testing.T
	server *bqemu.Server
	client *bigquery.Client
	seeder *bigquery.Table // writes what a test starts from, with all the patience that a busy machine takes
}

func newWorld(t *testing.T, change ...func(*bigquery.Config)) *world {
	t.Helper()
	server, err := bqemu.Start(t.Context(), bqemu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return &world{t: t, server: server, client: open(t, server, change...)}
}

func open(t *testing.T, server *bqemu.Server, change ...func(*bigquery.Config)) *bigquery.Client {
	t.Helper()
	cfg := config(server)
	for _, c := range change {
		c(&cfg)
	}
	client, err := bigquery.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func config(server *bqemu.Server) bigquery.Config {
	return bigquery.Config{
		Project: server.Project(), Dataset: server.Dataset(), EmulatorHost: server.Host(), Key: []byte(key),
		JobTimeout: time.Minute,
	}
}

func impatient(d time.Duration) func(*bigquery.Config) {
	return func(c *bigquery.Config) { c.JobTimeout = d }
}

// live is the metadata of a live table that fits a table of ours.
func live(table stores.Table) *rest.Table {
	out := &rest.Table{TableReference: &rest.TableReference{TableId: table.Name}, Schema: &rest.TableSchema{}}
	types := map[stores.Kind]string{stores.Text: "STRING", stores.JSON: "STRING", stores.Real: "FLOAT", stores.Instant: "TIMESTAMP"}
	for _, c := range table.Columns {
		f := &rest.TableFieldSchema{Name: c.Name, Type: types[c.Kind], Mode: "REQUIRED"}
		if c.Nullable {
			f.Mode = "NULLABLE"
		}
		out.Schema.Fields = append(out.Schema.Fields, f)
	}
	return out
}

// owners is the metadata of an owner's table with STRING columns.
func owners(name string, columns ...string) *rest.Table {
	out := &rest.Table{TableReference: &rest.TableReference{TableId: name}, Schema: &rest.TableSchema{}}
	for _, c := range columns {
		out.Schema.Fields = append(out.Schema.Fields, &rest.TableFieldSchema{Name: c, Type: "STRING"})
	}
	return out
}

func (w *world) create(meta *rest.Table) {
	w.t.Helper()
	if err := w.server.CreateTable(meta); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) table(t stores.Table) *bigquery.Table {
	w.t.Helper()
	tab, err := w.client.Table(w.t.Context(), t)
	if err != nil {
		w.t.Fatal(err)
	}
	return tab
}

// events is a table that is ours, live and empty.
func (w *world) events() *bigquery.Table {
	w.t.Helper()
	w.create(live(storetest.EventsTable()))
	seeder, err := open(w.t, w.server).Table(w.t.Context(), storetest.EventsTable())
	if err != nil {
		w.t.Fatal(err)
	}
	w.seeder = seeder
	return w.table(storetest.EventsTable())
}

func (w *world) exec(format string, args ...any) {
	w.t.Helper()
	if err := w.server.Exec(fmt.Sprintf(format, args...)); err != nil {
		w.t.Fatal(err)
	}
}

func row(tenant, ref, identity string) stores.Row {
	return storetest.NewRow(storetest.EventsTable(), tenant, "crm", ref, identity)
}

func (w *world) append(tab *bigquery.Table, rows ...stores.Row) []bool {
	w.t.Helper()
	created, err := tab.Append(w.t.Context(), rows, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	return created
}

// seed writes a row of each identity.
func (w *world) seed(identities ...string) {
	w.t.Helper()
	rows := make([]stores.Row, len(identities))
	for i, id := range identities {
		rows[i] = row("acme", fmt.Sprintf("ref-%s-%d", id, i), id)
	}
	w.append(w.seeder, rows...)
}

func who(t *testing.T, tenant, identity string) subject.Subject {
	t.Helper()
	s, err := subject.New(tenant, identity)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (w *world) alice() subject.Subject { return who(w.t, "acme", "alice") }

func (w *world) wantCount(tab *bigquery.Table, s subject.Subject, want int64) {
	w.t.Helper()
	got, err := tab.Count(w.t.Context(), s)
	if err != nil || got != want {
		w.t.Fatalf("Count = %d, %v, want %d", got, err, want)
	}
}

// statements are those of a kind that were submitted since the first n.
func (w *world) statements(kind string) []bqemu.Statement {
	var out []bqemu.Statement
	for _, s := range w.server.Statements() {
		if s.Kind == kind {
			out = append(out, s)
		}
	}
	return out
}

// raw is the official client, to look at what is there.
func (w *world) raw() *bq.Client {
	w.t.Helper()
	c, err := bq.NewClient(w.t.Context(), w.server.Project(), option.WithEndpoint(w.server.URL()+"/bigquery/v2/"), option.WithoutAuthentication())
	if err != nil {
		w.t.Fatal(err)
	}
	c.Location = "EU"
	w.t.Cleanup(func() { _ = c.Close() })
	return c
}

func post(t *testing.T, url, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusNoContent {
		t.Fatalf("%s answered %s", url, res.Status)
	}
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
