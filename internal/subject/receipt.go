package subject

import (
	"math"
	"time"
)

// DefaultRetryAfter is what a pending receipt asks for when the platform doesn't say.
const DefaultRetryAfter = 30 * time.Minute

// AnyStore stands for all stores of a cell: in the receipt of one that gave no usable answer, in what a target keeps, and
// in an audit row about an operation that measured none.
const AnyStore = "*"

// Label says whose measurement a receipt is.
type Label struct {
	Cell, Store, Backend string
	// Sticky says that every write to the store asks a suppression ledger first, so that what was erased stays away.
	Sticky bool
}

// Times says when a store was worked on, and until when its platform can still bring the deleted rows back (zero:
// nothing is kept).
type Times struct {
	Started, Finished, RecoverableUntil time.Time
}

// Counts are the numbers of a receipt. Before counts the target's own rows; Remaining counts those and the rows of what
// derived from them.
type Counts struct {
	Before, Deleted, Remaining Count
	Suppressed                 Count // sources found in the store that the ledger now holds
	Derived                    Count // rows of other items that derived from the target's, and went with them
}

// Measurement is what one store's count, delete and recount came to, errors included. It claims nothing: Judge does.
type Measurement struct {
	Counts
	CountErr   error // of the count before the delete
	CaptureErr error // of recording in the suppression ledger what is deleted
	DeleteErr  error // of the delete; *NotYet when the platform will not delete yet
	PurgeErr   error // of scrubbing what the delete left in files
	RecountErr error // of the count after the delete
	// Deferred is set by a store that knows that remaining rows are only not deletable yet.
	Deferred *NotYet
}

// Receipt is what one store measured for one subject. It is a value; its status and counts can't be changed, and the
// status Erased can only come from a measured zero: see newErased, the one place that sets it.
type Receipt struct {
	label      Label
	times      Times
	counts     Counts
	status     Status
	reason     Reason
	retryAfter time.Duration
}

// Cell is the name of the cell that answered.
func (r Receipt) Cell() string { return r.label.Cell }

// Store is the logical name of the store.
func (r Receipt) Store() string { return r.label.Store }

// Sticky reports whether the store is guarded against what was erased coming back.
func (r Receipt) Sticky() bool { return r.label.Sticky }

// Backend is the technology of the store, empty where nobody could say.
func (r Receipt) Backend() string { return r.label.Backend }

// Times says when the store was worked on.
func (r Receipt) Times() Times { return r.times }

// Counts are the measured numbers.
func (r Receipt) Counts() Counts { return r.counts }

// Status is the verdict.
func (r Receipt) Status() Status { return r.status }

// Reason is empty for a plain erasure, and never empty for anything else.
func (r Receipt) Reason() Reason { return r.reason }

// RetryAfter is how long to wait before calling again: positive for a pending receipt, else 0.
func (r Receipt) RetryAfter() time.Duration { return r.retryAfter }

// newErased is the one constructor of an erased receipt: it takes the recount, and refuses any that isn't a measured
// zero.
func newErased(label Label, times Times, counts Counts) Receipt {
	if !counts.Remaining.IsZero() {
		return NewFailed(label, times, counts, ReasonRowsRemain)
	}
	return Receipt{label: label, times: times, counts: counts, status: Erased}
}

// NewFailed is a receipt for what could not be erased or not be measured. An empty reason becomes no_reason_given, and
// a word outside the vocabulary unknown_reason.
func NewFailed(label Label, times Times, counts Counts, reason Reason) Receipt {
	return Receipt{label: label, times: times, counts: counts, status: Failed, reason: stated(reason)}
}

// stated is a reason as a receipt may carry it: a word of the vocabulary, whatever was given.
func stated(reason Reason) Reason {
	switch {
	case reason == ReasonNone:
		return ReasonNoReason
	case !reason.Known():
		return ReasonUnknown
	default:
		return reason
	}
}

func newPending(label Label, times Times, counts Counts, reason Reason, after time.Duration) Receipt {
	if after <= 0 {
		after = DefaultRetryAfter
	}
	return Receipt{label: label, times: times, counts: counts, status: Pending, reason: stated(reason), retryAfter: after}
}

