package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"google.golang.org/api/idtoken"
	"google.golang.org/api/option"
)

// IDTokenConfig is what an IDToken is made of.
type IDTokenConfig struct {
	// Audience is the URL of this service. It MUST be no other's: a token that one cell was sent could be replayed at a
	// cell that shares its audience.
	Audience string
	Callers  Callers
	// Client fetches the keys that Google signs with. Nil is one with a deadline that follows no redirect.
	Client *http.Client
	// CertsURL and ListenAddr are for tests that run the service as a process: the keys are then read from CertsURL
	// instead of Google. Whoever serves the keys decides who is let in, so the URL MUST be http:// and a loopback IP
	// address, and the service MUST listen on a loopback address itself: keys that only this machine can have chosen let
	// in only who is on this machine. Anything else is refused.
	CertsURL   string
	ListenAddr string
}

// IDToken lets in who sends a Google ID token of a listed account. It is safe for concurrent use.
type IDToken struct {
	audience  string
	callers   map[string]Caller // by e-mail
	validator *idtoken.Validator
	now       func() time.Time
}

// NewIDToken makes an authenticator, without a call to anyone. The error joins every fault of the configuration.
func NewIDToken(ctx context.Context, c IDTokenConfig) (*IDToken, error) {
	var faults []error
	if c.Audience == "" {
		faults = append(faults, errors.New("AUTH_AUDIENCE: required: the URL of this service, shared with no other (an empty one would accept tokens for any)"))
	}
	if len(c.Callers) == 0 {
		faults = append(faults, errors.New("ALLOWED_CALLER_SA: required: name who may call"))
	}
	certs, err := certsURL(c.CertsURL, c.ListenAddr)
	faults = append(faults, err)
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	client := c.Client
	if client == nil {
		client = &http.Client{Timeout: certsTimeout}
	}
	validator, err := idtoken.NewValidator(ctx, option.WithHTTPClient(fetchingFrom(client, certs)))
	if err != nil {
		return nil, fmt.Errorf("making the token validator: %w", err)
	}
	a := &IDToken{audience: c.Audience, callers: make(map[string]Caller, len(c.Callers)), validator: validator, now: time.Now}
	for _, caller := range c.Callers {
		a.callers[caller.Email] = caller
	}
	return a, nil
}

// Authenticate answers who sent the request: the account of a token in the one Authorization header. Errors:
// ErrUnauthenticated, ErrForbidden, ErrUnavailable.
func (a *IDToken) Authenticate(r *http.Request) (Caller, error) {
	token, err := bearer(r.Header)
	if err != nil {
		return Caller{}, err
	}
	found, err := a.verify(r.Context(), token)
	if err != nil {
		return Caller{}, err
	}
	caller, listed := a.callers[lowerASCII(found.Email)]
	switch {
	case !listed:
		return Caller{}, fmt.Errorf("%w: the account is not on the list", ErrForbidden)
	case caller.Sub != "" && caller.Sub != found.Sub: // an account that was made anew under the same address
		return Caller{}, fmt.Errorf("%w: the account has another unique id than the one on the list", ErrForbidden)
	}
	caller.Sub = found.Sub
	return caller, nil
}

// verify answers the claims of a good token. The algorithm is judged before anything else: given an ES256 token, the
// validator would fetch other keys, and panic at a short signature.
func (a *IDToken) verify(ctx context.Context, token string) (claims, error) {
	header, payload, err := split(token)
	if err != nil {
		return claims{}, err
	}
	if err := checkHeader(header); err != nil {
		return claims{}, err
	}
	if err := a.validate(ctx, token); err != nil {
		return claims{}, err
	}
	return readClaims(payload, a.audience, a.now())
}

// validate has the signature, the expiry and the audience checked.
func (a *IDToken) validate(ctx context.Context, token string) (err error) {
	defer func() {
		if recover() != nil {
			err = fmt.Errorf("%w: the validator panicked", ErrUnauthenticated)
		}
	}()
	_, err = a.validator.Validate(ctx, token, a.audience)
	var keys *keysError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &keys):
		return fmt.Errorf("%w: %w", ErrUnavailable, keys)
	case ctx.Err() != nil:
		return fmt.Errorf("%w: the request ended", ErrUnavailable)
	default: // the validator's words may quote the token
		return fmt.Errorf("%w: the signature, the expiry or the audience is wrong", ErrUnauthenticated)
	}
}

// bearer answers the token of the one Authorization header.
func bearer(h http.Header) (string, error) {
	given := h.Values("Authorization")
	switch len(given) {
	case 0:
		return "", fmt.Errorf("%w: there is no Authorization header", ErrUnauthenticated)
	case 1:
	default:
		return "", fmt.Errorf("%w: there is more than one Authorization header", ErrUnauthenticated)
	}
	scheme, token, _ := strings.Cut(given[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", fmt.Errorf("%w: the Authorization header holds no bearer token", ErrUnauthenticated)
	}
	return token, nil
}
