package cascade

import (
	"time"

	"recount/internal/subject"
	"recount/internal/wire"
)

// question is what a peer was asked. An answer to another one is worth nothing.
type question struct {
	requestID string
	target    subject.Target
}

// judge answers what the peer's words are good for, or the reason why the whole answer is not.
func (p *Peer) judge(got answer, q question, window subject.Times) (subject.Erasure, subject.Reason) {
	said, err := wire.DecodePeer(got.body)
	if err != nil {
		return subject.Erasure{}, subject.ReasonPeerNotJSON
	}
	top, reason := doubt(said, q)
	switch {
	case reason != subject.ReasonNone:
		return subject.Erasure{}, reason
	case got.code != wire.HTTPStatus(top):
		return subject.Erasure{}, subject.ReasonPeerMismatch
	}
	return p.attest(said, q, window)
}

// judgeBatch judges each result as judge does, and that they are one per question, in order.
func (p *Peer) judgeBatch(got answer, questions []question, window subject.Times) ([]subject.Erasure, subject.Reason) {
	said, err := wire.DecodePeerBatch(got.body)
	if err != nil {
		return nil, subject.ReasonPeerNotJSON
	}
	if len(said.Results) != len(questions) {
		return nil, subject.ReasonPeerResults
	}
	words := make([]wire.PeerText, len(questions))
	for i, result := range said.Results {
		if string(result.SubjectRef) != string(questions[i].target.Ref) {
			return nil, subject.ReasonPeerResults
		}
		words[i] = result.Status
	}
	top, err := subject.ParseStatus(string(said.Status))
	switch {
	case err != nil:
		return nil, subject.ReasonPeerUnknownStatus
	case got.code != wire.HTTPStatus(top) || !agrees(top, words):
		return nil, subject.ReasonPeerMismatch
	}
	out := make([]subject.Erasure, len(questions))
	for i, result := range said.Results {
		_, reason := doubt(result, questions[i])
		if reason == subject.ReasonNone {
			out[i], reason = p.attest(result, questions[i], window)
		}
		if reason != subject.ReasonNone {
			out[i] = p.nothing(window, reason)
		}
	}
	return out, subject.ReasonNone
}

// doubt looks for a fault in the envelope of an answer. Without one, it answers the status that the peer gave.
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
	case string(said.TenantID) != q.target.Tenant:
		reason = subject.ReasonPeerWrongTenant
	case string(said.SubjectRef) != string(q.target.Ref):
		reason = subject.ReasonPeerWrongSubject
	case string(said.Operation) != wire.OperationOf(q.target):
		reason = subject.ReasonPeerWrongOp
	case err != nil:
		reason = subject.ReasonPeerUnknownStatus
	case !agrees(top, words):
		reason = subject.ReasonPeerMismatch
	}
	return top, reason
}

// agrees reports whether a status is the fold of the words below it. A word that is no status is coerced to failed
// later; what the peer folded it as is anyone's guess, so it may only have made the fold worse.
func agrees(top subject.Status, words []wire.PeerText) bool {
	worst, open := subject.Erased, false
	for _, word := range words {
		status, err := subject.ParseStatus(string(word))
		if err != nil {
			open = true
		} else {
			worst = worst.Worse(status)
		}
	}
	return top == worst || open && top.Worse(worst) == top
}

// attest judges the receipts and reads the sources. A source that can't be read is one that nobody could be asked for.
func (p *Peer) attest(said wire.PeerResponse, q question, window subject.Times) (subject.Erasure, subject.Reason) {
	e := subject.Erasure{Receipts: p.receipts(said, q.target, window)}
	if said.Sources.Malformed {
		return e, subject.ReasonPeerNotJSON
	}
	if !said.Sources.Given {
		return e, subject.ReasonNone
	}
	e.Sources = make([]subject.Source, len(said.Sources.Listed))
	for i, listed := range said.Sources.Listed {
		var err error
		if e.Sources[i], err = subject.NewSource(q.target.Tenant, listed.Source, listed.SourceRef); err != nil {
			return e, subject.ReasonSourceInvalid
		}
	}
	return e, subject.ReasonNone
}

