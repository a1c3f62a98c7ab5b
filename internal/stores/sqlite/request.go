package sqlite

import (
	"errors"
	"sync/atomic"

	"recount/internal/subject"
)

// request is one piece of work for the writer: an append, an erasure or a set-up.
type request struct {
	table    *Table
	rows     int // to append, with the values of one after the other
	values   []any
	subjects []subject.Subject // to erase
	setup    []string          // DDL

	created  []bool
	measured []subject.Measurement
	err      error // set: nothing of the request was done

	taken atomic.Bool // by the writer, or back by the caller
	done  chan struct{}
}

// fail adds an error to a request that was committed.
func (r *request) fail(err error) {
	if r.subjects == nil {
		r.err = errors.Join(r.err, err)
	}
	for i := range r.measured {
		r.measured[i].PurgeErr = errors.Join(r.measured[i].PurgeErr, err)
	}
}
