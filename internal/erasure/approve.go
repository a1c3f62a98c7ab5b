package erasure

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"recount/internal/wire"
)

// approvalsNeeded is how many principals have to approve. It is not configurable.
const approvalsNeeded = 2

// samePrincipal reports whether two principals may be one person: the same account, or the same address in any case.
func samePrincipal(a, b wire.Principal) bool {
	return a.Sub == b.Sub || strings.EqualFold(a.Email, b.Email)
}

// VerifyIdentity writes down how the person's identity was verified. Doing so anew takes the approvals back. Errors: ErrNotFound, *RefusedError.
func (s *Service) VerifyIdentity(ctx context.Context, by wire.Principal, id, method string) (wire.Request, error) {
	return s.act(ctx, by, id, "request_verify_identity", func(r *request, now time.Time, d wire.Descriptor) error {
		if err := checkText("method", method); err != nil {
			return err
		}
		if names(d, method) {
			return invalid("method says how, not whom: it must not name the person")
		}
		if r.State != Filed && r.State != Verified && r.State != Previewed {
			return refuse("state", "the identity of a request that is "+r.State+" needs no verification any more")
		}
		if r.Verification != nil { // who approved did so on the one before
			s.reconsider(r, "the identity was verified anew", now)
		}
		r.Verification = &wire.Verification{Method: method, By: by, At: now}
		r.State = Verified
		if r.Preview != nil && !expired(r.Preview.ExpiresAt, now) {
			r.State = Previewed
		}
		r.note(now, by.Email, "identity_verified", method)
		return nil
	})
}

// Approve gives one of the two approvals, to the preview of that digest. It counts again first: nobody approves what isn't
// there any more. The second approval lets the request run. Errors: ErrNotFound, *RefusedError.
func (s *Service) Approve(ctx context.Context, by wire.Principal, id, digest string) (wire.Request, error) {
	r, err := s.load(ctx, id)
	if err != nil {
		return wire.Request{}, err
	}
	if err = s.approvable(r, by, digest); err == nil {
		var now survey
		if now, err = s.recount(ctx, r); err == nil && s.drifted(r.Preview, now, nil) {
			err = s.driftedAway(ctx, id, r.Preview, now)
		}
	}
	if err != nil {
		s.audit(r.Request, by, "request_approve", err)
		return r.Request, err
	}
	out, err := s.act(ctx, by, id, "request_approve", func(r *request, now time.Time, _ wire.Descriptor) error {
		if err := s.approvable(r, by, digest); err != nil {
			return err
		}
		r.Approvals = append(standing(r.Approvals, now), wire.Approval{By: by, At: now, ExpiresAt: now.Add(s.Limits.ApprovalTTL), Digest: digest})
		r.note(now, by.Email, "approved", "")
		if len(r.Approvals) < approvalsNeeded {
			return nil
		}
		deadline := now.Add(s.Limits.Deadline)
		r.State, r.StateDetail, r.Deadline, r.NextTryAt, r.Tries = Approved, "", &deadline, &now, 0
		for i := range r.Stages { // what had failed is tried again
			if r.Stages[i].Status == stageFailed {
				r.Stages[i].Status = stageWaiting
			}
		}
		if r.stage(stageExecute).Status != stageDone { // by a program of what there is now
			r.stage(stageEnumerate).Status = stageWaiting
		}
		if r.Statement == "" { // it may be long since anybody counted
			r.stage(stageVerify).Status = stageWaiting
		}
		return nil
	})
	if err == nil && out.State == Approved {
		s.wakeUp()
	}
	return out, err
}

// driftedAway takes back a preview that shows what isn't there any more, with the approvals that it got.
func (s *Service) driftedAway(ctx context.Context, id string, was *wire.Preview, now survey) error {
	var rows int64
	for _, t := range now.targets {
		rows += t.Total
	}
	if _, err := s.change(ctx, id, func(r *request) error {
		if r.Preview != nil && r.Preview.Digest == was.Digest {
			s.reconsider(r, "drift", s.Now().UTC())
		}
		return nil
	}); err != nil {
		return err
	}
	return refuse("drift", fmt.Sprintf("the counts have drifted past the limit since the preview, from %d rows to %d: preview again, and approve that", was.Total, rows))
}

// standing are the approvals that have not expired.
func standing(approvals []wire.Approval, now time.Time) []wire.Approval {
	return slices.DeleteFunc(slices.Clone(approvals), func(a wire.Approval) bool { return expired(a.ExpiresAt, now) })
}

// approvable is the one choke point: whatever route an approval comes by, it is judged here.
func (s *Service) approvable(r *request, by wire.Principal, digest string) error {
	now := s.Now().UTC()
	given := standing(r.Approvals, now)
	switch {
	case by.Sub == "" || by.Email == "":
		return refuse("principal", "an approval needs a principal with an account and an address")
	case r.Verification == nil:
		return refuse("not_verified", "the person's identity is not verified yet: nothing is approved before it")
	case r.Preview == nil:
		return refuse("no_preview", "there is no preview yet: nothing is approved before it")
	case r.State != Previewed:
		return refuse("state", "a request that is "+r.State+" can't be approved")
	case digest != r.Preview.Digest:
		return refuse("digest", "the preview is another one by now: look at it, and approve its digest")
	case expired(r.Preview.ExpiresAt, now):
		return refuse("expired", "the preview has expired: preview again")
	case tooMany(r.Preview):
		return refuse("cap", "more rows would be hit than the cap allows: check the descriptor, or preview with a blast_cap and a reason")
	case slices.ContainsFunc(given, func(a wire.Approval) bool { return samePrincipal(a.By, by) }):
		return refuse("same_principal", "two distinct principals approve, and this one has already")
	case samePrincipal(r.FiledBy, by) && slices.ContainsFunc(given, func(a wire.Approval) bool { return samePrincipal(a.By, r.FiledBy) }):
		return refuse("requester", "whoever filed the request may give at most one approval")
	}
	return nil
}

// act makes a change to a request for a principal, and writes it down, done or refused.
func (s *Service) act(ctx context.Context, by wire.Principal, id, operation string, f func(*request, time.Time, wire.Descriptor) error) (wire.Request, error) {
	r, err := s.change(ctx, id, func(r *request) error {
		now := s.Now().UTC()
		var d wire.Descriptor
		if len(r.Sealed) > 0 {
			part, err := s.opened(ctx, r)
			if err != nil {
				return err
			}
			d = part.Descriptor
		}
		before := r.State
		if err := f(r, now, d); err != nil {
			return err
		}
		if r.State != before {
			s.tell(r, now)
		}
		return nil
	})
	if r == nil {
		return wire.Request{}, err
	}
	s.audit(r.Request, by, operation, err)
	return r.Request, err
}
