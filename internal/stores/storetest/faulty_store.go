package storetest

import (
	"context"
	"slices"
	"sync"
	"time"

	"recount/internal/subject"
)

// faulty is the part of the wrapper that every store has.
type faulty struct {
	store     subject.Store
	plan      Plan
	testEnded chan struct{}

	mu    sync.Mutex
	calls map[Op]int
}

func newFaulty(store subject.Store, plan Plan) *faulty {
	return &faulty{store: store, plan: plan, testEnded: make(chan struct{}), calls: map[Op]int{}}
}

func hidden(plan Plan, ability Op) bool { return slices.Contains(plan.Hide, ability) }

// next is the fault of this call.
func (f *faulty) next(op Op) Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.calls[op]
	f.calls[op]++
	if n < len(f.plan.Faults[op]) {
		return f.plan.Faults[op][n]
	}
	return None
}

// steps are three ways to do a call that answers one number.
type steps struct {
	honest, partial, lie func() (int64, error)
}

// number runs a call that answers one number, with its fault.
func (f *faulty) number(ctx context.Context, op Op, s subject.Subject, do steps) (int64, error) {
	fault := f.next(op)
	if ok, err := f.before(ctx, op, fault, s); !ok {
		return 0, err
	}
	switch fault {
	case Negative:
		_, err := do.honest()
		return -1, err
	case FailLate:
		_, _ = do.honest()
		return 0, rude(op, s)
	case FailHalfway:
		_, _ = do.partial()
		return 0, rude(op, s)
	case Partial:
		return do.partial()
	case Lie:
		return do.lie()
	default:
		return do.honest()
	}
}

func (f *faulty) Name() string    { return f.store.Name() }
func (f *faulty) Backend() string { return f.store.Backend() }

func (f *faulty) Count(ctx context.Context, s subject.Subject) (int64, error) {
	honest := func() (int64, error) { return f.store.Count(ctx, s) }
	return f.number(ctx, OpCount, s, steps{honest: honest, partial: honest, lie: honest})
}

func (f *faulty) Delete(ctx context.Context, s subject.Subject) (int64, error) {
	return f.number(ctx, OpDelete, s, steps{
		honest:  func() (int64, error) { return f.store.Delete(ctx, s) },
		partial: func() (int64, error) { return f.deleteSome(ctx, s) },
		lie:     func() (int64, error) { return f.store.Count(ctx, s) },
	})
}

// deleteSome leaves one row where the store knows how to (Model does), else every row.
func (f *faulty) deleteSome(ctx context.Context, s subject.Subject) (int64, error) {
	if some, ok := f.store.(interface {
		DeleteSome(ctx context.Context, s subject.Subject, keep int64) (int64, error)
	}); ok {
		return some.DeleteSome(ctx, s, 1)
	}
	return f.store.Count(ctx, s)
}

func (f *faulty) Deferred(ctx context.Context, s subject.Subject) (*subject.NotYet, error) {
	fault := f.next(OpDeferred)
	if ok, err := f.before(ctx, OpDeferred, fault, s); !ok {
		return nil, err
	}
	if d, ok := f.store.(subject.Deferrer); ok {
		return d.Deferred(ctx, s)
	}
	return nil, nil //nolint:nilnil // the contract's "can't say so"
}

func (f *faulty) RecoverableUntil(ctx context.Context, deleted time.Time) (time.Time, error) {
	fault := f.next(OpRetained)
	if ok, err := f.before(ctx, OpRetained, fault); !ok {
		return time.Time{}, err
	}
	if r, ok := f.store.(subject.Retainer); ok {
		return r.RecoverableUntil(ctx, deleted)
	}
	return time.Time{}, nil
}

func (f *faulty) Ready(ctx context.Context) error {
	fault := f.next(OpReady)
	if ok, err := f.before(ctx, OpReady, fault); !ok {
		return err
	}
	if p, ok := f.store.(subject.Prober); ok {
		return p.Ready(ctx)
	}
	return nil
}

func (f *faulty) About() subject.Card {
	if d, ok := f.store.(subject.Described); ok {
		return d.About()
	}
	return subject.Card{}
}

func (f *faulty) IdentityFields() []string {
	if i, ok := f.store.(subject.Identified); ok {
		return i.IdentityFields()
	}
	return nil
}

type faultyReader struct {
	f     *faulty
	store subject.Reader
}

