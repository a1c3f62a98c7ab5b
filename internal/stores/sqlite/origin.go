package sqlite

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"

	"recount/internal/subject"
)

// origin is the file that the connections are bound to. Whoever renames another over its path, deletes it or points a
// link elsewhere leaves them with a file that nobody else sees.
type origin struct {
	paths []string // as configured, and as SQLite resolved it where that differs
	info  os.FileInfo
	lost  atomic.Bool
}

// noteOrigin is called before the first connection, and bind after it.
func noteOrigin(path string) (*origin, error) {
	if absolute, err := filepath.Abs(path); err == nil {
		path = absolute
	}
	info, err := os.Stat(path) // opens nothing, so SQLite's locks stay
	if err != nil {
		return nil, &subject.Fault{Reason: subject.ReasonNotFound, Cause: err}
	}
	return &origin{paths: []string{path}, info: info}, nil
}

// bind adds the path that SQLite resolved, beside which it keeps the log.
func (o *origin) bind(resolved string) error {
	if resolved != o.paths[0] {
		o.paths = append(o.paths, resolved)
	}
	return o.check()
}

// check fails from the first time that a path names another file: a connection may have been opened on that one.
func (o *origin) check() error {
	if o.lost.Load() {
		return &subject.Fault{Reason: subject.ReasonNotFound, Cause: errReplaced}
	}
	for _, path := range o.paths {
		info, err := os.Stat(path)
		if err == nil && !os.SameFile(info, o.info) {
			err = errReplaced
		}
		if err != nil {
			o.lost.Store(true)
			return &subject.Fault{Reason: subject.ReasonNotFound, Cause: err}
		}
	}
	return nil
}

var errReplaced = errors.New("the database file was replaced or deleted while it was open")

// read runs one short query while no checkpoint is running. The rows MUST be used up inside.
func (db *DB) read(ctx context.Context, query func(querier) error) error {
	if err := ctx.Err(); err != nil {
		return err //nolint:wrapcheck // a context's own error says it all
	}
	db.gate.RLock()
	defer db.gate.RUnlock()
	if err := db.origin.check(); err != nil {
		return err
	}
	err := query(db.reads)
	if err != nil && ctx.Err() != nil {
		return ctx.Err() //nolint:wrapcheck // a context's own error says it all
	}
	return errors.Join(named(err), db.origin.check())
}
