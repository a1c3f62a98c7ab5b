package firestore

import (
	"context"
	"sync"
	"time"
)

// commitLimit is how long a shared commit may take, its retries included. It is nobody's own: others' changes are in it.
const commitLimit = time.Minute

// group lets changes of one document that wait at the same time share a transaction. One after the other they would make
// each other fail: Firestore lets one transaction at a time change a document.
type group[T any] struct {
	limit  int                                        // of the sizes in one transaction
	size   func(T) int                                // never more than limit
	commit func(ctx context.Context, batch []T) error // an error is that of all

	mu      sync.Mutex
	waiting []*waiter[T]
	leading bool
}

type waiter[T any] struct {
	ctx  context.Context //nolint:containedctx // whose end takes it out of the queue
	what T
	err  error
	done chan struct{}
}

// do waits until the change is committed, or ctx has ended: then it may be committed all the same, if that had begun.
func (g *group[T]) do(ctx context.Context, what T) error {
	w := &waiter[T]{ctx: ctx, what: what, done: make(chan struct{})}
	g.mu.Lock()
	g.waiting = append(g.waiting, w)
	if !g.leading {
		g.leading = true
		go g.lead(context.WithoutCancel(ctx))
	}
	g.mu.Unlock()
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lead commits what waits until nothing does.
func (g *group[T]) lead(ctx context.Context) {
	for batch := g.next(); batch != nil; batch = g.next() {
		changes := make([]T, len(batch))
		for i, w := range batch {
			changes[i] = w.what
		}
		limited, cancel := context.WithTimeout(ctx, commitLimit)
		err := g.commit(limited, changes)
		cancel()
		for _, w := range batch {
			w.err = err
			close(w.done)
		}
	}
}

// next takes what fits into one transaction off the queue. What nobody waits for any more is not begun.
func (g *group[T]) next() (batch []*waiter[T]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	size := 0
	for len(g.waiting) > 0 {
		w := g.waiting[0]
		if w.ctx.Err() == nil {
			if size += g.size(w.what); size > g.limit && len(batch) > 0 {
				break
			}
			batch = append(batch, w)
		}
		g.waiting = g.waiting[1:]
	}
	g.leading = len(batch) > 0
	return batch
}
