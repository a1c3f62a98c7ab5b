package subject

import (
	"context"
	"errors"
)

// bySource erases what is named by its source and not by its subject: the records of targets that are sources, and what
// derives from any target's records. All targets share one call per step. It adds to what was measured by subject.
func (m *measuring) bySource(ctx context.Context, targets []Target, plans []Plan, out []Measurement) {
	store, ok := m.store.(Sourced)
	if !ok || !store.NamesSources() {
		return
	}
	var all []Source
	place := map[Source]int{}
	add := func(sources []Source) {
		for _, s := range sources {
			if _, known := place[s]; !known {
				place[s] = len(all)
				all = append(all, s)
			}
		}
	}
	name := m.store.Name()
	for i := range targets {
		if plans[i].Hold[name] == nil && !targets[i].Keeps(m.Cell, name) {
			add(targets[i].Sources)
			add(plans[i].Derived)
		}
	}
	if len(all) == 0 {
		return
	}
	before, countErr := m.countSources(ctx, store, all)
	_, deleteErr := call(ctx, m.running, func() (int64, error) { return store.DeleteSources(ctx, all) })
	recountCtx, cancel := m.forRecount(ctx)
	defer cancel()
	after, recountErr := m.countSources(recountCtx, store, all)
	total := func(counts []int64, sources []Source) (n int64) {
		if counts != nil {
			for _, s := range sources {
				n += counts[place[s]]
			}
		}
		return n
	}
	for i, t := range targets {
		own, derived := t.Sources, plans[i].Derived
		if len(own)+len(derived) == 0 || plans[i].Hold[name] != nil || t.Keeps(m.Cell, name) {
			continue
		}
		had, left := total(before, own), total(after, own)
		hadDerived, leftDerived := total(before, derived), total(after, derived)
		o := &out[i]
		o.Before, o.Deleted = plus(o.Before, had), plus(o.Deleted, max(0, had-left))
		o.Remaining = plus(o.Remaining, left+leftDerived)
		o.Derived = Measured(max(0, hadDerived-leftDerived))
		o.CountErr = errors.Join(o.CountErr, countErr)
		o.RecountErr = errors.Join(o.RecountErr, recountErr)
		if o.DeleteErr == nil || asNotYet(o.DeleteErr) != nil && deleteErr != nil && asNotYet(deleteErr) == nil {
			o.DeleteErr = deleteErr
		}
		m.ask(recountCtx, t.Subject, o)
	}
}

func (m *measuring) countSources(ctx context.Context, store Sourced, sources []Source) ([]int64, error) {
	counts, err := call(ctx, m.running, func() ([]int64, error) { return store.CountSources(ctx, sources) })
	if err == nil && len(counts) != len(sources) {
		err = &Fault{Reason: ReasonCountFailed}
	}
	if err != nil {
		return nil, err
	}
	return counts, nil
}

// plus adds to what was measured; what was not measured stays so.
func plus(c Count, n int64) Count {
	if value, measured := c.Value(); measured {
		return Measured(value + n)
	}
	return c
}
