package cli

import (
	"cmp"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"recount/internal/subject"
	"recount/internal/wire"
)

// outcome is what an answer about one subject is good for. Its status is the fold of its receipts, and never anything
// that was only claimed.
type outcome struct {
	ref       subject.Ref // "" when no answer told it
	requestID string
	receipts  []subject.Receipt
	hint      string // what a call that brought nothing to judge has met
}

func (o outcome) status() subject.Status { return subject.Fold(o.receipts) }

// retryAfter is the longest wait that a pending store asks for.
func (o outcome) retryAfter() time.Duration {
	var after time.Duration
	for _, r := range o.receipts {
		after = max(after, r.RetryAfter())
	}
	return after
}

// nothing is the outcome of an answer that can't be used.
func nothing(reason subject.Reason, requestID, hint string) outcome {
	label := subject.Label{Cell: coordinatorCell, Store: subject.AnyStore}
	now := time.Now()
	times := subject.Times{Started: now, Finished: now}
	return outcome{
		requestID: requestID, hint: hint,
		receipts: []subject.Receipt{subject.NewFailed(label, times, subject.Counts{}, reason)},
	}
}

// question is what was asked: an answer to another one is worth nothing.
type question struct {
	requestID, tenant string
	operation         string   // "" is erase
	cells             []string // that must have a receipt
}

// judgeErase reads the coordinator's answer about one subject.
func judgeErase(got answer, q question) outcome {
	said, err := wire.DecodePeer(got.body)
	if err != nil {
		return nothing(subject.ReasonPeerNotJSON, q.requestID, "")
	}
	top, reason := doubt(said, q)
	switch {
	case reason != subject.ReasonNone:
		return nothing(reason, q.requestID, "")
	case got.code != wire.HTTPStatus(top):
		return nothing(subject.ReasonPeerMismatch, q.requestID, "")
	}
	return attest(said, q)
}

// judgeBatch reads the coordinator's answer about many subjects: one outcome for each, in order.
func judgeBatch(got answer, q question, subjects int) []outcome {
	said, err := wire.DecodePeerBatch(got.body)
	if err != nil {
		return repeat(nothing(subject.ReasonPeerNotJSON, q.requestID, ""), subjects)
	}
	words, refs := make([]wire.PeerText, len(said.Results)), make(map[wire.PeerText]bool, len(said.Results))
	for i, result := range said.Results {
		words[i], refs[result.SubjectRef] = result.Status, true
	}
	top, err := subject.ParseStatus(string(said.Status))
	switch {
	case len(said.Results) != subjects, len(refs) != subjects: // one subject answered for twice hides another
		return repeat(nothing(subject.ReasonPeerResults, q.requestID, ""), subjects)
	case err != nil:
		return repeat(nothing(subject.ReasonPeerUnknownStatus, q.requestID, ""), subjects)
	case got.code != wire.HTTPStatus(top) || !agrees(top, words):
		return repeat(nothing(subject.ReasonPeerMismatch, q.requestID, ""), subjects)
	}
	out := make([]outcome, subjects)
	for i, result := range said.Results {
		if _, reason := doubt(result, q); reason != subject.ReasonNone {
			out[i] = nothing(reason, q.requestID, "")
		} else {
			out[i] = attest(result, q)
		}
	}
	return out
}

// doubt looks for a fault in the envelope of an answer. Without one, it answers the status that was claimed.
func doubt(said wire.PeerResponse, q question) (subject.Status, subject.Reason) {
	words := make([]wire.PeerText, len(said.Receipts))
	for i, r := range said.Receipts {
		words[i] = r.Status
	}
	top, err := subject.ParseStatus(string(said.Status))
	reason := subject.ReasonNone
	switch {
	case len(said.Receipts) == 0:
		reason = subject.ReasonPeerNoReceipts
	case string(said.RequestID) != q.requestID:
		reason = subject.ReasonPeerWrongRequest
	case string(said.TenantID) != q.tenant:
		reason = subject.ReasonPeerWrongTenant
	case !isRef(string(said.SubjectRef)):
		reason = subject.ReasonPeerWrongSubject
	case string(said.Operation) != cmp.Or(q.operation, wire.OpErase):
		reason = subject.ReasonPeerWrongOp
	case err != nil:
		reason = subject.ReasonPeerUnknownStatus
	case !agrees(top, words):
		reason = subject.ReasonPeerMismatch
	}
	return top, reason
}

