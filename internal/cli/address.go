package cli

import (
	"net"
	"net/url"
	"strings"

	"recount/internal/wire"
)

// coordinatorCell is the name under which the coordinator answers for its own stores.
const coordinatorCell = "scoring"

// target is one service and where it is.
type target struct {
	name string
	base *url.URL // without a trailing slash, query or user
}

// newTarget reads an address. It refuses what would send an identity or a token in the clear.
func newTarget(name, address string) (target, error) {
	base, err := url.Parse(address)
	if err != nil || base.Host == "" || base.User != nil || base.RawQuery != "" || base.Fragment != "" {
		return target{}, usagef("the address of %s must be a plain URL such as https://%s.example.com", name, name)
	}
	switch {
	case base.Scheme == "https":
	case base.Scheme == "http" && isLoopback(base.Hostname()):
	default:
		return target{}, usagef("the address of %s must be https: only loopback addresses may be http", name)
	}
	base.Path, base.RawPath = strings.TrimRight(base.Path, "/"), ""
	return target{name: name, base: base}, nil
}

// newTargets reads name=URL pairs, in order.
func newTargets(pairs []string) ([]target, error) {
	var out []target
	seen := map[string]bool{coordinatorCell: true}
	for _, pair := range pairs {
		name, address, found := strings.Cut(strings.TrimSpace(pair), "=")
		if !found || !wire.IsName(name) {
			return nil, usagef("a cell is given as name=URL, the name being [a-z][a-z0-9_-]{0,62}")
		}
		if seen[name] {
			return nil, usagef("the cell %s is given twice (%s is the coordinator)", name, coordinatorCell)
		}
		seen[name] = true
		t, err := newTarget(name, address)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// audience is whom a token for this address is made out to: its URL, as in the cascade.
func (t target) audience() string { return t.base.String() }

// at is the address of an escaped path below the target.
func (t target) at(path string) string { return t.base.String() + path }
