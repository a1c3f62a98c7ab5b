package cell

import (
	"context"
	"fmt"

	"recount/internal/intake"
	"recount/internal/stores"
	"recount/internal/subject"
	"recount/internal/suppression"
)

// Paired appends to a durable store and then fills a memory from the same rows, under the locks that an erasure of the
// two takes: a write in flight can't land in one before the erasure and in the other after it.
type Paired struct {
	Durable intake.Appender
	Fill    func(rows []stores.Row, created []bool)
	Locks   *Locks
	Table   stores.Table
	// Lease, where set, MUST be held before and after: a row that is journalled by an instance that has lost its lease
	// is in the journal, and not in the memory that serves.
	Lease interface{ Held() bool }
}

// Append keeps the contract of stores.Appender. The memory is shown the rows that are duplicates too: an append that
// failed half-way in the journal is completed when it is sent again.
func (p *Paired) Append(ctx context.Context, rows []stores.Row, _ suppression.Generation) ([]bool, error) {
	subjects, err := p.subjects(rows)
	if err != nil {
		return nil, err
	}
	unlock, err := p.Locks.Lock(ctx, subjects)
	if err != nil {
		return nil, &subject.Fault{Reason: subject.ReasonTimeout, Cause: err}
	}
	defer unlock()
	if err := p.held(); err != nil {
		return nil, err
	}
	created, err := p.Durable.Append(ctx, rows, 0)
	if err != nil {
		return nil, fmt.Errorf("journalling: %w", err)
	}
	p.Fill(rows, created)
	return created, p.held()
}

func (p *Paired) held() error {
	if p.Lease != nil && !p.Lease.Held() {
		return &subject.Fault{Reason: subject.ReasonNoLease}
	}
	return nil
}

// subjects are all whom the rows name.
func (p *Paired) subjects(rows []stores.Row) ([]subject.Subject, error) {
	tenant := p.Table.Index(p.Table.Tenant)
	var out []subject.Subject
	for _, column := range p.Table.Identities {
		identity := p.Table.Index(column)
		for _, row := range rows {
			s, err := subject.New(fmt.Sprint(row[tenant]), fmt.Sprint(row[identity]))
			if err != nil {
				return nil, err
			}
			out = append(out, s)
		}
	}
	return out, nil
}