// Judge turns a measurement into a receipt. reasonFor names an error, or answers the other word for one that it doesn't
// know. The table: a delete that failed for good, a count or a recount that failed, a negative number and bytes that
// could not be purged are failed; else a recount of 0 is erased, and anything that remains is pending if the platform
// said that it will not delete yet, or failed. What could not be recorded in the ledger is failed too: it could come back.
func Judge(label Label, times Times, m Measurement, reasonFor func(err error, otherwise Reason) Reason) Receipt {
	if m.CountErr != nil {
		m.Before = Unmeasured()
	}
	if m.RecountErr != nil {
		m.Remaining = Unmeasured()
	}
	_, counted := m.Before.Value()
	remaining, measured := m.Remaining.Value()
	notYet := asNotYet(m.DeleteErr)
	fail := func(reason Reason) Receipt { return NewFailed(label, times, m.Counts, reason) }
	switch {
	case m.DeleteErr != nil && notYet == nil:
		return fail(reasonFor(m.DeleteErr, ReasonDeleteFailed))
	case m.CaptureErr != nil:
		return fail(reasonFor(m.CaptureErr, ReasonSuppression))
	case m.CountErr != nil:
		return fail(reasonFor(m.CountErr, ReasonCountFailed))
	case !counted:
		return fail(ReasonCountFailed)
	case m.RecountErr != nil:
		return fail(reasonFor(m.RecountErr, ReasonRecountFailed))
	case !measured:
		return fail(ReasonRecountFailed)
	case isNegative(m.Before) || isNegative(m.Remaining):
		return fail(ReasonNegativeCount)
	case m.PurgeErr != nil:
		return fail(reasonFor(m.PurgeErr, ReasonResidue))
	case remaining == 0:
		return newErased(label, times, m.Counts)
	case notYet != nil:
		return newPending(label, times, m.Counts, notYet.Reason, notYet.After)
	case m.Deferred != nil:
		return newPending(label, times, m.Counts, m.Deferred.Reason, m.Deferred.After)
	default:
		return fail(ReasonRowsRemain)
	}
}

func isNegative(c Count) bool {
	n, measured := c.Value()
	return measured && n < 0
}

// Closed is the receipt of a store after it was asked for the sources too that other cells resolved for the same target:
// r is what it measured at first, closing what it measured for those sources, and asked how many they were. The worse
// status stands. Rows that bear such a source were derived from the target's own, wherever those were.
func (r Receipt) Closed(closing Receipt, asked int64) Receipt {
	out := r
	if closing.status < r.status {
		out.status, out.reason, out.retryAfter = closing.status, closing.reason, closing.retryAfter
	}
	out.retryAfter = max(out.retryAfter, closing.retryAfter)
	if out.status != Pending {
		out.retryAfter = 0
	}
	out.times.Finished = closing.times.Finished
	if closing.times.RecoverableUntil.After(out.times.RecoverableUntil) {
		out.times.RecoverableUntil = closing.times.RecoverableUntil
	}
	out.counts.Remaining = sum(r.counts.Remaining, closing.counts.Remaining)
	out.counts.Derived = sum(r.counts.Derived, sum(closing.counts.Deleted, closing.counts.Derived))
	out.counts.Suppressed = sum(r.counts.Suppressed, sum(closing.counts.Suppressed, Measured(-asked)))
	if isNegative(out.counts.Suppressed) {
		out.counts.Suppressed = Unmeasured()
	}
	out.label.Sticky = r.label.Sticky && closing.label.Sticky
	if out.status == Erased { // by way of the one constructor
		return newErased(out.label, out.times, out.counts)
	}
	return out
}

// sum is measured where both are.
func sum(a, b Count) Count {
	n, first := a.Value()
	m, second := b.Value()
	if !first || !second || n > 0 && m > math.MaxInt64-n {
		return Unmeasured()
	}
	return Measured(n + m)
}

// Statement is what somebody else says about a store: the receipt of a peer, read from the wire.
type Statement struct {
	Label
	Times
	Counts
	Status     Status
	Reason     Reason
	RetryAfter time.Duration
}

// Attest turns a peer's statement into a receipt. It believes no contradiction: erased needs a measured zero, pending
// needs something that remains, neither may lack its first count, no count may be negative, and erased may not come with
// a word of the vocabulary; anything else is failed, with the reason.
func Attest(s Statement) Receipt {
	fail := func(reason Reason) Receipt { return NewFailed(s.Label, s.Times, s.Counts, reason) }
	remaining, measured := s.Remaining.Value()
	_, beforeMeasured := s.Before.Value()
	switch {
	case isNegative(s.Before) || isNegative(s.Deleted) || isNegative(s.Remaining) || isNegative(s.Suppressed) || isNegative(s.Derived):
		return NewFailed(s.Label, s.Times, Counts{}, ReasonPeerBadCount)
	case s.Status == Failed:
		return fail(s.Reason)
	case s.Status == Erased && !s.Remaining.IsZero():
		return fail(ReasonPeerFalseErased)
	case !beforeMeasured:
		return fail(ReasonPeerBadCount)
	case s.Status == Erased && s.Reason.Known(): // a reason for not being erased
		return fail(ReasonPeerMismatch)
	case s.Status == Erased:
		return newErased(s.Label, s.Times, s.Counts)
	case !measured || remaining == 0:
		return fail(ReasonPeerFalsePending)
	default:
		return newPending(s.Label, s.Times, s.Counts, s.Reason, s.RetryAfter)
	}
}
