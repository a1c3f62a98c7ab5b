package auth

import "net/http"

// PeerTransport makes requests to one peer known as ours.
type PeerTransport struct {
	base   http.RoundTripper
	tokens *Tokens
}

// NewPeerTransport sends requests through base with the tokens of the peer's audience. It MUST only be used for requests
// to that peer.
func NewPeerTransport(base http.RoundTripper, tokens *Tokens) *PeerTransport {
	return &PeerTransport{base: base, tokens: tokens}
}

// RoundTrip puts the token into both headers: the platform in front of the peer may use up X-Serverless-Authorization,
// and the peer itself reads Authorization. Errors: *TokenError, and those of base.
func (t *PeerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := t.tokens.Token(r.Context())
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // as every RoundTripper must
		}
		return nil, err
	}
	known := r.Clone(r.Context())
	known.Header.Set("Authorization", "Bearer "+token)
	known.Header.Set("X-Serverless-Authorization", "Bearer "+token)
	return t.base.RoundTrip(known) //nolint:wrapcheck // base's own errors are judged by the caller
}
