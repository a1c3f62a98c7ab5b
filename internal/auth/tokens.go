package auth

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"cloud.google.com/go/compute/metadata"
	"github.com/go-json-experiment/json"
	"golang.org/x/oauth2"
	"google.golang.org/api/idtoken"
)

const (
	refreshBefore = 5 * time.Minute  // its expiry, a token is renewed
	spareTime     = 10 * time.Second // before its expiry, a token is not sent any more
	refreshPause  = 30 * time.Second // between two renewals while the old token is still good
	fetchTimeout  = 10 * time.Second
)

// TokenError says that no ID token could be had. Its text says what kind of trouble it was, and never holds a token or
// what a token endpoint answered; the cause is reachable by errors.As and MUST NOT be printed.
type TokenError struct {
	Hint  string
	Cause error
}

// Error is the hint.
func (e *TokenError) Error() string { return "no ID token could be had: " + e.Hint }

// Unwrap is the cause.
func (e *TokenError) Unwrap() error { return e.Cause }

// Unauthorised tells the cascade that the peer was not called for want of a token.
func (*TokenError) Unauthorised() bool { return true }

// Tokens makes ID tokens for one audience. It keeps a token and renews it before it expires; callers at the same time
// share one fetch. It is safe for concurrent use.
type Tokens struct {
	fetch func() (string, error)
	now   func() time.Time

	mu      sync.Mutex
	token   string
	expires time.Time
	renew   time.Time
	flight  *flight // the fetch that is running
}

// flight is one fetch. Its fields may be read once done is closed.
type flight struct {
	done  chan struct{}
	token string
	err   error
}

// GoogleTokens makes tokens with Application Default Credentials: the metadata server on Google Cloud, a service
// account's key file, or a service account that is impersonated. Nothing is fetched before the first Token.
func GoogleTokens(audience string) *Tokens {
	// The library keeps a token for 55 minutes, but the metadata server may hand out one that is older. So a new source
	// is made for each fetch, and the token's own expiry is obeyed.
	return &Tokens{now: time.Now, fetch: func() (string, error) {
		source, err := idtoken.NewTokenSource(context.Background(), audience)
		if err != nil {
			return "", err //nolint:wrapcheck // Token wraps it
		}
		token, err := source.Token()
		if err != nil {
			return "", err //nolint:wrapcheck // Token wraps it
		}
		return token.AccessToken, nil
	}}
}

// Token answers a token that has not expired. It waits for a fetch only while it keeps none that is good for 10 s more.
// Errors: *TokenError.
func (t *Tokens) Token(ctx context.Context) (string, error) {
	t.mu.Lock()
	now := t.now()
	usable := t.token != "" && now.Before(t.expires.Add(-spareTime))
	if usable && now.Before(t.renew) {
		defer t.mu.Unlock()
		return t.token, nil
	}
	if t.flight == nil {
		t.flight = &flight{done: make(chan struct{})}
		t.renew = now.Add(refreshPause)
		go t.run(t.flight)
	}
	f, token := t.flight, t.token
	t.mu.Unlock()
	if usable {
		return token, nil
	}
	select {
	case <-f.done:
		return f.token, f.err
	case <-ctx.Done():
		return "", &TokenError{Hint: "it did not come in time", Cause: ctx.Err()}
	}
}

// run ends a flight, at the latest after fetchTimeout: the library's own deadlines can't be set. A fetch that comes
// later is lost.
func (t *Tokens) run(f *flight) {
	type fetched struct {
		token string
		err   error
	}
	came := make(chan fetched, 1)
	go func() {
		token, err := t.fetch()
		came <- fetched{token, err}
	}()
	got := fetched{err: context.DeadlineExceeded}
	select {
	case got = <-came:
	case <-time.After(fetchTimeout):
	}
	var expires time.Time
	if got.err == nil {
		if expires, got.err = expiryOf(got.token); got.err == nil && !t.now().Before(expires) {
			got.err = errExpired
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.flight = nil
	if got.err != nil {
		f.err = &TokenError{Hint: hintOf(got.err), Cause: got.err}
	} else {
		f.token, t.token, t.expires = got.token, got.token, expires
		// A token that is about to expire already is one that the metadata server keeps: it has no better one yet.
		t.renew = later(expires.Add(-refreshBefore), t.now().Add(refreshPause))
	}
	close(f.done)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

var (
	errToken   = errors.New("it is no token")
	errExpired = errors.New("it has expired already")
)

// expiryOf reads a token's own expiry. The token was given to us, so its signature is its audience's to check.
func expiryOf(token string) (time.Time, error) {
	_, payload, err := split(token)
	if err != nil {
		return time.Time{}, errToken
	}
	var c claims
	if json.Unmarshal(payload, &c) != nil || c.Expires <= 0 {
		return time.Time{}, errToken
	}
	return time.Unix(c.Expires, 0), nil
}

// hintOf says what kind of trouble a fetch had, in words of our own.
func hintOf(err error) string {
	var server *metadata.Error
	var undefined metadata.NotDefinedError
	var endpoint *oauth2.RetrieveError
	var network net.Error
	switch {
	case errors.As(err, &server):
		return fmt.Sprintf("the metadata server answered HTTP %d", server.Code)
	case errors.As(err, &undefined):
		return "the metadata server knows no service account"
	case errors.As(err, &endpoint) && endpoint.Response != nil:
		return fmt.Sprintf("the token endpoint answered HTTP %d", endpoint.Response.StatusCode)
	case errors.Is(err, errToken):
		return "what was answered is no token"
	case errors.Is(err, errExpired):
		return "what was answered has expired already: are the clocks right?"
	case errors.Is(err, context.DeadlineExceeded):
		return "it did not come in time"
	case errors.As(err, &network):
		return "the token endpoint can not be reached"
	case strings.Contains(err.Error(), "unsupported credentials type"):
		return "the default credentials are a user's, which make no token for an audience: impersonate a service account, or give a token"
	default:
		return "there are no usable default credentials (GOOGLE_APPLICATION_CREDENTIALS, or the metadata server)"
	}
}
