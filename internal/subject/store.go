package subject

import (
	"context"
	"time"
)

// Store is one place where rows of a subject live. One conformance suite, stores/storetest, is run by every adapter.
//
// A Store MUST be safe for concurrent use and MUST return soon after its context ends. It MUST NOT put an identity,
// a source reference or row content into an error's text: what it recognises it returns as *Fault or *NotYet.
type Store interface {
	// Name is the logical name on receipts, such as "intent_events": [a-z][a-z0-9_]{0,62}, unique in a cell.
	Name() string
	// Backend is the technology, such as "sqlite".
	Backend() string
	// Count is the number of rows that match the subject now. An error is never a count of 0. It MUST see every row
	// whose write was acknowledged before it was called.
	Count(ctx context.Context, s Subject) (int64, error)
	// Delete removes every matching row, and everything that hangs below it, for good: never a tombstone. It is
	// idempotent: deleting nothing is no error. The number it answers is information; only a recount is evidence.
	// Errors: *NotYet where the platform will not delete some row yet, *Fault where the kind is known.
	Delete(ctx context.Context, s Subject) (deleted int64, err error)
}

// Deferrer is a store that can say, after a delete that answered no error and left rows, that those rows are only
// not deletable yet. It answers nil when it can't say so.
type Deferrer interface {
	Deferred(ctx context.Context, s Subject) (*NotYet, error)
}

// Batch is a store that takes many subjects of one tenant in one statement per step. Its two methods keep every MUST
// of Store's; Counts answers one number per subject, in order.
type Batch interface {
	Counts(ctx context.Context, subjects []Subject) ([]int64, error)
	DeleteAll(ctx context.Context, subjects []Subject) (deleted int64, err error)
}

// Atomic is a store that counts, deletes and recounts inside one transaction, so that a row which returns after the
// commit can't be taken for a residue, and that scrubs what the delete left in its files before it answers.
//
// It answers one Measurement per subject, in order, whatever went wrong. When anything failed before the commit,
// nothing was deleted.
type Atomic interface {
	Erase(ctx context.Context, subjects []Subject) []Measurement
}

// Sourced is a store whose rows name the source that they came from. All sources of a call are of one tenant, and there
// may be very many: an adapter MUST cut them into statements of a size that its platform takes.
type Sourced interface {
	// NamesSources reports whether the store was set up with source columns. The other methods are called only then.
	NamesSources() bool
	// Sources answers for each subject, in order, the source of every one of its rows, each once. A row without one (null
	// or empty) is left out. A row whose source can't be a Source is *Fault with source_invalid: what can't be recorded
	// must not be forgotten.
	Sources(ctx context.Context, subjects []Subject) ([][]Source, error)
	// DerivedFrom answers the sources of all rows that name one of the parents as what they were derived from.
	DerivedFrom(ctx context.Context, parents []Source) ([]Derivation, error)
	// CountSources answers for each source, in order, how many rows bear it. It MUST see what Count must see.
	CountSources(ctx context.Context, sources []Source) ([]int64, error)
	// DeleteSources removes every row that bears one of the sources, whoever it belongs to, as Delete does.
	DeleteSources(ctx context.Context, sources []Source) (deleted int64, err error)
}

// Derivation says that a row which bears the source Child was derived from Parent.
type Derivation struct{ Parent, Child Source }

// Vault is stores that are resolved, recorded, deleted from and recounted in one transaction, together with the ledger
// that keeps what went from coming back, as SQLite can. It also covers memories that are filled from those stores.
type Vault interface {
	// EraseTogether answers for each target, in order. When anything failed before the commit, nothing was deleted and
	// nothing recorded, and every measurement says so.
	EraseTogether(ctx context.Context, targets []Target) []Vaulted
}

// Vaulted is what a vault did for one target: a measurement for each of its stores, in order, and every source that it
// resolved now or recorded in an earlier attempt.
type Vaulted struct {
	Measured []Measurement
	Sources  []Source
}

// Capture records what erasures resolve before anything is deleted, where stores and ledger share no
// transaction.
type Capture interface {
	// Begin fences the targets, waits for writes in flight, and resolves and records what is there. It answers a plan
	// for each target, whatever fails. Settle MUST be called once afterwards.
	Begin(ctx context.Context, targets []Target) (plans []Plan, attempt Attempt)
}

// Attempt is one try at an erasure as the ledger sees it.
type Attempt interface {
	// Settle lowers the fences. What this attempt recorded for a target stays unless it is withdrawn, which is right
	// only where nothing of that target was deleted.
	Settle(ctx context.Context, withdraw []bool) error
}

// Plan is what the capture found out about one target.
type Plan struct {
	Sources    []Source         // resolved now, or recorded by an earlier attempt
	Derived    []Source         // those of them to erase by source: they are not the target's own
	Suppressed map[string]int64 // by store: sources found there that the ledger now holds
	Err        error            // the ledger could not record: the receipts are failed, whatever else was measured
	Unresolved map[string]error // by store: its rows could not be resolved, so its receipt is failed
	// Hold are the stores from which nothing may be deleted for now, with the reason: what they hold of the target could
	// not be recorded, and once it is deleted no retry could tell what derives from it.
	Hold map[string]error
}

// Retainer is a store whose platform keeps deleted rows for a while. RecoverableUntil is the latest moment at which a
// row deleted at the given time can still be brought back: the zero time when nothing is kept.
type Retainer interface {
	RecoverableUntil(ctx context.Context, deleted time.Time) (time.Time, error)
}

// Reader is a store that can show a subject's rows, page by page, in a stable order.
type Reader interface {
	// Read answers at most limit rows after the cursor ("" is the start) and the cursor of what follows ("" at the
	// end). A cursor MUST hold no row content and nothing of the identity. It SHOULD stop early once the rows of a
	// page pass 4 MiB. A cursor that it did not make is an error.
	Read(ctx context.Context, s Subject, cursor string, limit int) (Page, error)
}

// Page is a part of a subject's rows. A row is a JSON object: nil, bool, string, json.Number or float64 or int64,
// []any, map[string]any.
type Page struct {
	Rows []map[string]any
	Next string
}

// Card is a store's Art. 15(1) card: what a person is told about the data beside the data itself.
type Card struct {
	Purposes           []string `json:"purposes" yaml:"purposes"`
	Categories         []string `json:"categories" yaml:"categories"`
	Recipients         []string `json:"recipients" yaml:"recipients"`
	Retention          string   `json:"retention" yaml:"retention"`
	Source             string   `json:"source" yaml:"source"`
	Transfers          string   `json:"transfers" yaml:"transfers"`
	AutomatedDecisions string   `json:"automated_decisions" yaml:"automated_decisions"`
}

// Described is a store that carries its card.
type Described interface {
	About() Card
}

// Prober is a store that can say whether it is able to answer now. It is asked by /ready.
type Prober interface {
	Ready(ctx context.Context) error
}
