package ledger

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

const (
	maxBatch  = 1024                  // records that share a write
	gatherFor = 50 * time.Microsecond // at most, for others to come
)

// Append writes a record: whoever comes while nobody writes, writes for all that wait.
func (f *File) Append(_ context.Context, r Record) (Entry, error) {
	line, err := r.Encode()
	if err != nil {
		return Entry{}, err
	}
	a := &appending{line: line, done: make(chan struct{})}
	f.queue.Lock()
	f.waiting = append(f.waiting, a)
	lead := !f.leading
	f.leading = true
	f.queue.Unlock()
	if lead {
		f.lead(a)
	}
	<-a.done
	return a.entry, a.err
}

// gather waits for a moment, much shorter than a sync, for as many as shared the last write: those who were answered
// together come back together but not at once, and a lone first one would have a sync of its own every other time.
func (f *File) gather() {
	for deadline := time.Now().Add(gatherFor); time.Now().Before(deadline); runtime.Gosched() {
		f.queue.Lock()
		enough := len(f.waiting) >= f.last
		f.queue.Unlock()
		if enough {
			return
		}
	}
}

// lead commits what waits until its own record is in, and then hands the lead on.
func (f *File) lead(own *appending) {
	for {
		f.gather()
		f.queue.Lock()
		f.last = min(len(f.waiting), maxBatch)
		n := min(len(f.waiting), maxBatch)
		batch := f.waiting[:n:n]
		f.waiting = f.waiting[n:]
		if n == 0 {
			f.leading = false
			f.queue.Unlock()
			return
		}
		f.queue.Unlock()
		f.commit(batch)
		select {
		case <-own.done:
			f.queue.Lock()
			idle := len(f.waiting) == 0
			if idle {
				f.leading = false
			}
			f.queue.Unlock()
			if !idle {
				go f.lead(&appending{done: make(chan struct{})}) // to the end of the queue
			}
			return
		default:
		}
	}
}

// commit writes a batch with one write and one fsync, and answers everybody in it.
func (f *File) commit(batch []*appending) {
	f.mu.Lock()
	err := f.write(batch)
	f.mu.Unlock()
	for _, a := range batch {
		a.err = err
		close(a.done)
	}
}

func (f *File) write(batch []*appending) error {
	if f.poisoned {
		return ErrPoisoned
	}
	return f.locked(func() error {
		if err := f.catchUp(); err != nil {
			return err
		}
		size := 0
		for _, a := range batch {
			size += len(a.line) + 1
		}
		bytes := make([]byte, 0, size)
		for _, a := range batch {
			bytes = append(append(bytes, a.line...), '\n')
		}
		if _, err := f.lines.WriteAt(bytes, f.offset); err != nil {
			f.poisoned = true
			return fmt.Errorf("%w: writing failed", ErrPoisoned)
		}
		if err := f.lines.Sync(); err != nil {
			f.poisoned = true
			return fmt.Errorf("%w: the sync failed", ErrPoisoned)
		}
		for _, a := range batch {
			a.entry = Entry{Index: f.edge.Size, Line: a.line}
			f.take(a.line)
		}
		return nil
	})
}

// take counts a line that is in the file.
func (f *File) take(line []byte) {
	stored := f.edge.Add(line)
	f.offset += int64(len(line)) + 1
	f.index.add(f.offset, stored)
}

// locked runs work while no other process does the same.
func (f *File) locked(work func() error) error {
	if err := unix.Flock(int(f.lock.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("locking the ledger: %w", err)
	}
	defer func() { _ = unix.Flock(int(f.lock.Fd()), unix.LOCK_UN) }() // closing the file would too
	return work()
}

// replaceFile puts a file in the place of another, durably.
func replaceFile(path string, body []byte) error {
	next := path + ".next"
	file, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600) //nolint:gosec // beside the ledger
	if err != nil {
		return fmt.Errorf("writing %s: %w", filepath.Base(path), err)
	}
	_, err = file.Write(body)
	if err == nil {
		err = file.Sync()
	}
	if closing := file.Close(); err == nil {
		err = closing
	}
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", filepath.Base(path), err)
	}
	return syncFolder(filepath.Dir(path))
}

func syncFolder(dir string) error {
	folder, err := os.Open(dir) //nolint:gosec // the ledger's folder
	if err != nil {
		return fmt.Errorf("syncing a folder: %w", err)
	}
	err = folder.Sync()
	if closing := folder.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return fmt.Errorf("syncing a folder: %w", err)
	}
	return nil
}
