package subject

import (
	"context"
	"sync"
	"time"
)

// Coordinates are where a target's rows are in one store, and nothing of what they hold.
type Coordinates struct {
	Label
	// Count is how many rows match the target. Unmeasured exactly when there is a reason.
	Count Count
	// RowIDs are the opaque ids of a person's rows where the store is ours and they were asked for.
	RowIDs []string
	// Sources are those of a person's rows, each once, where they were asked for.
	Sources []Source
	// RecoverableUntil is until when a row that is deleted now could be brought back; zero where nothing is kept.
	RecoverableUntil time.Time
	Reason           Reason
}

// rowID is the field of a row that is ours which names it.
const rowID = "row_id"

// Enumerate says where the target's rows are, store by store, in order. It touches nothing. Rows and their sources are
// listed for a person, and only where they are asked for.
func (a *Accessor) Enumerate(ctx context.Context, t Target, list bool) []Coordinates {
	out := make([]Coordinates, len(a.Stores))
	a.each(ctx, func(ctx context.Context, running *sync.WaitGroup, i int, store Store) {
		e := &enumerating{Accessor: a, store: store, running: running, out: Coordinates{Label: a.label(store)}}
		steps := []func(context.Context, Target) error{e.count, e.retention}
		if list && t.AboutPerson() {
			steps = append(steps, e.rows, e.sources)
		}
		for _, step := range steps {
			if err := step(ctx, t); err != nil {
				a.report(store, "enumerate", err)
				e.out.Count, e.out.Reason = Unmeasured(), reasonOf(ctx, err, ReasonCountFailed)
				break
			}
		}
		out[i] = e.out
	})
	return out
}

// enumerating is one store on its way through an enumeration.
type enumerating struct {
	*Accessor
	store   Store
	running *sync.WaitGroup
	out     Coordinates
}

func (e *enumerating) sourced() (Sourced, bool) {
	s, ok := e.store.(Sourced)
	return s, ok && s.NamesSources()
}

func (e *enumerating) count(ctx context.Context, t Target) error {
	s, names := e.sourced()
	e.out.Sticky = names
	var n int64
	if t.AboutPerson() {
		count, err := call(ctx, e.running, func() (int64, error) { return e.store.Count(ctx, t.Subject) })
		if err != nil {
			return err
		}
		n = count
	} else if names {
		counts, err := call(ctx, e.running, func() ([]int64, error) { return s.CountSources(ctx, t.Sources) })
		if err != nil {
			return err
		}
		for _, c := range counts {
			n += c
		}
	}
	if n < 0 {
		return &Fault{Reason: ReasonNegativeCount}
	}
	e.out.Count = Measured(n)
	return nil
}

func (e *enumerating) retention(ctx context.Context, _ Target) error {
	r, ok := e.store.(Retainer)
	if !ok {
		return nil
	}
	until, err := call(ctx, e.running, func() (time.Time, error) { return r.RecoverableUntil(ctx, time.Now()) })
	if err != nil {
		return &Fault{Reason: ReasonRetention, Cause: err}
	}
	e.out.RecoverableUntil = until
	return nil
}

func (e *enumerating) rows(ctx context.Context, t Target) error {
	reader, ok := e.store.(Reader)
	if !ok {
		return nil // its rows are found by their key alone
	}
	for cursor := ""; ; {
		page, err := call(ctx, e.running, func() (Page, error) { return reader.Read(ctx, t.Subject, cursor, PageRows) })
		if err != nil {
			return err
		}
		for _, row := range page.Rows {
			if id, ok := row[rowID].(string); ok {
				e.out.RowIDs = append(e.out.RowIDs, id)
			}
		}
		if cursor = page.Next; cursor == "" {
			return nil
		}
	}
}

func (e *enumerating) sources(ctx context.Context, t Target) error {
	s, names := e.sourced()
	if !names {
		return nil
	}
	lists, err := call(ctx, e.running, func() ([][]Source, error) { return s.Sources(ctx, []Subject{t.Subject}) })
	if err != nil {
		return err
	}
	if len(lists) == 1 {
		e.out.Sources = lists[0]
	}
	return nil
}
