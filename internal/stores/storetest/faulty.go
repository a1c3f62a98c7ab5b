package storetest

import (
	"context"
	"errors"
	"time"

	"pgregory.net/rapid"

	"recount/internal/subject"
)

// Op is one method of a store.
type Op string

// The methods that a fault can strike.
const (
	OpCount     Op = "Count"
	OpDelete    Op = "Delete"
	OpDeferred  Op = "Deferred"
	OpCounts    Op = "Counts"
	OpDeleteAll Op = "DeleteAll"
	OpErase     Op = "Erase"
	OpRetained  Op = "RecoverableUntil"
	OpRead      Op = "Read"
	OpReady     Op = "Ready"
)

// Ops is every Op.
func Ops() []Op {
	return []Op{OpCount, OpDelete, OpDeferred, OpCounts, OpDeleteAll, OpErase, OpRetained, OpRead, OpReady}
}

// Fault is what goes wrong in one call. None of them makes a store lie about a count: nothing that is built on counts
// could find that out. Where a fault has no meaning for a method, the call is honest.
type Fault string

// The faults.
const (
	None        Fault = ""
	Fail        Fault = "fail"         // an error, and nothing done; its text quotes the identity, as a rude backend does
	FailLate    Fault = "fail late"    // done, and then an error
	FailHalfway Fault = "fail halfway" // a delete that leaves one row, and then an error
	NotYet      Fault = "not yet"      // *subject.NotYet, and nothing done
	Panic       Fault = "panic"        // with the identity in the panic's value
	Hang        Fault = "hang"         // until the context ends
	Stuck       Fault = "stuck"        // until the test ends, whatever the context does
	Lie         Fault = "lie"          // a delete that answers like a good one and removes nothing
	Partial     Fault = "partial"      // a delete that answers like a good one and leaves one row
	Negative    Fault = "negative"     // -1 for every number
	Cancel      Fault = "cancel"       // Plan.Cancel is called first, then the call is honest
	Short       Fault = "short"        // Counts and Erase: done, and one answer too few
	Blank       Fault = "blank"        // Erase: done, and measurements without any number
)

// Faults is every Fault but None.
func Faults() []Fault {
	return []Fault{Fail, FailLate, FailHalfway, NotYet, Panic, Hang, Stuck, Lie, Partial, Negative, Cancel, Short, Blank}
}

// Plan says which fault strikes which call: the first of an Op's faults strikes its first call, and so on. Calls
// beyond the list are honest.
type Plan struct {
	Faults map[Op][]Fault
	Cancel func() // what Cancel calls; nil does nothing
	Hide   []Op   // of OpCounts, OpErase, OpRead: abilities that the wrapper doesn't show although the store has them
}

// DrawPlan is a random plan: up to three methods, each with one to four calls that are honest or struck by one of the
// given faults. More would drown each other: a store that fails everywhere is never in doubt.
func DrawPlan(t *rapid.T, faults ...Fault) Plan {
	plan := Plan{Faults: map[Op][]Fault{}}
	fault := rapid.SampledFrom(append([]Fault{None, None}, faults...))
	for _, op := range rapid.SliceOfNDistinct(rapid.SampledFrom(Ops()), 0, 3, rapid.ID).Draw(t, "struck") {
		plan.Faults[op] = rapid.SliceOfN(fault, 1, 4).Draw(t, "faults of "+string(op))
	}
	for _, ability := range []Op{OpCounts, OpErase, OpRead} {
		if rapid.Bool().Draw(t, "hide "+string(ability)) {
			plan.Hide = append(plan.Hide, ability)
		}
	}
	return plan
}

// Faulty wraps a store in faults. The wrapper shows Batch, Atomic and Reader exactly where the store has them and the
// plan doesn't hide them; of the other abilities it answers "nothing to say" where the store has none. Calls that are
// Stuck end when the test does.
func Faulty(t interface{ Cleanup(func()) }, store subject.Store, plan Plan) subject.Store {
	f := newFaulty(store, plan)
	t.Cleanup(func() { close(f.testEnded) })
	shown := func(ability Op, has bool) bool { return has && !hidden(plan, ability) }
	inner1, batch := store.(subject.Batch)
	inner2, atomic := store.(subject.Atomic)
	inner3, reader := store.(subject.Reader)
	b, a, r := faultyBatch{f, inner1}, faultyAtomic{f, inner2}, faultyReader{f, inner3}
	abilities := [3]bool{shown(OpCounts, batch), shown(OpErase, atomic), shown(OpRead, reader)}
	switch abilities {
	case [3]bool{true, false, false}:
		return struct {
			*faulty
			faultyBatch
		}{f, b}
	case [3]bool{false, true, false}:
		return struct {
			*faulty
			faultyAtomic
		}{f, a}
	case [3]bool{false, false, true}:
		return struct {
			*faulty
			faultyReader
		}{f, r}
	case [3]bool{true, true, false}:
		return struct {
			*faulty
			faultyBatch
			faultyAtomic
		}{f, b, a}
	case [3]bool{true, false, true}:
		return struct {
			*faulty
			faultyBatch
			faultyReader
		}{f, b, r}
	case [3]bool{false, true, true}:
		return struct {
			*faulty
			faultyAtomic
			faultyReader
		}{f, a, r}
	case [3]bool{true, true, true}:
		return struct {
			*faulty
			faultyBatch
			faultyAtomic
			faultyReader
		}{f, b, a, r}
	default:
		return f
	}
}

// rude is an error as a backend words it: it quotes the row that it complains about.
func rude(op Op, subjects ...subject.Subject) error {
	text := string(op) + " refused the row of"
	for _, s := range subjects {
		text += " " + s.Tenant() + "/" + s.Identity()
	}
	return errors.New(text)
}

var notYet = &subject.NotYet{Reason: subject.ReasonStreamingBuffer, After: 90 * time.Minute}

// before plays the faults that end a call before the store is asked. ok says that the store is to be asked.
func (f *faulty) before(ctx context.Context, op Op, fault Fault, subjects ...subject.Subject) (ok bool, err error) {
	switch fault {
	case Fail:
		return false, rude(op, subjects...)
	case NotYet:
		return false, notYet
	case Panic:
		panic(rude(op, subjects...))
	case Hang:
		<-ctx.Done()
		return false, ctx.Err()
	case Stuck:
		<-f.testEnded
		return false, errors.New("stuck until the test ended")
	case Cancel:
		if f.plan.Cancel != nil {
			f.plan.Cancel()
		}
	default:
	}
	return true, nil
}
