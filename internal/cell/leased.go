package cell

import (
	"context"

	"recount/internal/stores"
	"recount/internal/subject"
)

// MemoryStore is the store that a lease guards.
type MemoryStore interface {
	subject.Store
	subject.Reader
	subject.Described
	subject.Identified
	subject.Sourced
	// Fill takes in rows that the journal took, and EraseTargets counts, removes and recounts targets and what derives
	// from them, under one lock.
	Fill(rows []stores.Row, created []bool)
	EraseTargets(targets []subject.Target, derived [][]subject.Source) []subject.Measurement
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

// CountSources answers *subject.Fault with lease_lost once the lease is gone.
func (l Leased) CountSources(ctx context.Context, sources []subject.Source) ([]int64, error) {
	n, err := l.MemoryStore.CountSources(ctx, sources)
	return n, l.after(err)
}

// DeleteSources answers *subject.Fault with lease_lost once the lease is gone.
func (l Leased) DeleteSources(ctx context.Context, sources []subject.Source) (int64, error) {
	n, err := l.MemoryStore.DeleteSources(ctx, sources)
	return n, l.after(err)
}

// EraseTargets measures nothing once the lease is gone: each measurement holds the fault.
func (l Leased) EraseTargets(targets []subject.Target, derived [][]subject.Source) []subject.Measurement {
	measured := l.MemoryStore.EraseTargets(targets, derived)
	if err := l.after(nil); err != nil {
		for i := range measured {
			measured[i].DeleteErr = err
		}
	}
	return measured
}

func (l Leased) after(err error) error {
	if err == nil && !l.Lease.Held() {
		return &subject.Fault{Reason: subject.ReasonNoLease}
	}
	return err
}
