package sqlite

import (
	"errors"
	"sync/atomic"

	"recount/internal/stores"
	"recount/internal/subject"
	"recount/internal/suppression"
)

// request is one piece of work for the writer: an append, an erasure, a set-up, or anything else in the transaction.
type request struct {
	table    *Table
	rows     int // to append, with the values of one after the other
	values   []any
	given    []stores.Row           // those rows as they came, where a memory is filled from the table
	seen     suppression.Generation // the ledger's when they were admitted
	subjects []subject.Subject      // to erase from the table
	vault    *Vault                 // to erase the targets from
	targets  []subject.Target
	setup    []string // DDL
	// work runs in the transaction. It may run more than once, and MUST start from nothing each time.
	work   func(*writer) error
	purges bool // work deletes rows

	created  []bool
	measured []subject.Measurement
	vaulted  []subject.Vaulted
	derived  [][]subject.Source // what went by source, for each target
	purgeErr error
	err      error // set: nothing of the request was done

	taken atomic.Bool // by the writer, or back by the caller
	done  chan struct{}
}

// erases reports whether bytes must be gone from the files before the request is answered.
func (r *request) erases() bool { return r.subjects != nil || r.targets != nil || r.purges }

// fail adds an error to a request that was committed.
func (r *request) fail(err error) {
	if !r.erases() {
		r.err = errors.Join(r.err, err)
	}
	r.unpurged(err)
}

// unpurged says that what was deleted may still be in the files.
func (r *request) unpurged(err error) {
	r.purgeErr = errors.Join(r.purgeErr, err)
	for i := range r.measured {
		r.measured[i].PurgeErr = errors.Join(r.measured[i].PurgeErr, err)
	}
	for i := range r.vaulted {
		for j := range r.vaulted[i].Measured {
			r.vaulted[i].Measured[j].PurgeErr = errors.Join(r.vaulted[i].Measured[j].PurgeErr, err)
		}
	}
}
