package erasure

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"recount/internal/subject"
	"recount/internal/wire"
)

// place is one store of one cell, over all targets.
type place struct {
	wire.PreviewStore
	coordinates []located // only of targets that were counted
}

// located is where the rows of one target are. A store need not answer for every target.
type located struct {
	ref string
	wire.Coordinates
}

func (p *place) name() string { return p.Cell + "/" + p.Store }

// survey is where the targets' rows are now, cell by cell in their order.
type survey struct {
	open    map[string]subject.Reason // cells that could not say what derives
	places  []*place
	targets []wire.PreviewTarget
}

// survey asks every cell at once.
func (s *Service) survey(ctx context.Context, all []subject.Target, list bool) survey {
	answers := make([][]wire.Enumerated, len(s.Cells))
	var wg sync.WaitGroup
	for i, cell := range s.Cells {
		wg.Go(func() { answers[i] = cell.Enumerate(ctx, uuid.NewString(), all, list) })
	}
	wg.Wait()
	out := survey{}
	for _, t := range all {
		kind := "source"
		if t.AboutPerson() {
			kind = "person"
		}
		out.targets = append(out.targets, wire.PreviewTarget{Kind: kind, Ref: string(t.Ref), Suppressed: subject.Measured(0)})
	}
	for i, cell := range s.Cells {
		out.add(cell.Name(), answers[i])
	}
	return out
}

// add takes up the answer of one cell.
func (v *survey) add(cell string, answer []wire.Enumerated) {
	byStore := map[string]*place{}
	for i := range v.targets {
		if i >= len(answer) || len(answer[i].Receipts) == 0 {
			v.at(byStore, wire.Coordinates{Cell: cell, Store: subject.AnyStore, Detail: string(subject.ReasonNothingVerified)})
			continue
		}
		v.targets[i].Suppressed = plus(v.targets[i].Suppressed, answer[i].Suppressed)
		for _, c := range answer[i].Receipts {
			c.Cell = cell
			p := v.at(byStore, c)
			if n, counted := c.Count.Value(); counted {
				v.targets[i].Total += n
				p.coordinates = append(p.coordinates, located{v.targets[i].Ref, c})
			}
		}
	}
}

// at is the place of a store, with the coordinates added to what it counts. What was not counted once is not counted.
func (v *survey) at(byStore map[string]*place, c wire.Coordinates) *place {
	p := byStore[c.Store]
	if p == nil {
		p = &place{PreviewStore: wire.PreviewStore{Cell: c.Cell, Store: c.Store, Backend: c.Backend, Count: subject.Measured(0), Derived: subject.Measured(0), Sticky: c.Sticky}}
		if c.Store == subject.AnyStore {
			p.Derived = subject.Unmeasured()
		}
		byStore[c.Store] = p
		v.places = append(v.places, p)
	}
	p.Count = plus(p.Count, c.Count)
	if _, counted := c.Count.Value(); !counted && p.Detail == "" {
		p.Detail = c.Detail
	}
	if c.RecoverableUntil != nil && (p.RecoverableUntil == nil || c.RecoverableUntil.After(*p.RecoverableUntil)) {
		p.RecoverableUntil = c.RecoverableUntil
	}
	return p
}

func plus(a, b subject.Count) subject.Count {
	n, first := a.Value()
	m, second := b.Value()
	if !first || !second || n > math.MaxInt64-m {
		return subject.Unmeasured()
	}
	return subject.Measured(n + m)
}

