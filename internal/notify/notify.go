// Package notify makes callbacks: POST requests to hosts that were registered beforehand, and to no others. A caller of
// ours chooses the URL, so the host is judged before the request and the address when it is dialled.
package notify

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	maxURL         = 2048     // bytes
	maxAnswer      = 4 << 10  // bytes, all of them thrown away
	maxHeader      = 16 << 10 // bytes of an answer
	maxAddresses   = 4        // tried for one host
	defaultTimeout = 10 * time.Second
)

// Config is what a Sender may do.
type Config struct {
	Hosts Hosts // of ParseHosts
	// AllowLoopback lets callbacks go to this machine, and over http where the host is loopback by its name. For tests
	// and demos.
	AllowLoopback bool
	Timeout       time.Duration // of one callback, from the lookup to the end of the answer; 10 s where it is not positive
	// Resolver looks up hosts, with the network "ip"; net.DefaultResolver where nil. Its answers are not trusted.
	Resolver interface {
		LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
	}
}

// Sender makes callbacks. It is safe for concurrent use.
type Sender struct {
	config    Config
	transport *http.Transport
}

// New is a Sender with a connection for each callback: only a dial is judged.
func New(config Config) *Sender {
	if config.Timeout <= 0 {
		config.Timeout = defaultTimeout
	}
	if config.Resolver == nil {
		config.Resolver = net.DefaultResolver
	}
	config.Hosts = slices.Clone(config.Hosts)
	s := &Sender{config: config}
	s.transport = &http.Transport{ // and no Proxy, which would dial in our stead
		DialContext:            s.dial,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		DisableKeepAlives:      true,
		DisableCompression:     true, // the bound on an answer is on what is read
		MaxResponseHeaderBytes: maxHeader,
	}
	return s
}

// The problems that a TargetError names.
const (
	problemLong     = "is longer than 2048 bytes"
	problemForm     = "is not an absolute URL with a host"
	problemScheme   = "must begin with https://"
	problemUser     = "must not hold a user or password"
	problemFragment = "must not have a fragment"
	problemHost     = "has a host or port that is not registered for callbacks (ERASURE_CALLBACK_HOSTS of the coordinator)"
	problemLoopback = "has a loopback host, which is not allowed here"
)

// TargetError is a URL that no callback may go to, for the reason in Problem, which follows "the callback URL". It
// quotes nothing of the URL, which may hold a secret.
type TargetError struct{ Problem string }

func (e *TargetError) Error() string { return "the callback URL " + e.Problem }

// ErrAddressRefused is the cause of a DeliveryError whose host has an address that is not public.
var ErrAddressRefused = errors.New("the address is not a public one")

// DeliveryError is a callback that was not taken: Status is the answer's, or 0 where there was none. Retryable says that
// it may be taken another time: there was no answer, or one of 408, 425, 429 and 5xx. Its text names no host; its cause
// may.
type DeliveryError struct {
	Status    int
	Retryable bool
	cause     error
}

func (e *DeliveryError) Error() string {
	switch {
	case e.Status != 0:
		return fmt.Sprintf("the callback was answered with status %d", e.Status)
	case errors.Is(e.cause, ErrAddressRefused):
		return "the callback was not sent: its host has an address that is not public"
	default:
		return "the callback was not answered"
	}
}

// Unwrap is the cause, for errors.Is and errors.As; nil where there was an answer.
func (e *DeliveryError) Unwrap() error { return e.cause }

// CheckURL reports whether a callback may go to a URL, without looking its host up: https to a registered host and port,
// at most 2048 bytes, no user, no fragment. The error is a *TargetError.
func (s *Sender) CheckURL(raw string) error {
	if problem := s.problem(raw); problem != "" {
		return &TargetError{Problem: problem}
	}
	return nil
}

