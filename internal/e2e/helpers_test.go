package e2e

import (
	"bytes"
	"context"
	"database/sql"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	_ "modernc.org/sqlite" // an owner's table, and a look into the audit

	"recount/internal/cascade/cascadetest"
	"recount/internal/fleet"
)

// ownersTable makes an owner's database and a cell file over its table invoices.
func ownersTable(t *testing.T, dir string, statements ...string) (config string) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(dir, "billing.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	for _, s := range append([]string{"PRAGMA journal_mode=WAL"}, statements...) {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	config = filepath.Join(dir, "billing.yaml")
	text := `cell: billing
stores:
  - store: invoices
    backend: sqlite
    path: billing.db
    table: invoices
    tenant_column: tenant
    identity_columns: [customer_id]
    about: {purposes: [billing], retention: ten years, source: the customer}
`
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return config
}

// startCell starts one cell beside the fleet, and waits for a 200 of the path.
func startCell(t *testing.T, until string, env map[string]string) *fleet.Service {
	t.Helper()
	addr, err := fleet.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(binaries, "cell"))
	cmd.Env = []string{"AUTH_MODE=off", "LISTEN_ADDR=" + addr}
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the cell beside the fleet said:\n%s", log.Bytes())
		}
	})
	s := &fleet.Service{Name: "cell", URL: "http://" + addr}
	eventually(t, "the cell beside the fleet never answered", func() bool {
		r, err := try(http.DefaultClient, http.MethodGet, s.URL+until, nil, nil)
		return err == nil && r.Code == http.StatusOK
	})
	return s
}

// eventually waits until something holds, and not for ever.
func eventually(t *testing.T, otherwise string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(15 * time.Second); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(otherwise)
		}
	}
}

// refusedStart runs a binary that must end by itself with an error, and answers what it printed.
func refusedStart(t *testing.T, binary string, env map[string]string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(binaries, binary))
	cmd.Env = []string{"HOME=" + t.TempDir()}
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	out, err := cmd.CombinedOutput()
	if err == nil || ctx.Err() != nil {
		t.Fatalf("it started: %v\n%s", err, out)
	}
	return string(out)
}

// withSlowPeer gives the coordinator a fourth peer: an honest cell that takes its time.
func withSlowPeer(t *testing.T, delay time.Duration, more map[string]string) func(*fleet.Options) {
	t.Helper()
	slow := (&cascadetest.Cell{Name: "slow", Stores: []string{"rows"}, Delay: delay}).Start()
	t.Cleanup(slow.Close)
	return func(o *fleet.Options) {
		everywhere(map[string]string{"INTENT_SUBJECT_SALT": cascadetest.SaltText})(o)
		env := map[string]string{"CASCADE_EXTRA_PEERS": "slow=" + slow.URL, "CASCADE_EXPECTED_STORES": "slow=rows"}
		maps.Copy(env, more)
		own("coordinator", env)(o)
	}
}

// auditRows are the rows of an audit table, each as its columns.
func auditRows(t *testing.T, path string) (rows []map[string]any) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	result, err := db.QueryContext(t.Context(), "SELECT * FROM intent_erasure_audit")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = result.Close() }()
	columns, err := result.Columns()
	if err != nil {
		t.Fatal(err)
	}
	for result.Next() {
		values := make([]any, len(columns))
		pointers := make([]any, len(columns))
		for i := range values {
			pointers[i] = &values[i]
		}
		if err := result.Scan(pointers...); err != nil {
			t.Fatal(err)
		}
		row := map[string]any{}
		for i, c := range columns {
			row[c] = values[i]
		}
		rows = append(rows, row)
	}
	if err := result.Err(); err != nil {
		t.Fatal(err)
	}
	return rows
}

// secondGraph starts another graph process on the data of the first. It is alive, and need not be ready.
func secondGraph(t *testing.T, w *world) *fleet.Service {
	t.Helper()
	return startCell(t, "/health", map[string]string{"CELL": "graph", "DATA_DIR": w.Graph.DataDir})
}