// receipts judges receipts one by one: a bad one is coerced, and its siblings are kept. Every store that the peer must
// answer for has exactly one receipt in the end.
func (p *Peer) receipts(said wire.PeerResponse, t subject.Target, window subject.Times) []subject.Receipt {
	out := make([]subject.Receipt, 0, len(said.Receipts)+len(p.config.Stores))
	at := make(map[string]int, len(said.Receipts))
	for _, r := range said.Receipts {
		store := r.Store.Name()
		if store == "" {
			store = subject.AnyStore
		}
		first, again := at[store]
		switch {
		case !again:
			at[store] = len(out)
			out = append(out, p.attestOne(r, store, time.Duration(said.RetryAfter), window))
		case store != subject.AnyStore: // two measurements of one store: neither counts
			out[first] = p.failed(store, window, subject.ReasonPeerStoreRepeated)
		}
	}
	for _, store := range p.config.Stores {
		if _, there := at[store]; !there && !t.Keeps(p.config.Name, store) {
			out = append(out, p.failed(store, window, subject.ReasonPeerStoreMissing))
		}
	}
	for i, r := range out {
		if t.Keeps(p.config.Name, r.Store()) { // it was told to leave that store alone
			out[i] = p.failed(r.Store(), window, subject.ReasonPeerMismatch)
		}
	}
	return out
}

func (p *Peer) attestOne(r wire.PeerReceipt, store string, after time.Duration, window subject.Times) subject.Receipt {
	if store == subject.AnyStore {
		return p.failed(store, window, subject.ReasonPeerStoreNameless)
	}
	if string(r.Cell) != p.config.Name { // measured by somebody else: its counts say nothing about this cell
		return p.failed(store, window, subject.ReasonPeerWrongCell)
	}
	counts, sound := countsOf(r)
	label := subject.Label{Cell: p.config.Name, Store: store, Backend: r.Backend.Name(), Sticky: bool(r.Sticky)}
	times := timesOf(r, window)
	status, err := subject.ParseStatus(string(r.Status))
	switch {
	case err != nil:
		return subject.NewFailed(label, times, counts, subject.ReasonPeerUnknownStatus)
	case !sound:
		return subject.NewFailed(label, times, counts, subject.ReasonPeerBadCount)
	case status == subject.Erased && r.RecoverableUntil.Malformed: // an empty one would say that nothing is kept
		return subject.NewFailed(label, times, counts, subject.ReasonRetention)
	}
	return subject.Attest(subject.Statement{
		Label: label, Times: times, Counts: counts, Status: status,
		Reason: wire.ReasonWord(string(r.Detail)), RetryAfter: after,
	})
}

// countsOf reads the counts; one that is not sound is left unmeasured, and the others stay as evidence.
func countsOf(r wire.PeerReceipt) (subject.Counts, bool) {
	before, soundBefore := r.Before.Count()
	deleted, soundDeleted := r.Deleted.Count()
	remaining, soundRemaining := r.Remaining.Count()
	suppressed, soundSuppressed := r.Suppressed.Optional()
	derived, soundDerived := r.Derived.Optional()
	return subject.Counts{Before: before, Deleted: deleted, Remaining: remaining, Suppressed: suppressed, Derived: derived},
		soundBefore && soundDeleted && soundRemaining && soundSuppressed && soundDerived
}

// timesOf reads the times; where the peer gave none, the work lay between question and answer.
func timesOf(r wire.PeerReceipt, window subject.Times) subject.Times {
	times := subject.Times{
		Started: r.StartedAt.Time, Finished: r.FinishedAt.Time, RecoverableUntil: r.RecoverableUntil.Time,
	}
	if times.Started.IsZero() {
		times.Started = window.Started
	}
	if times.Finished.IsZero() {
		times.Finished = window.Finished
	}
	return times
}
