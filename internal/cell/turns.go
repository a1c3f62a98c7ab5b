package cell

import (
	"context"
	"math"

	"golang.org/x/sync/semaphore"
)

// Turns keeps those who change single subjects in a journal and a memory apart from the one who fills the memory from the
// journal as a whole. What they do to one subject at a time is kept in order by the fences of the suppression ledger.
type Turns struct{ places *semaphore.Weighted }

// NewTurns makes turns that nobody has.
func NewTurns() *Turns { return &Turns{places: semaphore.NewWeighted(math.MaxInt32)} }

// Shared waits until nobody is alone. Errors: the context's, with nothing held.
func (t *Turns) Shared(ctx context.Context) (release func(), err error) { return t.take(ctx, 1) }

// Alone waits until nobody else has a turn. Errors: the context's, with nothing held.
func (t *Turns) Alone(ctx context.Context) (release func(), err error) {
	return t.take(ctx, math.MaxInt32)
}

func (t *Turns) take(ctx context.Context, places int64) (func(), error) {
	if err := t.places.Acquire(ctx, places); err != nil {
		return nil, context.Cause(ctx)
	}
	return func() { t.places.Release(places) }, nil
}
