package subject

import (
	"context"
	"errors"
	"slices"
	"time"
)

// Reason is one word of the fixed vocabulary that a receipt's detail may hold. Free text from a backend never
// reaches a receipt: it may quote the row that it complains about.
type Reason string

// What a store's own erasure can end with.
const (
	ReasonNone             Reason = ""
	ReasonStreamingBuffer  Reason = "streaming_buffer"   // rows are in a streaming buffer that refuses DML for now
	ReasonConcurrentUpdate Reason = "concurrent_update"  // the platform serialised another change first
	ReasonQuota            Reason = "quota"              // the platform's rate or quota refuses for now
	ReasonBackendBusy      Reason = "backend_busy"       // the platform failed in passing; the outcome was recounted
	ReasonDeleteFailed     Reason = "delete_failed"      // the delete answered an error
	ReasonCountFailed      Reason = "count_failed"       // the count before the delete answered an error
	ReasonRecountFailed    Reason = "recount_failed"     // the count after the delete answered an error
	ReasonRowsRemain       Reason = "rows_remain"        // the delete answered no error, and rows are still there
	ReasonNegativeCount    Reason = "negative_count"     // the store answered a count below 0
	ReasonPanic            Reason = "store_panicked"     // the store's code panicked
	ReasonTimeout          Reason = "store_timeout"      // the store did not answer within its deadline
	ReasonCancelled        Reason = "cancelled"          // the erasure was cancelled before the store was measured
	ReasonShuttingDown     Reason = "shutting_down"      // the process stopped before the store was measured
	ReasonCheckpointBusy   Reason = "checkpoint_busy"    // SQLite: a reader keeps deleted bytes in the write-ahead log
	ReasonResidue          Reason = "residue"            // deleted bytes could not be scrubbed from the files
	ReasonStoreLocked      Reason = "store_locked"       // another process holds the database
	ReasonStoreFull        Reason = "store_full"         // no room left on the disk
	ReasonStoreReadOnly    Reason = "store_read_only"    // the database can't be written
	ReasonTooManyVariables Reason = "too_many_variables" // the statement has more parameters than the engine takes
	ReasonNotFound         Reason = "store_not_found"    // table, collection or database is gone or elsewhere
	ReasonAccessDenied     Reason = "access_denied"      // the service account may not
	ReasonUnsupported      Reason = "unsupported_table"  // the platform refuses deletes on this kind of table
	ReasonNoLease          Reason = "lease_lost"         // another instance holds the graph's lease
	ReasonRetention        Reason = "retention_unknown"  // nobody could say until when the platform keeps the rows
	ReasonSuppression      Reason = "suppression_failed" // the suppression ledger could not record what was erased
	ReasonSourceInvalid    Reason = "source_invalid"     // a row's source is none that the ledger can hold
	ReasonSourcesOpen      Reason = "sources_open"       // new derived items kept turning up: not all could be followed
	ReasonFenced           Reason = "fenced"             // a write: somebody it names is being erased, try again
	ReasonErasureLedger    Reason = "erasure_ledger"     // the ledger of erasure requests can't be appended to
	ReasonReadFailed       Reason = "read_failed"        // access: the rows could not be read
	ReasonUnreadable       Reason = "store_unreadable"   // access: the store can count and delete, but not show
	ReasonNothingVerified  Reason = "nothing_verified"   // no receipts at all
	ReasonNoReason         Reason = "no_reason_given"    // a peer said failed and not why
	ReasonUnknown          Reason = "unknown_reason"     // a peer gave a reason that is not in this vocabulary
)

// What a coordinator can find wrong with a peer.
const (
	ReasonPeerURLUnset      Reason = "peer_url_unset"
	ReasonPeerUnreachable   Reason = "peer_unreachable"
	ReasonPeerTimeout       Reason = "peer_timeout"
	ReasonPeerUnavailable   Reason = "peer_unavailable"     // 429 or 503 beyond the retries, or a Retry-After beyond the deadline
	ReasonPeerUnauthorised  Reason = "peer_unauthorised"    // 401 or 403, or no token could be had for it
	ReasonPeerRedirected    Reason = "peer_redirected"      // any 3xx
	ReasonPeerHTTPStatus    Reason = "peer_http_status"     // any other code than 200, 409, 502
	ReasonPeerNotJSON       Reason = "peer_not_json"        // not one strict JSON object of the contract
	ReasonPeerTooLarge      Reason = "peer_too_large"       // over the size bound
	ReasonPeerNoReceipts    Reason = "peer_no_receipts"     // the receipts are missing or empty
	ReasonPeerMismatch      Reason = "peer_status_mismatch" // HTTP code or top status disagrees with the fold
	ReasonPeerWrongRequest  Reason = "peer_wrong_request_id"
	ReasonPeerWrongSubject  Reason = "peer_wrong_subject_ref"
	ReasonPeerWrongTenant   Reason = "peer_wrong_tenant_id"
	ReasonPeerWrongOp       Reason = "peer_wrong_operation"
	ReasonPeerWrongCell     Reason = "peer_wrong_cell"
	ReasonPeerStoreMissing  Reason = "peer_store_missing"    // a store that it must answer for has no receipt
	ReasonPeerStoreRepeated Reason = "peer_store_repeated"   // two receipts for one store
	ReasonPeerStoreNameless Reason = "peer_store_nameless"   // a receipt without a usable store name
	ReasonPeerUnknownStatus Reason = "peer_unknown_status"   // none of the three words, byte for byte
	ReasonPeerBadCount      Reason = "peer_bad_count"        // missing, negative, fractional, a string, or overflowing
	ReasonPeerFalseErased   Reason = "peer_false_erased"     // erased with remaining not exactly 0
	ReasonPeerFalsePending  Reason = "peer_false_pending"    // pending with nothing remaining
	ReasonPeerResults       Reason = "peer_results_mismatch" // a batch whose results are not one per subject, in order
)

