package suppression

import (
	"context"
	"time"

	"recount/internal/subject"
)

// Generation numbers the states of a ledger. It grows whenever a source is recorded or a fence raised, in whatever
// process; 0 is none, and what a write is checked under when nothing was asked.
type Generation int64

// Reasons that entries are recorded with. A backfill brings its own.
const (
	ReasonSubject = "subject_erased" // a record of a person who was erased
	ReasonSource  = "source_erased"  // the source itself was erased
	ReasonDerived = "derived"        // it was derived from something that was erased
)

// Entry is one suppressed source.
type Entry struct {
	Source   subject.Source
	Reason   string    // why it went: at most 256 bytes, sealed at rest like the source
	ErasedAt time.Time // UTC, microseconds
	// Erasure is the pseudonym that the erasure was written down under. It ties entries together, at rest as a keyed
	// hash, and is not answered by List or Recorded.
	Erasure subject.Ref
	// Attempt is the one that inserts the entry, "" for none that could withdraw it; not answered either.
	Attempt AttemptID
}

// AttemptID names one try at an erasure: 16 random bytes in hex.
type AttemptID string

// Verdict is what a ledger says of one record.
type Verdict uint8

// The verdicts. The zero value admits nothing.
const (
	Unreadable Verdict = iota // the ledger could not be asked
	Suppressed                // it, or something that it derives from, was erased
	Fenced                    // somebody whom it names is being erased: try again
	Admitted
)

// Answer is what a ledger says of records at one generation.
type Answer struct {
	Verdicts   []Verdict // one for each record, in order; never Unreadable
	Generation Generation
	// Parents gives, for each record that is suppressed because of something that it derives from, that something.
	Parents map[int]subject.Source
}

// Ledger remembers what was erased from one cell. One conformance suite, suppressiontest, is run by every adapter.
//
// It MUST be safe for concurrent use, by several processes where its backend is shared. No tenant and no cell ever
// answers for another. Errors never carry a source, and are *subject.Fault where the kind is known.
type Ledger interface {
	// Check says of each record whether it may be written now, in one round trip for all of them. A record is
	// suppressed if its source or any of its parents is recorded, and fenced if any of its identities is. Recorded goes
	// before fenced. An error means that nothing is known of any.
	Check(ctx context.Context, records []subject.Record) (Answer, error)
	// Generation is the ledger's now. MUST fail when Check could not answer.
	Generation(ctx context.Context) (Generation, error)
	// Record adds entries, all of one tenant, and is durable when it answers. A source that is there already keeps its
	// reason, its date and its erasure. Where another attempt inserted it, it belongs to none from then on: both rely on
	// it, and neither may withdraw it from under the other. The call is idempotent. It answers how many were new.
	Record(ctx context.Context, entries []Entry) (inserted int, err error)
	// RecordDerived adds children, each under its parent's erasure and with ReasonDerived. A parent that is not
	// recorded any more leaves its child alone.
	RecordDerived(ctx context.Context, children map[subject.Source]subject.Source) error
	// Recorded are the entries that erasures under each reference recorded, in whatever attempt, in order of the
	// references.
	Recorded(ctx context.Context, tenant string, refs []subject.Ref) ([][]Entry, error)
	// Fence keeps the subjects from being written until Lower, or until that time has passed.
	Fence(ctx context.Context, attempt AttemptID, subjects []subject.Subject, until time.Time) error
	// Lower takes down the attempt's fences.
	Lower(ctx context.Context, attempt AttemptID) error
	// Withdraw removes the entries that the attempt inserted, and no others.
	Withdraw(ctx context.Context, tenant string, attempt AttemptID) error
	// Allow removes one source, whoever recorded it, and reports whether it was there.
	Allow(ctx context.Context, s subject.Source) (removed bool, err error)
	// List answers at most limit entries of a tenant behind the cursor ("" is the start), in a stable order, and the
	// cursor of what follows ("" at the end). A cursor holds nothing of a source. One that it did not make is
	// ErrCursor.
	List(ctx context.Context, tenant, cursor string, limit int) (entries []Entry, next string, err error)
	// Ready reports whether Check and Record could work now.
	Ready(ctx context.Context) error
}
