package audit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
)

const (
	maxBatch      = 500                   // rows in one insert
	gatherFor     = 20 * time.Millisecond // rows wait for others, so that they share an insert
	insertTimeout = 15 * time.Second
	firstPause    = 100 * time.Millisecond // before the second attempt
	longestPause  = 30 * time.Second
	abandonAfter  = 100 * time.Millisecond // how long a sink may take to return once its context has ended
	// DefaultCapacity is how many rows wait at most: 2,500 four-store erasures, about 3 MB.
	DefaultCapacity = 10_000
)

// Sink is a table that takes audit rows, each as Row.Columns makes it. It takes all of them or answers an error; a row
// that it has already MUST be taken as written, because an insert whose answer was lost is sent again.
type Sink interface {
	InsertAudit(ctx context.Context, rows []map[string]any) error
}

// Observer is told what goes wrong, for logs and metrics. It MUST be safe for concurrent use, and quick.
type Observer interface {
	// AuditFailed is called for each attempt that failed. The rows are kept and tried again. The error's own text MUST
	// NOT be logged unless it is a *subject.Fault.
	AuditFailed(rows int, err error)
	// AuditDropped is called for rows that are lost: there was no room for them, or no time at the end.
	AuditDropped(rows int)
}

// Recorder keeps rows until its sink has taken them. It is safe for concurrent use.
type Recorder struct {
	sink     Sink
	observer Observer
	capacity int

	mu      sync.Mutex
	waiting []Row // oldest first; rows leave when the sink has them
	closed  bool

	more     chan struct{} // something is waiting
	closing  chan struct{}
	stop     context.CancelFunc // ends the attempt that is running
	finished chan struct{}
}

// NewRecorder starts a recorder that keeps at most that many rows. It MUST be closed.
func NewRecorder(sink Sink, observer Observer, capacity int) *Recorder {
	ctx, stop := context.WithCancel(context.Background())
	r := &Recorder{
		sink: sink, observer: observer, capacity: capacity, stop: stop,
		more: make(chan struct{}, 1), closing: make(chan struct{}), finished: make(chan struct{}),
	}
	go r.run(ctx)
	return r
}

// Record takes rows to be written soon. It never waits and never fails. Rows that there is no room for are dropped and
// counted: the newest, so that a flood can't push out what was taken before.
func (r *Recorder) Record(rows ...Row) {
	r.mu.Lock()
	room := 0
	if !r.closed {
		room = min(r.capacity-len(r.waiting), len(rows))
	}
	r.waiting = append(r.waiting, rows[:room]...)
	r.mu.Unlock()
	if room > 0 {
		select {
		case r.more <- struct{}{}:
		default:
		}
	}
	if dropped := len(rows) - room; dropped > 0 {
		r.observer.AuditDropped(dropped)
	}
}

// Close takes no more rows and writes those that wait, until ctx ends. The error says how many are lost. It MUST be
// called once.
func (r *Recorder) Close(ctx context.Context) error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	close(r.closing)
	select {
	case <-r.finished:
	case <-ctx.Done():
		r.stop()
		select {
		case <-r.finished:
		case <-time.After(abandonAfter):
		}
	}
	r.stop()
	r.mu.Lock()
	lost := len(r.waiting)
	r.waiting = nil
	r.mu.Unlock()
	if lost == 0 {
		return nil
	}
	r.observer.AuditDropped(lost)
	return fmt.Errorf("%d audit rows could not be written before the end", lost)
}

// run writes batches until the recorder is closed and empty, or ctx ends.
func (r *Recorder) run(ctx context.Context) {
	defer close(r.finished)
	pause := &backoff.ExponentialBackOff{
		InitialInterval: firstPause, RandomizationFactor: 0.5, Multiplier: 2, MaxInterval: longestPause,
	}
	for ctx.Err() == nil {
		batch := r.next(ctx)
		if len(batch) == 0 {
			return
		}
		if err := r.insert(ctx, batch); err != nil {
			r.observer.AuditFailed(len(batch), err)
			r.rest(ctx, pause.NextBackOff())
			continue
		}
		pause.Reset()
		r.taken(len(batch))
	}
}

// next waits for rows, and for a moment longer for others to go with them. It answers none at the end.
func (r *Recorder) next(ctx context.Context) []Row {
	for gathered := false; ; {
		batch, closed := r.oldest()
		switch {
		case len(batch) == 0 && closed:
			return nil
		case len(batch) == 0:
			select {
			case <-r.more:
			case <-r.closing:
			}
		case len(batch) == maxBatch || closed || gathered:
			return batch
		default:
			r.rest(ctx, gatherFor)
			gathered = true
		}
	}
}

// oldest is a view of the rows that are next. Only the goroutine that looks at it takes rows away.
func (r *Recorder) oldest() (batch []Row, closed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.waiting[:min(len(r.waiting), maxBatch)], r.closed
}

// rest waits, but not once the recorder is being closed: then a short pause must do.
func (r *Recorder) rest(ctx context.Context, pause time.Duration) {
	select {
	case <-r.closing:
		pause = min(pause, firstPause)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	default:
		select {
		case <-time.After(pause):
		case <-r.closing:
		case <-ctx.Done():
		}
	}
}

// taken lets go of the oldest rows. It moves the rest, so that the array doesn't grow.
func (r *Recorder) taken(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := copy(r.waiting, r.waiting[min(n, len(r.waiting)):]) // none are left once Close has given up
	clear(r.waiting[left:])
	r.waiting = r.waiting[:left]
}

var errSinkPanicked = errors.New("the audit sink panicked")

// insert is one attempt. A sink that panics must not end the recorder.
func (r *Recorder) insert(ctx context.Context, batch []Row) (err error) {
	defer func() {
		if recover() != nil {
			err = errSinkPanicked
		}
	}()
	rows := make([]map[string]any, len(batch))
	for i, row := range batch {
		rows[i] = row.Columns()
	}
	ctx, cancel := context.WithTimeout(ctx, insertTimeout)
	defer cancel()
	return r.sink.InsertAudit(ctx, rows) //nolint:wrapcheck // the observer's to name
}
