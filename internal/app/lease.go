package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"recount/internal/cell"
	"recount/internal/intake"
	"recount/internal/stores"
	"recount/internal/stores/memory"
	"recount/internal/suppression"
)

// lease says which one instance may serve the graph. Held MUST be false before another instance can hold it.
type lease interface {
	Held() bool
	// Keep acquires and keeps the lease until ctx ends, calling acquired each time it was got and lost each time it was
	// lost.
	Keep(ctx context.Context, acquired func(ctx context.Context) error, lost func()) error
}

// replayedLease is held once the lease is, and the journal has been replayed into the graph.
//
// The replay waits for its turn alone. An erasure that began under an earlier term ends before the replay
// of the next begins, and finds the lease not held: it can't have erased the journal before the replay read it, and the
// memory before the replay filled it.
type replayedLease struct {
	lease    lease
	turns    *cell.Turns
	graph    *memory.Graph
	journal  journal
	guard    *suppression.Guard
	replayed atomic.Bool
}

// Held reports whether this instance may answer for the graph.
func (r *replayedLease) Held() bool { return r.replayed.Load() && r.lease.Held() }

func (r *replayedLease) keep(ctx context.Context) error {
	return r.lease.Keep(ctx, r.replay, func() { r.replayed.Store(false) })
}

// replay makes the graph what the journal holds and the ledger allows, and nothing else.
func (r *replayedLease) replay(ctx context.Context) error {
	release, err := r.turns.Alone(ctx)
	if err != nil {
		return fmt.Errorf("waiting for the graph's erasures and writes to end: %w", err)
	}
	defer release()
	r.graph.Reset()
	load := &loading{graph: r.graph, admit: cell.Backstop(r.guard.Ledger, intake.Edges().Table)}
	err = r.journal.Scan(ctx, func(row stores.Row) error { return load.add(ctx, row) })
	if err == nil {
		err = load.flush(ctx)
	}
	if err != nil {
		return fmt.Errorf("replaying the graph's journal: %w", err)
	}
	r.replayed.Store(true)
	return nil
}

// loadChunk is how many rows of a journal are asked about, and go into the graph, at a time.
const loadChunk = 1000

// loading is a journal on its way into a graph. After an error the graph holds a part of it, and is not served.
type loading struct {
	graph *memory.Graph
	admit stores.Backstop
	rows  []stores.Row
}

func (l *loading) add(ctx context.Context, row stores.Row) error {
	if l.rows = append(l.rows, row); len(l.rows) < loadChunk {
		return nil
	}
	return l.flush(ctx)
}

// flush leaves out what was suppressed: an erasure that died between its record and its delete left it in the journal.
func (l *loading) flush(ctx context.Context) error {
	admitted, err := l.admit(ctx, l.rows, 0)
	if err != nil {
		return err
	}
	kept := l.rows[:0]
	for i, row := range l.rows {
		if admitted[i] {
			kept = append(kept, row)
		}
	}
	if _, err := l.graph.Append(ctx, kept, 0); err != nil {
		return fmt.Errorf("loading rows: %w", err)
	}
	l.rows = l.rows[:0]
	return nil
}

// dirLock is the lock of a data directory: one process at a time. The kernel releases it when the process ends, however
// it ends.
type dirLock struct {
	path string
	file *os.File
	held atomic.Bool
}

var errDirLocked = errors.New("another process holds this data directory: stop it, or set another DATA_DIR")

func newDirLock(dir string) (*dirLock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("DATA_DIR: %w", err)
	}
	return &dirLock{path: filepath.Join(dir, "lock")}, nil
}

// try takes the lock, or answers errDirLocked.
func (d *dirLock) try() error {
	file, err := os.OpenFile(d.path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("DATA_DIR: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return errDirLocked
		}
		return fmt.Errorf("DATA_DIR: locking: %w", err)
	}
	d.file = file
	d.held.Store(true)
	return nil
}

// wait takes the lock, trying for a few seconds: a predecessor may just be stopping.
func (d *dirLock) wait(ctx context.Context, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := d.try()
		if !errors.Is(err, errDirLocked) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Held reports whether this process has the lock.
func (d *dirLock) Held() bool { return d.held.Load() }

// Keep waits for the lock for as long as it takes, and then holds it until ctx ends.
func (d *dirLock) Keep(ctx context.Context, acquired func(ctx context.Context) error, _ func()) error {
	for {
		err := d.wait(ctx, time.Hour)
		if err == nil {
			break
		}
		if ctx.Err() != nil || !errors.Is(err, errDirLocked) {
			return err
		}
	}
	if err := acquired(ctx); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func (d *dirLock) release() error {
	d.held.Store(false)
	if d.file == nil {
		return nil
	}
	return d.file.Close()
}
