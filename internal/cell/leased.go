package cell

import (
	"context"

	"recount/internal/subject"
)

// MemoryStore is the store that a lease guards.
type MemoryStore interface {
	subject.Store
	subject.Reader
	subject.Described
	subject.Identified
}

// Leased is a memory store that answers only while its instance holds the lease. It looks at the lease after each
// step: while it was held then, no other instance had replayed the journal into a memory of its own.
type Leased struct {
	MemoryStore
	Lease interface{ Held() bool }
}

// Count answers *subject.Fault with lease_lost once the lease is gone.
func (l Leased) Count(ctx context.Context, s subject.Subject) (int64, error) {
	n, err := l.MemoryStore.Count(ctx, s)
	return n, l.after(err)
}

// Delete answers *subject.Fault with lease_lost once the lease is gone.
func (l Leased) Delete(ctx context.Context, s subject.Subject) (int64, error) {
	n, err := l.MemoryStore.Delete(ctx, s)
	return n, l.after(err)
}

// Read answers *subject.Fault with lease_lost once the lease is gone.
func (l Leased) Read(ctx context.Context, s subject.Subject, cursor string, limit int) (subject.Page, error) {
	page, err := l.MemoryStore.Read(ctx, s, cursor, limit)
	return page, l.after(err)
}

func (l Leased) after(err error) error {
	if err == nil && !l.Lease.Held() {
		return &subject.Fault{Reason: subject.ReasonNoLease}
	}
	return err
}
