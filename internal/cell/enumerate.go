package cell

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"recount/internal/subject"
	"recount/internal/suppression"
	"recount/internal/wire"
)

const (
	counted = "counted"
	failed  = "failed"
)

// Enumerate says where the targets' rows are, and how many of their sources were recorded before. It touches nothing.
func (c *Cell) Enumerate(ctx context.Context, _ string, targets []subject.Target, list bool) []wire.Enumerated {
	out := make([]wire.Enumerated, len(targets))
	recorded := make([]subject.Count, len(targets))
	if len(targets) > 0 {
		refs := make([]subject.Ref, len(targets))
		for i, t := range targets {
			refs[i] = t.Ref
		}
		if entries, err := c.config.Ledger.Recorded(ctx, targets[0].Tenant, refs); err == nil {
			for i := range entries {
				recorded[i] = subject.Measured(int64(len(entries[i])))
			}
		}
	}
	for i, t := range targets {
		out[i] = wire.Enumerated{SubjectRef: string(t.Ref), Suppressed: recorded[i]}
		for _, found := range c.accessor.Enumerate(ctx, t, list) {
			out[i].Receipts = append(out[i].Receipts, c.coordinates(found))
		}
	}
	return out
}

func (c *Cell) coordinates(found subject.Coordinates) wire.Coordinates {
	out := wire.Coordinates{
		Cell: found.Cell, Store: found.Store, Backend: found.Backend, Status: counted, Count: found.Count, Sticky: found.Sticky,
		Detail: string(found.Reason),
	}
	for _, id := range found.RowIDs { // an owner's column of that name may hold anything
		if wire.IsRowID(id) {
			out.RowIDs = append(out.RowIDs, id)
		}
	}
	if found.Reason != subject.ReasonNone {
		out.Status = failed
	}
	if !found.RecoverableUntil.IsZero() {
		until := found.RecoverableUntil.UTC()
		out.RecoverableUntil = &until
	}
	for _, s := range found.Sources {
		mac := c.config.Keys.MAC(s)
		out.Sources = append(out.Sources, wire.KeyedSource{KeyID: c.config.Keys.Current(), Digest: hex.EncodeToString(mac[:])})
	}
	return out
}

// fenceOf is the fence of a freeze: of one tenant alone, so that nobody else's thaw lowers it.
func fenceOf(tenant, freezeID string) suppression.AttemptID {
	sum := sha256.Sum256([]byte("freeze|" + tenant + "|" + freezeID))
	return suppression.AttemptID(hex.EncodeToString(sum[:16]))
}

// Freeze keeps the people from being written for. An owner's own importers can't be held back.
func (c *Cell) Freeze(ctx context.Context, _, freezeID string, people []subject.Subject, until time.Time) error {
	return c.config.Ledger.Fence(ctx, fenceOf(people[0].Tenant(), freezeID), people, until) //nolint:wrapcheck // *subject.Fault
}

// Thaw lets them be written for again.
func (c *Cell) Thaw(ctx context.Context, _, freezeID, tenant string) error {
	return c.config.Ledger.Lower(ctx, fenceOf(tenant, freezeID)) //nolint:wrapcheck // as above
}

// Follow says where the targets lead, one step far: a person to the sources of their rows, a source to what derives from it.
// Errors: *subject.Fault.
func (c *Cell) Follow(ctx context.Context, _ string, targets []subject.Target) ([][]subject.Source, error) {
	return c.accessor.Follow(ctx, targets) //nolint:wrapcheck // *subject.Fault
}
