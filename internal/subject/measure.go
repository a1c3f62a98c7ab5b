package subject

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// batchWidth is how many subjects a store without Batch works on at a time.
const batchWidth = 16

// measuring is one store being counted, deleted from and recounted.
type measuring struct {
	*Eraser
	store      Store
	running    *sync.WaitGroup
	recountCtx context.Context //nolint:containedctx // the recount outlives the store's own deadline
}

// measure answers one measurement per target, in order, whatever the store does.
func (m *measuring) measure(ctx context.Context, targets []Target, plans []Plan) []Measurement {
	out := make([]Measurement, len(targets))
	var people []Subject
	var places []int
	for i, t := range targets {
		if t.Keeps(m.Cell, m.store.Name()) {
			out[i].DeleteErr = &Fault{Reason: ReasonNoReason} // nothing was measured: the receipt is left out
		} else if err := plans[i].Hold[m.store.Name()]; err != nil {
			out[i] = m.held(ctx, t, err)
		} else if t.AboutPerson() {
			people, places = append(people, t.Subject), append(places, i)
		} else {
			out[i].Counts = Counts{Before: Measured(0), Deleted: Measured(0), Remaining: Measured(0)} // plus what bears its sources
		}
	}
	if len(people) > 0 {
		for i, measured := range m.people(ctx, people) {
			out[places[i]] = measured
		}
	}
	m.bySource(ctx, targets, plans, out)
	for i, plan := range plans {
		if out[i].CaptureErr = plan.Err; plan.Err == nil {
			out[i].CaptureErr = plan.Unresolved[m.store.Name()]
		}
		if m.Capture != nil && out[i].CaptureErr == nil {
			out[i].Suppressed = Measured(plan.Suppressed[m.store.Name()])
			if _, measured := out[i].Derived.Value(); !measured && out[i].CountErr == nil && out[i].RecountErr == nil {
				out[i].Derived = Measured(0)
			}
		}
	}
	return out
}

// held counts a target twice and deletes nothing of it.
func (m *measuring) held(ctx context.Context, t Target, err error) (out Measurement) {
	out.DeleteErr, out.Deleted = err, Measured(0)
	count := func(ctx context.Context) (Count, error) {
		if t.AboutPerson() {
			return m.count(ctx, t.Subject)
		}
		store, ok := m.store.(Sourced)
		if !ok || !store.NamesSources() {
			return Measured(0), nil
		}
		counts, err := m.countSources(ctx, store, t.Sources)
		if err != nil {
			return Unmeasured(), err
		}
		var n int64
		for _, c := range counts {
			n += c
		}
		return Measured(n), nil
	}
	out.Before, out.CountErr = count(ctx)
	recountCtx, cancel := m.forRecount(ctx)
	defer cancel()
	out.Remaining, out.RecountErr = count(recountCtx)
	return out
}

// people answers one measurement per subject, in order.
func (m *measuring) people(ctx context.Context, subjects []Subject) []Measurement {
	if atomic, ok := m.store.(Atomic); ok {
		return m.atomically(ctx, atomic, subjects)
	}
	if batch, ok := m.store.(Batch); ok && len(subjects) > 1 {
		return m.together(ctx, batch, subjects)
	}
	out := make([]Measurement, len(subjects))
	var wg sync.WaitGroup
	width := make(chan struct{}, batchWidth)
	for i, s := range subjects {
		width <- struct{}{}
		one := func() {
			defer func() { <-width }()
			out[i] = m.alone(ctx, s)
		}
		if len(subjects) == 1 {
			one()
		} else {
			wg.Go(one)
		}
	}
	wg.Wait()
	return out
}

func (m *measuring) atomically(ctx context.Context, store Atomic, subjects []Subject) []Measurement {
	measured, err := call(ctx, m.running, func() ([]Measurement, error) { return store.Erase(ctx, subjects), nil })
	switch {
	case err != nil:
		return same(Measurement{DeleteErr: err}, len(subjects))
	case len(measured) != len(subjects):
		return same(Measurement{DeleteErr: fmt.Errorf("%d measurements for %d subjects", len(measured), len(subjects))}, len(subjects))
	}
	return measured
}

