package suppression

import (
	"context"
	"sync"
	"time"
)

// Writers knows which writes are under way in this process, and gives each a deadline, so that an erasure can wait for
// those of other instances by the clock alone. It is safe for concurrent use.
type Writers struct {
	limit time.Duration

	mu    sync.Mutex
	round *sync.WaitGroup // of the writes that entered since the last Drain
	older []*sync.WaitGroup
}

// NewWriters gives each write so much time.
func NewWriters(limit time.Duration) *Writers {
	return &Writers{limit: limit, round: &sync.WaitGroup{}}
}

// Enter counts a write in. Its context ends with its time; leave counts it out.
func (w *Writers) Enter(ctx context.Context) (limited context.Context, leave func()) {
	limited, cancel := context.WithTimeout(ctx, w.limit)
	w.mu.Lock()
	round := w.round
	round.Add(1)
	w.mu.Unlock()
	return limited, func() {
		cancel()
		round.Done()
	}
}

// Drain waits until every write that entered before has left. Errors: the context's.
func (w *Writers) Drain(ctx context.Context) error {
	w.mu.Lock()
	closed := w.round
	w.round = &sync.WaitGroup{}
	w.older = append(w.older, closed)
	waiting := append([]*sync.WaitGroup(nil), w.older...)
	w.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, round := range waiting {
			round.Wait()
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		kept := w.older[:0]
		for _, round := range w.older {
			finished := false
			for _, r := range waiting {
				finished = finished || r == round
			}
			if !finished {
				kept = append(kept, round)
			}
		}
		w.older = kept
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
