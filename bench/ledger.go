package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"recount/internal/erasure"
	"recount/internal/ledger"
	"recount/internal/stores"
	"recount/internal/stores/sqlite"
	"recount/internal/verify"
)

const (
	ledgerTurns   = 9         // of each side, in turn
	ledgerTurn    = 3000      // appends of one turn
	ledgerEntries = 1_000_000 // of the ledger that is verified
	openFew       = 100
	openMany      = 10_000
)

func benchRecord(i int) ledger.Record {
	return ledger.Record{
		V: ledger.Version, EntryID: fmt.Sprintf("%032x", i), AtUS: 1_796_135_144_107_747, TenantID: "acme", Method: ledger.MethodSubject,
		Phase: "execute:outcome", SubjectKind: "subject", SubjectID: strings.Repeat("ab", 32), RequestRef: "01a231ff-4878-79cb-9022-93dee2cff32c",
		RequestDigest: strings.Repeat("cd", 32), RowsDeleted: map[string]int64{"ingest/intent_events": 18, "graph/graph": 16},
	}
}

// ledger measures appends against bare writes that are synced, by as many writers, and the verification of a long ledger
// against hashing its file.
func (b *bench) ledger(ctx context.Context) ([]row, error) {
	var out []row
	for _, writers := range []int{1, 8, 32} {
		r, err := b.appends(ctx, writers)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	verified, err := b.verified()
	if err != nil {
		return nil, err
	}
	flat, err := b.openRequests(ctx)
	return append(append(out, verified), flat...), err
}

func benchKeys() (*ledger.Keys, error) {
	private, err := ledger.GenerateKey("recount-bench")
	if err != nil {
		return nil, err
	}
	return ledger.ParseKeys(private)
}

func (b *bench) appends(ctx context.Context, writers int) (row, error) {
	keys, err := benchKeys()
	if err != nil {
		return row{}, err
	}
	dir := filepath.Join(b.dir, fmt.Sprintf("ledger-%d", writers))
	log, err := ledger.OpenFile(dir, keys, nil)
	if err != nil {
		return row{}, err
	}
	defer func() { _ = log.Close() }()
	bare, err := os.OpenFile(filepath.Join(dir, "bare"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) //nolint:gosec // the benchmark's folder
	if err != nil {
		return row{}, fmt.Errorf("making the baseline's file: %w", err)
	}
	defer func() { _ = bare.Close() }()
	line, err := benchRecord(1).Encode()
	if err != nil {
		return row{}, err
	}
	line = append(line, '\n')
	var ours, theirs spread
	for range ledgerTurns {
		took, err := together(writers, ledgerTurn, func(i int) error {
			_, err := log.Append(ctx, benchRecord(i))
			return err
		})
		if err != nil {
			return row{}, err
		}
		ours = append(ours, took)
		if took, err = together(writers, ledgerTurn, func(int) error {
			_, err := bare.Write(line)
			return errors.Join(err, bare.Sync())
		}); err != nil {
			return row{}, err
		}
		theirs = append(theirs, took)
	}
	rate := func(s spread) float64 { return ledgerTurn / s.p50().Seconds() }
	return atLeast(fmt.Sprintf("ledger appends / bare write+fsync, %d writers", writers), rate(ours)/rate(theirs), 0.8,
		fmt.Sprintf("%.0f/s against %.0f/s", rate(ours), rate(theirs))), nil
}

// together does something n times by so many at once.
func together(width, n int, do func(i int) error) (time.Duration, error) {
	var wg sync.WaitGroup
	faults := make([]error, width)
	started := time.Now()
	for w := range width {
		wg.Go(func() {
			for i := w; i < n && faults[w] == nil; i += width {
				faults[w] = do(i)
			}
		})
	}
	wg.Wait()
	return time.Since(started), errors.Join(faults...)
}

func (b *bench) verified() (row, error) {
	keys, err := benchKeys()
	if err != nil {
		return row{}, err
	}
	path := filepath.Join(b.dir, "long.jsonl")
	file, err := os.Create(path) //nolint:gosec // the benchmark's folder
	if err != nil {
		return row{}, fmt.Errorf("making a long ledger: %w", err)
	}
	defer func() { _ = file.Close() }()
	var edge ledger.Edge
	buffered := bufio.NewWriterSize(file, 1<<20)
	for i := range ledgerEntries {
		line, err := benchRecord(i).Encode()
		if err != nil {
			return row{}, err
		}
		edge.Add(line)
		_, _ = buffered.Write(append(line, '\n')) // Flush answers the first error
	}
	if err := buffered.Flush(); err != nil {
		return row{}, fmt.Errorf("making a long ledger: %w", err)
	}
	checkpoint, err := keys.Checkpoint(edge.Head())
	if err != nil {
		return row{}, err
	}
	public, err := verify.ParseKeys(strings.Join(keys.Verifiers(), ","))
	if err != nil {
		return row{}, err
	}
	var ours, theirs spread
	for range 3 {
		took, err := reading(path, func(in io.Reader) error {
			_, err := verify.Ledger(in, checkpoint, public)
			return err
		})
		if err != nil {
			return row{}, err
		}
		ours = append(ours, took)
		if took, err = reading(path, func(in io.Reader) error {
			_, err := io.Copy(sha256.New(), in)
			return err
		}); err != nil {
			return row{}, err
		}
		theirs = append(theirs, took)
	}
	return atLeast("verifying a ledger of 1,000,000 entries / hashing its file", float64(theirs.p50())/float64(ours.p50()), 0.2,
		fmt.Sprintf("%.2f s against %.2f s", ours.p50().Seconds(), theirs.p50().Seconds())), nil
}

func reading(path string, do func(io.Reader) error) (time.Duration, error) {
	file, err := os.Open(path) //nolint:gosec // the benchmark's folder
	if err != nil {
		return 0, fmt.Errorf("reading a long ledger: %w", err)
	}
	defer func() { _ = file.Close() }()
	started := time.Now()
	err = do(file)
	return time.Since(started), err
}

// openRequests measures a page of a list and a look for what is due, with few and with many open requests.
func (b *bench) openRequests(ctx context.Context) ([]row, error) {
	few, err := b.requestsOpen(ctx, openFew)
	if err != nil {
		return nil, err
	}
	many, err := b.requestsOpen(ctx, openMany)
	if err != nil {
		return nil, err
	}
	var out []row
	for i, what := range []string{"a page of the list", "resuming"} {
		out = append(out, atMost(fmt.Sprintf("%s with 10,000 open requests / with 100", what), float64(many[i].p50())/float64(few[i].p50()), "ratio", 1.5,
			fmt.Sprintf("%.3f ms against %.3f ms", ms(many[i].p50()), ms(few[i].p50()))))
	}
	return out, nil
}

// unobserved is an observer that counts nothing.
type unobserved struct{}

func (unobserved) RequestEnded(string)         {}
func (unobserved) RequestsDue(int64, int64)    {}
func (unobserved) RequestFailed(string, error) {}

func (b *bench) requestsOpen(ctx context.Context, n int) (took [2]spread, err error) {
	dir := filepath.Join(b.dir, fmt.Sprintf("requests-%d", n))
	db, err := sqlite.Open(ctx, filepath.Join(dir, "requests.db"))
	if err != nil {
		return took, err
	}
	defer func() { _ = db.Close() }()
	documents, err := db.Documents(ctx, "erasure_requests")
	if err != nil {
		return took, err
	}
	keys, err := benchKeys()
	if err != nil {
		return took, err
	}
	log, err := ledger.OpenFile(dir, keys, nil)
	if err != nil {
		return took, err
	}
	defer func() { _ = log.Close() }()
	body := fmt.Appendf(nil, `{"id":"x","state":"previewed","history":[{"detail":%q}]}`, bytes.Repeat([]byte("x"), 3000))
	if _, err := together(64, n, func(i int) error {
		at := time.Now().Add(time.Duration(i) * time.Minute)
		return documents.Create(ctx, stores.Document{
			ID: fmt.Sprintf("01a231ff-4878-79cb-9022-%012x", i), Tenant: "acme", Open: true, Due: at.Add(20 * 24 * time.Hour),
			Wake: at.Add(time.Hour), Version: 1, Body: body,
		})
	}); err != nil {
		return took, err
	}
	if err := db.Close(); err != nil { // the log of so many writes at once is nobody's everyday
		return took, err
	}
	if db, err = sqlite.Open(ctx, filepath.Join(dir, "requests.db")); err != nil {
		return took, err
	}
	if documents, err = db.Documents(ctx, "erasure_requests"); err != nil {
		return took, err
	}
	service := erasure.New(erasure.Config{Requests: documents, Ledger: log, Observer: unobserved{}, Now: time.Now})
	for range 100 {
		started := time.Now()
		if page, err := service.List(ctx, "acme", ""); err != nil || len(page.Requests) == 0 {
			return took, fmt.Errorf("listing: %d, %w", len(page.Requests), err)
		}
		took[0] = append(took[0], time.Since(started))
		started = time.Now()
		if _, _, err := service.Resume(ctx); err != nil {
			return took, err
		}
		took[1] = append(took[1], time.Since(started))
	}
	return took, nil
}
