package sqlite

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"os"
	"time"

	"recount/internal/subject"
)

const (
	patience    = time.Second            // how long another process's lock or reader is waited for
	busyTimeout = 100 * time.Millisecond // of which SQLite waits this long at a time
	maxBatch    = 128                    // requests in one transaction
	gatherFor   = 300 * time.Microsecond // see gather
	importLimit = 64 << 20               // bytes in the log after which appends are checkpointed
)

// writer owns the one connection that writes. Its methods run on one goroutine.
type writer struct {
	db         *DB
	pool       *sql.DB
	conn       *sql.Conn
	statements map[string]*sql.Stmt
	seen       map[*Table]*shape // in this transaction
	full       bool              // PRAGMA synchronous is FULL, else NORMAL
	last       int               // requests in the transaction before this one
	linked     bool              // the derivations table holds something
	ledger     transaction       // what this transaction did to the suppression ledger
	order      []*request        // as they ran in this transaction
	checkpoint int64
	log        string        // the path of the write-ahead log
	logInfo    os.FileInfo   // as it was at the start
	reader     *bufio.Reader // of the log, kept because its buffer is large
}

func openWriter(ctx context.Context, db *DB) (*writer, error) {
	pragmas := []string{"secure_delete(ON)", "synchronous(FULL)", "cache_size(-16384)"}
	if db.owners {
		pragmas = append(pragmas, "foreign_keys(1)")
	} else {
		pragmas = append(pragmas, "journal_mode(WAL)")
	}
	pool, err := openPool(db.dsn(pragmas...), 1)
	if err != nil {
		return nil, err
	}
	w := &writer{db: db, pool: pool, statements: map[string]*sql.Stmt{}, seen: map[*Table]*shape{}, full: true, checkpoint: importLimit, reader: bufio.NewReaderSize(nil, 1<<17)}
	if w.conn, err = pool.Conn(ctx); err != nil {
		return nil, errors.Join(named(err), named(pool.Close()))
	}
	if err := w.start(ctx); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

// start finds the log where SQLite keeps it, which is beside the file that a link points at, and purges it: a process
// that died between a commit and its checkpoint left something there.
func (w *writer) start(ctx context.Context) error {
	var mode, file string
	var tables int
	if err := w.conn.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode); err != nil {
		return named(err)
	}
	if mode != "wal" {
		return refuse("its journal mode is %s, where deleted rows stay in the journal: run PRAGMA journal_mode=WAL on it once", mode)
	}
	var encoding string
	if err := w.conn.QueryRowContext(ctx, "PRAGMA encoding").Scan(&encoding); err != nil {
		return named(err)
	}
	if encoding != "UTF-8" {
		return refuse("its texts are %s, where a key that is stored as bytes could be missed: dump it into a database with PRAGMA encoding='UTF-8'", encoding)
	}
	err := w.conn.QueryRowContext(ctx, "SELECT file, (SELECT count(*) FROM sqlite_schema) FROM pragma_database_list WHERE name='main'").
		Scan(&file, &tables) // and a first read makes the log
	if err != nil {
		return named(err)
	}
	if err := w.db.origin.bind(file); err != nil {
		return err
	}
	w.log = file + logSuffix
	if w.logInfo, err = os.Stat(w.log); err != nil {
		return residue(err)
	}
	var fault *subject.Fault
	if err := w.purge(); err != nil && !(errors.As(err, &fault) && fault.Reason == subject.ReasonCheckpointBusy) {
		return err
	}
	return nil // a reader that keeps the log now fails the erasures, not the start
}

func (w *writer) close() error {
	return errors.Join(named(w.conn.Close()), named(w.pool.Close()))
}

// run commits until the queue is closed and empty.
func (w *writer) run() error {
	for first := range w.db.queue {
		if batch := w.gather(first); len(batch) > 0 {
			w.commit(batch)
			for _, r := range batch {
				close(r.done)
			}
		}
	}
	return errors.Join(w.purge(), w.close())
}

