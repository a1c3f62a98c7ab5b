package cascade

import (
	"context"
	"net"
	"net/http"
	"slices"
	"time"

	"recount/internal/subject"
	"recount/internal/wire"
)

// Bounds on the size of an answer, in bytes: of one about a single subject, and what each more in a batch adds.
const (
	maxAnswer    = 1 << 20
	maxPerResult = 16 << 10
)

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

// Erase asks the peer to erase the subject from its own stores. The receipts cover every store that it must answer for,
// or are one failed receipt for the store "*".
func (p *Peer) Erase(ctx context.Context, requestID string, s subject.Subject) []subject.Receipt {
	started := time.Now()
	body := wire.SubjectRequest{TenantID: s.Tenant(), IdentityID: s.Identity()}
	got, reason := p.call(ctx, requestID, "subject:delete", body, maxAnswer)
	window := subject.Times{Started: started, Finished: time.Now()}
	var receipts []subject.Receipt
	if reason == subject.ReasonNone {
		receipts, reason = p.judge(got, question{requestID: requestID, tenant: s.Tenant(), ref: s.Ref(p.options.Salt)}, window)
	}
	if reason != subject.ReasonNone {
		receipts = p.nothing(window, reason)
	}
	p.observe(receipts)
	return receipts
}

// EraseBatch is Erase for 1 to wire.MaxBatch subjects of one tenant, in one call.
func (p *Peer) EraseBatch(ctx context.Context, requestID string, subjects []subject.Subject) [][]subject.Receipt {
	if len(subjects) == 0 {
		return nil
	}
	started := time.Now()
	body := wire.BatchRequest{TenantID: subjects[0].Tenant(), IdentityIDs: make([]string, len(subjects))}
	questions := make([]question, len(subjects))
	for i, s := range subjects {
		body.IdentityIDs[i] = s.Identity()
		questions[i] = question{requestID: requestID, tenant: s.Tenant(), ref: s.Ref(p.options.Salt)}
	}
	got, reason := p.call(ctx, requestID, "subject:batchDelete", body, maxAnswer+int64(len(subjects))*maxPerResult)
	window := subject.Times{Started: started, Finished: time.Now()}
	var results [][]subject.Receipt
	if reason == subject.ReasonNone {
		results, reason = p.judgeBatch(got, questions, window)
	}
	if reason != subject.ReasonNone {
		results = repeat(p.nothing(window, reason), len(subjects))
	}
	p.observe(slices.Concat(results...))
	return results
}

// nothing is the answer for a peer that gave none which can be used.
func (p *Peer) nothing(window subject.Times, reason subject.Reason) []subject.Receipt {
	return []subject.Receipt{p.failed(anyStore, window, reason)}
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