var vocabulary = []Reason{
	ReasonStreamingBuffer, ReasonConcurrentUpdate, ReasonQuota, ReasonBackendBusy, ReasonDeleteFailed, ReasonCountFailed,
	ReasonRecountFailed, ReasonRowsRemain, ReasonNegativeCount, ReasonPanic, ReasonTimeout, ReasonCancelled, ReasonShuttingDown,
	ReasonCheckpointBusy, ReasonResidue, ReasonStoreLocked, ReasonStoreFull, ReasonStoreReadOnly, ReasonTooManyVariables,
	ReasonNotFound, ReasonAccessDenied, ReasonUnsupported, ReasonNoLease, ReasonRetention,
	ReasonSuppression, ReasonSourceInvalid, ReasonSourcesOpen, ReasonFenced, ReasonErasureLedger, ReasonReadFailed, ReasonUnreadable, ReasonNothingVerified, ReasonNoReason, ReasonUnknown,
	ReasonPeerURLUnset, ReasonPeerUnreachable, ReasonPeerTimeout, ReasonPeerUnavailable, ReasonPeerUnauthorised, ReasonPeerRedirected,
	ReasonPeerHTTPStatus, ReasonPeerNotJSON, ReasonPeerTooLarge, ReasonPeerNoReceipts, ReasonPeerMismatch, ReasonPeerWrongRequest,
	ReasonPeerWrongSubject, ReasonPeerWrongTenant, ReasonPeerWrongOp, ReasonPeerWrongCell, ReasonPeerStoreMissing,
	ReasonPeerStoreRepeated, ReasonPeerStoreNameless, ReasonPeerUnknownStatus, ReasonPeerBadCount, ReasonPeerFalseErased,
	ReasonPeerFalsePending, ReasonPeerResults,
}

// Reasons is the whole vocabulary, in the order of its documentation.
func Reasons() []Reason { return slices.Clone(vocabulary) }

// Known reports whether the word is in the vocabulary.
func (r Reason) Known() bool { return slices.Contains(vocabulary, r) }

// Fault is an error that may be shown: its text is a word of the vocabulary, never the cause's own words. Adapters
// return it for what they recognise; the cause stays reachable by errors.As and is never printed.
type Fault struct {
	Reason Reason
	Cause  error
}

// Error is the reason alone.
func (f *Fault) Error() string { return string(f.Reason) }

// Unwrap is the cause.
func (f *Fault) Unwrap() error { return f.Cause }

// NotYet is what a store's Delete answers when the platform will not delete rows yet. It is no verdict: the recount
// decides, and a recount of 0 is erased all the same.
type NotYet struct {
	Reason Reason
	After  time.Duration // what the platform says; 0 when it says nothing
	Cause  error
}

// Error is the reason alone.
func (n *NotYet) Error() string { return "not yet: " + string(n.Reason) }

// Unwrap is the cause.
func (n *NotYet) Unwrap() error { return n.Cause }

// ErrShuttingDown is the cause with which a stopping process cancels the erasures that are still running.
var ErrShuttingDown = errors.New("shutting down")

// ReasonOf is the word for an error: that of a *Fault or *NotYet, or unknown_reason.
func ReasonOf(err error) Reason {
	var fault *Fault
	var notYet *NotYet
	switch {
	case errors.As(err, &fault):
		return fault.Reason
	case errors.As(err, &notYet):
		return notYet.Reason
	}
	return ReasonUnknown
}

// reasonOf names an error: its own Fault, what ended its context, or else what the step calls its failures.
func reasonOf(ctx context.Context, err error, otherwise Reason) Reason {
	var fault *Fault
	switch {
	case errors.As(err, &fault) && fault.Reason.Known():
		return fault.Reason
	case errors.Is(context.Cause(ctx), ErrShuttingDown):
		return ReasonShuttingDown
	case errors.Is(err, context.DeadlineExceeded), errors.Is(ctx.Err(), context.DeadlineExceeded):
		return ReasonTimeout
	case errors.Is(err, context.Canceled), errors.Is(ctx.Err(), context.Canceled):
		return ReasonCancelled
	default:
		return otherwise
	}
}

func asNotYet(err error) *NotYet {
	var notYet *NotYet
	if errors.As(err, &notYet) {
		return notYet
	}
	return nil
}
