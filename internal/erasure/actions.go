package erasure

import (
	"context"
	"slices"
	"strings"
	"time"

	"recount/internal/wire"
)

// Reject refuses a request, with the reasons that the person is told (Art. 12(4)). Errors: ErrNotFound, *RefusedError.
func (s *Service) Reject(ctx context.Context, by wire.Principal, id, reason string) (wire.Request, error) {
	return s.end(ctx, by, id, "request_reject", Rejected, reason)
}

// Cancel takes a request back, before anything was deleted. Errors: ErrNotFound, *RefusedError.
func (s *Service) Cancel(ctx context.Context, by wire.Principal, id, reason string) (wire.Request, error) {
	return s.end(ctx, by, id, "request_cancel", Cancelled, reason)
}

func (s *Service) end(ctx context.Context, by wire.Principal, id, operation, state, reason string) (wire.Request, error) {
	out, err := s.act(ctx, by, id, operation, func(r *request, now time.Time, d wire.Descriptor) error {
		if err := checkText("reason", reason); err != nil {
			return err
		}
		if names(d, reason) {
			return invalid("reason outlives the person's data and must not name the person")
		}
		switch {
		case r.over():
			return refuse("state", "the request is "+r.State+" already")
		case r.executed():
			return refuse("executed", "the request is being carried out: what was deleted stays deleted, so it can only be finished")
		}
		r.State, r.StateDetail, r.Approvals, r.NextTryAt = state, "", nil, nil
		r.Refusal = &wire.Refusal{Reason: reason, By: by, At: now}
		r.ClosedAt, r.KeyDestroyAt = &now, &now // nothing is kept of somebody about whom nothing is done
		r.note(now, by.Email, state, reason)
		return nil
	})
	if err == nil {
		s.Observer.RequestEnded(state)
		s.wakeUp()
	}
	return out, err
}

// Extend makes the one extension of Art. 12(3): by up to two months, with reasons, inside the first month. Errors:
// ErrNotFound, *RefusedError.
func (s *Service) Extend(ctx context.Context, by wire.Principal, id string, until *time.Time, reason string) (wire.Request, error) {
	return s.act(ctx, by, id, "request_extend", func(r *request, now time.Time, d wire.Descriptor) error {
		if err := checkText("reason", reason); err != nil {
			return err
		}
		latest := monthsAfter(r.ReceivedAt, 3)
		switch {
		case names(d, reason):
			return invalid("reason outlives the person's data and must not name the person")
		case r.over():
			return refuse("state", "the request is "+r.State)
		case r.Extension != nil:
			return refuse("extended", "the time was extended already, and it can be once")
		case !now.Before(oneMonthAfter(r.ReceivedAt)):
			return refuse("too_late", "the person has to be told of an extension inside the first month")
		case until == nil || !until.After(r.DueAt) || until.After(latest):
			return invalid("until: after " + r.DueAt.Format(time.RFC3339) + " and not after " + latest.Format(time.RFC3339))
		}
		r.Extension = &wire.Extension{Until: until.UTC(), Reason: reason, By: by, At: now}
		r.DueAt = until.UTC()
		r.note(now, by.Email, "extended", r.DueAt.Format(time.RFC3339))
		return nil
	})
}

// Hold writes a legal hold down, or releases it. It takes the approvals back, also of a request that is being carried out:
// both approvers see it and approve again, or don't. Errors: ErrNotFound, *RefusedError.
func (s *Service) Hold(ctx context.Context, by wire.Principal, id, ref string, release bool) (wire.Request, error) {
	return s.act(ctx, by, id, "request_hold", func(r *request, now time.Time, d wire.Descriptor) error {
		switch {
		case r.over() || r.Statement != "":
			return refuse("state", "the request is "+r.State+", and all that it was to erase was verified as erased")
		case release && r.Hold == nil:
			return refuse("no_hold", "there is no hold to release")
		case !release && r.Hold != nil:
			return refuse("held", "there is a hold already: release it first, or it would be forgotten")
		case !release && (!isCode(ref) || names(d, ref)):
			return invalid("hold_ref: the hold's number, as a code of letters, digits and . _ : / = -")
		}
		if release {
			r.note(now, by.Email, "hold_released", r.Hold.Ref)
			r.Hold = nil
		} else {
			r.Hold = &wire.Hold{Ref: ref, By: by, At: now}
			r.note(now, by.Email, "hold", ref)
		}
		s.reconsider(r, map[bool]string{true: "the hold was released", false: "there is a hold"}[release], now)
		return nil
	})
}

