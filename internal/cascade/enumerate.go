package cascade

import (
	"context"
	"net/http"
	"time"

	"recount/internal/subject"
	"recount/internal/wire"
)

// Enumerate asks the peer where the targets' rows are. What it can't say is one failed place for each target, with the
// reason; a store that it must answer for and doesn't is one too.
func (p *Peer) Enumerate(ctx context.Context, requestID string, targets []subject.Target, list bool) []wire.Enumerated {
	asked := wire.EnumerateRequest{TenantID: targets[0].Tenant, List: list}
	for _, t := range targets {
		if t.AboutPerson() {
			asked.IdentityIDs = append(asked.IdentityIDs, t.Subject.Identity())
		} else {
			asked.Sources = append(asked.Sources, wire.FromSources(t.Sources)...)
		}
	}
	got, reason := p.call(ctx, requestID, "/v1/intent/subject:enumerate", asked)
	var said wire.PeerEnumeration
	if reason == subject.ReasonNone {
		said, reason = p.enumeration(got, requestID, targets)
	}
	out := make([]wire.Enumerated, len(targets))
	for i, t := range targets {
		if reason != subject.ReasonNone {
			p.options.Observer.PeerFailed(p.config.Name, reason)
			out[i] = wire.Enumerated{SubjectRef: string(t.Ref), Receipts: []wire.Coordinates{p.unknown(subject.AnyStore, reason)}}
			continue
		}
		out[i] = p.enumerated(said.Results[i])
	}
	return out
}

// enumeration reads the envelope.
func (p *Peer) enumeration(got answer, requestID string, targets []subject.Target) (wire.PeerEnumeration, subject.Reason) {
	said, err := wire.DecodePeerEnumeration(got.body)
	switch {
	case err != nil:
		return said, subject.ReasonPeerNotJSON
	case got.code != http.StatusOK && got.code != http.StatusBadGateway:
		return said, subject.ReasonPeerHTTPStatus
	case string(said.RequestID) != requestID:
		return said, subject.ReasonPeerWrongRequest
	case string(said.TenantID) != targets[0].Tenant:
		return said, subject.ReasonPeerWrongTenant
	case string(said.Cell) != p.config.Name:
		return said, subject.ReasonPeerWrongCell
	case string(said.Operation) != wire.OpEnumerate:
		return said, subject.ReasonPeerWrongOp
	case len(said.Results) != len(targets):
		return said, subject.ReasonPeerResults
	}
	for i, t := range targets {
		if string(said.Results[i].SubjectRef) != string(t.Ref) {
			return said, subject.ReasonPeerWrongSubject
		}
	}
	return said, subject.ReasonNone
}

// unknown is a place of which nothing is known.
func (p *Peer) unknown(store string, reason subject.Reason) wire.Coordinates {
	return wire.Coordinates{Cell: p.config.Name, Store: store, Status: failed, Detail: string(reason)}
}

const (
	counted = "counted"
	failed  = "failed"
)

// enumerated judges what the peer said of one target, store by store.
func (p *Peer) enumerated(said wire.PeerEnumerated) wire.Enumerated {
	suppressed, _ := said.Suppressed.Optional()
	out := wire.Enumerated{SubjectRef: string(said.SubjectRef), Suppressed: suppressed}
	seen := map[string]bool{}
	for _, r := range said.Receipts {
		store := r.Store.Name()
		switch {
		case store == "":
			out.Receipts = append(out.Receipts, p.unknown(subject.AnyStore, subject.ReasonPeerStoreNameless))
		case seen[store]:
			out.Receipts = append(out.Receipts, p.unknown(store, subject.ReasonPeerStoreRepeated))
		case string(r.Cell) != p.config.Name:
			out.Receipts = append(out.Receipts, p.unknown(store, subject.ReasonPeerWrongCell))
		default:
			out.Receipts = append(out.Receipts, p.place(r, store))
		}
		seen[store] = true
	}
	for _, store := range p.config.Stores {
		if !seen[store] {
			out.Receipts = append(out.Receipts, p.unknown(store, subject.ReasonPeerStoreMissing))
		}
	}
	return out
}

func (p *Peer) place(r wire.PeerCoordinates, store string) wire.Coordinates {
	count, sound := r.Count.Count()
	_, measured := count.Value()
	reason := wire.ReasonWord(string(r.Detail))
	if !reason.Known() {
		reason = subject.ReasonNoReason
	}
	switch {
	case string(r.Status) != counted:
		return p.unknown(store, reason)
	case !sound || !measured:
		return p.unknown(store, subject.ReasonPeerBadCount)
	case r.RecoverableUntil.Malformed:
		return p.unknown(store, subject.ReasonRetention)
	case !r.Opaque():
		return p.unknown(store, subject.ReasonPeerMismatch)
	}
	out := wire.Coordinates{
		Cell: p.config.Name, Store: store, Backend: r.Backend.Name(), Status: counted, Count: count, Sticky: bool(r.Sticky),
		Sources: r.Sources,
	}
	for _, id := range r.RowIDs {
		out.RowIDs = append(out.RowIDs, string(id))
	}
	if !r.RecoverableUntil.Time.IsZero() {
		until := r.RecoverableUntil.Time
		out.RecoverableUntil = &until
	}
	return out
}

// Freeze keeps people from being written for at the peer. Errors: *subject.Fault.
func (p *Peer) Freeze(ctx context.Context, requestID, freezeID string, people []subject.Subject, until time.Time) error {
	asked := wire.FreezeRequest{TenantID: people[0].Tenant(), FreezeID: freezeID, Until: until}
	for _, person := range people {
		asked.IdentityIDs = append(asked.IdentityIDs, person.Identity())
	}
	return p.frozen(ctx, requestID, "/v1/intent/subject:freeze", asked, wire.FreezeResponse{TenantID: asked.TenantID, Operation: wire.OpFreeze, Status: "frozen"})
}

// Thaw ends a freeze at the peer. Errors: *subject.Fault.
func (p *Peer) Thaw(ctx context.Context, requestID, freezeID, tenant string) error {
	asked := wire.ThawRequest{TenantID: tenant, FreezeID: freezeID}
	return p.frozen(ctx, requestID, "/v1/intent/subject:thaw", asked, wire.FreezeResponse{TenantID: tenant, Operation: wire.OpThaw, Status: "thawed"})
}

func (p *Peer) frozen(ctx context.Context, requestID, path string, asked any, want wire.FreezeResponse) error {
	got, reason := p.call(ctx, requestID, path, asked)
	if reason != subject.ReasonNone {
		return &subject.Fault{Reason: reason}
	}
	said, err := wire.DecodePeerFrozen(got.body)
	switch {
	case err != nil:
		reason = subject.ReasonPeerNotJSON
	case got.code != http.StatusOK:
		reason = subject.ReasonPeerHTTPStatus
	case string(said.RequestID) != requestID:
		reason = subject.ReasonPeerWrongRequest
	case string(said.TenantID) != want.TenantID:
		reason = subject.ReasonPeerWrongTenant
	case string(said.Cell) != p.config.Name:
		reason = subject.ReasonPeerWrongCell
	case string(said.Operation) != want.Operation || string(said.Status) != want.Status:
		reason = subject.ReasonPeerWrongOp
	}
	if reason != subject.ReasonNone {
		return &subject.Fault{Reason: reason}
	}
	return nil
}
