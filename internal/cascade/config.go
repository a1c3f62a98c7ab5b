package cascade

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"recount/internal/wire"
)

// PeerEnv is the part of the environment that names the peers.
type PeerEnv struct {
	IngestURL string
	GraphURL  string
	CausalURL string
	// Extra adds cells: "name=url,…".
	Extra string
	// ExpectedStores replaces what a peer must answer for, or says it of an extra one: "graph=graph|graph_journal,…".
	// All stores of a list must be answered for.
	ExpectedStores string
}

// PeerConfig is one peer: its name, its URL without a slash at the end ("" where none is set), and the stores that it
// must answer for, at least one.
type PeerConfig struct {
	Name   string
	URL    string
	Stores []string
}

const (
	extraVar  = "CASCADE_EXTRA_PEERS"
	storesVar = "CASCADE_EXPECTED_STORES"
)

// ParsePeers answers ingest, graph and causal, which exist whether or not they have a URL, and then the extra peers in
// their order. The error names every fault at once and quotes no URL, which may hold a secret. An extra peer needs
// expected stores: one that need not answer for anything could not be told from one that erased nothing. No peer may
// have the name of the local cell.
func ParsePeers(env PeerEnv, local string) ([]PeerConfig, error) {
	p := parser{
		peers: []PeerConfig{
			{Name: "ingest", Stores: []string{"intent_events"}},
			{Name: "graph", Stores: []string{"graph"}},
			{Name: "causal", Stores: []string{"holdout_assignments", "outcomes"}},
		},
		urls: make(map[string]string),
	}
	for i, given := range []struct{ variable, url string }{
		{"INTENT_INGEST_URL", env.IngestURL}, {"INTENT_GRAPH_URL", env.GraphURL}, {"INTENT_CAUSAL_URL", env.CausalURL},
	} {
		if address := strings.TrimSpace(given.url); address != "" {
			p.peers[i].URL = p.url(given.variable, p.peers[i].Name, address)
		}
	}
	for name, address := range p.pairs(extraVar, env.Extra) {
		p.extra(name, address, local)
	}
	named := make(map[string]bool)
	for name, list := range p.pairs(storesVar, env.ExpectedStores) {
		p.stores(name, list, named)
	}
	for _, peer := range p.peers {
		if len(peer.Stores) == 0 && !named[peer.Name] {
			p.fault("%s: the extra peer %q needs the stores that it must answer for", storesVar, peer.Name)
		}
	}
	if err := errors.Join(p.faults...); err != nil {
		return nil, err
	}
	return p.peers, nil
}

type parser struct {
	peers  []PeerConfig
	urls   map[string]string // canonical URL to the name of its peer
	faults []error
}

func (p *parser) fault(format string, args ...any) {
	p.faults = append(p.faults, fmt.Errorf(format, args...))
}

// pairs walks over "name=value,…".
func (p *parser) pairs(variable, list string) func(yield func(name, value string) bool) {
	return func(yield func(name, value string) bool) {
		if strings.TrimSpace(list) == "" {
			return
		}
		for i, item := range strings.Split(list, ",") {
			name, value, found := strings.Cut(item, "=")
			name, value = strings.TrimSpace(name), strings.TrimSpace(value)
			if !found || !wire.IsName(name) || value == "" {
				p.fault("%s: item %d is not name=value with a name of the form [a-z][a-z0-9_-]{0,62}", variable, i+1)
				continue
			}
			if !yield(name, value) {
				return
			}
		}
	}
}

func (p *parser) extra(name, address, local string) {
	if name == local || p.find(name) != nil {
		p.fault("%s: there is already a cell named %q", extraVar, name)
		return
	}
	p.peers = append(p.peers, PeerConfig{Name: name, URL: p.url(extraVar, name, address)})
}

func (p *parser) stores(name, list string, named map[string]bool) {
	peer := p.find(name)
	switch {
	case peer == nil:
		p.fault("%s: there is no peer named %q", storesVar, name)
		return
	case named[name]:
		p.fault("%s: %q is listed twice", storesVar, name)
		return
	}
	named[name] = true
	peer.Stores = nil
	for _, store := range strings.Split(list, "|") {
		store = strings.TrimSpace(store)
		switch {
		case !wire.IsName(store):
			p.fault("%s: a store of %q is not of the form [a-z][a-z0-9_-]{0,62}", storesVar, name)
		case slices.Contains(peer.Stores, store):
			p.fault("%s: %q has the store %q twice", storesVar, name, store)
		default:
			peer.Stores = append(peer.Stores, store)
		}
	}
}

func (p *parser) find(name string) *PeerConfig {
	for i := range p.peers {
		if p.peers[i].Name == name {
			return &p.peers[i]
		}
	}
	return nil
}

// url checks an address and answers it without a slash at the end.
func (p *parser) url(variable, name, address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" || u.Opaque != "" || !goodPort(u) {
		p.fault("%s: the URL of %q is not of the form https://host[:port][/path]", variable, name)
		return ""
	}
	switch {
	case u.Scheme != "https" && u.Scheme != "http":
		p.fault("%s: the URL of %q must begin with https://", variable, name)
	case u.Scheme == "http" && !isLoopback(u.Hostname()):
		p.fault("%s: the URL of %q must be https: only a loopback address may be http", variable, name)
	}
	if u.User != nil {
		p.fault("%s: the URL of %q must not hold a user or password", variable, name)
	}
	if u.RawQuery != "" || u.ForceQuery || strings.Contains(address, "#") {
		p.fault("%s: the URL of %q must not have a query or fragment", variable, name)
	}
	key := canonical(u)
	if other, taken := p.urls[key]; taken {
		p.fault("%s: %q has the same URL as %q", variable, name, other)
	}
	p.urls[key] = name
	return strings.TrimRight(address, "/")
}

func goodPort(u *url.URL) bool {
	if u.Port() == "" {
		return !strings.HasSuffix(u.Host, ":")
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	return err == nil && port > 0
}

func isLoopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.Unmap().IsLoopback()
}

// canonical spells URLs of one place alike.
func canonical(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[u.Scheme]
	}
	return u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port) + strings.TrimRight(u.EscapedPath(), "/")
}
