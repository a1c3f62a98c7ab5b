package subject

import (
	"context"
	"slices"
	"sync"
	"time"
)

// abandonAfter is how long a store may take to return once its context has ended, before it counts as hung.
const abandonAfter = 100 * time.Millisecond

// Group is a list of stores that are erased one after the other, because an earlier one is replayed or copied into a
// later one (a journal, then the memory that is filled from it). Groups run concurrently.
type Group struct {
	Stores []Store
	// Vault, where set, erases all the group's stores in one transaction.
	Vault Vault
	// Lock, where set, is held over the whole group. Whoever fills one of its stores from another as a whole MUST hold
	// it alone.
	Lock func(ctx context.Context) (unlock func(), err error)
}

// Eraser carries out an erasure on the stores of one cell. It is safe for concurrent use.
type Eraser struct {
	Cell    string
	Groups  []Group
	Timeout time.Duration // of one store, from its count to its recount; and of the capture before it
	// Capture records what the groups without a vault are about to lose. Nil where no ledger is kept: the receipts then
	// say that nothing is sticky.
	Capture Capture
	// OnError, where set, is told of every error that a store answered, for logs and metrics. The error's own text
	// MUST NOT be logged unless it is a *Fault or *NotYet.
	OnError func(store, step string, err error)
}

// Erase counts, deletes and recounts one target in every store, and answers a receipt for each in the order of the
// groups, whatever fails, panics or hangs. It ends when ctx does, but no later than its own deadlines.
func (e *Eraser) Erase(ctx context.Context, t Target) Erasure {
	return e.EraseAll(ctx, []Target{t})[0]
}

// EraseAll is Erase for many targets of one tenant at once: one call per step and store where the store can take it.
// It answers for each target, in order.
func (e *Eraser) EraseAll(ctx context.Context, targets []Target) []Erasure {
	targets = here(e.Cell, targets)
	plans, attempt := e.begin(ctx, targets)
	groups := make([]grouped, len(e.Groups))
	if len(e.Groups) == 1 {
		groups[0] = e.eraseGroup(ctx, e.Groups[0], targets, plans)
	} else {
		var wg sync.WaitGroup
		for i, g := range e.Groups {
			wg.Go(func() { groups[i] = e.eraseGroup(ctx, g, targets, plans) })
		}
		wg.Wait()
	}
	out := make([]Erasure, len(targets))
	for i := range targets {
		if e.remembers() {
			out[i].Sources = append([]Source{}, plans[i].Sources...) // not nil: somebody looked
		}
		for _, g := range groups {
			for _, store := range g.receipts {
				out[i].Receipts = append(out[i].Receipts, store[i])
			}
			if g.sources != nil {
				out[i].Sources = append(out[i].Sources, g.sources[i]...)
			}
		}
	}
	e.settle(ctx, attempt, out)
	for i, t := range targets {
		if len(t.Keep) > 0 {
			out[i].Receipts = slices.DeleteFunc(out[i].Receipts, func(r Receipt) bool { return t.Keeps(e.Cell, r.Store()) })
		}
	}
	return out
}

// here are the targets with what they keep in this cell alone.
func here(cell string, targets []Target) []Target {
	if !slices.ContainsFunc(targets, func(t Target) bool { return len(t.Keep) > 0 }) {
		return targets
	}
	out := slices.Clone(targets)
	for i, t := range targets {
		out[i].Keep = nil
		for _, store := range t.KeptIn(cell) {
			out[i].Keep = append(out[i].Keep, cell+"/"+store)
		}
	}
	return out
}

// remembers reports whether a ledger is kept of what goes.
func (e *Eraser) remembers() bool {
	return e.Capture != nil || slices.ContainsFunc(e.Groups, func(g Group) bool { return g.Vault != nil })
}

// begin captures what is there, where a capture is asked for.
func (e *Eraser) begin(ctx context.Context, targets []Target) ([]Plan, Attempt) {
	if e.Capture == nil {
		return make([]Plan, len(targets)), nil
	}
	ctx, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	return e.Capture.Begin(ctx, targets)
}

// settle ends the attempt. What it recorded is withdrawn where the erasure failed and took nothing: the person is still
// there, and their imports must go on. The receipts then say that nothing is suppressed.
func (e *Eraser) settle(ctx context.Context, attempt Attempt, erasures []Erasure) {
	if attempt == nil {
		return
	}
	withdraw := make([]bool, len(erasures))
	for i := range erasures {
		withdraw[i] = tookNothing(erasures[i].Receipts)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.Timeout/4)
	defer cancel()
	if err := attempt.Settle(ctx, withdraw); err != nil {
		if e.OnError != nil {
			e.OnError(AnyStore, "settle", err)
		}
		return // what was recorded stands, and a fence runs out by itself
	}
	for i, took := range withdraw {
		for j := range erasures[i].Receipts {
			if took {
				erasures[i].Receipts[j].counts.Suppressed = Measured(0)
			}
		}
	}
}

