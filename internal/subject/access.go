package subject

import (
	"context"
	"slices"
	"sync"
	"time"
)

// PageRows is how many rows of one store an access answers at most in one page.
const PageRows = 500

// CountReceipt is what one store counted for one subject. The count is unmeasured exactly when there is a reason.
type CountReceipt struct {
	Label
	Count  Count
	Reason Reason
}

// AccessReceipt is what one store holds about one subject. Count is the whole, Rows a page of it; on a page of another
// store Rows is empty. The count is unmeasured exactly when there is a reason.
type AccessReceipt struct {
	Label
	Count         Count
	Rows          []map[string]any
	Scrubbed      []string // names of fields that were removed, sorted
	About         Card
	NextPageToken string
	Reason        Reason
}

// PageRequest asks for a page of a subject's rows.
type PageRequest struct {
	Token  string // "" is the first page of every store
	Caller string // who asks: a token serves nobody else
}

// Identified is a store whose rows name more than one person. In an access the fields that name somebody else than the
// subject are scrubbed.
type Identified interface {
	IdentityFields() []string
}

// Accessor answers what the stores of one cell hold. It is safe for concurrent use.
type Accessor struct {
	Cell    string
	Stores  []Store
	Timeout time.Duration // of one store
	Deny    []string      // field names that are never shown, at any depth, beside DefaultDeny
	Pages   PageKey
	OnError func(store, step string, err error) // as in Eraser
}

// Count counts the subject in every store, in order.
func (a *Accessor) Count(ctx context.Context, s Subject) []CountReceipt {
	out := make([]CountReceipt, len(a.Stores))
	a.each(ctx, func(ctx context.Context, running *sync.WaitGroup, i int, store Store) {
		out[i] = CountReceipt{Label: a.label(store)}
		out[i].Count, out[i].Reason = a.count(ctx, running, store, s)
	})
	return out
}

// Access reads a page of every store, or of the one store that the request's token belongs to; the others then only
// count. Errors: ErrPageToken when the token was not made for this cell, subject and caller.
func (a *Accessor) Access(ctx context.Context, s Subject, page PageRequest) ([]AccessReceipt, error) {
	only, cursor := "", ""
	if page.Token != "" {
		var err error
		if only, cursor, err = a.Pages.open(page.Token, a.Cell, page.Caller, s); err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(a.Stores, func(store Store) bool { return store.Name() == only }) {
			return nil, ErrPageToken
		}
	}
	out := make([]AccessReceipt, len(a.Stores))
	a.each(ctx, func(ctx context.Context, running *sync.WaitGroup, i int, store Store) {
		r := AccessReceipt{Label: a.label(store)}
		if d, ok := store.(Described); ok {
			r.About = d.About()
		}
		r.Count, r.Reason = a.count(ctx, running, store, s)
		if r.Reason == ReasonNone && (only == "" || only == store.Name()) {
			a.read(ctx, running, store, s, cursor, page.Caller, &r)
		}
		out[i] = r
	})
	return out, nil
}

func (a *Accessor) read(ctx context.Context, running *sync.WaitGroup, store Store, s Subject, cursor, caller string, r *AccessReceipt) {
	reader, ok := store.(Reader)
	if !ok {
		r.Count, r.Reason = Unmeasured(), ReasonUnreadable
		return
	}
	page, err := call(ctx, running, func() (Page, error) { return reader.Read(ctx, s, cursor, PageRows) })
	if err != nil {
		a.report(store, "read", err)
		r.Count, r.Reason = Unmeasured(), reasonOf(ctx, err, ReasonReadFailed)
		return
	}
	var names []string
	if i, ok := store.(Identified); ok {
		names = i.IdentityFields()
	}
	r.Rows, r.Scrubbed = scrub(page.Rows, a.Deny, names, s)
	if page.Next != "" {
		r.NextPageToken = a.Pages.seal(a.Cell, store.Name(), page.Next, caller, s)
	}
}

func (a *Accessor) count(ctx context.Context, running *sync.WaitGroup, store Store, s Subject) (Count, Reason) {
	n, err := call(ctx, running, func() (int64, error) { return store.Count(ctx, s) })
	switch {
	case err != nil:
		a.report(store, "count", err)
		return Unmeasured(), reasonOf(ctx, err, ReasonCountFailed)
	case n < 0:
		return Unmeasured(), ReasonNegativeCount
	}
	return Measured(n), ReasonNone
}

// each runs work for every store at once, each with its own deadline.
func (a *Accessor) each(ctx context.Context, work func(ctx context.Context, running *sync.WaitGroup, i int, store Store)) {
	var wg, running sync.WaitGroup
	for i, store := range a.Stores {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, a.Timeout)
			defer cancel()
			work(ctx, &running, i, store)
		})
	}
	wg.Wait()
}

func (a *Accessor) label(store Store) Label {
	return Label{Cell: a.Cell, Store: store.Name(), Backend: store.Backend()}
}

func (a *Accessor) report(store Store, step string, err error) {
	if a.OnError != nil {
		a.OnError(store.Name(), step, err)
	}
}
