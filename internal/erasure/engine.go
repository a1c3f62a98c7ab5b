package erasure

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"recount/internal/ledger"
)

const (
	driveAtOnce = 8 // requests of one round; away from SQLite they mostly wait for writes under way
	dueSoon     = 7 * 24 * time.Hour
	lookAtOnce  = 4           // rounds of one process that may be under way
	countEvery  = time.Minute // how often open requests are counted, for metrics
)

// errLost says that another coordinator has taken the request over.
var errLost = errors.New("the lease is another's")

// busy keeps a process from driving one request twice at a time.
type busy struct {
	mu  sync.Mutex
	ids map[string]bool
}

func (b *busy) enter(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ids[id] {
		return false
	}
	b.ids[id] = true
	return true
}

func (b *busy) leave(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.ids, id)
}

// Run drives what is due until ctx ends.
func (s *Service) Run(ctx context.Context) {
	tick := time.NewTicker(s.Limits.Look)
	defer tick.Stop()
	var running sync.WaitGroup
	defer running.Wait()
	looking := make(chan struct{}, lookAtOnce)
	for {
		select {
		case looking <- struct{}{}: // one that takes long holds up no other request
			running.Go(func() {
				defer func() { <-looking }()
				if _, _, err := s.Resume(ctx); err != nil && ctx.Err() == nil {
					s.Observer.RequestFailed("resume", err)
				}
			})
		default:
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-s.kick:
		}
	}
}

func (s *Service) wakeUp() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// resumeAtOnce bounds how many requests one call looks at.
const resumeAtOnce = 256

// Resume looks at every request that is due now, and answers at how many, and whether (1) or not (0) more are due.
func (s *Service) Resume(ctx context.Context) (driven, left int, err error) {
	now := s.Now().UTC()
	if err := s.reopen(ctx); err != nil {
		return 0, 0, err
	}
	ids, err := s.Requests.Awake(ctx, now, resumeAtOnce+1)
	if err != nil {
		return 0, 0, fmt.Errorf("looking for what is due: %w", err)
	}
	if left = max(0, len(ids)-resumeAtOnce); left > 0 {
		ids = ids[:resumeAtOnce]
	}
	var wg sync.WaitGroup
	width := make(chan struct{}, driveAtOnce)
	for _, id := range ids {
		width <- struct{}{}
		wg.Go(func() {
			defer func() { <-width }()
			if err := s.Drive(ctx, id); err != nil && !errors.Is(err, errLost) {
				s.Observer.RequestFailed("drive", err)
			}
		})
	}
	wg.Wait()
	return len(ids), left, s.countDue(ctx, now)
}

// countDue tells the observer how many requests are due, once in a while: nobody needs it by the second.
func (s *Service) countDue(ctx context.Context, now time.Time) error {
	s.counting.Lock()
	defer s.counting.Unlock()
	if now.Sub(s.countedAt) < countEvery {
		return nil
	}
	overdue, err := s.Requests.CountDue(ctx, now)
	if err != nil {
		return fmt.Errorf("counting what is overdue: %w", err)
	}
	soon, err := s.Requests.CountDue(ctx, now.Add(dueSoon))
	if err != nil {
		return fmt.Errorf("counting what is due: %w", err)
	}
	s.Observer.RequestsDue(overdue, soon-overdue)
	s.countedAt = now
	return nil
}

// reopen verifies a poisoned ledger anew: until that succeeds nothing is driven.
func (s *Service) reopen(ctx context.Context) error {
	err := s.Ledger.Ready(ctx)
	again, ok := s.Ledger.(interface {
		Reopen(ctx context.Context) error
	})
	if ok && errors.Is(err, ledger.ErrPoisoned) {
		err = again.Reopen(ctx)
	}
	if err != nil {
		return fmt.Errorf("the ledger: %w", err)
	}
	return nil
}

// Drive takes the lease of a request and does what is due of it. Nothing is due of one that another holds: errLost.
func (s *Service) Drive(ctx context.Context, id string) error {
	if !s.busy.enter(id) {
		return nil
	}
	defer s.busy.leave(id)
	r, err := s.change(ctx, id, func(r *request) error {
		now := s.Now().UTC()
		if r.Lease.Holder != "" && r.Lease.Holder != s.Holder && now.Before(r.Lease.Until) {
			return errLost
		}
		if wake := r.wake(); wake.IsZero() || wake.After(now) {
			return errLost
		}
		if st := r.stage(stageExecute); st.Status == stageRunning { // whoever ran it died, or lost what it measured
			st.Status, r.stage(stageEnumerate).Status = stageWaiting, stageWaiting
			r.Lost, r.Covered = true, union(r.Covered, r.Enumerated)
		}
		r.Epoch++
		r.Lease = lease{Holder: s.Holder, Until: now.Add(s.Limits.Lease)}
		return nil
	})
	if err != nil {
		return err
	}
	d := &drive{Service: s, id: id, epoch: r.Epoch}
	err = errors.Join(d.stages(ctx), d.deliver(ctx), d.destroyKey(ctx))
	if letting := d.letGo(context.WithoutCancel(ctx), err); !errors.Is(letting, errLost) {
		err = errors.Join(err, letting)
	}
	return err
}
