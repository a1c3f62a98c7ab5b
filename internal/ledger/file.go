package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/tlog"
)

const (
	linesFile      = "erasure-ledger.jsonl"
	checkpointFile = "erasure-ledger.checkpoint"
	lockFile       = "erasure-ledger.lock"
	// checkpointEvery is how far the checkpoint beside the file may lag behind it: what is cut off within that time, with
	// the machine going down at once, is noticed by the checkpoints in certificates only.
	checkpointEvery = time.Second
)

// disk is the file of the lines, as far as appending needs it.
type disk interface {
	io.WriterAt
	io.ReaderAt
	Sync() error
	Truncate(size int64) error
	Stat() (os.FileInfo, error)
	Close() error
}

// File is a ledger in a folder: erasure-ledger.jsonl, and its checkpoint in a file of its own. Appends that come at the same
// time share a write and an fsync. Several processes may append to one folder: each takes a lock for a write, and takes up
// what the others wrote before it.
type File struct {
	dir    string
	keys   *Keys
	anchor Anchor
	open   func(path string) (disk, error)

	queue   sync.Mutex
	waiting []*appending
	leading bool
	last    int // how many shared the last write

	mu       sync.Mutex // the file and all below; taken by who leads, and by readers for a moment
	lock     *os.File
	lines    disk
	offset   int64 // behind the last line that is known
	edge     Edge
	index    *sidecar
	poisoned bool
	signed   Head // of the checkpoint on disk

	stop    chan struct{}
	stopped sync.WaitGroup
}

var _ Log = (*File)(nil)

// appending is one record on its way in.
type appending struct {
	line  []byte
	entry Entry
	err   error
	done  chan struct{}
}

// Anchor keeps the latest signed head somewhere else than in the ledger's folder, so that a folder that was put back, checkpoint
// and all, is noticed.
type Anchor interface {
	// Last is the head that was kept last; that of no entries where none was.
	Last(ctx context.Context) (Head, error)
	Keep(ctx context.Context, h Head) error
}

// OpenFile opens the ledger in a folder, which is made when missing, and verifies it whole against its checkpoint, and against
// the anchor where there is one (nil: none). A last line without its end is set aside in a file of its own: it was never
// acknowledged. Errors: ErrTruncated, ErrTampered, ErrMalformed, ErrNoCheckpoint, wrapped.
func OpenFile(dir string, keys *Keys, anchor Anchor) (*File, error) {
	return openFile(dir, keys, anchor, func(path string) (disk, error) {
		return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // the configured folder
	})
}

func openFile(dir string, keys *Keys, anchor Anchor, open func(string) (disk, error)) (*File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the ledger's folder: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // the configured folder
	if err != nil {
		return nil, fmt.Errorf("opening the ledger's lock: %w", err)
	}
	f := &File{dir: dir, keys: keys, anchor: anchor, open: open, lock: lock, stop: make(chan struct{})}
	var known Head
	if anchor != nil {
		if known, err = anchor.Last(context.Background()); err != nil {
			return nil, errors.Join(fmt.Errorf("reading the ledger's anchor: %w", err), f.closeFiles())
		}
	}
	if err := f.load(known); err != nil {
		return nil, errors.Join(err, f.closeFiles())
	}
	f.stopped.Go(f.keepCheckpoint)
	return f, nil
}

// Reopen verifies a poisoned ledger anew, and lets it be appended to again. What was acknowledged before MUST still be there:
// errors are those of OpenFile.
func (f *File) Reopen(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	acknowledged := f.edge.Head()
	f.poisoned = true
	if err := errors.Join(f.lines.Close(), f.index.close()); err != nil {
		return fmt.Errorf("closing the ledger: %w", err)
	}
	f.lines, f.index = nil, nil
	if err := f.loadLocked(acknowledged); err != nil {
		return err
	}
	f.poisoned = false
	return nil
}

// Ready reports ErrPoisoned.
func (f *File) Ready(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.poisoned {
		return ErrPoisoned
	}
	return nil
}

// Close signs a last checkpoint and closes the files.
func (f *File) Close() error {
	close(f.stop)
	f.stopped.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	var err error
	if !f.poisoned {
		_, _, err = f.checkpoint()
	}
	return errors.Join(err, f.closeFiles())
}

func (f *File) closeFiles() error {
	var faults []error
	if f.lines != nil {
		faults = append(faults, f.lines.Close())
	}
	if f.index != nil {
		faults = append(faults, f.index.close())
	}
	return errors.Join(append(faults, f.lock.Close())...)
}