// gather takes what is waiting. Callers that were answered together come back together but not at once: when the last
// transaction was shared, it waits a little for as many again, or a lone first one would have a transaction of its own
// every other time.
func (w *writer) gather(first *request) []*request {
	var batch []*request
	take := func(r *request) {
		if r != nil && r.taken.CompareAndSwap(false, true) {
			batch = append(batch, r)
		}
	}
	take(first)
	defer func() { w.last = len(batch) }()
	var late <-chan time.Time
	for len(batch) < maxBatch {
		select {
		case r := <-w.db.queue:
			take(r)
			if r == nil { // closed
				return batch
			}
			continue
		default:
		}
		if len(batch) >= w.last {
			return batch
		}
		if late == nil {
			late = time.After(gatherFor)
		}
		select {
		case r := <-w.db.queue:
			take(r)
			if r == nil {
				return batch
			}
		case <-late:
			return batch
		}
	}
	return batch
}

// commit runs the requests in one transaction, and purges if any of them erased. It is optimistic: only when a request
// fails are they all run again, each behind a savepoint of its own.
func (w *writer) commit(batch []*request) {
	erases, writes := 0, 0
	for _, r := range batch {
		if r.erases() {
			erases++
		} else {
			writes++
		}
	}
	err := w.db.origin.check()
	if err == nil {
		err = w.transact(batch, erases == 0)
	}
	if err != nil {
		for _, r := range batch {
			r.err = err
		}
		return
	}
	if erases > 0 {
		w.settle(batch, w.purge(), writes > 0)
	} else {
		w.checkpointImport()
	}
	if lost := w.db.origin.check(); lost != nil { // what was committed is in a file that nobody sees
		for _, r := range batch {
			r.fail(lost)
		}
	}
}

// transact answers an error when nothing was committed.
//
// A commit of appends alone is synced (synchronous=FULL): it is answered next. Where there are erasures, the
// checkpoint that follows syncs the log before it touches the database, and the database before the log is truncated,
// and nobody is answered before that: synchronous=NORMAL saves one sync of two. Should the checkpoint fail, settle
// makes up for it.
func (w *writer) transact(batch []*request, full bool) error {
	if err := w.synchronous(full); err != nil {
		return err
	}
	if err := w.begin(); err != nil {
		return err
	}
	clear(w.seen)
	err := w.together(batch)
	if err != nil && (len(batch) > 1 || errors.Is(err, errMixed)) {
		if err = w.rollback(); err == nil {
			err = w.begin()
		}
		if err == nil {
			err = w.apart(batch)
		}
	}
	if err != nil {
		return errors.Join(err, w.rollback())
	}
	if err := w.land(); err != nil {
		return w.alone(batch, full, errors.Join(err, w.rollback()))
	}
	for table, live := range w.seen { // not before: a schema that was rolled back leaves its version to another
		table.shape.Store(live)
	}
	return nil
}

// alone gives each request a transaction of its own after the commit of all failed: a deferred foreign key of an
// owner's schema is only looked at then, and doesn't say whose row it was.
func (w *writer) alone(batch []*request, full bool, failure error) error {
	if len(batch) == 1 {
		return failure
	}
	for _, r := range batch {
		r.created, r.measured, r.vaulted, r.err = nil, nil, nil, nil
		if err := w.transact([]*request{r}, full); err != nil {
			r.err = err
		}
	}
	return nil
}

// together runs the requests side by side: appends first, so that an erasure also takes what arrived with it, then the
// erasures of one table and tenant in the same statements.
func (w *writer) together(batch []*request) error {
	var erasures, vaulted []*request
	for _, r := range batch {
		switch {
		case r.subjects != nil:
			erasures = append(erasures, r)
		case r.targets != nil:
			vaulted = append(vaulted, r)
		default:
			if err := w.write(r); err != nil {
				return err
			}
			w.order = append(w.order, r)
		}
	}
	w.order = append(append(w.order, erasures...), vaulted...)
	if err := w.erase(erasures); err != nil {
		return err
	}
	return w.eraseVaults(vaulted)
}

