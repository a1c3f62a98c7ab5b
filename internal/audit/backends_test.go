package audit_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	bq "cloud.google.com/go/bigquery"
	"google.golang.org/api/option"

	deploy "recount/deploy/bigquery"
	"recount/internal/audit"
	"recount/internal/stores/bigquery"
	"recount/internal/stores/bigquery/bqemu"
	"recount/internal/stores/sqlite"
)

var (
	_ audit.Sink = (*bigquery.Client)(nil)
	_ audit.Sink = (*sqlite.Audit)(nil)
)

// TestABigQueryTableThatIsMadeTooLateGetsEveryRowOnce goes over the wire: the dataset has no audit table at first.
func TestABigQueryTableThatIsMadeTooLateGetsEveryRowOnce(t *testing.T) {
	server, err := bqemu.Start(t.Context(), bqemu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	client, err := bigquery.Open(t.Context(), bigquery.Config{
		Project: server.Project(), Dataset: server.Dataset(), EmulatorHost: server.Host(), Key: []byte("0123456789abcdef"), JobTimeout: 5 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close() //nolint:errcheck // the test is over
	watch := &tally{}
	r := audit.NewRecorder(client, watch, audit.DefaultCapacity)
	rows := audit.FromReceipts(event(t), "ingest", nil)
	rows = append(rows, numbered(0, 5)...)
	r.Record(rows...)
	for watch.failed.Load() == 0 {
		time.Sleep(5 * time.Millisecond)
	}
	statements, err := deploy.Statements()
	if err != nil {
		t.Fatal(err)
	}
	for _, ddl := range statements {
		if err := server.Exec(ddl); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := countRows(t, server); n != int64(len(rows)) || watch.dropped.Load() != 0 {
		t.Errorf("%d rows in the table, want %d", n, len(rows))
	}
}

func countRows(t *testing.T, server *bqemu.Server) int64 {
	t.Helper()
	client, err := bq.NewClient(t.Context(), server.Project(), option.WithEndpoint(server.URL()+"/bigquery/v2/"), option.WithoutAuthentication())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close() //nolint:errcheck // the test is over
	found, err := client.Query("SELECT COUNT(*) AS n FROM `" + server.Project() + "." + server.Dataset() + ".intent_erasure_audit`").Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var row []bq.Value
	if err := found.Next(&row); err != nil {
		t.Fatal(err)
	}
	n, _ := row[0].(int64)
	return n
}

// forgetful loses the answer of every other insert that went well.
type forgetful struct {
	audit.Sink
	inserts atomic.Int64
}

func (f *forgetful) InsertAudit(ctx context.Context, rows []map[string]any) error {
	if err := f.Sink.InsertAudit(ctx, rows); err != nil {
		return err //nolint:wrapcheck // a test's
	}
	if f.inserts.Add(1)%2 == 1 {
		return errors.New("the answer is lost")
	}
	return nil
}

func TestASQLiteTableGetsEveryRowOnceThoughAnswersAreLost(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cell.db")
	db, err := sqlite.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	table, err := db.Audit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sink, watch := &forgetful{Sink: table}, &tally{}
	r := audit.NewRecorder(sink, watch, audit.DefaultCapacity)
	r.Record(numbered(0, 1200)...)
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if watch.failed.Load() == 0 {
		t.Fatal("no answer was lost")
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	pool, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close() //nolint:errcheck // the test is over
	var n int
	if err := pool.QueryRowContext(t.Context(), "SELECT count(*) FROM intent_erasure_audit").Scan(&n); err != nil || n != 1200 {
		t.Errorf("%d rows, %v", n, err)
	}
}