// tookNothing reports a failed erasure of which every store is known to have kept what it had.
func tookNothing(receipts []Receipt) bool {
	if Fold(receipts) != Failed {
		return false
	}
	for _, r := range receipts {
		before, counted := r.counts.Before.Value()
		remaining, measured := r.counts.Remaining.Value()
		derived, _ := r.counts.Derived.Value()
		deleted, _ := r.counts.Deleted.Value()
		if r.status == Pending || !counted || !measured || deleted != 0 || derived != 0 || remaining < before {
			return false
		}
	}
	return true
}

// grouped is what came of one group: a list of receipts per store, one receipt per target, and what a vault resolved for
// each target.
type grouped struct {
	receipts [][]Receipt
	sources  [][]Source
}

func (e *Eraser) eraseGroup(ctx context.Context, g Group, targets []Target, plans []Plan) grouped {
	var running sync.WaitGroup // calls that were abandoned are still counted here
	out := grouped{receipts: make([][]Receipt, len(g.Stores))}
	unlock, err := e.lock(ctx, g)
	if err != nil {
		for i, store := range g.Stores {
			out.receipts[i] = e.judge(ctx, store, e.guarded(g, store), &running, time.Now(), same(Measurement{DeleteErr: err}, len(targets)))
		}
		return out
	}
	if g.Vault != nil {
		out = e.eraseVault(ctx, g, &running, targets)
	} else {
		for i, store := range g.Stores {
			started := time.Now()
			storeCtx, cancel := context.WithTimeout(ctx, e.Timeout)
			m := &measuring{Eraser: e, store: store, running: &running, recountCtx: ctx}
			out.receipts[i] = e.judge(storeCtx, store, e.guarded(g, store), &running, started, m.measure(storeCtx, targets, plans))
			cancel()
		}
	}
	if unlock != nil { // a hung call may still touch the store: the lock outlives it
		go func() {
			running.Wait()
			unlock()
		}()
	}
	return out
}

func (e *Eraser) eraseVault(ctx context.Context, g Group, running *sync.WaitGroup, targets []Target) grouped {
	started := time.Now()
	ctx, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	out := grouped{receipts: make([][]Receipt, len(g.Stores)), sources: make([][]Source, len(targets))}
	vaulted, err := call(ctx, running, func() ([]Vaulted, error) { return g.Vault.EraseTogether(ctx, targets), nil })
	if err == nil && len(vaulted) != len(targets) {
		err = &Fault{Reason: ReasonUnknown}
	}
	for i, store := range g.Stores {
		measured := same(Measurement{DeleteErr: err}, len(targets))
		for j := range vaulted {
			if err == nil && i < len(vaulted[j].Measured) {
				measured[j] = vaulted[j].Measured[i]
			}
		}
		out.receipts[i] = e.judge(ctx, store, true, running, started, measured)
	}
	for j := range vaulted {
		if err == nil {
			out.sources[j] = vaulted[j].Sources
		}
	}
	return out
}

// guarded reports whether what is erased from the store stays away: a ledger records it, and the store's rows can be
// recognised when they come again.
func (e *Eraser) guarded(g Group, store Store) bool {
	sourced, ok := store.(Sourced)
	return g.Vault != nil || e.Capture != nil && ok && sourced.NamesSources()
}

func (e *Eraser) lock(ctx context.Context, g Group) (func(), error) {
	if g.Lock == nil {
		return nil, nil //nolint:nilnil // no lock was asked for
	}
	ctx, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	unlock, err := g.Lock(ctx)
	if err != nil {
		return nil, &Fault{Reason: reasonOf(ctx, err, ReasonTimeout), Cause: err}
	}
	return unlock, nil
}

// judge turns the measurements of one store into receipts.
func (e *Eraser) judge(ctx context.Context, store Store, sticky bool, running *sync.WaitGroup, started time.Time, measured []Measurement) []Receipt {
	label := Label{Cell: e.Cell, Store: store.Name(), Backend: store.Backend(), Sticky: sticky}
	times := Times{Started: started, Finished: time.Now()}
	var retentionErr error
	if r, ok := store.(Retainer); ok {
		times.RecoverableUntil, retentionErr = call(ctx, running, func() (time.Time, error) { return r.RecoverableUntil(ctx, times.Finished) })
	}
	reasonFor := func(err error, otherwise Reason) Reason { return reasonOf(ctx, err, otherwise) }
	receipts := make([]Receipt, len(measured))
	for i, m := range measured {
		receipts[i] = Judge(label, times, m, reasonFor)
		if retentionErr != nil && receipts[i].Status() == Erased {
			receipts[i] = NewFailed(label, times, m.Counts, ReasonRetention)
		}
		e.report(store, "capture", m.CaptureErr)
		e.report(store, "count", m.CountErr)
		e.report(store, "delete", m.DeleteErr)
		e.report(store, "purge", m.PurgeErr)
		e.report(store, "recount", m.RecountErr)
	}
	return receipts
}

func (e *Eraser) report(store Store, step string, err error) {
	if err != nil && e.OnError != nil {
		e.OnError(store.Name(), step, err)
	}
}

func same(m Measurement, n int) []Measurement {
	out := make([]Measurement, n)
	for i := range out {
		out[i] = m
	}
	return out
}