// apart runs each request behind a savepoint of its own, so that it fails alone.
func (w *writer) apart(batch []*request) error {
	for _, r := range batch {
		if err := w.exec("SAVEPOINT request"); err != nil {
			return err
		}
		ledger, ran := w.ledger, len(w.order)
		for again := true; again; again = errors.Is(r.err, errMixed) { // once: a mixed append goes on row by row
			if r.err = w.together([]*request{r}); r.err == nil {
				break
			}
			if err := w.exec("ROLLBACK TO request"); err != nil {
				return r.err // it took the whole transaction with it
			}
			w.ledger, w.order = ledger, w.order[:ran]
		}
		if err := w.exec("RELEASE request"); err != nil {
			return err
		}
	}
	return nil
}

// settle tells the erasures how the purge went. When it failed, the rows are gone, the bytes may not be, and nothing
// of the transaction has been synced: its appends need that before they are answered.
func (w *writer) settle(batch []*request, purged error, synced bool) {
	if purged == nil {
		return
	}
	var unsynced error
	if synced {
		unsynced = syncFile(w.log)
	}
	for _, r := range batch {
		if !r.erases() {
			r.err = errors.Join(r.err, unsynced)
		}
		r.unpurged(purged)
	}
}

// write runs a request that is no erasure.
func (w *writer) write(r *request) error {
	if r.rows > 0 {
		return w.append(r)
	}
	for _, statement := range r.setup {
		if err := w.exec(statement); err != nil {
			return err
		}
	}
	if r.work != nil {
		return r.work(w)
	}
	return nil
}

// begin takes the write lock.
func (w *writer) begin() error {
	w.ledger, w.order = transaction{}, w.order[:0]
	return patiently(func() error { return w.exec("BEGIN IMMEDIATE") })
}

// patiently tries again while another process is in the way.
func patiently(try func() error) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		var fault *subject.Fault
		err := try()
		busy := errors.As(err, &fault) && (fault.Reason == subject.ReasonStoreLocked || fault.Reason == subject.ReasonCheckpointBusy)
		if !busy || time.Now().After(deadline) {
			return err
		}
	}
}

// rollback ends a transaction that failed. SQLite may have ended it already.
func (w *writer) rollback() error {
	_, err := w.conn.ExecContext(context.Background(), "ROLLBACK")
	if err == nil {
		return nil
	}
	if _, err := w.conn.ExecContext(context.Background(), "BEGIN"); err != nil {
		return named(err)
	}
	_, err = w.conn.ExecContext(context.Background(), "ROLLBACK")
	return named(err)
}

// synchronous can't be a prepared statement: SQLite obeys it while it parses.
func (w *writer) synchronous(full bool) error {
	if w.full == full {
		return nil
	}
	level := "NORMAL"
	if full {
		level = "FULL"
	}
	if _, err := w.conn.ExecContext(context.Background(), "PRAGMA synchronous="+level); err != nil {
		return named(err)
	}
	w.full = full
	return nil
}

// prepared keeps every statement that was ever used. What runs here is never cancelled, so no context is handed on.
func (w *writer) prepared(query string) (*sql.Stmt, error) {
	if s, ok := w.statements[query]; ok {
		return s, nil
	}
	s, err := w.conn.PrepareContext(context.Background(), query)
	if err != nil {
		return nil, named(err)
	}
	w.statements[query] = s
	return s, nil
}

func (w *writer) exec(query string, args ...any) error {
	_, err := w.execRows(query, args...)
	return err
}

// execRows answers how many rows the statement changed.
func (w *writer) execRows(query string, args ...any) (int64, error) {
	s, err := w.prepared(query) //nolint:sqlclosecheck // it is kept, and closed with the connection
	if err != nil {
		return 0, err
	}
	result, err := s.ExecContext(context.Background(), args...)
	if err != nil {
		return 0, named(err)
	}
	n, err := result.RowsAffected()
	return n, named(err)
}
