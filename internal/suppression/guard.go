package suppression

import (
	"context"
	"errors"
	"slices"
	"time"

	"recount/internal/subject"
)

const (
	fencePatience = 3 * time.Second // how long a write waits for an erasure of somebody it names
	fencePause    = 50 * time.Millisecond
)

// ErrCursor says that a cursor of a list was not made by this ledger.
var ErrCursor = errors.New("the page token was not made for this list")

// Guard is what every write asks first, in every cell and at every seam. It fails closed: what can't be checked is not
// written. It is safe for concurrent use.
type Guard struct {
	Ledger Ledger
	// Writers is told of every write that is under way, so that an erasure can wait for it. Nil where the ledger is in
	// one transaction with the rows.
	Writers *Writers
	// OnUnreadable, where set, is told how many records were skipped because the ledger could not be read.
	OnUnreadable func(records int, err error)
}

// Decision is what a guard lets through.
type Decision struct {
	Verdicts []Verdict // Admitted, Suppressed or Unreadable, one for each record
	// Generation is the ledger's when it was asked: a store looks again when the ledger's is another by then.
	Generation Generation
}

// Ahead decides about records before it is their turn to be written, where that is safe: the store looks again in its own
// transaction, and no write is counted. Nil elsewhere.
func (g *Guard) Ahead(ctx context.Context, records []subject.Record) *Decision {
	if g.Writers != nil {
		return nil
	}
	d, fenced := g.Decide(ctx, records)
	if fenced {
		return nil
	}
	return &d
}

// Write checks the records, unless that was done ahead, and calls write with the decision, unless nothing is admitted. The write is counted as being
// under way from before the check until it returns: it MUST return soon after its context ends. The error is that of
// write, or *subject.Fault with fenced, after which the same records can be sent again.
func (g *Guard) Write(ctx context.Context, records []subject.Record, ahead *Decision, write func(context.Context, Decision) error) (Decision, error) {
	deadline := time.Now().Add(fencePatience)
	for {
		d, fenced, err := g.try(ctx, records, ahead, write)
		if !fenced {
			return d, err
		}
		ahead = nil
		if time.Now().After(deadline) {
			return d, &subject.Fault{Reason: subject.ReasonFenced}
		}
		select {
		case <-time.After(fencePause):
		case <-ctx.Done():
			return d, ctx.Err() //nolint:wrapcheck // a context's own error says it all
		}
	}
}

func (g *Guard) try(ctx context.Context, records []subject.Record, ahead *Decision, write func(context.Context, Decision) error) (d Decision, fenced bool, err error) {
	if g.Writers != nil {
		var leave func()
		ctx, leave = g.Writers.Enter(ctx)
		defer leave()
	}
	if ahead != nil {
		d = *ahead
	} else if d, fenced = g.Decide(ctx, records); fenced {
		return d, true, nil
	}
	for _, v := range d.Verdicts {
		if v == Admitted {
			err = write(ctx, d)
			return d, isFenced(err), err
		}
	}
	return d, false, nil
}

// isFenced reports a store that looked once more and found a fence that was not there when it was asked for.
func isFenced(err error) bool {
	var fault *subject.Fault
	return errors.As(err, &fault) && fault.Reason == subject.ReasonFenced
}

// Recheck is the decision as it is now, for records that were admitted and not taken: while they were on their way, their
// source may have been erased. It decides nothing, and changes nothing where the ledger is still the same.
func (g *Guard) Recheck(ctx context.Context, records []subject.Record, d Decision) Decision {
	admitted := Decision{Verdicts: slices.Repeat([]Verdict{Admitted}, len(records)), Generation: d.Generation}
	if now, err := g.Ledger.Generation(ctx); err != nil || now == d.Generation {
		return admitted
	}
	answer, err := g.Ledger.Check(ctx, records)
	if err != nil {
		return admitted
	}
	return Decision{Verdicts: answer.Verdicts, Generation: answer.Generation}
}

// Decide checks the records. fenced means that nothing may be written now, and that the same question will be answered
// in a while.
func (g *Guard) Decide(ctx context.Context, records []subject.Record) (d Decision, fenced bool) {
	answer, err := g.Ledger.Check(ctx, records)
	if err == nil {
		err = g.follow(ctx, records, &answer)
	}
	if err != nil {
		if g.OnUnreadable != nil {
			g.OnUnreadable(len(records), err)
		}
		return Decision{Verdicts: make([]Verdict, len(records))}, false
	}
	for _, v := range answer.Verdicts {
		fenced = fenced || v == Fenced
	}
	return Decision{Verdicts: answer.Verdicts, Generation: answer.Generation}, fenced
}

// follow suppresses what derives, within these records, from one that is suppressed, and records every one that is
// suppressed because of a parent: what derives from it must be recognised when it comes, in whatever order.
func (g *Guard) follow(ctx context.Context, records []subject.Record, answer *Answer) error {
	suppressed := map[subject.Source]bool{}
	children := map[subject.Source]subject.Source{}
	derives := false
	for i, r := range records {
		derives = derives || len(r.Parents) > 0
		if answer.Verdicts[i] == Suppressed {
			suppressed[r.Source] = true
			if parent, ok := answer.Parents[i]; ok {
				children[r.Source] = parent
			}
		}
	}
	if !derives || len(suppressed) == 0 {
		return nil
	}
	rounds := []map[subject.Source]subject.Source{children}
	for found := true; found; {
		next := map[subject.Source]subject.Source{}
		for i, r := range records {
			if answer.Verdicts[i] == Suppressed {
				continue
			}
			for _, parent := range r.Parents {
				if suppressed[parent] {
					answer.Verdicts[i] = Suppressed
					next[r.Source] = parent
					break
				}
			}
		}
		for child := range next {
			suppressed[child] = true
		}
		if found = len(next) > 0; found {
			rounds = append(rounds, next)
		}
	}
	for _, round := range rounds { // a parent before its children, whose erasure they come under
		if len(round) == 0 {
			continue
		}
		if err := g.Ledger.RecordDerived(ctx, round); err != nil {
			return err
		}
	}
	return nil
}
