// Package ledger is the append-only record of what erasure requests did: one JSON line an entry, one Merkle tree over the
// lines, signed checkpoints of the tree, and programs, the content-free lists of coordinates that an entry points to. It
// outlives the data, so nothing in it is personal beyond a keyed reference. It is a leaf: it knows nobody who writes to it.
package ledger

import (
	"context"
	"errors"

	"golang.org/x/mod/sumdb/tlog"
)

// Errors of a Log. None carries a record.
var (
	// ErrPoisoned says that an earlier write may or may not have reached the disk: nothing is appended until the ledger was
	// opened and verified anew.
	ErrPoisoned = errors.New("the ledger is poisoned by a failed write: it must be reopened and verified")
	// ErrTruncated says that a signed checkpoint covers more entries than there are: the newest ones were cut off.
	ErrTruncated = errors.New("the ledger has fewer entries than its signed checkpoint")
	// ErrTampered says that an entry is not what a signed checkpoint covers.
	ErrTampered = errors.New("the ledger is not the one that its checkpoint was signed for")
	// ErrMalformed says that a line before the last one is no record.
	ErrMalformed = errors.New("the ledger has a malformed line before its end")
	// ErrNoCheckpoint says that there are entries and no checkpoint, which is written before the first of them.
	ErrNoCheckpoint = errors.New("the ledger has entries and no checkpoint: put back erasure-ledger.checkpoint, or a copy of it")
	// ErrNoEntry says that there is no entry of that number or name.
	ErrNoEntry = errors.New("the ledger has no such entry")
)

// Entry is where a record stands.
type Entry struct {
	Index int64
	Line  []byte // the record as it was written, without the line's end
}

// Head is the tree over all entries at one moment.
type Head struct {
	Size int64
	Root tlog.Hash
}

// Log is a ledger. One conformance suite, ledgertest, is run by every adapter. It MUST be safe for concurrent use, and by
// several processes at a time.
type Log interface {
	// Append writes a record behind all others and is durable when it answers. An error says that it may or may not be
	// there. It is not idempotent: Find tells a retry whether it is needed. Errors: *RecordError, ErrPoisoned.
	Append(ctx context.Context, r Record) (Entry, error)
	// Find answers the entry of that id among those from the given index on. Errors: ErrNoEntry.
	Find(ctx context.Context, entryID string, from int64) (Entry, error)
	// Line is one entry. Errors: ErrNoEntry.
	Line(ctx context.Context, index int64) (Entry, error)
	// Scan yields the entries from an index on, in order, until yield answers an error, which it then answers.
	Scan(ctx context.Context, from int64, yield func(Entry) error) error
	// Head is the tree over every entry that was acknowledged before the call.
	Head(ctx context.Context) (Head, error)
	// Checkpoint signs the head, keeps it outside the entries, durably, and answers the signed note and the head in it.
	Checkpoint(ctx context.Context) ([]byte, Head, error)
	// Prove is the inclusion proof of an entry in the tree of the first size entries.
	Prove(ctx context.Context, size, index int64) (tlog.RecordProof, error)
	// Ready reports whether Append could work now.
	Ready(ctx context.Context) error
}

// Programs keeps the coordinates that an entry points to. It MUST be safe for concurrent use.
type Programs interface {
	// Write keeps the program of an entry, durably. The same body again changes nothing; another one for the same entry is
	// an error.
	Write(ctx context.Context, entryID string, body []byte) error
	// Read answers the program of an entry. Errors: ErrNoEntry.
	Read(ctx context.Context, entryID string) ([]byte, error)
}
