// Command bench measures the speed table of docs/speed.md on this machine: ratios of two things in one run, A and B in
// turn, medians and p99. The baselines are raw code in this folder, never a switch in the product. It prints a table
// and writes bench/latest.json; it exits 1 when a figure misses its bar.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
)

// row is one figure of the table.
type row struct {
	Figure string  `json:"figure"`
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"` // "ratio", "ms", "rows/s", …
	Bar    string  `json:"bar"`
	Inside bool    `json:"inside"` // true where the bar is only a report
	Detail string  `json:"detail"`
}

type report struct {
	At    time.Time `json:"at"`
	CPUs  int       `json:"cpus"`
	Go    string    `json:"go"`
	Rows  []row     `json:"rows"`
	Notes []string  `json:"notes"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	bin := flag.String("bin", "bin", "folder of the built binaries")
	out := flag.String("out", "bench/latest.json", "where the figures are written")
	only := flag.String("only", "", "run one part: cascade, fleet, erase, batch, bigquery, import, guarded, ledger, start")
	flag.Parse()
	debug.SetGCPercent(400) // up to 64 peers live in this process: their garbage is not the cascade's to collect
	dir, err := os.MkdirTemp("", "recount-bench-")
	if err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	b := &bench{bin: *bin, dir: dir}
	r := report{At: time.Now().UTC().Truncate(time.Second), CPUs: runtime.NumCPU(), Go: runtime.Version()}
	parts := []struct {
		name string
		run  func(context.Context) ([]row, error)
	}{
		{"cascade", b.cascade},
		{"fleet", b.fourCells},
		{"erase", b.erase},
		{"batch", b.batch},
		{"bigquery", b.bigQuery},
		{"import", b.bulkImport},
		{"guarded", b.guarded},
		{"ledger", b.ledger},
		{"start", b.start},
	}
	for _, part := range parts {
		if *only != "" && *only != part.name {
			continue
		}
		fmt.Fprintln(os.Stderr, "measuring", part.name, "…")
		rows, err := part.run(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		r.Rows = append(r.Rows, rows...)
	}
	show(r)
	encoded, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding: %w", err)
	}
	if *only == "" {
		if err := os.WriteFile(*out, append(encoded, '\n'), 0o600); err != nil {
			return fmt.Errorf("writing the figures: %w", err)
		}
	}
	if slices.ContainsFunc(r.Rows, func(r row) bool { return !r.Inside }) {
		return errors.New("a figure is outside its bar")
	}
	return nil
}

func show(r report) {
	t := table.NewWriter()
	t.SetOutputMirror(os.Stdout)
	t.AppendHeader(table.Row{"figure", "value", "bar", "", "detail"})
	for _, row := range r.Rows {
		mark := "ok"
		if !row.Inside {
			mark = "OUTSIDE"
		}
		t.AppendRow(table.Row{row.Figure, fmt.Sprintf("%.3g %s", row.Value, row.Unit), row.Bar, mark, row.Detail})
	}
	t.Render()
}

// bench is where the parts find the binaries and a folder.
type bench struct{ bin, dir string }

// spread is a list of durations, for its median and p99.
type spread []time.Duration

func (s spread) at(q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(s))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func (s spread) p50() time.Duration { return s.at(0.5) }
func (s spread) p99() time.Duration { return s.at(0.99) }

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func atMost(figure string, value float64, unit string, bar float64, detail string) row {
	return row{Figure: figure, Value: value, Unit: unit, Bar: fmt.Sprintf("<= %g", bar), Inside: value <= bar, Detail: detail}
}

// atLeast is a ratio with a bar below it.
func atLeast(figure string, value float64, bar float64, detail string) row {
	return row{Figure: figure, Value: value, Unit: "ratio", Bar: fmt.Sprintf(">= %g", bar), Inside: value >= bar, Detail: detail}
}

func reported(figure string, value float64, unit, aim, detail string) row {
	return row{Figure: figure, Value: value, Unit: unit, Bar: aim, Inside: true, Detail: detail}
}