func (m *measuring) alone(ctx context.Context, s Subject) (out Measurement) {
	out.Before, out.CountErr = m.count(ctx, s)
	deleted, err := call(ctx, m.running, func() (int64, error) { return m.store.Delete(ctx, s) })
	if out.DeleteErr = err; err == nil {
		out.Deleted = Measured(deleted)
	}
	recountCtx, cancel := m.forRecount(ctx)
	defer cancel()
	out.Remaining, out.RecountErr = m.count(recountCtx, s)
	m.ask(recountCtx, s, &out)
	return out
}

func (m *measuring) together(ctx context.Context, store Batch, subjects []Subject) []Measurement {
	before, countErr := m.counts(ctx, store, subjects)
	_, deleteErr := call(ctx, m.running, func() (int64, error) { return store.DeleteAll(ctx, subjects) })
	recountCtx, cancel := m.forRecount(ctx)
	defer cancel()
	remaining, recountErr := m.counts(recountCtx, store, subjects)
	out := make([]Measurement, len(subjects))
	for i := range out {
		out[i] = Measurement{CountErr: countErr, DeleteErr: deleteErr, RecountErr: recountErr}
		if countErr == nil {
			out[i].Before = Measured(before[i])
		}
		if recountErr == nil {
			out[i].Remaining = Measured(remaining[i])
		}
		if countErr == nil && recountErr == nil && deleteErr == nil {
			// One statement deletes for all of them: what went is told by the two counts.
			out[i].Deleted = Measured(max(0, before[i]-remaining[i]))
		}
		m.ask(recountCtx, subjects[i], &out[i])
	}
	return out
}

// ask lets a store say whether rows that its delete left without an error are only not deletable yet.
func (m *measuring) ask(ctx context.Context, s Subject, out *Measurement) {
	deferrer, ok := m.store.(Deferrer)
	if remaining, _ := out.Remaining.Value(); !ok || out.DeleteErr != nil || remaining <= 0 {
		return
	}
	if notYet, err := call(ctx, m.running, func() (*NotYet, error) { return deferrer.Deferred(ctx, s) }); err == nil {
		out.Deferred = notYet
	}
}

func (m *measuring) count(ctx context.Context, s Subject) (Count, error) {
	n, err := call(ctx, m.running, func() (int64, error) { return m.store.Count(ctx, s) })
	if err != nil {
		return Unmeasured(), err
	}
	return Measured(n), nil
}

func (m *measuring) counts(ctx context.Context, store Batch, subjects []Subject) ([]int64, error) {
	n, err := call(ctx, m.running, func() ([]int64, error) { return store.Counts(ctx, subjects) })
	if err == nil && len(n) != len(subjects) {
		err = fmt.Errorf("%d counts for %d subjects", len(n), len(subjects))
	}
	return n, err
}

// forRecount gives the recount a quarter of the store's time where count and delete used it up: the evidence is worth
// the wait, and the peer's timeout leaves room for it.
func (m *measuring) forRecount(ctx context.Context) (context.Context, context.CancelFunc) {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) >= m.Timeout/4 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(m.recountCtx, m.Timeout/4)
}

// call runs one step of a store. A panic becomes a Fault; a step that doesn't return soon after its context ended is
// abandoned, and stays counted in running until it does return.
func call[T any](ctx context.Context, running *sync.WaitGroup, step func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	running.Go(func() {
		var a answer
		defer func() {
			if recover() != nil {
				a = answer{err: &Fault{Reason: ReasonPanic}}
			}
			answers <- a
		}()
		a.value, a.err = step()
	})
	select {
	case a := <-answers:
		return a.value, a.err
	case <-ctx.Done():
	}
	select {
	case a := <-answers:
		return a.value, a.err
	case <-time.After(abandonAfter):
		var none T
		return none, &Fault{Reason: reasonOf(ctx, context.Cause(ctx), ReasonTimeout), Cause: ctx.Err()}
	}
}
