package suppression

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"time"

	"recount/internal/subject"
)

const (
	lateTries = 3
	latePause = 20 * time.Millisecond
	maxRounds = 5               // of resolving: what derives from what was found, and what landed meanwhile
	fenceFor  = 5 * time.Minute // a fence whose erasure died runs out; no erasure takes so long
)

// Capture is the part of an erasure that is about the ledger, where the ledger and the stores share no transaction. It
// keeps subject.Capture.
//
// The order is what makes it safe. The fence goes up: whoever writes for the subject from now on waits. What is found is
// recorded: whoever writes it from now on is refused. Then the writes that had asked before are waited for, and what is
// there is resolved once more: only when that brings nothing new can nothing of it land any more, and the stores are
// deleted from and recounted.
type Capture struct {
	Ledger Ledger
	// Stores are those whose rows name their source.
	Stores []Store
	// Writers are this process's writes. Nil where somebody else writes to the stores (an owner's tables).
	Writers *Writers
	// Elsewhere is how long a write of another instance may still be under way after it asked. 0 where there is none.
	Elsewhere time.Duration
}

// orElse is the error, or that of a store which answered for too few.
func orElse(err error) error {
	if err != nil {
		return err
	}
	return &subject.Fault{Reason: subject.ReasonCountFailed}
}

// Store is a store whose rows name their source.
type Store interface {
	subject.Store
	subject.Sourced
}

// Begin keeps subject.Capture.
func (c *Capture) Begin(ctx context.Context, targets []subject.Target) ([]subject.Plan, subject.Attempt) {
	a := &attempt{Capture: c, targets: targets, fences: newAttemptID(), found: make([]finding, len(targets)), unresolved: map[string]error{}, blind: map[string]error{}}
	for i := range targets {
		a.found[i] = finding{
			attempt: newAttemptID(), reasons: map[subject.Source]string{}, derived: map[subject.Source]bool{},
			byStore: map[string]map[subject.Source]bool{}, itself: map[subject.Source]bool{},
		}
	}
	err := a.capture(ctx)
	if err != nil {
		a.resolve(ctx) // what is deleted all the same is recorded when it can be: see Settle
	}
	plans := make([]subject.Plan, len(targets))
	for i := range targets {
		plans[i] = a.plan(i, err)
	}
	return plans, a
}

func newAttemptID() AttemptID {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails: crypto/rand ends the program instead
	return AttemptID(hex.EncodeToString(id[:]))
}

// attempt is one call of Begin.
type attempt struct {
	*Capture
	targets []subject.Target
	found   []finding
	fences  AttemptID
	fenced  bool
	// unresolved are the stores whose rows could not be resolved. The others are erased all the same.
	unresolved map[string]error
	blind      map[string]error // of those, the ones whose own rows of the people are not known
}

// finding is what was resolved for one target.
type finding struct {
	attempt AttemptID                 // of this target alone: one may be withdrawn and another not
	reasons map[subject.Source]string // everything that was found, with the reason to record it
	derived map[subject.Source]bool   // what is to be erased by its source
	byStore map[string]map[subject.Source]bool
	asked   map[subject.Source]bool // what derives from it is known for this round
	itself  map[subject.Source]bool // the target, where it is sources
	fresh   []subject.Source        // found, and not recorded yet
}

func (f *finding) add(s subject.Source, reason string) {
	if _, known := f.reasons[s]; !known {
		f.reasons[s] = reason
		f.fresh = append(f.fresh, s)
	}
}

func (f *finding) in(store string, s subject.Source) {
	if f.byStore[store] == nil {
		f.byStore[store] = map[subject.Source]bool{}
	}
	f.byStore[store][s] = true
}

func (a *attempt) capture(ctx context.Context) error {
	if len(a.targets) == 0 {
		return nil
	}
	if err := a.fence(ctx); err != nil {
		return err
	}
	if err := a.recall(ctx); err != nil {
		return err
	}
	for round := range maxRounds {
		a.resolve(ctx)
		fresh, err := a.record(ctx)
		if err != nil {
			return err
		}
		if fresh == 0 && round > 0 {
			return nil // nothing landed since the writes before the last record were waited for
		}
		if err := a.drain(ctx); err != nil {
			return err
		}
	}
	return &subject.Fault{Reason: subject.ReasonSourcesOpen}
}

// fence holds back whoever writes for the people that are being erased. An owner's importers can't be held back.
func (a *attempt) fence(ctx context.Context) error {
	if a.Writers == nil {
		return nil
	}
	var people []subject.Subject
	for _, t := range a.targets {
		if t.AboutPerson() {
			people = append(people, t.Subject)
		}
	}
	if len(people) == 0 {
		return nil
	}
	a.fenced = true
	return a.Ledger.Fence(ctx, a.fences, people, time.Now().Add(fenceFor))
}

// recall takes up what an earlier attempt recorded: it may have deleted the rows that told.
func (a *attempt) recall(ctx context.Context) error {
	refs := make([]subject.Ref, len(a.targets))
	for i, t := range a.targets {
		refs[i] = t.Ref
	}
	recorded, err := a.Ledger.Recorded(ctx, a.targets[0].Tenant, refs)
	if err != nil {
		return err
	}
	for i := range a.targets {
		for _, e := range recorded[i] {
			a.found[i].add(e.Source, e.Reason) // recorded once more: that attempt may be withdrawing it
			if e.Reason != ReasonSubject {
				a.found[i].derived[e.Source] = true
			}
		}
		for _, s := range a.targets[i].Sources {
			a.found[i].add(s, ReasonSource)
			a.found[i].itself[s] = true
			delete(a.found[i].derived, s)
		}
	}
	return nil
}