// Preview counts what the request would hit, and touches nothing. A cap above that of the configuration needs a reason, and
// is a part of what is approved. Errors: ErrNotFound, *RefusedError.
func (s *Service) Preview(ctx context.Context, by wire.Principal, id string, asked wire.ActionRequest) (wire.Request, error) {
	r, err := s.load(ctx, id)
	if err != nil {
		return wire.Request{}, err
	}
	preview, err := s.preview(ctx, by, r, asked)
	if err == nil {
		var changed *request
		changed, err = s.change(ctx, id, func(r *request) error {
			if err := previewable(r); err != nil {
				return err
			}
			p := *preview
			p.Exclusions, p.HoldRef = slices.Clone(r.Exclusions), ""
			if r.Hold != nil {
				p.HoldRef = r.Hold.Ref
			}
			mark(&p)
			if r.State == Previewed && !expired(r.Preview.ExpiresAt, p.At) && sameSight(*r.Preview, p) {
				return nil // what was seen is what is there: its digest stands, and so does who approved it
			}
			if p.Digest, err = digest(r, p); err != nil {
				return err
			}
			before := r.State
			r.Preview, r.Approvals, r.StateDetail = &p, nil, ""
			if r.Verification != nil {
				r.State = Previewed
			}
			r.note(p.At, by.Email, "previewed", rowsOf(p))
			if r.State != before {
				s.tell(r, p.At)
			}
			return nil
		})
		if changed != nil { // else somebody else kept changing it
			r = changed
		}
	}
	s.audit(r.Request, by, "request_preview", err)
	return r.Request, err
}

// sameSight reports whether two previews show the same: but for when they were made, by whom, and until when a platform that
// is still running could bring rows back.
func sameSight(a, b wire.Preview) bool {
	for _, p := range []*wire.Preview{&a, &b} {
		p.Digest, p.At, p.ExpiresAt, p.By = "", time.Time{}, time.Time{}, wire.Principal{}
		p.Stores = slices.Clone(p.Stores)
		for i := range p.Stores {
			p.Stores[i].RecoverableUntil = nil
		}
		if p.CapOverride != nil {
			p.CapOverride = &wire.CapOverride{Cap: p.CapOverride.Cap, Reason: p.CapOverride.Reason}
		}
	}
	first, err := json.Marshal(a, json.Deterministic(true))
	second, other := json.Marshal(b, json.Deterministic(true))
	return err == nil && other == nil && bytes.Equal(first, second)
}

// rowsOf says how many rows a preview found, as far as they could be counted.
func rowsOf(p wire.Preview) string {
	if len(p.Unreachable) > 0 {
		return fmt.Sprintf("at least %d rows: %d stores could not be counted", p.Total, len(p.Unreachable))
	}
	return fmt.Sprintf("%d rows", p.Total)
}

func previewable(r *request) error {
	switch r.State {
	case Filed, Verified, Previewed, Failed:
		return nil
	default:
		return refuse("state", "a request that is "+r.State+" can't be previewed any more")
	}
}

func (s *Service) preview(ctx context.Context, by wire.Principal, r *request, asked wire.ActionRequest) (*wire.Preview, error) {
	if err := previewable(r); err != nil {
		return nil, err
	}
	part, err := s.opened(ctx, r)
	if err != nil {
		return nil, err
	}
	now := s.Now().UTC()
	p := &wire.Preview{At: now, ExpiresAt: now.Add(s.Limits.ApprovalTTL), By: by, BlastCap: s.Limits.BlastCap}
	if asked.BlastCap != 0 {
		if asked.BlastCap <= s.Limits.BlastCap {
			return nil, invalid(fmt.Sprintf("blast_cap: an override is above the configured %d", s.Limits.BlastCap))
		}
		if err := checkText("reason", asked.Reason); err != nil {
			return nil, err
		}
		if names(part.Descriptor, asked.Reason) {
			return nil, invalid("reason outlives the person's data and must not name the person")
		}
		p.CapOverride = &wire.CapOverride{Cap: asked.BlastCap, Reason: asked.Reason, By: by}
	}
	people, sources, err := targets(r.TenantID, part.Descriptor, s.Salt)
	if err != nil {
		return nil, err
	}
	all := append(people, sources...)
	found := s.survey(ctx, all, false)
	s.follow(ctx, all, &found)
	p.Targets = found.targets
	for _, place := range found.places {
		p.Stores = append(p.Stores, place.PreviewStore)
	}
	for _, cell := range s.Cells {
		if reason := found.open[cell.Name()]; reason != "" {
			p.Unfollowed = append(p.Unfollowed, cell.Name()+": "+string(reason))
		}
	}
	p.NotSearchable = notSearchable(r)
	return p, nil
}

