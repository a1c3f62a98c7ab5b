package cell

import (
	"context"
	"hash/maphash"
	"slices"

	"recount/internal/subject"
)

// stripes is how many locks the subjects of a cell share.
const stripes = 1024

// Locks are locks by subject, shared by erasures and writes of stores that are filled from each other. Two subjects may
// share one: that costs waiting, never safety.
type Locks struct {
	seed    maphash.Seed
	stripes [stripes]chan struct{}
}

// NewLocks makes locks that nobody holds.
func NewLocks() *Locks {
	l := &Locks{seed: maphash.MakeSeed()}
	for i := range l.stripes {
		l.stripes[i] = make(chan struct{}, 1)
	}
	return l
}

// Lock takes the locks of all the subjects, in one order, so that no two callers wait for each other. It answers ctx's
// error, with nothing held, when ctx ends first.
func (l *Locks) Lock(ctx context.Context, subjects []subject.Subject) (unlock func(), err error) {
	wanted := make([]int, len(subjects))
	for i, s := range subjects {
		wanted[i] = int(maphash.Comparable(l.seed, s) % stripes)
	}
	slices.Sort(wanted)
	return l.take(ctx, slices.Compact(wanted))
}

// LockAll takes every lock: no erasure and no write is under way while it is held.
func (l *Locks) LockAll(ctx context.Context) (unlock func(), err error) {
	all := make([]int, stripes)
	for i := range all {
		all[i] = i
	}
	return l.take(ctx, all)
}

func (l *Locks) take(ctx context.Context, wanted []int) (unlock func(), err error) {
	for taken, i := range wanted {
		select {
		case l.stripes[i] <- struct{}{}:
		case <-ctx.Done():
			l.release(wanted[:taken])
			return nil, context.Cause(ctx)
		}
	}
	return func() { l.release(wanted) }, nil
}

func (l *Locks) release(held []int) {
	for _, i := range held {
		<-l.stripes[i]
	}
}
