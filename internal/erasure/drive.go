package erasure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"recount/internal/ledger"
	"recount/internal/wire"
)

// maxPause is the longest pause between two tries.
const maxPause = 30 * time.Minute

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
