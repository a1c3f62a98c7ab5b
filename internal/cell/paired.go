package cell

import (
	"context"
	"fmt"

	"recount/internal/intake"
	"recount/internal/stores"
	"recount/internal/subject"
	"recount/internal/suppression"
)

// Paired appends to a durable store and then fills a memory from the same rows. It MUST be called by way of the guard: an
// erasure waits for a write that is under way, and holds back the next, so that no row lands in the one store before the
// erasure and in the other after it.
type Paired struct {
	Durable intake.Appender
	Fill    func(rows []stores.Row, created []bool)
	Turns   *Turns
	// Lease MUST be held before and after: a row that is journalled by an instance that has lost its lease is in the
	// journal, and not in the memory that serves.
	Lease interface{ Held() bool }
}

// Append keeps the contract of stores.Appender. The memory is shown the rows that are duplicates too: an append that
// failed half-way in the journal is completed when it is sent again.
func (p *Paired) Append(ctx context.Context, rows []stores.Row, seen suppression.Generation) ([]bool, error) {
	release, err := p.Turns.Shared(ctx)
	if err != nil {
		return nil, &subject.Fault{Reason: subject.ReasonTimeout, Cause: err}
	}
	defer release()
	if err := p.held(); err != nil {
		return nil, err
	}
	created, err := p.Durable.Append(ctx, rows, seen)
	if err != nil {
		return nil, fmt.Errorf("journalling: %w", err)
	}
	p.Fill(rows, created)
	return created, p.held()
}

func (p *Paired) held() error {
	if !p.Lease.Held() {
		return &subject.Fault{Reason: subject.ReasonNoLease}
	}
	return nil
}
