package auth

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// Loopback lets anyone in who can reach a loopback address, with every role: AUTH_MODE=off. What could reach it and
// should not is a web page in a browser on the same machine, so requests under another host's name (a name that was
// rebound to 127.0.0.1) and requests that another origin's page sends are refused.
type Loopback struct {
	origins http.CrossOriginProtection
}

// OffActor is the actor of every call with AUTH_MODE=off.
const OffActor = "auth-off"

// NewLoopback MUST be given the address that is listened on. It refuses one that other machines may reach.
func NewLoopback(listenAddr string) (*Loopback, error) {
	if !IsLoopback(listenAddr) {
		return nil, fmt.Errorf("AUTH_MODE=off only serves a loopback address, and %q is none: listen on 127.0.0.1, or use AUTH_MODE=idtoken", listenAddr)
	}
	return &Loopback{}, nil
}

// Authenticate answers a caller who may do everything. Errors: ErrForbidden.
func (l *Loopback) Authenticate(r *http.Request) (Caller, error) {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	} else if inner, bracketed := strings.CutPrefix(host, "["); bracketed {
		host = strings.TrimSuffix(inner, "]")
	}
	if !isLoopbackHost(host) {
		return Caller{}, fmt.Errorf("%w: the Host header names no loopback address", ErrForbidden)
	}
	if l.origins.Check(r) != nil {
		return Caller{}, fmt.Errorf("%w: a page of another origin sent it", ErrForbidden)
	}
	return Caller{Email: OffActor, Roles: Read | Write | Erase | Allow | Drive}, nil
}

// IsLoopback reports whether an address of the form host:port is one that only this machine reaches: localhost,
// 127.0.0.0/8 or [::1]. An empty host is every address.
func IsLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	return err == nil && isLoopbackHost(host)
}

func isLoopbackHost(host string) bool {
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && ip.Zone() == "" && ip.IsLoopback()
}
