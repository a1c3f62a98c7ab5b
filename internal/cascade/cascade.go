// Package cascade carries an erasure to every cell at once and judges what the cells answer. The local cell is one more
// target. A peer's word is never enough: whatever is missing, malformed or contradictory becomes a failed receipt with
// a reason, so that nothing but a flawless answer from every cell adds up to erased.
package cascade

import (
	"context"
	"errors"
	"sync"
	"time"

	"recount/internal/subject"
)

// anyStore stands for all stores of a cell in the receipt of one that gave no usable answer.
const anyStore = "*"

// abandonAfter is how long a target may take to return once the cascade's time is up, before it counts as hung. A cell
// that stops in time needs a part of it to write the receipts of its own hung stores.
const abandonAfter = time.Second

// Target is a cell that erases: the local one, or a peer. It answers a list of receipts that is never empty, one list
// per subject. It MUST return soon after its context ends; what does not is abandoned.
type Target interface {
	Name() string
	Erase(ctx context.Context, requestID string, s subject.Subject) []subject.Receipt
	// EraseBatch erases 1 to wire.MaxBatch subjects of one tenant and answers for each, in order.
	EraseBatch(ctx context.Context, requestID string, subjects []subject.Subject) [][]subject.Receipt
}

// Cascade erases from all its targets at once. It is safe for concurrent use.
type Cascade struct {
	targets []Target
	timeout time.Duration
	stopped chan struct{}
	stop    func()
}

// New takes the targets in the order that their receipts are to have, the local cell first, and the time that a whole
// cascade may take.
func New(timeout time.Duration, targets ...Target) *Cascade {
	stopped := make(chan struct{})
	return &Cascade{targets: targets, timeout: timeout, stopped: stopped, stop: sync.OnceFunc(func() { close(stopped) })}
}

// Stop ends the cascades that are running, and all later ones, with subject.ErrShuttingDown as the cause: what they did
// not finish is a failed receipt that says so. A retry settles it.
func (c *Cascade) Stop() { c.stop() }

// Erase answers the receipts of every target, in the order of the targets, whatever fails, panics or hangs. It is not
// ended by ctx, whose values it keeps: a caller that hangs up does not stop an erasure.
func (c *Cascade) Erase(ctx context.Context, requestID string, s subject.Subject) []subject.Receipt {
	answers := fanOut(ctx, c, func(ctx context.Context, t Target) []subject.Receipt {
		return t.Erase(ctx, requestID, s)
	}, lost)
	var out []subject.Receipt
	for i, receipts := range answers {
		out = append(out, c.orNothing(i, receipts)...)
	}
	return out
}

// EraseBatch is Erase for 1 to wire.MaxBatch subjects of one tenant. It answers one list of receipts per subject, in
// order.
func (c *Cascade) EraseBatch(ctx context.Context, requestID string, subjects []subject.Subject) [][]subject.Receipt {
	answers := fanOut(ctx, c, func(ctx context.Context, t Target) [][]subject.Receipt {
		results := t.EraseBatch(ctx, requestID, subjects)
		if len(results) != len(subjects) {
			return repeat(lost(t, time.Now(), subject.ReasonPeerResults), len(subjects))
		}
		return results
	}, func(t Target, started time.Time, reason subject.Reason) [][]subject.Receipt {
		return repeat(lost(t, started, reason), len(subjects))
	})
	out := make([][]subject.Receipt, len(subjects))
	for i, results := range answers {
		for j := range subjects {
			out[j] = append(out[j], c.orNothing(i, results[j])...)
		}
	}
	return out
}

// orNothing keeps a target without receipts from vanishing among those that have some.
func (c *Cascade) orNothing(target int, receipts []subject.Receipt) []subject.Receipt {
	if len(receipts) == 0 {
		return lost(c.targets[target], time.Now(), subject.ReasonNothingVerified)
	}
	return receipts
}

// lost is the receipt of a target that could not answer for itself.
func lost(t Target, started time.Time, reason subject.Reason) []subject.Receipt {
	times := subject.Times{Started: started, Finished: time.Now()}
	return []subject.Receipt{subject.NewFailed(subject.Label{Cell: t.Name(), Store: anyStore}, times, subject.Counts{}, reason)}
}

func repeat(receipts []subject.Receipt, n int) [][]subject.Receipt {
	out := make([][]subject.Receipt, n)
	for i := range out {
		out[i] = receipts
	}
	return out
}

// fanOut asks all targets at once and answers in their order.
func fanOut[T any](
	client context.Context, c *Cascade, ask func(context.Context, Target) T, lost func(Target, time.Time, subject.Reason) T,
) []T {
	ctx, cancel := c.detach(client)
	defer cancel()
	started := time.Now()
	answers := make([]chan T, len(c.targets))
	for i, target := range c.targets {
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
	out := make([]T, len(c.targets))
	for i, answer := range answers {
		select {
		case out[i] = <-answer:
			continue
		case <-late.Done():
		}
		select {
		case out[i] = <-answer:
		default:
			out[i] = lost(c.targets[i], started, endOf(ctx, subject.ReasonTimeout))
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