// notSearchable is what this version can't search yet, and says so.
func notSearchable(r *request) []string {
	out := []string{"archives", "app_databases"}
	if r.Identifiers > 0 {
		out = append(out, "identifier_strings: nothing is searched for them, and the request will close as "+Unverified)
	}
	return out
}

// mark adds up what is not excluded.
func mark(p *wire.Preview) {
	p.Total, p.Derived, p.Unreachable = 0, 0, nil
	for i := range p.Stores {
		st := &p.Stores[i]
		st.Excluded = slices.ContainsFunc(p.Exclusions, func(e wire.Exclusion) bool { return e.Store == st.Cell+"/"+st.Store })
		n, counted := st.Count.Value()
		switch {
		case !counted:
			p.Unreachable = append(p.Unreachable, st.Cell+"/"+st.Store+": "+st.Detail)
		case !st.Excluded:
			derived, _ := st.Derived.Value()
			p.Derived += derived
			p.Total += n + derived
		}
	}
	for _, cell := range p.Unfollowed {
		name, _, _ := strings.Cut(cell, ":")
		if !slices.ContainsFunc(p.Unreachable, func(place string) bool { return strings.HasPrefix(place, name+"/") }) {
			p.Unreachable = append(p.Unreachable, "what derives, in "+cell)
		}
	}
}

// digest is what approvals bind to: everything that was shown, and whom it is about.
func digest(r *request, p wire.Preview) (string, error) {
	p.Digest = ""
	text, err := json.Marshal(struct {
		ID, RequestDigest string
		Preview           wire.Preview
	}{r.ID, r.RequestDigest, p}, json.Deterministic(true))
	if err != nil {
		return "", fmt.Errorf("writing a preview: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// drifted reports whether counts have moved past the limit since the preview, store by store, but for the cells from which
// something was deleted since. A store that could not be counted at either time says nothing.
func (s *Service) drifted(p *wire.Preview, now survey, deletedFrom []string) bool {
	for _, was := range p.Stores {
		for _, is := range now.places {
			if is.name() != was.Cell+"/"+was.Store || was.Excluded || slices.Contains(deletedFrom, was.Cell) {
				continue
			}
			before, first := plus(was.Count, was.Derived).Value()
			after, second := plus(is.Count, is.Derived).Value()
			if first && second && math.Abs(float64(after-before))*100 > s.Limits.DriftPercent*float64(max(before, 1)) {
				return true
			}
		}
	}
	return false
}

// tooMany reports whether more rows would be hit than the cap of the preview allows.
func tooMany(p *wire.Preview) bool {
	limit := p.BlastCap
	if p.CapOverride != nil {
		limit = p.CapOverride.Cap
	}
	return p.Total > limit
}

// overCap reports whether more rows would be hit than the preview lets a request hit: those of a cell that could not be
// reached at the preview count too, and those that went in earlier attempts.
func overCap(r *request, now survey) bool {
	p := wire.Preview{BlastCap: r.Preview.BlastCap, CapOverride: r.Preview.CapOverride}
	for _, o := range r.Stores {
		gone, known := o.Deleted.Value()
		if !known && slices.Contains(r.Covered, o.Cell) {
			gone, _ = o.Before.Value()
		}
		if o.Status != retained {
			p.Total += gone
		}
	}
	for _, is := range now.places {
		if n, counted := plus(is.Count, is.Derived).Value(); counted && !isExcluded(r, is.name()) {
			p.Total += n
		}
	}
	return tooMany(&p)
}

// recount is where the rows are now, for a drift check.
func (s *Service) recount(ctx context.Context, r *request) (survey, error) {
	part, err := s.opened(ctx, r)
	if err != nil {
		return survey{}, err
	}
	people, sources, err := targets(r.TenantID, part.Descriptor, s.Salt)
	if err != nil {
		return survey{}, err
	}
	all := append(people, sources...)
	found := s.survey(ctx, all, false)
	s.follow(ctx, all, &found)
	return found, nil
}

func expired(at, now time.Time) bool { return !now.Before(at) }
