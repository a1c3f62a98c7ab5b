package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"recount/internal/intake"
	"recount/internal/stores/sqlite"
	"recount/internal/subject"
	"recount/internal/suppression"
)

const (
	guardedRows  = 1_000_000
	guardedSlice = 50_000 // rows of one kind, before the next kind's turn
	suppressed   = 10_000
)

// alwaysNo is the baseline's guard: it asks nobody, and admits everything.
type alwaysNo struct{}

func (alwaysNo) Ahead(context.Context, []subject.Record) *suppression.Decision { return nil }

func (alwaysNo) Write(ctx context.Context, records []subject.Record, _ *suppression.Decision, write func(context.Context, suppression.Decision) error) (suppression.Decision, error) {
	d := suppression.Decision{Verdicts: make([]suppression.Verdict, len(records))}
	for i := range d.Verdicts {
		d.Verdicts[i] = suppression.Admitted
	}
	return d, write(ctx, d)
}

func (alwaysNo) Recheck(_ context.Context, _ []subject.Record, d suppression.Decision) suppression.Decision {
	return d
}

// importer is one way to import slices of the same rows, and how long it took.
type importer struct {
	run  func(from, to int) error
	took time.Duration
}

// guarded measures an import by way of the guard, with suppressed keys in the ledger, against the same intake with a
// guard that always says no, and against raw prepared inserts, on the disk and in memory.
func (b *bench) guarded(ctx context.Context) ([]row, error) {
	var out []row
	for _, medium := range []struct{ name, dir string }{{"disk", b.dir}, {"tmpfs", "/dev/shm"}} {
		if _, err := os.Stat(medium.dir); err != nil {
			continue // no tmpfs on this machine
		}
		dir, err := os.MkdirTemp(medium.dir, "guarded-")
		if err != nil {
			return nil, fmt.Errorf("making a folder: %w", err)
		}
		rows, err := guardedOn(ctx, medium.name, dir)
		_ = os.RemoveAll(dir)
		if err != nil {
			return nil, err
		}
		out = append(out, rows...)
	}
	return out, nil
}

func guardedOn(ctx context.Context, medium, dir string) ([]row, error) {
	ours, stopOurs, err := guardedImport(ctx, filepath.Join(dir, "guarded"), true)
	if err != nil {
		return nil, err
	}
	defer stopOurs()
	no, stopNo, err := guardedImport(ctx, filepath.Join(dir, "no"), false)
	if err != nil {
		return nil, err
	}
	defer stopNo()
	raw, err := newBare(ctx, dir, "raw.db")
	if err != nil {
		return nil, err
	}
	defer func() { _ = raw.db.Close() }()
	ways := []*importer{{run: ours}, {run: no}, {run: func(from, to int) error {
		return raw.insert(ctx, (to-from)/10, 10, 1000, fmt.Sprint("g", from))
	}}}
	for from := 0; from < guardedRows; from += guardedSlice {
		for turn := range ways { // in turn, each first as often as the others
			way := ways[(turn+from/guardedSlice)%len(ways)]
			started := time.Now()
			if err := way.run(from, from+guardedSlice); err != nil {
				return nil, err
			}
			way.took += time.Since(started)
		}
	}
	detail := fmt.Sprintf("%.0f rows/s", guardedRows/ways[0].took.Seconds())
	return []row{
		atLeast("guarded import, 10,000 suppressed keys / guard that always says no, "+medium, float64(ways[1].took)/float64(ways[0].took), 0.95, detail),
		atLeast("guarded import of 1,000,000 rows / raw prepared inserts, "+medium, float64(ways[2].took)/float64(ways[0].took), 0.9, detail),
	}, nil
}

// guardedImport is the product's intake in this process, with or without a ledger.
func guardedImport(ctx context.Context, dir string, ledger bool) (run func(from, to int) error, stop func(), err error) {
	db, err := sqlite.Open(ctx, filepath.Join(dir, "recount.db"))
	if err != nil {
		return nil, nil, err
	}
	in := &intake.Intake{Kind: intake.Events(), Guard: alwaysNo{}, Budget: intake.NewBudget()}
	if ledger {
		if in.Guard, err = fullLedger(ctx, db); err != nil {
			return nil, nil, err
		}
	}
	if in.Store, err = db.Table(ctx, in.Kind.Table); err != nil {
		return nil, nil, err
	}
	return func(from, to int) error {
		var body bytes.Buffer
		for i := from; i < to; i++ {
			fmt.Fprintf(&body, `{"tenant_id":"acme","identity_id":%q,"source":"web","source_ref":"g-%d","consent_basis":"consent","event_type":"page_view",`+
				`"occurred_at":"2026-11-01T10:00:00Z","payload":{"path":"/running-shoes","seconds":17}}`+"\n", person("g", i/10), i)
		}
		answer, err := in.Take(ctx, func(string) bool { return true }, &body, true)
		if err == nil && answer.Accepted != to-from {
			err = fmt.Errorf("%d of %d rows were taken", answer.Accepted, to-from)
		}
		return err
	}, func() { _ = db.Close() }, nil
}

func fullLedger(ctx context.Context, db *sqlite.DB) (*suppression.Guard, error) {
	keys, err := suppression.ParseKeys("a suppression secret for the bench")
	if err != nil {
		return nil, err
	}
	ledger, err := db.Ledger(ctx, keys)
	if err != nil {
		return nil, err
	}
	entries := make([]suppression.Entry, suppressed)
	for i := range entries {
		source, err := subject.NewSource("acme", "web", fmt.Sprintf("erased-%d", i))
		if err != nil {
			return nil, err
		}
		entries[i] = suppression.Entry{Source: source, Reason: "bench", ErasedAt: time.Now(), Erasure: subject.Ref(fmt.Sprint(i / 10))}
	}
	_, err = ledger.Record(ctx, entries)
	return &suppression.Guard{Ledger: ledger}, err
}
