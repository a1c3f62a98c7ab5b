package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"recount/internal/fleet"
)

const eraseRows = 4 // rows of one subject in the erase figures

// fourCells measures a whole cascade on loopback: a subject of 12 rows over four cells.
func (b *bench) fourCells(ctx context.Context) ([]row, error) {
	f, err := fleet.Start(ctx, fleet.Options{Bin: b.bin, Dir: filepath.Join(b.dir, "fleet")})
	if err != nil {
		return nil, err
	}
	defer f.Stop()
	const people = 600
	for _, to := range []struct {
		url  string
		rows int
		own  string
	}{
		{f.Ingest.URL + "/v1/intent/events", 6, `"event_type":"v","occurred_at":"2026-11-01T10:00:00Z"`},
		{f.Coordinator.URL + "/v1/intent/scores", 2, `"model_version":"m","score":0.5`},
		{f.Graph.URL + "/v1/intent/graph/edges", 2, `"related_id":"somebody","relation":"knows"`},
		{f.Causal.URL + "/v1/intent/holdouts", 1, `"experiment":"e","identity_kind":"deterministic"`},
		{f.Causal.URL + "/v1/intent/outcomes", 1, `"experiment":"e","metric":"m","value":1`},
	} {
		var body bytes.Buffer
		for p := range people {
			for r := range to.rows {
				fmt.Fprintf(&body, `{"tenant_id":"acme","identity_id":%q,"source":"s","source_ref":"%d-%d","consent_basis":"c",%s}`+"\n", person("c", p), p, r, to.own)
			}
		}
		if _, err := post(ctx, to.url, "application/x-ndjson", &body, http.StatusOK); err != nil {
			return nil, err
		}
	}
	erase := func(i int) error { return eraseAt(ctx, f.Coordinator.URL, "erase", person("c", i)) }
	if _, _, err := clients(1, 100, erase); err != nil { // warm-up
		return nil, err
	}
	_, took, err := clients(1, people-100, func(i int) error { return erase(100 + i) })
	if err != nil {
		return nil, err
	}
	return []row{
		atMost("four-cell cascade, 12 rows, 1 client: p50", ms(took.p50()), "ms", 6, ""),
		atMost("four-cell cascade, 12 rows, 1 client: p99", ms(took.p99()), "ms", 20, fmt.Sprintf("%d cascades", len(took))),
	}, nil
}

// erase measures one cell's erase over HTTP against the bare statements.
func (b *bench) erase(ctx context.Context) ([]row, error) {
	f, err := fleet.Start(ctx, fleet.Options{Bin: b.bin, Dir: filepath.Join(b.dir, "erase"), Without: []string{"coordinator", "graph", "causal"}})
	if err != nil {
		return nil, err
	}
	defer f.Stop()
	baseline, err := newBare(ctx, b.dir, "bare.db")
	if err != nil {
		return nil, err
	}
	defer func() { _ = baseline.db.Close() }()
	var rows []row
	for _, step := range []struct {
		width, n int
		bar      float64
	}{{1, 150, 0.6}, {8, 600, 1.5}, {32, 1500, 3}} {
		ratio, detail, err := b.eraseAt(ctx, f, baseline, step.width, step.n)
		if err != nil {
			return nil, err
		}
		rows = append(rows, atLeast(fmt.Sprintf("cell erase over HTTP / bare statements, %d clients", step.width), ratio, step.bar, detail))
	}
	return rows, nil
}

func (b *bench) eraseAt(ctx context.Context, f *fleet.Fleet, baseline *bare, width, n int) (ratio float64, detail string, err error) {
	const rounds = 5
	var ratios, ours, theirs []float64
	for round := range rounds {
		prefix := fmt.Sprintf("e%d-%d-", width, round)
		if err := load(ctx, f.Ingest.URL, n, eraseRows, prefix); err != nil {
			return 0, "", err
		}
		if err := baseline.insert(ctx, n, eraseRows, 1000, prefix); err != nil {
			return 0, "", err
		}
		product, _, err := clients(width, n, func(i int) error { return eraseAt(ctx, f.Ingest.URL, "delete", person(prefix, i)) })
		if err != nil {
			return 0, "", err
		}
		raw, _, err := clients(width, n, func(i int) error { return baseline.erase(ctx, person(prefix, i)) })
		if err != nil {
			return 0, "", err
		}
		ratios = append(ratios, float64(raw)/float64(product))
		ours, theirs = append(ours, float64(n)/product.Seconds()), append(theirs, float64(n)/raw.Seconds())
	}
	return median(ratios), fmt.Sprintf("%.0f/s against %.0f/s", median(ours), median(theirs)), nil
}

