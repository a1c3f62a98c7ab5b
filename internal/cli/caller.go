package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"recount/internal/subject"
	"recount/internal/wire"
)

// Bounds on the size of an answer, in bytes: of one about a single subject, what each more in a batch adds, and of a
// page of an access.
const (
	maxAnswer    = 4 << 20
	maxPerResult = 64 << 10
	maxPage      = 64 << 20
)

// maxRetryAfter bounds how long an answer can ask to be left alone.
const maxRetryAfter = 24 * time.Hour

// callError is why a request brought nothing that can be judged. Its text never holds what was sent or answered.
type callError struct {
	reason     subject.Reason
	hint       string
	retryAfter time.Duration // positive when a later call may be answered
}

// Error is the reason and what may help.
func (e *callError) Error() string { return string(e.reason) + ": " + e.hint }

// caller sends requests. It is safe for concurrent use.
type caller struct {
	transport http.RoundTripper
	tokens    tokenSource
	timeout   time.Duration
	agent     string
	principal string // who acts, where the coordinator takes a name without a token; only ever sent to loopback
}

// tokenSource answers the ID token for a target, "" for none.
type tokenSource interface {
	token(ctx context.Context, to target) (string, error)
}

// newCaller makes a caller that honours the environment's proxies, as a workstation behind one must: what is not
// loopback is https, so a proxy only sees a tunnel, and loopback addresses are never proxied.
func newCaller(tokens tokenSource, timeout time.Duration, version string) *caller {
	return &caller{
		tokens: tokens, timeout: timeout, agent: "recount/" + version,
		transport: &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			DialContext:            (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
			ForceAttemptHTTP2:      true,
			TLSHandshakeTimeout:    10 * time.Second,
			IdleConnTimeout:        time.Minute,
			MaxIdleConnsPerHost:    8,
			DisableCompression:     true, // the bound on an answer is on what is read
			MaxResponseHeaderBytes: 64 << 10,
		},
	}
}

// message is one HTTP request to a target, before its token and request id.
type message struct {
	method, path string // the path is escaped
	contentType  string
	body         []byte
	limit        int64  // of the answer, in bytes
	anonymous    bool   // without a token
	requestID    string // "" draws one
}

// answer is one HTTP response, whatever its code.
type answer struct {
	code      int
	header    http.Header
	body      []byte
	requestID string // that was sent
}

// send sends a message once, never following a redirect.
func (c *caller) send(ctx context.Context, to target, m message) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	got := answer{requestID: m.requestID}
	if got.requestID == "" {
		got.requestID = uuid.NewString()
	}
	request, err := http.NewRequestWithContext(ctx, m.method, to.at(m.path), bytes.NewReader(m.body))
	if err != nil {
		return got, &callError{reason: subject.ReasonPeerUnreachable, hint: "the address can't be called"}
	}
	request.Header.Set("X-Request-ID", got.requestID)
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", c.agent)
	if c.principal != "" {
		request.Header.Set(devPrincipal, c.principal)
	}
	if m.contentType != "" {
		request.Header.Set("Content-Type", m.contentType)
	}
	if !m.anonymous {
		if err := c.authorise(ctx, request, to); err != nil {
			return got, err
		}
	}
	response, err := c.transport.RoundTrip(request)
	if err != nil {
		return got, broken(ctx, err)
	}
	defer closeQuietly(response.Body)
	body, err := io.ReadAll(io.LimitReader(response.Body, m.limit+1))
	switch {
	case err != nil:
		return got, broken(ctx, err)
	case int64(len(body)) > m.limit:
		return got, &callError{reason: subject.ReasonPeerTooLarge, hint: fmt.Sprintf("the answer is over %d MiB", m.limit>>20)}
	}
	got.code, got.header, got.body = response.StatusCode, response.Header, body
	return got, nil
}

// authorise puts the token into both headers: a platform in front may take one of them off.
func (c *caller) authorise(ctx context.Context, request *http.Request, to target) error {
	token, err := c.tokens.token(ctx, to)
	if err != nil {
		return &callError{reason: subject.ReasonPeerUnauthorised, hint: err.Error()}
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
		request.Header.Set("X-Serverless-Authorization", "Bearer "+token)
	}
	return nil
}

