// Package sqlite keeps tables in a SQLite file: those of the embedded default, which it makes itself, and an owner's.
//
// One connection writes. What is asked of it at the same time shares a transaction (commit.go), and an erasure is only
// answered once its bytes are gone from the files (purge.go). The promise about bytes covers what this package wrote:
// copies that an owner's own program left in an owner's file, by its own changes or its own checkpoints, go with that
// file's next VACUUM.
//
// Everything in a process that uses one file MUST share one DB, and nothing else in it may open the file: closing any
// descriptor of a file drops the locks that SQLite holds on it.
//
// A file that is replaced or deleted while it is open fails everything with store_not_found, and Ready with it, until
// the process is started anew: the open connections still see the old one.
package sqlite

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"modernc.org/sqlite"

	"recount/internal/subject"
)

// Backend is the word for this technology on receipts.
const Backend = "sqlite"

const (
	readers   = 4   // connections that count and read
	queueSize = 256 // requests that wait for the writer
)

// DB is an open file. It is safe for concurrent use.
type DB struct {
	path   string
	owners bool // the file is an owner's
	origin *origin
	reads  *sql.DB
	// gate keeps our own readers and the checkpoint apart: a reader would keep deleted bytes in the log.
	gate    sync.RWMutex
	cursors cipher.AEAD

	ledger      atomic.Pointer[Ledger] // nil where nothing is suppressed
	derivations bool                   // the writer's: a table of the file has rows that may derive from others

	queue   chan *request
	stopped chan error // the writer's last word

	intake sync.RWMutex // held for reading while a request is put into the queue
	closed bool
}

// Option changes how a file is opened.
type Option func(*DB)

// Owners says that the file is an owner's: it is never created, it must be in WAL mode already, and deletes obey its
// foreign keys.
func Owners() Option { return func(db *DB) { db.owners = true } }

// Open opens the database at the path and clears the log of what an earlier process may have left in it. Without
// Owners the file and its folder are created when missing. Errors: *subject.Fault where the kind is known, wrapped.
func Open(ctx context.Context, path string, options ...Option) (*DB, error) {
	db := &DB{path: path, queue: make(chan *request, queueSize), stopped: make(chan error, 1)}
	for _, option := range options {
		option(db)
	}
	if err := db.prepareFile(); err != nil {
		return nil, err
	}
	syncOnce()
	var err error
	if db.cursors, err = newCursorKey(); err != nil {
		return nil, err
	}
	if db.origin, err = noteOrigin(path); err != nil {
		return nil, fmt.Errorf("opening %s: %w", path, err)
	}
	w, err := openWriter(ctx, db)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", path, err)
	}
	if db.reads, err = openPool(db.dsn("query_only(1)"), readers); err != nil {
		return nil, errors.Join(err, w.close())
	}
	go func() { db.stopped <- w.run() }()
	return db, nil
}

// syncOnce makes SQLite sync with fdatasync, as every Linux distribution's build of it does: a commit need not wait
// for the file's timestamps.
var syncOnce = sync.OnceFunc(func() {
	_, _ = sqlite.Fdatasync(true) // where there is none, fsync stays
})

// prepareFile creates our own file for its owner's eyes only; SQLite gives the log the same mode. An owner's file must
// be there.
func (db *DB) prepareFile() error {
	if db.owners {
		if _, err := os.Stat(db.path); err != nil {
			return fmt.Errorf("%s does not exist, and an owner's file is never created: %w", db.path, &subject.Fault{Reason: subject.ReasonNotFound, Cause: err})
		}
		return nil
	}
	folder := filepath.Dir(db.path)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("creating the data folder: %w", err)
	}
	file, err := os.OpenFile(db.path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("creating the database: %w", err)
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("creating the database: %w", err)
	}
	return syncFile(folder) // SQLite syncs the folder for its log only
}

// syncFile makes a file's bytes, or a folder's entries, durable.
func syncFile(path string) error {
	file, err := os.Open(path) //nolint:gosec // the database's own files, named by the configuration
	if err != nil {
		return fmt.Errorf("opening for a sync: %w", err)
	}
	return errors.Join(file.Sync(), file.Close())
}

// dsn holds every pragma, or a connection that the pool replaces would come without them.
func (db *DB) dsn(pragmas ...string) string {
	path, err := filepath.Abs(db.path)
	if err != nil {
		path = db.path // SQLite resolves it the same way
	}
	query := url.Values{"mode": {"rw"}, "_dqs": {"false"}}
	query["_pragma"] = append([]string{
		fmt.Sprintf("busy_timeout(%d)", busyTimeout.Milliseconds()), "temp_store(MEMORY)", "wal_autocheckpoint(0)",
	}, pragmas...)
	return "file://" + (&url.URL{Path: path}).EscapedPath() + "?" + query.Encode()
}

func openPool(dsn string, size int) (*sql.DB, error) {
	connector, err := sqlite.NewConnector(dsn)
	if err != nil {
		return nil, named(err)
	}
	pool := sql.OpenDB(connector)
	pool.SetMaxOpenConns(size)
	pool.SetMaxIdleConns(size)
	return pool, nil
}

func newCursorKey() (cipher.AEAD, error) {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails: crypto/rand ends the program instead
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("making the cursor key: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("making the cursor key: %w", err)
	}
	return aead, nil
}

// Close waits for the requests that were taken in, scrubs and truncates the log, and closes the file. A second call
// does nothing. An error says that deleted bytes may be left in the log: the next Open clears them.
func (db *DB) Close() error {
	db.intake.Lock()
	if db.closed {
		db.intake.Unlock()
		return nil
	}
	db.closed = true
	close(db.queue)
	db.intake.Unlock()
	// The writer purges last: the last connection to close checkpoints by itself, without a scrub.
	return errors.Join(<-db.stopped, named(db.reads.Close()))
}

// submit hands a request to the writer and waits for its answer. A caller whose context ends takes back a request that
// has not been begun; one that has is always finished.
func (db *DB) submit(ctx context.Context, r *request) error {
	if err := ctx.Err(); err != nil {
		return err //nolint:wrapcheck // a context's own error says it all
	}
	r.done = make(chan struct{})
	if err := db.enqueue(ctx, r); err != nil {
		return err
	}
	select {
	case <-r.done:
	case <-ctx.Done():
		if r.taken.CompareAndSwap(false, true) {
			return ctx.Err() //nolint:wrapcheck // a context's own error says it all
		}
		<-r.done
	}
	return r.err
}

func (db *DB) enqueue(ctx context.Context, r *request) error {
	db.intake.RLock()
	defer db.intake.RUnlock()
	if db.closed {
		return ErrClosed
	}
	select {
	case db.queue <- r:
		return nil
	case <-ctx.Done():
		return ctx.Err() //nolint:wrapcheck // a context's own error says it all
	}
}