// Head is the tree over every entry, those of other processes too.
func (f *File) Head(context.Context) (Head, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.poisoned { // what is known is what was acknowledged
		return f.edge.Head(), nil
	}
	err := f.locked(f.catchUp)
	return f.edge.Head(), err
}

// Line is one entry.
func (f *File) Line(_ context.Context, index int64) (Entry, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.line(index)
}

func (f *File) line(index int64) (Entry, error) {
	if index < 0 || index >= f.edge.Size {
		return Entry{}, ErrNoEntry
	}
	if f.lines == nil {
		return Entry{}, ErrPoisoned
	}
	from, to, err := f.index.span(index)
	if err != nil {
		return Entry{}, err
	}
	line := make([]byte, to-from-1)
	if _, err := f.lines.ReadAt(line, from); err != nil {
		return Entry{}, fmt.Errorf("reading the ledger: %w", err)
	}
	return Entry{Index: index, Line: line}, nil
}

// Scan yields the entries that were there when it was called.
func (f *File) Scan(ctx context.Context, from int64, yield func(Entry) error) error {
	head, err := f.Head(ctx)
	if err != nil {
		return err
	}
	for i := from; i < head.Size; i++ {
		if err := ctx.Err(); err != nil {
			return err //nolint:wrapcheck // a context's own error says it all
		}
		entry, err := f.Line(ctx, i)
		if err != nil {
			return err
		}
		if err := yield(entry); err != nil {
			return err
		}
	}
	return nil
}

// Find looks through the entries from an index on.
func (f *File) Find(ctx context.Context, entryID string, from int64) (Entry, error) {
	return FindIn(ctx, f, entryID, from)
}

// FindIn looks for an entry by reading a log from an index on.
func FindIn(ctx context.Context, l interface {
	Scan(ctx context.Context, from int64, yield func(Entry) error) error
}, entryID string, from int64,
) (found Entry, err error) {
	stop := errors.New("found")
	needle := []byte(`"` + entryID + `"`)
	err = l.Scan(ctx, from, func(e Entry) error {
		if !bytes.Contains(e.Line, needle) {
			return nil
		}
		if r, err := Decode(e.Line); err != nil || r.EntryID != entryID {
			return err
		}
		found = e
		return stop
	})
	switch {
	case errors.Is(err, stop):
		return found, nil
	case err == nil:
		return found, ErrNoEntry
	default:
		return found, err
	}
}

// Prove is the inclusion proof of an entry.
func (f *File) Prove(_ context.Context, size, index int64) (tlog.RecordProof, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if index < 0 || index >= size || size > f.edge.Size {
		return nil, ErrNoEntry
	}
	proof, err := tlog.ProveRecord(size, index, f.index)
	if err != nil {
		return nil, fmt.Errorf("proving an entry: %w", err)
	}
	return proof, nil
}

// Checkpoint signs the head and puts it beside the file.
func (f *File) Checkpoint(context.Context) ([]byte, Head, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.poisoned {
		return nil, Head{}, ErrPoisoned
	}
	return f.checkpoint()
}

func (f *File) checkpoint() ([]byte, Head, error) {
	head := f.edge.Head()
	signed, err := f.keys.Checkpoint(head)
	if err != nil {
		return nil, head, err
	}
	if err := f.locked(func() error {
		// Another process may have signed a longer tree meanwhile: what it covers stays covered.
		if there, err := f.readCheckpoint(); err == nil && there.Size > head.Size {
			return nil
		}
		return replaceFile(filepath.Join(f.dir, checkpointFile), signed)
	}); err != nil {
		return nil, head, err
	}
	if f.anchor != nil && head != f.signed {
		if err := f.anchor.Keep(context.Background(), head); err != nil {
			return nil, head, fmt.Errorf("keeping the ledger's anchor: %w", err)
		}
	}
	f.signed = head
	return signed, head, nil
}

// keepCheckpoint signs what was appended, once in a while.
func (f *File) keepCheckpoint() {
	tick := time.NewTicker(checkpointEvery)
	defer tick.Stop()
	for {
		select {
		case <-f.stop:
			return
		case <-tick.C:
		}
		f.mu.Lock()
		if !f.poisoned && f.edge.Size > f.signed.Size {
			_, _, _ = f.checkpoint() // tried again at the next tick, and at the end, where the error is told
		}
		f.mu.Unlock()
	}
}