// post sends a body of the contract.
func (c *caller) post(ctx context.Context, to target, path string, body any, limit int64) (answer, error) {
	data, err := wire.Marshal(body)
	if err != nil {
		return answer{}, &callError{reason: subject.ReasonPeerUnreachable, hint: "the request can't be written as JSON"}
	}
	return c.send(ctx, to, message{
		method: http.MethodPost, path: path, contentType: "application/json", body: data, limit: limit,
	})
}

func (c *caller) get(ctx context.Context, to target, path string) (answer, error) {
	return c.send(ctx, to, message{method: http.MethodGet, path: path, limit: maxAnswer})
}

// broken names what ended a request on its way.
func broken(ctx context.Context, err error) error {
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return &callError{reason: subject.ReasonPeerTimeout, hint: "no answer in time (--timeout)"}
	case ctx.Err() != nil:
		return &callError{reason: subject.ReasonCancelled, hint: "interrupted"}
	}
	var outer *url.Error
	if errors.As(err, &outer) {
		err = outer.Err
	}
	return &callError{reason: subject.ReasonPeerUnreachable, hint: printable(err.Error())}
}

// refusal explains a code that no answer of the contract is sent with.
func (a answer) refusal() error {
	e := &callError{reason: subject.ReasonPeerHTTPStatus, hint: fmt.Sprintf("HTTP %d", a.code)}
	switch {
	case a.code >= 300 && a.code < 400:
		e.reason, e.hint = subject.ReasonPeerRedirected, fmt.Sprintf("HTTP %d: a redirect is never followed; give the final address", a.code)
	case a.code == http.StatusUnauthorized:
		e.reason, e.hint = subject.ReasonPeerUnauthorised, "HTTP 401: the token is missing, expired or made out to another audience (--token, --auth google)"
	case a.code == http.StatusForbidden:
		e.reason, e.hint = subject.ReasonPeerUnauthorised, "HTTP 403: this caller, role or tenant is not allowed there"
	case a.code == http.StatusTooManyRequests, a.code == http.StatusServiceUnavailable:
		e.reason, e.retryAfter = subject.ReasonPeerUnavailable, max(retryAfter(a.header, time.Now()), time.Second)
		e.hint = fmt.Sprintf("HTTP %d: busy; it asks to wait %s", a.code, e.retryAfter)
	case a.code == http.StatusNotFound, a.code == http.StatusMethodNotAllowed:
		e.hint = fmt.Sprintf("HTTP %d: nothing answers this route there; is it the right address?", a.code)
	default:
		if title := a.problemTitle(); title != "" {
			e.hint += ": " + title
		}
	}
	return e
}

// problemTitle is the title of a problem document, which holds no identifiers, fit for a terminal.
func (a answer) problemTitle() string {
	var problem struct {
		Title wire.PeerText `json:"title"`
	}
	if !a.isProblem() || decodeLoosely(a.body, &problem) != nil {
		return ""
	}
	return printable(string(problem.Title))
}

// problemDetail is what a problem document says beyond its title, fit for a terminal.
func (a answer) problemDetail() string {
	if detail := a.detail(200); detail != "" {
		return detail
	}
	return fmt.Sprintf("HTTP %d", a.code)
}

// detail is a problem document's, of at most so many runes; "" where there is none.
func (a answer) detail(most int) string {
	var problem struct {
		Detail wire.PeerText `json:"detail"`
	}
	if !a.isProblem() || decodeLoosely(a.body, &problem) != nil {
		return ""
	}
	return printableUpTo(string(problem.Detail), most)
}

func (a answer) isProblem() bool { return mediaType(a.header) == "application/problem+json" }

func mediaType(header http.Header) string {
	kind, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	return strings.ToLower(strings.TrimSpace(kind))
}

// retryAfter reads seconds or an HTTP date: 0 where there is neither, and never more than a day.
func retryAfter(header http.Header, now time.Time) time.Duration {
	text := header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 32); err == nil {
		return min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(at.Sub(now), 0), maxRetryAfter)
	}
	return 0
}