// agrees reports whether a status is the fold of the words below it, a word that is no status counting as failed.
func agrees(top subject.Status, words []wire.PeerText) bool {
	worst := subject.Erased
	for _, word := range words {
		status, err := subject.ParseStatus(string(word))
		if err != nil {
			status = subject.Failed
		}
		worst = worst.Worse(status)
	}
	return top == worst
}

// attest judges receipts one by one: a bad one is coerced to failed, and its siblings are kept. Every cell that must
// answer has at least one receipt in the end.
func attest(said wire.PeerResponse, q question) outcome {
	out := outcome{ref: subject.Ref(said.SubjectRef), requestID: q.requestID}
	type place struct{ cell, store string }
	at, cells := map[place]int{}, map[string]bool{}
	for _, r := range said.Receipts {
		receipt := attestOne(r, time.Duration(said.RetryAfter))
		key := place{receipt.Cell(), receipt.Store()}
		first, again := at[key]
		if again { // two measurements of one store: neither counts
			label := subject.Label{Cell: key.cell, Store: key.store}
			out.receipts[first] = subject.NewFailed(label, receipt.Times(), subject.Counts{}, subject.ReasonPeerStoreRepeated)
			continue
		}
		at[key], cells[key.cell] = len(out.receipts), true
		out.receipts = append(out.receipts, receipt)
	}
	for _, cell := range q.cells {
		if !cells[cell] {
			label := subject.Label{Cell: cell, Store: subject.AnyStore}
			out.receipts = append(out.receipts, subject.NewFailed(label, subject.Times{}, subject.Counts{}, subject.ReasonPeerStoreMissing))
		}
	}
	return out
}

func attestOne(r wire.PeerReceipt, after time.Duration) subject.Receipt {
	label := subject.Label{Cell: r.Cell.Name(), Store: r.Store.Name(), Backend: r.Backend.Name(), Sticky: bool(r.Sticky)}
	times := subject.Times{Started: r.StartedAt.Time, Finished: r.FinishedAt.Time, RecoverableUntil: r.RecoverableUntil.Time}
	before, soundBefore := r.Before.Count()
	deleted, soundDeleted := r.Deleted.Count()
	remaining, soundRemaining := r.Remaining.Count()
	suppressed, soundSuppressed := r.Suppressed.Optional()
	derived, soundDerived := r.Derived.Optional()
	counts := subject.Counts{Before: before, Deleted: deleted, Remaining: remaining, Suppressed: suppressed, Derived: derived}
	status, err := subject.ParseStatus(string(r.Status))
	fail := func(reason subject.Reason) subject.Receipt { return subject.NewFailed(label, times, counts, reason) }
	if r.Store == subject.AnyStore && status == subject.Failed { // the coordinator's verdict on a whole cell
		label.Store = subject.AnyStore
	}
	switch {
	case label.Cell == "":
		return fail(subject.ReasonPeerWrongCell)
	case label.Store == "":
		return fail(subject.ReasonPeerStoreNameless)
	case err != nil:
		return fail(subject.ReasonPeerUnknownStatus)
	case !soundBefore || !soundDeleted || !soundRemaining || !soundSuppressed || !soundDerived:
		return fail(subject.ReasonPeerBadCount)
	case status == subject.Erased && r.RecoverableUntil.Malformed: // an empty one would say that nothing is kept
		return fail(subject.ReasonRetention)
	}
	return subject.Attest(subject.Statement{
		Label: label, Times: times, Counts: counts, Status: status,
		Reason: wire.ReasonWord(string(r.Detail)), RetryAfter: after,
	})
}

// isRef reports whether a word has the form of a subject_ref: 64 lower-case hex digits.
func isRef(word string) bool {
	return len(word) == 64 && !slices.ContainsFunc([]byte(word), func(c byte) bool {
		return (c < '0' || c > '9') && (c < 'a' || c > 'f')
	})
}

// decodeLoosely reads JSON whose other fields don't matter here. Duplicate names and invalid UTF-8 are errors.
func decodeLoosely(data []byte, v any) error {
	return json.Unmarshal(data, v) //nolint:wrapcheck // callers only ask whether
}

func repeat(o outcome, n int) []outcome {
	return slices.Repeat([]outcome{o}, n)
}
