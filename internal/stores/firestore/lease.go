package firestore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	fs "cloud.google.com/go/firestore"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"recount/internal/subject"
)

const (
	leaseCollection = "recount_leases"
	minLease        = time.Second
	renewals        = 4 // tries to renew in one lease's time
	marginPart      = 8 // the part of a lease's time that its holder does not use
	releaseLimit    = 2 * time.Second
)

// Lease lets one process at a time serve under a name. It is a document that its holder renews.
//
// Two clocks decide, and neither is compared with another machine's. The holder measures from before it sent the request
// that the server granted, on its own clock, and stops an eighth early. Whoever wants the lease takes it when the
// server's time of reading is a whole lease after the server's time of the last renewal. So the holder's time is over
// strictly before another's begins, however far the machines' clocks are apart; only a clock that runs an eighth slow
// could break that.
type Lease struct {
	client *Client
	doc    *fs.DocumentRef
	holder string
	ttl    time.Duration
	now    func() time.Time

	mu    sync.Mutex
	sent  time.Time // when the request that granted the lease was sent; zero when it is not held
	epoch int64
}

// leaseState is the document. Every renewal changes it, or the server would keep its time of update.
type leaseState struct {
	Holder  string `firestore:"holder"` // "" when it was released
	Epoch   int64  `firestore:"epoch"`  // grows with every acquisition, and never otherwise
	Renewal int64  `firestore:"renewal"`
	TTL     int64  `firestore:"ttl_us"`
}

// NewLease names the lease, who wants it (for people who look at the document; two processes of the same name are still
// two), for how long it is granted at a time (at least a second), and the clock, which MUST be the process's own:
// time.Now.
func NewLease(client *Client, name, holder string, ttl time.Duration, now func() time.Time) (*Lease, error) {
	if ttl < minLease {
		return nil, fmt.Errorf("a lease needs at least %s, got %s", minLease, ttl)
	}
	if !isDocumentID(name) {
		return nil, errors.New("the lease's name can't be a document id")
	}
	return &Lease{
		client: client, doc: client.docs.Collection(leaseCollection).Doc(name), holder: holder + "/" + uuid.NewString(),
		ttl: ttl.Truncate(time.Microsecond), now: now,
	}, nil
}

// Held reports whether the lease is held now. It turns false strictly before another process can acquire it. Work that
// must be done under the lease MUST look at it once more when it is done.
func (l *Lease) Held() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.left() > 0
}

// Epoch is the number of the acquisition that is or was last held; 0 before the first.
func (l *Lease) Epoch() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.epoch
}

// left is how much of the lease is left. A monotonic clock may stand still while a machine sleeps, and a wall clock may
// be set back: the one that says more has passed is believed.
func (l *Lease) left() time.Duration {
	if l.sent.IsZero() {
		return 0
	}
	now := l.now()
	passed := max(now.Sub(l.sent), now.Round(0).Sub(l.sent.Round(0)))
	return l.ttl - l.ttl/marginPart - passed
}

// Keep acquires the lease, renews it, and acquires it anew whenever it is lost, until the context ends; then it gives the
// lease back, and answers nil. Each acquisition calls acquired once, while renewals go on; its context ends when the lease
// is lost or given back. When it answers an error while the lease is held, the lease is given back, and Keep answers that
// error. Then, and when acquired has returned after a loss, lost is called once: whoever was let in by acquired starts
// from nothing the next time, because another may have served in between.
//
// A Lease MUST be kept by one call at a time.
func (l *Lease) Keep(ctx context.Context, acquired func(ctx context.Context) error, lost func()) error {
	for n := 1; ; {
		wait, err := l.take(ctx, true)
		switch {
		case ctx.Err() != nil:
			l.release(ctx)
			return nil
		case err == nil && wait == 0:
			n = 1
			err := l.serve(ctx, acquired)
			l.release(ctx)
			lost()
			if err != nil || ctx.Err() != nil {
				return err
			}
		case err != nil && !isPassing(err):
			return failed(ctx, err, subject.ReasonBackendBusy)
		case err != nil:
			pause(ctx, n)
			n = min(n+1, attempts)
		default:
			sleep(ctx, min(wait, l.ttl/renewals))
		}
	}
}

