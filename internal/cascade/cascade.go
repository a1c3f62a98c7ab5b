// Package cascade carries an erasure to every cell at once and judges what the cells answer. The local cell is one more
// target. A peer's word is never enough: whatever is missing, malformed or contradictory becomes a failed receipt with
// a reason, so that nothing but a flawless answer from every cell adds up to erased.
package cascade

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"recount/internal/subject"
)

// abandonAfter is how long a cell may take to return once the cascade's time is up, before it counts as hung. A cell
// that stops in time needs a part of it to write the receipts of its own hung stores.
const abandonAfter = time.Second

// Cell is a cell that erases: the local one, or a peer. Its erasures have receipts, never none, and the sources that it
// resolved; nil sources say that it keeps no ledger, and can't be asked for what others resolved. It MUST return soon
// after its context ends; what does not is abandoned.
type Cell interface {
	Name() string
	Erase(ctx context.Context, requestID string, t subject.Target) subject.Erasure
	// EraseBatch erases 1 to wire.MaxBatch targets of one tenant, all of them people or all of them sources (and then
	// at most wire.MaxBatch sources in all), and answers for each, in order.
	EraseBatch(ctx context.Context, requestID string, targets []subject.Target) []subject.Erasure
}

// Cascade erases from all its cells at once. It is safe for concurrent use.
type Cascade struct {
	cells   []Cell
	timeout time.Duration
	stopped chan struct{}
	stop    func()
}

// New takes the cells in the order that their receipts are to have, the local one first, and the time that a whole
// cascade may take.
func New(timeout time.Duration, cells ...Cell) *Cascade {
	stopped := make(chan struct{})
	return &Cascade{cells: cells, timeout: timeout, stopped: stopped, stop: sync.OnceFunc(func() { close(stopped) })}
}

// Stop ends the cascades that are running, and all later ones, with subject.ErrShuttingDown as the cause: what they did
// not finish is a failed receipt that says so. A retry settles it.
func (c *Cascade) Stop() { c.stop() }

// Erase answers the receipts of every cell, in the order of the cells, whatever fails, panics or hangs. It is not ended
// by ctx, whose values it keeps: a caller that hangs up does not stop an erasure.
func (c *Cascade) Erase(ctx context.Context, requestID string, t subject.Target) []subject.Receipt {
	ctx, cancel := c.detach(ctx)
	defer cancel()
	answers := fanOut(ctx, c.cells, func(ctx context.Context, cell Cell) []subject.Erasure {
		return []subject.Erasure{cell.Erase(ctx, requestID, t)}
	}, func(cell Cell, started time.Time, reason subject.Reason) []subject.Erasure {
		return []subject.Erasure{lost(cell, started, reason)}
	})
	return c.close(ctx, requestID, c.cells, []subject.Target{t}, answers)[0]
}

// EraseBatch is Erase for 1 to wire.MaxBatch people of one tenant, which all leave the same stores alone. It answers one
// list of receipts per target, in order. A cell that is left alone as a whole is not asked.
func (c *Cascade) EraseBatch(ctx context.Context, requestID string, targets []subject.Target) [][]subject.Receipt {
	ctx, cancel := c.detach(ctx)
	defer cancel()
	cells := slices.DeleteFunc(slices.Clone(c.cells), func(cell Cell) bool { return len(targets) > 0 && targets[0].KeepsAll(cell.Name()) })
	answers := fanOut(ctx, cells, func(ctx context.Context, cell Cell) []subject.Erasure {
		return eraseBatch(ctx, cell, requestID, targets)
	}, func(cell Cell, started time.Time, reason subject.Reason) []subject.Erasure {
		return repeat(lost(cell, started, reason), len(targets))
	})
	return c.close(ctx, requestID, cells, targets, answers)
}

// eraseBatch is the cell's answer, if it is one for each target.
func eraseBatch(ctx context.Context, cell Cell, requestID string, targets []subject.Target) []subject.Erasure {
	erasures := cell.EraseBatch(ctx, requestID, targets)
	if len(erasures) != len(targets) {
		return repeat(lost(cell, time.Now(), subject.ReasonPeerResults), len(targets))
	}
	return erasures
}

// orNothing keeps a cell without receipts from vanishing among those that have some.
func orNothing(cell Cell, receipts []subject.Receipt) []subject.Receipt {
	if len(receipts) == 0 {
		return lost(cell, time.Now(), subject.ReasonNothingVerified).Receipts
	}
	return receipts
}

// lost is the erasure of a cell that could not answer for itself.
func lost(cell Cell, started time.Time, reason subject.Reason) subject.Erasure {
	times := subject.Times{Started: started, Finished: time.Now()}
	return subject.Erasure{Receipts: []subject.Receipt{
		subject.NewFailed(subject.Label{Cell: cell.Name(), Store: subject.AnyStore}, times, subject.Counts{}, reason),
	}}
}

func repeat(e subject.Erasure, n int) []subject.Erasure {
	out := make([]subject.Erasure, n)
	for i := range out {
		out[i] = e
	}
	return out
}

// fanOut asks all cells at once and answers in their order.
func fanOut[T any](
	ctx context.Context, cells []Cell, ask func(context.Context, Cell) T, lost func(Cell, time.Time, subject.Reason) T,
) []T {
	started := time.Now()
	answers := make([]chan T, len(cells))
	for i, target := range cells {
		answer := make(chan T, 1)
		answers[i] = answer
		go func() {
			defer func() {
				if recover() != nil {
					answer <- lost(target, started, subject.ReasonPanic)
				}
			}()
			answer <- ask(ctx, target)
		}()
	}
	late, stop := after(ctx, abandonAfter)
	defer stop()
	out := make([]T, len(cells))
	for i, answer := range answers {
		select {
		case out[i] = <-answer:
			continue
		case <-late.Done():
		}
		select {
		case out[i] = <-answer:
		default:
			out[i] = lost(cells[i], started, endOf(ctx, subject.ReasonTimeout))
		}
	}
	return out
}

// detach is a context that the client can't end: only the cascade's deadline and Stop do.
func (c *Cascade) detach(client context.Context) (context.Context, context.CancelFunc) {
	stoppable, end := context.WithCancelCause(context.WithoutCancel(client))
	ctx, cancel := context.WithTimeout(stoppable, c.timeout)
	go func() {
		select {
		case <-c.stopped:
			end(subject.ErrShuttingDown)
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cancel()
		end(nil)
	}
}

// after is a context that ends a while after the given one does.
func after(ctx context.Context, while time.Duration) (context.Context, context.CancelFunc) {
	late, stop := context.WithCancel(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(ctx, func() { time.AfterFunc(while, stop) })
	return late, func() {
		unhook()
		stop()
	}
}

// endOf names what ended a context.
func endOf(ctx context.Context, timeout subject.Reason) subject.Reason {
	switch {
	case errors.Is(context.Cause(ctx), subject.ErrShuttingDown):
		return subject.ReasonShuttingDown
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return timeout
	default:
		return subject.ReasonCancelled
	}
}
