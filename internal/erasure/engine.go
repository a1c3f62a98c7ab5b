package erasure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"recount/internal/ledger"
	"recount/internal/wire"
)

const (
	driveAtOnce = 8 // requests of one round; away from SQLite they mostly wait for writes under way
	dueSoon     = 7 * 24 * time.Hour
	maxPause    = 30 * time.Minute // between two tries
	lookAtOnce  = 4                // rounds of one process that may be under way
	countEvery  = time.Minute      // how often open requests are counted, for metrics
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

// letGo gives the lease back. What failed is tried again later, so that it does not keep others from being driven.
func (d *drive) letGo(ctx context.Context, failure error) error {
	before := ""
	r, err := d.save(ctx, func(r *request) error {
		before, r.Lease = r.State, lease{}
		switch name := r.next(); {
		case failure == nil:
			r.Later = nil
		case r.runs() && name != "":
			d.putOff(r, name, "an error of the coordinator's own: see its log", 0)
		default:
			later := d.Now().UTC().Add(maxPause)
			r.Later = &later
		}
		return nil
	})
	if err == nil && r.State == Failed && before != Failed {
		d.Observer.RequestEnded(Failed)
	}
	return err
}

// drive is one request being driven under one epoch.
type drive struct {
	*Service
	id    string
	epoch int64
}

// save makes a change while the epoch is still this drive's, and prolongs the lease with it. Errors: errLost.
func (d *drive) save(ctx context.Context, f func(*request) error) (*request, error) {
	return d.change(ctx, d.id, func(r *request) error {
		if r.Epoch != d.epoch {
			return errLost
		}
		if r.Lease.Holder == d.Holder {
			r.Lease.Until = d.Now().UTC().Add(d.Limits.Lease)
		}
		before := r.State
		if err := f(r); err != nil {
			return err
		}
		if r.State != before {
			d.tell(r, d.Now().UTC())
		}
		return nil
	})
}

// result is what a stage came to.
type result struct {
	status  string // stageDone, stageNotApplicable, stagePending
	detail  string
	entries []entry
	// after, where set, is applied with the result.
	after func(*request)
	wait  time.Duration // of a pending stage: at least so long
	back  bool          // enumerate and execute anew before this stage
	undo  bool          // nothing was carried out yet: it begins anew once it is approved again
}

// stages runs one stage after the other until one is pending or all are over.
func (d *drive) stages(ctx context.Context) error {
	for {
		var name string
		r, err := d.save(ctx, func(r *request) error {
			if name = r.next(); name == "" || !r.runs() || r.NextTryAt == nil || r.NextTryAt.After(d.Now()) {
				name = ""
				return nil
			}
			d.begin(r, name)
			return nil
		})
		if err != nil || name == "" {
			return err
		}
		done, err := d.run(ctx, r, name)
		if err != nil {
			return err
		}
		before := ""
		if r, err = d.save(context.WithoutCancel(ctx), func(r *request) error {
			before = r.State
			d.end(r, name, done)
			return nil
		}); err != nil {
			return err
		}
		if r.State != before && (r.over() || r.State == Failed) { // behind the change, which may have been made more than once
			d.Observer.RequestEnded(r.State)
		}
		if done.status == stagePending || done.undo {
			return nil
		}
	}
}

func (d *drive) begin(r *request, name string) {
	now := d.Now().UTC()
	st := r.stage(name)
	st.Status = stageRunning
	if st.StartedAt == nil {
		st.StartedAt = &now
	}
	if r.State == Approved { // one that is pending stays it until a store that was open is not any more
		r.State = Running
	}
	if name == stageEnumerate {
		r.Attempts++
	}
}

func (d *drive) end(r *request, name string, done result) {
	now := d.Now().UTC()
	st := r.stage(name)
	for _, e := range done.entries {
		if !slices.ContainsFunc(r.Entries, func(there entry) bool { return there.ID == e.ID }) {
			r.Entries, st.Entries = bounded(append(r.Entries, e)), bounded(append(st.Entries, e.ID))
		}
	}
	if done.after != nil {
		done.after(r)
	}
	st.Status, st.Detail = done.status, done.detail
	if done.undo {
		if r.stage(stageExecute).StartedAt == nil {
			r.stage(stageFreeze).Status, r.Attempts, r.Stores = stageWaiting, 0, nil
		}
		return
	}
	if done.status != stagePending {
		st.FinishedAt = &now
		if name == stageExecute || name == stageVerify {
			r.Tries = 0
			if r.runs() {
				r.State, r.StateDetail = Running, ""
			}
		}
		return
	}
	if name == stageExecute || done.back { // the next try has a program of its own
		r.stage(stageEnumerate).Status, r.stage(stageExecute).Status = stageWaiting, stagePending
	}
	if !r.runs() {
		return // somebody took the approvals back meanwhile
	}
	d.putOff(r, name, name+": "+done.detail, done.wait)
}

// putOff puts a request off until its deadline, when a person has to look at it: the pause doubles, and is no shorter than
// wait.
func (d *drive) putOff(r *request, name, why string, wait time.Duration) {
	now := d.Now().UTC()
	if r.Deadline != nil && now.After(*r.Deadline) {
		r.stage(name).Status, r.State, r.StateDetail, r.NextTryAt = stageFailed, Failed, why, nil
		r.note(now, "recount", Failed, why)
		return
	}
	at := now.Add(max(min(d.Limits.RetryFirst<<min(r.Tries, 20), maxPause), wait))
	if r.State != Pending || r.StateDetail != why {
		r.note(now, "recount", Pending, why)
	}
	r.Tries, r.State, r.StateDetail, r.NextTryAt = r.Tries+1, Pending, why, &at
}

// The most entries that a request lists, the first and the latest: one that is driven for months has to fit into a
// document. The ledger has them all, under the request's id.
const (
	firstEntries  = 100
	latestEntries = 400
)

func bounded[T any](list []T) []T {
	if extra := len(list) - firstEntries - latestEntries; extra > 0 {
		return slices.Delete(list, firstEntries, firstEntries+extra)
	}
	return list
}

// run does the work of a stage. Every stage is ledgered: what it is about to do before, what came of it after.
func (d *drive) run(ctx context.Context, r *request, name string) (result, error) {
	switch name {
	case stageFreeze:
		return d.freeze(ctx, r)
	case stageEnumerate:
		return d.enumerate(ctx, r)
	case stageExecute:
		return d.execute(ctx, r)
	case stageVerify:
		return d.verify(ctx, r)
	case stageClose:
		return d.close(ctx, r)
	default: // nothing stands behind it in this version, and it says so
		e, err := d.record(ctx, r, name, stageNotApplicable, 0, nil)
		return result{status: stageNotApplicable, detail: notBuilt[name], entries: e}, err
	}
}

// notBuilt says of a stage without anything behind it what that means.
var notBuilt = map[string]string{
	stageShred:    "no field is encrypted under a key of the subject's own, so there is none to destroy",
	stageArchives: "no archive is registered: copies outside the stores of the cells were not touched",
	stageAppDBs:   "no application database is registered: tables outside the cells were not touched",
}

// record appends an entry for the request. One that an earlier epoch has appended is not appended again.
func (d *drive) record(ctx context.Context, r *request, stage, step string, n int, fill func(*ledger.Record)) ([]entry, error) {
	now := d.Now().UTC()
	rec := ledger.Record{
		V: ledger.Version, EntryID: entryID(r.ID, stage, step, n), AtUS: now.UnixMicro(), TenantID: r.TenantID, Method: ledger.MethodSubject,
		Phase: stage + ":" + step, SubjectKind: r.Kind, SubjectID: r.SubjectRef, PolicyRef: policyRef(r.Request), RequestRef: r.ID,
		RequestDigest: r.RequestDigest,
	}
	if r.Hold != nil {
		rec.HoldRef = r.Hold.Ref
	}
	if fill != nil {
		fill(&rec)
	}
	if d.epoch > 1 {
		found, err := d.Ledger.Find(ctx, rec.EntryID, r.LedgerFrom)
		if err == nil {
			return []entry{{ID: rec.EntryID, Index: found.Index, Phase: rec.Phase, At: now}}, nil
		}
		if !errors.Is(err, ledger.ErrNoEntry) {
			return nil, fmt.Errorf("reading the ledger: %w", err)
		}
	}
	written, err := d.Ledger.Append(ctx, rec)
	if err != nil {
		return nil, fmt.Errorf("appending to the ledger: %w", err)
	}
	return []entry{{ID: rec.EntryID, Index: written.Index, Phase: rec.Phase, At: now}}, nil
}

// policyRef is the ground and the policy as a code.
func policyRef(r wire.Request) string {
	point := r.LegalRef[len(r.LegalRef)-2 : len(r.LegalRef)-1]
	return "gdpr-17-1-" + point + "/" + r.Policy
}