// serve runs acquired and renews until the lease is lost, the context ends or acquired fails.
func (l *Lease) serve(ctx context.Context, acquired func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var failure error
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		failure = acquired(ctx)
	}()
	defer func() {
		cancel()
		<-returned
	}()
	tick := time.NewTicker(l.ttl / renewals)
	defer tick.Stop()
	for running := returned; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-running:
			if failure != nil && ctx.Err() == nil && l.Held() {
				return failure
			}
			running = nil // renewals go on without it
		case <-tick.C:
			if !l.renew(ctx) {
				return nil
			}
		}
	}
}

// renew is false when the lease is lost: somebody else has it, or it could not be renewed in time.
func (l *Lease) renew(ctx context.Context) bool {
	for n := 1; l.Held() && ctx.Err() == nil; n = min(n+1, attempts) {
		l.mu.Lock()
		left := l.left()
		l.mu.Unlock()
		try, cancel := context.WithTimeout(ctx, left)
		wait, err := l.take(try, false)
		if err == nil {
			cancel()
			return wait == 0
		}
		pause(try, n)
		cancel()
	}
	return l.Held()
}

// take tries once to acquire the lease, or to renew it. It answers how long to wait before trying to acquire it again,
// 0 when it has it; a renewal of a lease that is no more this process's answers a wait too.
func (l *Lease) take(ctx context.Context, anew bool) (wait time.Duration, err error) {
	l.mu.Lock()
	epoch, sent := l.epoch, l.now()
	if anew {
		l.sent = time.Time{}
	}
	l.mu.Unlock()
	err = l.client.docs.RunTransaction(ctx, func(_ context.Context, tx *fs.Transaction) error {
		wait = 0
		state, age, err := l.read(tx)
		if err != nil {
			return err
		}
		switch mine := state.Holder == l.holder; {
		case !anew && (!mine || state.Epoch != epoch):
			wait = l.ttl
			return nil
		case anew && !mine && state.Holder != "" && age <= time.Duration(state.TTL)*time.Microsecond:
			wait = time.Duration(state.TTL)*time.Microsecond - age + time.Millisecond
			return nil
		case anew:
			epoch = state.Epoch + 1
		}
		state.Holder, state.Epoch, state.Renewal, state.TTL = l.holder, epoch, state.Renewal+1, l.ttl.Microseconds()
		return tx.Set(l.doc, state)
	})
	if err != nil || wait > 0 {
		return wait, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !anew && l.left() <= 0 {
		return l.ttl, nil // Held was false already, and must not turn true again
	}
	l.sent, l.epoch = sent, epoch
	if l.left() <= 0 {
		return time.Millisecond, nil // the answer came too late
	}
	return 0, nil
}

// read is the document, and by the server's own clock how long ago it was renewed.
func (l *Lease) read(tx *fs.Transaction) (state leaseState, age time.Duration, err error) {
	doc, err := tx.Get(l.doc)
	if status.Code(err) == codes.NotFound {
		return state, 0, nil
	}
	if err != nil {
		return state, 0, err
	}
	if err := doc.DataTo(&state); err != nil {
		return state, 0, fmt.Errorf("the lease's document is not a lease: %w", err)
	}
	return state, doc.ReadTime.Sub(doc.UpdateTime), nil
}

// release gives the lease back if it is still this process's: Held is false before another can see it free.
func (l *Lease) release(ctx context.Context) {
	l.mu.Lock()
	l.sent = time.Time{}
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
	defer cancel()
	// A lease that can't be given back runs out.
	_ = l.client.docs.RunTransaction(ctx, func(_ context.Context, tx *fs.Transaction) error {
		state, _, err := l.read(tx)
		if err != nil || state.Holder != l.holder {
			return err
		}
		state.Holder = ""
		return tx.Set(l.doc, state)
	})
}
