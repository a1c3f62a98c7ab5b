package app

import (
	"context"
	"net/http"

	"recount/internal/auth"
	"recount/internal/cascade"
	"recount/internal/cell"
	"recount/internal/erasure"
	"recount/internal/httpapi"
	"recount/internal/httpapi/opendsrapi"
	"recount/internal/obs"
	"recount/internal/subject"
	"recount/internal/wire"
)

// coordinator is the cascade as it is served: concurrent erasures of one subject share the work.
type coordinator struct {
	local   *cell.Cell
	cascade *cascade.Cascade
	flights subject.Flights
	peers   []*cascade.Peer
	obs     *obs.Metrics

	requests *erasure.Service // nil where erasure requests are not configured
	admin    httpapi.Authenticator
	openDSR  *opendsrapi.Surface // nil where it is switched off
}

// ready reports what can't answer now: the local cell, or the ledger of erasures.
func (c *coordinator) ready(ctx context.Context) error {
	if err := c.local.Ready(ctx); err != nil {
		return err
	}
	if err := c.requests.Ledger.Ready(ctx); err != nil {
		return &subject.Fault{Reason: subject.ReasonErasureLedger, Cause: err}
	}
	return nil
}

func newCoordinator(r *running, c CoordinatorConfig, local *cell.Cell) *coordinator {
	pool := cascade.NewTransport()
	options := cascade.Options{
		Salt: r.salt, Timeout: c.PeerTimeout, Observer: r.obs,
		Transport: func(audience string) http.RoundTripper {
			if r.AuthMode == "off" {
				return pool
			}
			return auth.NewPeerTransport(pool, auth.GoogleTokens(audience))
		},
	}
	out := &coordinator{local: local, obs: r.obs}
	cells := []cascade.Cell{local}
	for _, config := range c.peers {
		peer := cascade.NewPeer(config, options)
		out.peers, cells = append(out.peers, peer), append(cells, peer)
	}
	out.cascade = cascade.New(c.Timeout, cells...)
	context.AfterFunc(r.life.Erasures(), out.cascade.Stop)
	return out
}

// Erase is one cascade, with a receipt for every store of every cell.
func (c *coordinator) Erase(ctx context.Context, requestID string, t subject.Target) subject.Erasure {
	run := func() subject.Erasure {
		done := c.obs.Erasing(obs.Cascade)
		receipts := c.cascade.Erase(ctx, requestID, t)
		done(receipts)
		return subject.Erasure{Receipts: receipts}
	}
	if !t.AboutPerson() {
		return run()
	}
	return c.flights.Do(t.Subject, run)
}

// EraseBatch is one cascade for many people of one tenant.
func (c *coordinator) EraseBatch(ctx context.Context, requestID string, targets []subject.Target) []subject.Erasure {
	done := c.obs.Erasing(obs.Cascade)
	lists := c.cascade.EraseBatch(ctx, requestID, targets)
	done(lists...)
	out := make([]subject.Erasure, len(lists))
	for i, receipts := range lists {
		out[i].Receipts = receipts
	}
	return out
}

// describe adds to the local cell's health which peers have a URL.
func (c *coordinator) describe(h wire.Health) wire.Health {
	all := true
	h.CascadePeers = make(map[string]bool, len(c.peers))
	for _, peer := range c.peers {
		h.CascadePeers[peer.Name()] = peer.Configured()
		all = all && peer.Configured()
	}
	h.CascadePeersConfigured = &all
	return h
}