func (s *Sender) problem(raw string) string {
	if len(raw) > maxURL {
		return problemLong
	}
	u, err := url.Parse(raw)
	if err != nil || u.Opaque != "" || u.Hostname() == "" || strings.HasSuffix(u.Host, ":") {
		return problemForm
	}
	name, port := lower(u.Hostname()), u.Port()
	local := isLoopback(name)
	switch {
	case u.Scheme != "https" && (u.Scheme != "http" || !local || !s.config.AllowLoopback):
		return problemScheme
	case u.User != nil:
		return problemUser
	case strings.Contains(raw, "#"): // an empty one too, which url.Parse forgets
		return problemFragment
	}
	if u.Scheme == "http" && port == "" {
		port = "80"
	}
	switch {
	case !slices.Contains(s.config.Hosts, canonical(name, port)):
		return problemHost
	case local && !s.config.AllowLoopback:
		return problemLoopback
	}
	return ""
}

// Post sends the body with the headers, once, and answers the status, 0 where there was none. 2xx is success; a redirect
// is not followed and is none. Errors: *TargetError for a URL that CheckURL refuses, else *DeliveryError.
func (s *Sender) Post(ctx context.Context, url string, header http.Header, body []byte) (status int, err error) {
	if err := s.CheckURL(url); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, &TargetError{Problem: problemForm} // never: CheckURL has parsed it
	}
	for name, values := range header {
		request.Header[name] = slices.Clone(values)
	}
	// Not a Client, which follows redirects and quotes the URL in its errors.
	response, err := s.transport.RoundTrip(request)
	if err != nil {
		return 0, &DeliveryError{Retryable: !errors.Is(err, ErrAddressRefused), cause: err}
	}
	defer func() { _ = response.Body.Close() }()
	status = response.StatusCode
	if status != http.StatusSwitchingProtocols { // whose body is a connection without an end
		_, _ = io.CopyN(io.Discard, response.Body, maxAnswer) // the status has been given: nothing here takes it back
	}
	if status/100 == 2 {
		return status, nil
	}
	return status, &DeliveryError{Status: status, Retryable: retryable(status)}
}

func retryable(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return status/100 == 5
}

// dial looks the host up once and tries its addresses in turn, each with its share of the time that is left. One that is
// refused ends it: a host with such an address is not to be trusted with the others.
func (s *Sender) dial(ctx context.Context, network, hostPort string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(hostPort)
	if err != nil {
		return nil, fmt.Errorf("dialling a callback: %w", err)
	}
	addresses, err := s.lookup(ctx, host)
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{ControlContext: s.control(host)}
	for i, address := range addresses {
		var conn net.Conn
		if conn, err = dialShare(ctx, dialer, network, net.JoinHostPort(address.String(), port), len(addresses)-i); err == nil {
			return conn, nil
		}
		if errors.Is(err, ErrAddressRefused) {
			break
		}
	}
	return nil, fmt.Errorf("dialling a callback: %w", err)
}

func (s *Sender) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	if address, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{address}, nil
	}
	addresses, err := s.config.Resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, fmt.Errorf("looking up the host of a callback: %w", err)
	}
	if len(addresses) == 0 {
		return nil, errors.New("the host of a callback has no address")
	}
	return addresses[:min(len(addresses), maxAddresses)], nil
}

func dialShare(ctx context.Context, dialer *net.Dialer, network, address string, left int) (net.Conn, error) {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/time.Duration(left))
		defer cancel()
	}
	return dialer.DialContext(ctx, network, address) //nolint:wrapcheck // dial wraps it
}

// control judges the address that a socket is about to connect to, whatever any lookup said before. A host that is
// loopback by its name must be loopback: http is allowed to it.
func (s *Sender) control(host string) func(context.Context, string, string, syscall.RawConn) error {
	return func(_ context.Context, _, address string, _ syscall.RawConn) error {
		dialled, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrAddressRefused, err)
		}
		loopback := dialled.Addr().Unmap().IsLoopback()
		switch {
		case loopback && s.config.AllowLoopback:
			return nil
		case refused(dialled.Addr()), isLoopback(lower(host)):
			return ErrAddressRefused
		}
		return nil
	}
}