func median(v []float64) float64 { return slices.Sorted(slices.Values(v))[len(v)/2] }

// batch measures batchErase of 1,000 subjects against as many single erases.
func (b *bench) batch(ctx context.Context) ([]row, error) {
	f, err := fleet.Start(ctx, fleet.Options{Bin: b.bin, Dir: filepath.Join(b.dir, "batch")})
	if err != nil {
		return nil, err
	}
	defer f.Stop()
	var ratios []float64
	for round := range 3 {
		prefix := fmt.Sprintf("b%d-", round)
		if err := load(ctx, f.Ingest.URL, 2000, 3, prefix); err != nil {
			return nil, err
		}
		single, _, err := clients(1, 1000, func(i int) error { return eraseAt(ctx, f.Coordinator.URL, "erase", person(prefix, i)) })
		if err != nil {
			return nil, err
		}
		ids := make([]string, 1000)
		for i := range ids {
			ids[i] = person(prefix, 1000+i)
		}
		started := time.Now()
		if _, err := postJSON(ctx, f.Coordinator.URL+"/v1/intent/subject:batchErase", map[string]any{"tenant_id": "acme", "identity_ids": ids}, http.StatusOK); err != nil {
			return nil, err
		}
		ratios = append(ratios, float64(single)/float64(time.Since(started)))
	}
	return []row{atLeast("1,000 single cascades / batchErase of 1,000", median(ratios), 10, "")}, nil
}

// bulkImport measures rows a second over HTTP against raw prepared inserts of the same rows.
func (b *bench) bulkImport(ctx context.Context) ([]row, error) {
	const rows = 100_000
	var ratios, ours []float64
	for round := range 3 {
		f, err := fleet.Start(ctx, fleet.Options{Bin: b.bin, Dir: filepath.Join(b.dir, fmt.Sprintf("import%d", round)), Without: []string{"coordinator", "graph", "causal"}})
		if err != nil {
			return nil, err
		}
		started := time.Now()
		err = load(ctx, f.Ingest.URL, rows/10, 10, "raw")
		product := time.Since(started)
		f.Stop()
		if err != nil {
			return nil, err
		}
		raw, err := rawImport(ctx, b.dir, fmt.Sprintf("import%d.db", round), rows)
		if err != nil {
			return nil, err
		}
		ratios, ours = append(ratios, float64(raw)/float64(product)), append(ours, rows/product.Seconds())
	}
	return []row{reported("bulk import over HTTP / raw prepared inserts", median(ratios), "ratio", "aim at 0.6", fmt.Sprintf("%.0f rows/s", median(ours)))}, nil
}

// start measures a cell from its start to its first healthy answer, and its memory then.
func (b *bench) start(ctx context.Context) ([]row, error) {
	var took spread
	var memory []float64
	for i := range 11 {
		started := time.Now()
		f, err := fleet.Start(ctx, fleet.Options{Bin: b.bin, Dir: filepath.Join(b.dir, fmt.Sprintf("start%d", i)), Without: []string{"coordinator", "graph", "causal"}})
		if err != nil {
			return nil, err
		}
		took = append(took, time.Since(started))
		resident, err := residentMB(f.Ingest.PID())
		f.Stop()
		if err != nil {
			return nil, err
		}
		memory = append(memory, resident)
	}
	return []row{
		atMost("start to the first ready answer", ms(took.p50()), "ms", 60, "median of 11"),
		atMost("resident memory then", median(memory), "MB", 40, ""),
	}, nil
}

func residentMB(pid int) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("reading the process's memory: %w", err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, found := strings.CutPrefix(line, "VmRSS:"); found {
			kb, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			return kb / 1024, err
		}
	}
	return 0, fmt.Errorf("no VmRSS for process %d", pid)
}
