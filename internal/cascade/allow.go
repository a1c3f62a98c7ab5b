package cascade

import (
	"context"
	"net/http"

	"recount/internal/subject"
	"recount/internal/wire"
)

// Allow lets a source come back into the peer. Where the peer did not say so without a doubt, there is a reason.
func (p *Peer) Allow(ctx context.Context, requestID string, asked wire.AllowRequest) (removed bool, reason subject.Reason) {
	got, reason := p.call(ctx, requestID, "/v1/suppression:allow", asked)
	if reason != subject.ReasonNone {
		return false, reason
	}
	said, err := wire.DecodePeerAllowed(got.body)
	switch {
	case got.code != http.StatusOK:
		return false, subject.ReasonPeerHTTPStatus
	case err != nil || said.Removed == nil:
		return false, subject.ReasonPeerNotJSON
	case string(said.RequestID) != requestID:
		return false, subject.ReasonPeerWrongRequest
	case string(said.TenantID) != asked.TenantID:
		return false, subject.ReasonPeerWrongTenant
	case string(said.Operation) != wire.OpSuppressionAllow:
		return false, subject.ReasonPeerWrongOp
	case string(said.Status) != "allowed":
		return false, subject.ReasonPeerUnknownStatus
	}
	return *said.Removed, subject.ReasonNone
}
