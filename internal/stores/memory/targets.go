package memory

import "recount/internal/subject"

// place is a store in memory whose lock is held.
type place struct {
	count        func(subject.Subject) int64
	remove       func(subject.Subject)
	bears        func(subject.Source) int64
	removeRecord func(subject.Source)
	owns         func(subject.Source, subject.Subject) bool
}

// eraseTargets counts all the targets, removes all, and recounts all: two that name the same are both told what there
// was. Rows of derived[i] that are not the person's own are counted apart.
func eraseTargets(targets []subject.Target, derived [][]subject.Source, in place) []subject.Measurement {
	out := make([]subject.Measurement, len(targets))
	before, apart := make([]int64, len(targets)), make([]int64, len(targets))
	for i, t := range targets {
		before[i] = in.own(t)
		for _, s := range derived[i] {
			if !t.AboutPerson() || !in.owns(s, t.Subject) {
				apart[i] += in.bears(s)
			}
		}
	}
	for i, t := range targets {
		if t.AboutPerson() {
			in.remove(t.Subject)
		}
		for _, s := range t.Sources {
			in.removeRecord(s)
		}
		for _, s := range derived[i] {
			in.removeRecord(s)
		}
	}
	for i, t := range targets {
		left := in.own(t)
		out[i].Before, out[i].Deleted = subject.Measured(before[i]), subject.Measured(before[i]-left)
		var leftDerived int64
		for _, s := range derived[i] {
			leftDerived += in.bears(s)
		}
		out[i].Derived = subject.Measured(apart[i] - leftDerived)
		out[i].Remaining = subject.Measured(left + leftDerived)
	}
	return out
}

// own is how many rows of the target itself there are.
func (in place) own(t subject.Target) (n int64) {
	if t.AboutPerson() {
		return in.count(t.Subject)
	}
	for _, s := range t.Sources {
		n += in.bears(s)
	}
	return n
}
