package app

import (
	"context"
	"sync"

	"recount/internal/cell"
	"recount/internal/subject"
	"recount/internal/wire"
)

const allowed = "allowed"

// allowHere lets a source come back into one cell.
type allowHere struct{ cell *cell.Cell }

// Allow answers for the one cell.
func (a allowHere) Allow(ctx context.Context, _ string, s subject.Source, _, _ string) []wire.CellAllowed {
	out := wire.CellAllowed{Cell: a.cell.Name(), Status: allowed}
	var err error
	if out.Removed, err = a.cell.Ledger().Allow(ctx, s); err != nil {
		out.Status, out.Detail = subject.Failed.String(), string(subject.ReasonOf(err))
	}
	return []wire.CellAllowed{out}
}

// Allow lets a source come back into every cell, the local one first: whatever fails is told for the cell that it failed
// in, and a repeated call goes on with it.
func (c *coordinator) Allow(ctx context.Context, requestID string, s subject.Source, reason, consentRef string) []wire.CellAllowed {
	out := make([]wire.CellAllowed, 1+len(c.peers))
	asked := wire.AllowRequest{TenantID: s.Tenant(), Source: s.Origin(), SourceRef: s.Reference(), Reason: reason, ConsentRef: consentRef}
	var wg sync.WaitGroup
	wg.Go(func() { out[0] = allowHere{c.local}.Allow(ctx, requestID, s, reason, consentRef)[0] })
	for i, peer := range c.peers {
		wg.Go(func() {
			removed, failure := peer.Allow(ctx, requestID, asked)
			out[i+1] = wire.CellAllowed{Cell: peer.Name(), Status: allowed, Removed: removed, Detail: string(failure)}
			if failure != subject.ReasonNone {
				out[i+1].Status = subject.Failed.String()
			}
		})
	}
	wg.Wait()
	return out
}
