package erasure

import (
	"slices"
	"time"

	"recount/internal/audit"
	"recount/internal/subject"
	"recount/internal/wire"
)

// retained is the status of a store that is excluded: it is never called erased.
const retained = "retained_article_17_3"

// counted takes up what an enumeration found: the first count of a store is what it held before.
func (s *Service) counted(r *request, found survey) {
	for _, p := range found.places {
		if p.Store == subject.AnyStore {
			if !slices.ContainsFunc(r.Stores, func(o wire.StoreOutcome) bool { return o.Cell == p.Cell }) {
				r.Stores = append(r.Stores, wire.StoreOutcome{Cell: p.Cell, Store: subject.AnyStore, Status: "failed", Detail: p.Detail})
			}
			continue
		}
		r.Stores = slices.DeleteFunc(r.Stores, func(o wire.StoreOutcome) bool { return o.Cell == p.Cell && o.Store == subject.AnyStore })
		o := outcomeOf(r, p.Cell, p.Store)
		o.Backend, o.Sticky = p.Backend, p.Sticky
		if _, before := o.Before.Value(); !before {
			o.Before = p.Count
		}
		if o.Status == retained { // decided anew each time: an exclusion may have been taken back
			o.Status, o.Basis, o.Remaining, o.MeasuredAt = "", "", subject.Unmeasured(), nil
		}
		if e := exclusion(r, p.name()); e != nil {
			at := s.Now().UTC()
			o.Status, o.Basis, o.Remaining, o.MeasuredAt, o.Detail = retained, e.Article, p.Count, &at, ""
		} else if o.Status == "" {
			o.Status, o.Detail = "failed", string(subject.ReasonNothingVerified)
		}
		if o.Status == "failed" && p.Detail != "" {
			o.Detail = p.Detail
		}
	}
}

func exclusion(r *request, store string) *wire.Exclusion {
	for i := range r.Exclusions {
		if r.Exclusions[i].Store == store {
			return &r.Exclusions[i]
		}
	}
	return nil
}

func outcomeOf(r *request, cell, store string) *wire.StoreOutcome {
	for i := range r.Stores {
		if r.Stores[i].Cell == cell && r.Stores[i].Store == store {
			return &r.Stores[i]
		}
	}
	r.Stores = append(r.Stores, wire.StoreOutcome{Cell: cell, Store: store})
	return &r.Stores[len(r.Stores)-1]
}

// outcomes add the receipts of many targets up, store by store. The worst status is the store's.
func outcomes(receipts []subject.Receipt, now time.Time) []wire.StoreOutcome {
	var out []wire.StoreOutcome
	worst := map[[2]string]subject.Status{}
	at := map[[2]string]int{}
	for _, receipt := range receipts {
		key, counts := [2]string{receipt.Cell(), receipt.Store()}, receipt.Counts()
		i, there := at[key]
		if !there {
			i = len(out)
			at[key], worst[key] = i, subject.Erased
			out = append(out, wire.StoreOutcome{
				Cell: key[0], Store: key[1], Backend: receipt.Backend(), Sticky: receipt.Sticky(), MeasuredAt: &now,
				Before: subject.Measured(0), Deleted: subject.Measured(0), Remaining: subject.Measured(0), Derived: subject.Measured(0),
			})
		}
		o := &out[i]
		o.Before, o.Deleted = plus(o.Before, counts.Before), plus(o.Deleted, counts.Deleted)
		o.Remaining, o.Derived = plus(o.Remaining, counts.Remaining), plus(o.Derived, counts.Derived)
		o.Sticky = o.Sticky && receipt.Sticky()
		if until := receipt.Times().RecoverableUntil; !until.IsZero() && (o.RecoverableUntil == nil || until.After(*o.RecoverableUntil)) {
			until = until.UTC()
			o.RecoverableUntil = &until
		}
		if worse := worst[key].Worse(receipt.Status()); worse != worst[key] {
			worst[key], o.Detail = worse, string(receipt.Reason())
		}
		o.Status = worst[key].String()
	}
	return out
}

// merge takes up what an attempt measured. What was there before stays what it was; what was deleted adds up; what remains
// is the latest count.
func merge(r *request, measured []wire.StoreOutcome) {
	for _, m := range measured {
		if m.Store == subject.AnyStore { // the cell gave no answer: nothing is known of any of its stores
			for i := range r.Stores {
				if o := &r.Stores[i]; o.Cell == m.Cell && o.Status != retained {
					o.Status, o.Detail, o.Remaining = m.Status, m.Detail, subject.Unmeasured()
				}
			}
			continue
		}
		o := outcomeOf(r, m.Cell, m.Store)
		if o.Status == retained {
			continue
		}
		if _, before := o.Before.Value(); !before {
			o.Before = m.Before
		}
		o.Deleted, o.Derived = added(o.Deleted, m.Deleted), added(o.Derived, m.Derived)
		if r.Lost {
			o.Deleted, o.Derived = subject.Unmeasured(), subject.Unmeasured()
		}
		o.Status, o.Detail, o.Remaining, o.MeasuredAt = m.Status, m.Detail, m.Remaining, m.MeasuredAt
		o.Sticky = m.Sticky
		if m.Backend != "" {
			o.Backend = m.Backend
		}
		if m.RecoverableUntil != nil && (o.RecoverableUntil == nil || m.RecoverableUntil.After(*o.RecoverableUntil)) {
			o.RecoverableUntil = m.RecoverableUntil
		}
	}
}

// added is the sum of what was measured.
func added(a, b subject.Count) subject.Count {
	if _, measured := a.Value(); !measured {
		return b
	}
	if _, measured := b.Value(); !measured {
		return a
	}
	return plus(a, b)
}

// recounted takes up the counts of the verification. A store that it found empty was erased before: what it can't do is to
// make one so.
func recounted(r *request, found survey, now time.Time) {
	for _, p := range found.places {
		if p.Store == subject.AnyStore {
			continue
		}
		o := outcomeOf(r, p.Cell, p.Store)
		n, counted := p.Count.Value()
		switch {
		case !counted:
		case o.Status == retained:
			o.Remaining, o.MeasuredAt = p.Count, &now
		case n > 0:
			o.Status, o.Detail, o.Remaining, o.MeasuredAt = "failed", string(subject.ReasonRowsRemain), p.Count, &now
		default:
			o.Remaining, o.MeasuredAt = p.Count, &now
		}
	}
}

// auditErase writes down what the cascade measured, in the names of those who approved it.
func (d *drive) auditErase(r *request, requestID string, t subject.Target, receipts []subject.Receipt) {
	actor := ""
	for _, a := range r.Approvals {
		if actor != "" {
			actor += ","
		}
		actor += a.By.Email
	}
	e := audit.Event{RequestID: requestID, TenantID: t.Tenant, Ref: t.Ref, Operation: wire.OperationOf(t), Actor: actor, At: d.Now()}
	d.Audit.Record(audit.FromReceipts(e, d.Cells[0].Name(), receipts)...)
}