func (r faultyReader) Read(ctx context.Context, s subject.Subject, cursor string, limit int) (subject.Page, error) {
	fault := r.f.next(OpRead)
	if ok, err := r.f.before(ctx, OpRead, fault, s); !ok {
		return subject.Page{}, err
	}
	return r.store.Read(ctx, s, cursor, limit)
}

type faultyBatch struct {
	f     *faulty
	store subject.Batch
}

func (b faultyBatch) Counts(ctx context.Context, subjects []subject.Subject) ([]int64, error) {
	fault := b.f.next(OpCounts)
	if ok, err := b.f.before(ctx, OpCounts, fault, subjects...); !ok {
		return nil, err
	}
	counts, err := b.store.Counts(ctx, subjects)
	switch {
	case fault == FailLate || fault == FailHalfway:
		return nil, rude(OpCounts, subjects...)
	case fault == Negative:
		for i := range counts {
			counts[i] = -1
		}
	case fault == Short && len(counts) > 0:
		counts = counts[:len(counts)-1]
	}
	return counts, err
}

func (b faultyBatch) DeleteAll(ctx context.Context, subjects []subject.Subject) (int64, error) {
	fault := b.f.next(OpDeleteAll)
	if ok, err := b.f.before(ctx, OpDeleteAll, fault, subjects...); !ok {
		return 0, err
	}
	switch fault {
	case Lie:
		return int64(len(subjects)), nil
	case Partial, FailHalfway:
		var deleted int64
		for _, s := range subjects {
			n, err := b.f.deleteSome(ctx, s)
			if err != nil {
				return deleted, err
			}
			deleted += n
		}
		if fault == FailHalfway {
			return 0, rude(OpDeleteAll, subjects...)
		}
		return deleted, nil
	case FailLate:
		_, _ = b.store.DeleteAll(ctx, subjects)
		return 0, rude(OpDeleteAll, subjects...)
	case Negative:
		_, err := b.store.DeleteAll(ctx, subjects)
		return -1, err
	default:
		return b.store.DeleteAll(ctx, subjects)
	}
}

type faultyAtomic struct {
	f     *faulty
	store subject.Atomic
}

func (a faultyAtomic) Erase(ctx context.Context, subjects []subject.Subject) []subject.Measurement {
	fault := a.f.next(OpErase)
	if ok, err := a.f.before(ctx, OpErase, fault, subjects...); !ok {
		return a.each(ctx, subjects, func(subject.Subject) (int64, error) { return 0, err })
	}
	switch fault {
	case Lie:
		return a.each(ctx, subjects, func(s subject.Subject) (int64, error) { return a.f.store.Count(ctx, s) })
	case Partial:
		return a.each(ctx, subjects, func(s subject.Subject) (int64, error) { return a.f.deleteSome(ctx, s) })
	case FailHalfway:
		return a.each(ctx, subjects, func(s subject.Subject) (int64, error) {
			_, _ = a.f.deleteSome(ctx, s)
			return 0, rude(OpErase, s)
		})
	}
	measured := a.store.Erase(ctx, subjects)
	for i := range measured {
		switch fault {
		case FailLate:
			measured[i].DeleteErr = rude(OpErase, subjects...)
		case Negative:
			measured[i].Remaining = subject.Measured(-1)
		case Blank:
			measured[i] = subject.Measurement{}
		}
	}
	if fault == Short && len(measured) > 0 {
		measured = measured[:len(measured)-1]
	}
	return measured
}

// each measures honestly around a delete that isn't.
func (a faultyAtomic) each(ctx context.Context, subjects []subject.Subject, del func(subject.Subject) (int64, error)) []subject.Measurement {
	out := make([]subject.Measurement, len(subjects))
	for i, s := range subjects {
		m := &out[i]
		m.Before, m.CountErr = a.count(ctx, s)
		var n int64
		if n, m.DeleteErr = del(s); m.DeleteErr == nil {
			m.Deleted = subject.Measured(n)
		}
	}
	for i, s := range subjects { // an edge of two of them may go with the second
		out[i].Remaining, out[i].RecountErr = a.count(ctx, s)
	}
	return out
}

func (a faultyAtomic) count(ctx context.Context, s subject.Subject) (subject.Count, error) {
	n, err := a.f.store.Count(ctx, s)
	if err != nil {
		return subject.Unmeasured(), err
	}
	return subject.Measured(n), nil
}
