package e2e

import (
	"context"
	"database/sql"
	"net"
	"net/http"
	"net/http/httptest"
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

// startCell starts one cell beside the fleet.
func startCell(t *testing.T, dir string, env map[string]string) *fleet.Service {
	t.Helper()
	addr := freeAddress(t)
	cmd := exec.Command(filepath.Join(binaries, "cell"))
	cmd.Env = []string{"AUTH_MODE=off", "LISTEN_ADDR=" + addr, "DATA_DIR=" + filepath.Join(dir, "data")}
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	s := &fleet.Service{Name: "cell", URL: "http://" + addr}
	for deadline := time.Now().Add(15 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		response, err := http.Get(s.URL + "/ready")
		if err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return s
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("the cell is not ready")
		}
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
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

// slowPeer is an honest cell that takes its time.
func slowPeer(t *testing.T, delay time.Duration) *httptest.Server {
	t.Helper()
	s := (&cascadetest.Cell{Name: "slow", Stores: []string{"rows"}, Delay: delay}).Start()
	t.Cleanup(s.Close)
	return s
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
	addr := freeAddress(t)
	cmd := exec.Command(filepath.Join(binaries, "cell"))
	cmd.Env = []string{"AUTH_MODE=off", "LISTEN_ADDR=" + addr, "CELL=graph", "DATA_DIR=" + w.Graph.DataDir}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	s := &fleet.Service{Name: "graph", URL: "http://" + addr}
	for deadline := time.Now().Add(15 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if response, err := http.Get(s.URL + "/health"); err == nil {
			_ = response.Body.Close()
			return s
		}
		if time.Now().After(deadline) {
			t.Fatal("the second graph doesn't answer")
		}
	}
}
