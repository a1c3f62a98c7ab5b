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
	"recount/internal/stores"
	"recount/internal/stores/memory"
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
// The replay holds every lock of the graph's subjects. An erasure that began under an earlier term ends before the replay
// of the next begins, and finds the lease not held: it can't have erased the journal before the replay read it, and the
// memory before the replay filled it.
type replayedLease struct {
	lease    lease
	locks    *cell.Locks
	graph    *memory.Graph
	journal  journal
	replayed atomic.Bool
}

// Held reports whether this instance may answer for the graph.
func (r *replayedLease) Held() bool { return r.replayed.Load() && r.lease.Held() }

func (r *replayedLease) keep(ctx context.Context) error {
	return r.lease.Keep(ctx, r.replay, func() { r.replayed.Store(false) })
}

// replay makes the graph what the journal holds, and nothing else.
func (r *replayedLease) replay(ctx context.Context) error {
	unlock, err := r.locks.LockAll(ctx)
	if err != nil {
		return fmt.Errorf("waiting for the graph's erasures and writes to end: %w", err)
	}
	defer unlock()
	r.graph.Reset()
	rows := func(yield func(stores.Row, error) bool) {
		errEnough := errors.New("enough")
		err := r.journal.Scan(ctx, func(row stores.Row) error {
			if !yield(row, nil) {
				return errEnough
			}
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) {
			yield(nil, err)
		}
	}
	if _, err := r.graph.Load(ctx, rows); err != nil {
		return fmt.Errorf("replaying the graph's journal: %w", err)
	}
	r.replayed.Store(true)
	return nil
}

// fill takes rows that were journalled under the lease.
func (r *replayedLease) fill(rows []stores.Row) {
	_, _ = r.graph.Append(context.Background(), rows, 0) // the journal took them, so they fit, and the graph knows duplicates
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
