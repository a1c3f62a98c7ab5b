package cascade

import (
	"context"
	"net/http"

	"recount/internal/subject"
	"recount/internal/wire"
)

// Follow asks the peer where at most wire.MaxBatch targets of one tenant lead, one step far. Errors: *subject.Fault.
func (p *Peer) Follow(ctx context.Context, requestID string, targets []subject.Target) ([][]subject.Source, error) {
	asked := wire.FollowRequest{TenantID: targets[0].Tenant}
	for _, t := range targets {
		if t.AboutPerson() {
			asked.IdentityIDs = append(asked.IdentityIDs, t.Subject.Identity())
		} else {
			asked.Sources = append(asked.Sources, wire.FromSources(t.Sources)...)
		}
	}
	got, reason := p.call(ctx, requestID, "/v1/intent/source:follow", asked)
	if reason == subject.ReasonNone {
		var leads [][]subject.Source
		if leads, reason = p.followed(got, requestID, targets); reason == subject.ReasonNone {
			return leads, nil
		}
	}
	p.options.Observer.PeerFailed(p.config.Name, reason)
	return nil, &subject.Fault{Reason: reason}
}

func (p *Peer) followed(got answer, requestID string, targets []subject.Target) ([][]subject.Source, subject.Reason) {
	said, err := wire.DecodePeerFollow(got.body)
	switch {
	case err != nil:
		return nil, subject.ReasonPeerNotJSON
	case got.code != http.StatusOK:
		return nil, subject.ReasonPeerHTTPStatus
	case string(said.RequestID) != requestID:
		return nil, subject.ReasonPeerWrongRequest
	case string(said.TenantID) != targets[0].Tenant:
		return nil, subject.ReasonPeerWrongTenant
	case string(said.Cell) != p.config.Name:
		return nil, subject.ReasonPeerWrongCell
	case string(said.Operation) != wire.OpFollow:
		return nil, subject.ReasonPeerWrongOp
	case len(said.Results) != len(targets):
		return nil, subject.ReasonPeerResults
	}
	leads := make([][]subject.Source, len(targets))
	for i, result := range said.Results {
		if !result.Sources.Given || result.Sources.Malformed {
			return nil, subject.ReasonPeerNotJSON
		}
		for _, listed := range result.Sources.Listed {
			s, err := subject.NewSource(targets[0].Tenant, listed.Source, listed.SourceRef)
			if err != nil {
				return nil, subject.ReasonSourceInvalid
			}
			leads[i] = append(leads[i], s)
		}
	}
	return leads, subject.ReasonNone
}