// resolve finds the sources of the people's rows, and then what derives from anything found, until nothing new does.
func (a *attempt) resolve(ctx context.Context) {
	var people []subject.Subject
	var places []int
	for i, t := range a.targets {
		if t.AboutPerson() {
			people, places = append(people, t.Subject), append(places, i)
		}
	}
	if len(people) > 0 {
		for _, store := range a.Stores {
			lists, err := store.Sources(ctx, people)
			if err != nil || len(lists) != len(people) {
				a.unresolved[store.Name()] = orElse(err)
				a.blind[store.Name()] = orElse(err)
				continue
			}
			for j, sources := range lists {
				if a.targets[places[j]].KeepsStore(store.Name()) {
					continue // what is retained may be written again
				}
				for _, s := range sources {
					a.found[places[j]].add(s, ReasonSubject)
					a.found[places[j]].in(store.Name(), s)
				}
			}
		}
	}
	for i := range a.found {
		a.found[i].asked = map[subject.Source]bool{}
	}
	for {
		frontier := map[subject.Source]bool{}
		for i := range a.found {
			for s := range a.found[i].reasons {
				if !a.found[i].asked[s] {
					a.found[i].asked[s], frontier[s] = true, true
				}
			}
		}
		parents := slices.Collect(maps.Keys(frontier))
		if len(parents) == 0 {
			return
		}
		a.follow(ctx, parents)
	}
}

// follow finds what derives from the parents, for each target that has found them.
func (a *attempt) follow(ctx context.Context, parents []subject.Source) {
	for _, store := range a.Stores {
		derivations, err := store.DerivedFrom(ctx, parents)
		if err != nil {
			a.unresolved[store.Name()] = err
			continue
		}
		for _, d := range derivations {
			for i := range a.found {
				f := &a.found[i]
				if _, mine := f.reasons[d.Parent]; !mine || a.targets[i].KeepsStore(store.Name()) {
					continue
				}
				f.add(d.Child, ReasonDerived)
				f.in(store.Name(), d.Child)
				f.derived[d.Child] = !f.itself[d.Child]
			}
		}
	}
}

// record writes down what was found and is not in the ledger yet as far as this attempt knows.
func (a *attempt) record(ctx context.Context) (fresh int, err error) {
	var entries []Entry
	places := map[subject.Source]int{}
	now := time.Now().UTC().Truncate(time.Microsecond)
	for i := range a.found {
		f := &a.found[i]
		for _, s := range f.fresh {
			if at, known := places[s]; known { // two targets rely on it
				entries[at].Attempt = ""
				continue
			}
			places[s] = len(entries)
			entries = append(entries, Entry{Source: s, Reason: f.reasons[s], ErasedAt: now, Erasure: a.targets[i].Ref, Attempt: f.attempt})
		}
	}
	if len(entries) == 0 {
		return 0, nil
	}
	if _, err := a.Ledger.Record(ctx, entries); err != nil {
		return 0, err
	}
	for i := range a.found {
		a.found[i].fresh = nil
	}
	return len(entries), nil
}

// drain waits for the writes that had asked the ledger before now: this process's by name, others' by the clock.
func (a *attempt) drain(ctx context.Context) error {
	if a.Writers == nil {
		return nil
	}
	if err := a.Writers.Drain(ctx); err != nil {
		return &subject.Fault{Reason: subject.ReasonTimeout, Cause: err}
	}
	if a.Elsewhere == 0 {
		return nil
	}
	select {
	case <-time.After(a.Elsewhere):
		return nil
	case <-ctx.Done():
		return &subject.Fault{Reason: subject.ReasonTimeout, Cause: ctx.Err()}
	}
}

func (a *attempt) plan(i int, err error) subject.Plan {
	f := &a.found[i]
	p := subject.Plan{Sources: slices.Collect(maps.Keys(f.reasons)), Suppressed: map[string]int64{}, Err: err, Unresolved: a.unresolved}
	for s, derived := range f.derived {
		if derived {
			p.Derived = append(p.Derived, s)
		}
	}
	p.Hold = a.hold(err != nil && (len(p.Derived) > 0 || len(a.unresolved) > 0), err)
	for _, store := range a.Stores {
		n := int64(len(f.itself))
		for s := range f.byStore[store.Name()] {
			if !f.itself[s] {
				n++
			}
		}
		p.Suppressed[store.Name()] = n
	}
	return p
}

// recordLate records what the ledger could not take before the delete: the rows are gone, and no later attempt could
// resolve them. Where it fails for good, the receipts have said suppression_failed, and that is all that is left to say.
func (a *attempt) recordLate(ctx context.Context) (err error) {
	for try := range lateTries {
		if _, err = a.record(ctx); err == nil || try == lateTries-1 {
			break
		}
		select {
		case <-time.After(latePause << try):
		case <-ctx.Done():
			return err
		}
	}
	return err
}

// hold are the stores that must keep their rows: all, where what derives from them would be lost; else those that could
// not say what they have.
func (a *attempt) hold(all bool, err error) map[string]error {
	if !all {
		return a.blind
	}
	held := map[string]error{}
	for _, store := range a.Stores {
		held[store.Name()] = err
	}
	return held
}

// Settle keeps subject.Attempt.
func (a *attempt) Settle(ctx context.Context, withdraw []bool) error {
	faults := []error{a.recordLate(ctx)}
	for i, f := range a.found {
		if withdraw[i] {
			faults = append(faults, a.Ledger.Withdraw(ctx, a.targets[i].Tenant, f.attempt))
		}
	}
	if a.fenced {
		faults = append(faults, a.Ledger.Lower(ctx, a.fences))
	}
	return errors.Join(faults...)
}
