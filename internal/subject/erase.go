package subject

import (
	"context"
	"sync"
	"time"
)

// abandonAfter is how long a store may take to return once its context has ended, before it counts as hung.
const abandonAfter = 100 * time.Millisecond

// Group is a list of stores that are erased one after the other, because an earlier one is replayed or copied into a
// later one (a journal, then the memory that is filled from it). Groups run concurrently.
type Group struct {
	Stores []Store
	// Lock, where set, is held over the whole group. Writers of the same subjects MUST hold it too, so that no write
	// in flight lands in the first store after its recount and in the last before its delete.
	Lock func(ctx context.Context, subjects []Subject) (unlock func(), err error)
}

// Eraser carries out an erasure on the stores of one cell. It is safe for concurrent use.
type Eraser struct {
	Cell    string
	Groups  []Group
	Timeout time.Duration // of one store, from its count to its recount
	// OnError, where set, is told of every error that a store answered, for logs and metrics. The error's own text
	// MUST NOT be logged unless it is a *Fault or *NotYet.
	OnError func(store, step string, err error)
}

// Erase counts, deletes and recounts the subject in every store, and answers a receipt for each in the order of the
// groups, whatever fails, panics or hangs. It ends when ctx does, but no later than its own deadlines.
func (e *Eraser) Erase(ctx context.Context, s Subject) []Receipt {
	return e.EraseAll(ctx, []Subject{s})[0]
}

// EraseAll is Erase for many subjects of one tenant at once: one call per step and store where the store can take it.
// It answers one list of receipts per subject, in order.
func (e *Eraser) EraseAll(ctx context.Context, subjects []Subject) [][]Receipt {
	perGroup := make([][][]Receipt, len(e.Groups)) // group, store, subject
	if len(e.Groups) == 1 {
		perGroup[0] = e.eraseGroup(ctx, e.Groups[0], subjects)
	} else {
		var wg sync.WaitGroup
		for i, g := range e.Groups {
			wg.Go(func() { perGroup[i] = e.eraseGroup(ctx, g, subjects) })
		}
		wg.Wait()
	}
	out := make([][]Receipt, len(subjects))
	for _, group := range perGroup {
		for _, store := range group {
			for i := range subjects {
				out[i] = append(out[i], store[i])
			}
		}
	}
	return out
}

// eraseGroup answers the receipts of the group's stores: one list per store, one receipt per subject.
func (e *Eraser) eraseGroup(ctx context.Context, g Group, subjects []Subject) [][]Receipt {
	var running sync.WaitGroup // calls that were abandoned are still counted here
	out := make([][]Receipt, len(g.Stores))
	unlock, err := e.lock(ctx, g, subjects)
	if err != nil {
		for i, store := range g.Stores {
			out[i] = e.judge(ctx, store, &running, time.Now(), same(Measurement{DeleteErr: err}, len(subjects)))
		}
		return out
	}
	for i, store := range g.Stores {
		started := time.Now()
		storeCtx, cancel := context.WithTimeout(ctx, e.Timeout)
		m := &measuring{Eraser: e, store: store, running: &running, recountCtx: ctx}
		out[i] = e.judge(storeCtx, store, &running, started, m.measure(storeCtx, subjects))
		cancel()
	}
	if unlock != nil { // a hung call may still touch the store: the lock outlives it
		go func() {
			running.Wait()
			unlock()
		}()
	}
	return out
}

func (e *Eraser) lock(ctx context.Context, g Group, subjects []Subject) (func(), error) {
	if g.Lock == nil {
		return nil, nil //nolint:nilnil // no lock was asked for
	}
	ctx, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	unlock, err := g.Lock(ctx, subjects)
	if err != nil {
		return nil, &Fault{Reason: reasonOf(ctx, err, ReasonTimeout), Cause: err}
	}
	return unlock, nil
}

// judge turns the measurements of one store into receipts.
func (e *Eraser) judge(ctx context.Context, store Store, running *sync.WaitGroup, started time.Time, measured []Measurement) []Receipt {
	label := Label{Cell: e.Cell, Store: store.Name(), Backend: store.Backend()}
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
