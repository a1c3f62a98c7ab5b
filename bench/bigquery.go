package main

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"

	ddl "recount/deploy/bigquery"
	"recount/internal/fleet"
	"recount/internal/stores/bigquery/bqemu"
	"recount/internal/stores/firestore/firestoretest"
)

// bigQuery counts the statements that a batch of 1,000 subjects costs, by table, over the wire against the emulator.
func (b *bench) bigQuery(ctx context.Context) ([]row, error) {
	tables, err := ddl.Statements()
	if err != nil {
		return nil, err
	}
	emulator, err := bqemu.Start(ctx, bqemu.Options{DDL: tables})
	if err != nil {
		return nil, err
	}
	defer emulator.Close()
	ledgers, stop, err := firestoretest.Start()
	if err != nil {
		return nil, err
	}
	defer stop()
	f, err := fleet.Start(ctx, fleet.Options{
		Bin: b.bin, Dir: filepath.Join(b.dir, "bigquery"), Without: []string{"coordinator", "ingest", "graph"},
		Env: map[string]string{
			"STORE_BACKEND": "gcp", "GCP_PROJECT": emulator.Project(), "BIGQUERY_DATASET": emulator.Dataset(), "BIGQUERY_EMULATOR_HOST": emulator.Host(),
			"FIRESTORE_EMULATOR_HOST": ledgers,
		},
	})
	if err != nil {
		return nil, err
	}
	defer f.Stop()
	ids := make([]string, 1000)
	for i := range ids {
		ids[i] = person("q", i)
	}
	before := len(emulator.Statements())
	if _, err := postJSON(ctx, f.Causal.URL+"/v1/intent/subject:batchDelete", map[string]any{"tenant_id": "acme", "identity_ids": ids}, http.StatusOK); err != nil {
		return nil, err
	}
	perTable := map[string]int{}
	most := 0
	for _, s := range emulator.Statements()[before:] {
		if s.Kind == "select" || s.Kind == "delete" {
			perTable[s.Table]++
			most = max(most, perTable[s.Table])
		}
	}
	if len(perTable) != 2 {
		return nil, fmt.Errorf("statements at %d tables, not at 2", len(perTable))
	}
	return []row{atMost("BigQuery statements per table for a batch of 1,000 subjects", float64(most), "statements", 3, fmt.Sprint(perTable))}, nil
}
