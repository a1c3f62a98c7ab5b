package cascade

import (
	"context"
	"net"
	"net/http"
	"time"

	"recount/internal/subject"
	"recount/internal/wire"
)

// maxAnswer bounds the size of an answer, in bytes. A person's sources are in it: about half a million of usual length.
const maxAnswer = 64 << 20

// Observer is told what goes wrong with peers, for metrics. It MUST be safe for concurrent use.
type Observer interface {
	// PeerFailed is called for every failed receipt of a peer, its own and the coordinator's verdicts alike.
	PeerFailed(peer string, reason subject.Reason)
	// PeerRetried is called before each further attempt, with what was wrong with the last one.
	PeerRetried(peer string, reason subject.Reason)
}

// Options are what all peers share.
type Options struct {
	Salt    subject.Salt  // the same in every cell, or no answer's subject_ref matches
	Timeout time.Duration // of one peer, all attempts together
	// Transport gives the way to a peer, known by its URL, which is also its audience. An error of the RoundTripper
	// with a method Unauthorised() bool that answers true means that no token could be had.
	Transport func(audience string) http.RoundTripper
	Observer  Observer // may be nil
}

// Peer is a cell behind a URL.
type Peer struct {
	config    PeerConfig
	options   Options
	transport http.RoundTripper
}

// NewPeer is the peer that a PeerConfig of ParsePeers describes.
func NewPeer(config PeerConfig, options Options) *Peer {
	p := &Peer{config: config, options: options}
	if p.Configured() {
		p.transport = options.Transport(config.URL)
	}
	if options.Observer == nil {
		p.options.Observer = unobserved{}
	}
	return p
}

// NewTransport is the connection pool to share between peers: keep-alive, HTTP/2 where TLS offers it, and no proxy,
// which would read what it carries.
func NewTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		DialContext:            dialer.DialContext,
		ForceAttemptHTTP2:      true,
		MaxIdleConnsPerHost:    64,
		IdleConnTimeout:        90 * time.Second,
		TLSHandshakeTimeout:    5 * time.Second,
		DisableCompression:     true, // the bound on an answer is on what is read
		MaxResponseHeaderBytes: 64 << 10,
	}
}

// Name is the peer's configured name, which is the cell on each of its receipts.
func (p *Peer) Name() string { return p.config.Name }

// Configured reports whether the peer has a URL.
func (p *Peer) Configured() bool { return p.config.URL != "" }

// Erase asks the peer to erase the target from its own stores. The receipts cover every store that it must answer for,
// or are one failed receipt for the store "*".
func (p *Peer) Erase(ctx context.Context, requestID string, t subject.Target) subject.Erasure {
	started := time.Now()
	path, body := "/v1/intent/subject:delete", any(wire.SubjectRequest{TenantID: t.Tenant, IdentityID: t.Subject.Identity()})
	if len(t.Keep) > 0 || !t.AboutPerson() && len(t.Sources) != 1 {
		return p.EraseBatch(ctx, requestID, []subject.Target{t})[0]
	}
	if !t.AboutPerson() {
		path, body = "/v1/intent/source:delete", wire.SourceRequest{TenantID: t.Tenant, Source: t.Sources[0].Origin(), SourceRef: t.Sources[0].Reference()}
	}
	got, reason := p.call(ctx, requestID, path, body)
	window := subject.Times{Started: started, Finished: time.Now()}
	var erasure subject.Erasure
	if reason == subject.ReasonNone {
		erasure, reason = p.judge(got, question{requestID: requestID, target: t}, window)
	}
	if reason != subject.ReasonNone {
		erasure = p.nothing(window, reason)
	}
	p.observe(erasure.Receipts)
	return erasure
}

// EraseBatch is Erase for many targets of one tenant, all people or all sources, in one call.
func (p *Peer) EraseBatch(ctx context.Context, requestID string, targets []subject.Target) []subject.Erasure {
	if len(targets) == 0 {
		return nil
	}
	started := time.Now()
	path, body := batchOf(targets, targets[0].KeptIn(p.config.Name))
	questions := make([]question, len(targets))
	for i, t := range targets {
		questions[i] = question{requestID: requestID, target: t}
	}
	got, reason := p.call(ctx, requestID, path, body)
	window := subject.Times{Started: started, Finished: time.Now()}
	var results []subject.Erasure
	if reason == subject.ReasonNone {
		results, reason = p.judgeBatch(got, questions, window)
	}
	if reason != subject.ReasonNone {
		results = repeat(p.nothing(window, reason), len(targets))
	}
	for _, e := range results {
		p.observe(e.Receipts)
	}
	return results
}

// batchOf is the call that names all the targets. They all leave the same stores alone.
func batchOf(targets []subject.Target, keep []string) (path string, body any) {
	if targets[0].AboutPerson() {
		people := wire.BatchRequest{TenantID: targets[0].Tenant, IdentityIDs: make([]string, len(targets)), Keep: keep}
		for i, t := range targets {
			people.IdentityIDs[i] = t.Subject.Identity()
		}
		return "/v1/intent/subject:batchDelete", people
	}
	sources := wire.SourceBatchRequest{TenantID: targets[0].Tenant, Erasures: make([]wire.SourceErasure, len(targets)), Keep: keep}
	for i, t := range targets {
		sources.Erasures[i] = wire.SourceErasure{SubjectRef: string(t.Ref), Sources: wire.FromSources(t.Sources)}
	}
	return "/v1/intent/source:batchDelete", sources
}

// nothing is the answer for a peer that gave none which can be used.
func (p *Peer) nothing(window subject.Times, reason subject.Reason) subject.Erasure {
	return subject.Erasure{Receipts: []subject.Receipt{p.failed(subject.AnyStore, window, reason)}}
}

// failed is a receipt for a store that the peer did not measure as far as anyone can tell.
func (p *Peer) failed(store string, window subject.Times, reason subject.Reason) subject.Receipt {
	return subject.NewFailed(subject.Label{Cell: p.config.Name, Store: store}, window, subject.Counts{}, reason)
}

func (p *Peer) observe(receipts []subject.Receipt) {
	for _, r := range receipts {
		if r.Status() == subject.Failed {
			p.options.Observer.PeerFailed(p.config.Name, r.Reason())
		}
	}
}

type unobserved struct{}

func (unobserved) PeerFailed(string, subject.Reason)  {}
func (unobserved) PeerRetried(string, subject.Reason) {}