// reconsider takes approvals back: what was approved is not what there is.
func (s *Service) reconsider(r *request, why string, now time.Time) {
	if r.Preview == nil {
		return
	}
	r.Preview.ExpiresAt, r.Approvals, r.NextTryAt = now, nil, nil
	if r.State == Previewed || r.runs() || r.StateDetail != "" && r.State == Verified {
		r.State, r.StateDetail = Verified, why+": preview and approve again"
	}
}

// articles are the points of Art. 17(3).
var articles = []string{"17(3)(a)", "17(3)(b)", "17(3)(c)", "17(3)(d)", "17(3)(e)"}

// Exclude retains what a store holds, under a point of Art. 17(3). It is a part of the next preview, so that both approvers
// approve it. Errors: ErrNotFound, *RefusedError.
func (s *Service) Exclude(ctx context.Context, by wire.Principal, id string, asked wire.ActionRequest) (wire.Request, error) {
	return s.act(ctx, by, id, "request_exclude", func(r *request, now time.Time, d wire.Descriptor) error {
		if r.over() || r.executed() {
			return refuse("state", "a store is excluded before anything is carried out")
		}
		at := slices.IndexFunc(r.Exclusions, func(e wire.Exclusion) bool { return e.Store == asked.Store })
		if asked.RemoveStore {
			if at < 0 {
				return refuse("no_exclusion", "that store is not excluded")
			}
			r.Exclusions = slices.Delete(r.Exclusions, at, at+1)
			r.note(now, by.Email, "exclusion_removed", asked.Store)
			s.reconsider(r, "an exclusion was taken back", now)
			return nil
		}
		cell, store, ok := strings.Cut(asked.Store, "/")
		switch {
		case !ok || !wire.IsName(cell) || !wire.IsName(store):
			return invalid("store: written cell/store, such as causal/outcomes")
		case !s.knows(r, cell, store):
			return invalid("store: no cell of this deployment has a store of that name in the preview: preview first")
		case !slices.Contains(articles, asked.Article):
			return invalid("article: a point of Art. 17(3), written 17(3)(a) to 17(3)(e)")
		case !isCode(asked.CounselRef) || names(d, asked.CounselRef):
			return invalid("counsel_ref: the number of counsel's opinion, as a code of letters, digits and . _ : / = -")
		case asked.ReviewAt == nil || !asked.ReviewAt.After(now):
			return invalid("review_at: when the exclusion is looked at again, in the future")
		}
		e := wire.Exclusion{Store: asked.Store, Article: asked.Article, CounselRef: asked.CounselRef, ReviewAt: asked.ReviewAt.UTC(), By: by, At: now}
		if at >= 0 {
			r.Exclusions[at] = e
		} else {
			r.Exclusions = append(r.Exclusions, e)
		}
		r.note(now, by.Email, "excluded", asked.Store+" "+asked.Article)
		s.reconsider(r, "a store was excluded", now)
		return nil
	})
}

// knows reports whether the preview has seen the store: a name that is wrong would retain nothing.
func (s *Service) knows(r *request, cell, store string) bool {
	return r.Preview != nil && slices.ContainsFunc(r.Preview.Stores, func(p wire.PreviewStore) bool { return p.Cell == cell && p.Store == store })
}
