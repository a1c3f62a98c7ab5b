package subject

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
)

// Follow answers, for each target in order, where it leads: for a person the sources of their rows, for sources those that
// derive from them, one step far. It touches nothing. An error is that of any store.
func (a *Accessor) Follow(ctx context.Context, targets []Target) ([][]Source, error) {
	found := make([]map[Source]bool, len(targets))
	for i := range found {
		found[i] = map[Source]bool{}
	}
	var mu sync.Mutex
	var faults []error
	a.each(ctx, func(ctx context.Context, running *sync.WaitGroup, _ int, store Store) {
		s, ok := store.(Sourced)
		if !ok || !s.NamesSources() {
			return
		}
		leads, err := follow(ctx, running, s, targets)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			a.report(store, "follow", err)
			faults = append(faults, &Fault{Reason: reasonOf(ctx, err, ReasonCountFailed), Cause: err})
			return
		}
		for i, sources := range leads {
			for _, one := range sources {
				found[i][one] = true
			}
		}
	})
	out := make([][]Source, len(targets))
	for i := range found {
		out[i] = slices.Collect(maps.Keys(found[i]))
	}
	return out, errors.Join(faults...)
}

// follow asks one store, with one call for the people and one for the sources.
func follow(ctx context.Context, running *sync.WaitGroup, s Sourced, targets []Target) ([][]Source, error) {
	out := make([][]Source, len(targets))
	var people []Subject
	var parents []Source
	var ofPeople []int
	of := map[Source][]int{}
	for i, t := range targets {
		if t.AboutPerson() {
			people, ofPeople = append(people, t.Subject), append(ofPeople, i)
		}
		for _, one := range t.Sources {
			parents, of[one] = append(parents, one), append(of[one], i)
		}
	}
	if len(people) > 0 {
		lists, err := call(ctx, running, func() ([][]Source, error) { return s.Sources(ctx, people) })
		if err != nil {
			return nil, err
		}
		for n, i := range ofPeople {
			if n < len(lists) {
				out[i] = lists[n]
			}
		}
	}
	if len(parents) > 0 {
		derivations, err := call(ctx, running, func() ([]Derivation, error) { return s.DerivedFrom(ctx, parents) })
		if err != nil {
			return nil, err
		}
		for _, d := range derivations {
			for _, i := range of[d.Parent] {
				out[i] = append(out[i], d.Child)
			}
		}
	}
	return out, nil
}
