package auth

import (
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

const (
	maxToken    = 16 << 10                      // bytes; Google's are under 2 KiB
	clockSkew   = 60                            // seconds that Google's clock may be ahead of ours
	maxLifetime = 24 * 60 * 60                  // seconds; Google's tokens live for one hour
	strippedSig = "SIGNATURE_REMOVED_BY_GOOGLE" // what Cloud Run leaves of a token that it has used
)

// claims are what a token says, as far as it is read here.
type claims struct {
	Issuer        string `json:"iss"`
	Audience      string `json:"aud"`
	Sub           string `json:"sub"`
	Email         string `json:"email"`
	EmailVerified bool   `json:"email_verified"`
	IssuedAt      int64  `json:"iat"`
	Expires       int64  `json:"exp"`
	NotBefore     int64  `json:"nbf"`
}

var (
	claimNames  = []string{"iss", "aud", "sub", "email", "email_verified", "iat", "exp", "nbf"}
	headerNames = []string{"alg", "kid", "typ", "crit"}
)

// split answers the header and the payload of a token, decoded.
func split(token string) (header, payload []byte, err error) {
	parts := strings.Split(token, ".")
	if len(token) > maxToken || len(parts) != 3 {
		return nil, nil, fmt.Errorf("%w: it is no token of three parts", ErrUnauthenticated)
	}
	if parts[2] == strippedSig {
		return nil, nil, fmt.Errorf("%w: the platform has taken the signature off: the caller must send its token for us in Authorization, "+
			"and one for the platform in X-Serverless-Authorization", ErrUnauthenticated)
	}
	for i, part := range parts { // the validator's decoder takes line ends and loose last bits; this one does not
		decoded, err := base64.RawURLEncoding.Strict().DecodeString(part)
		if err != nil || strings.ContainsAny(part, "\r\n") {
			return nil, nil, fmt.Errorf("%w: a part of the token is not base64url", ErrUnauthenticated)
		}
		switch i {
		case 0:
			header = decoded
		case 1:
			payload = decoded
		}
	}
	return header, payload, nil
}

// checkHeader lets RS256 pass and nothing else.
func checkHeader(data []byte) error {
	var header struct {
		Algorithm string         `json:"alg"`
		KeyID     string         `json:"kid"`
		Critical  jsontext.Value `json:"crit"`
	}
	if err := decodeAlike(data, &header, headerNames); err != nil {
		return err
	}
	switch {
	case header.Algorithm != "RS256":
		return fmt.Errorf("%w: the token is not signed with RS256", ErrUnauthenticated)
	case header.KeyID == "":
		return fmt.Errorf("%w: the token names no key", ErrUnauthenticated)
	case header.Critical != nil:
		return fmt.Errorf("%w: the token has extensions that are not understood", ErrUnauthenticated)
	}
	return nil
}

// readClaims checks what the validator does not: the issuer, when it was issued, and that Google vouches for the
// address. The audience and the expiry are checked here once more, as they are read here.
func readClaims(data []byte, audience string, now time.Time) (claims, error) {
	var c claims
	if err := decodeAlike(data, &c, claimNames); err != nil {
		return claims{}, err
	}
	seconds, wrong := now.Unix(), ""
	switch {
	case c.Issuer != "https://accounts.google.com" && c.Issuer != "accounts.google.com":
		wrong = "the issuer is not Google"
	case audience == "" || c.Audience != audience:
		wrong = "the token is for another audience"
	case c.IssuedAt <= 0 || c.IssuedAt > seconds+clockSkew:
		wrong = "it was issued in the future, or never"
	case c.Expires <= c.IssuedAt || c.Expires < seconds || c.Expires-c.IssuedAt > maxLifetime:
		wrong = "it has expired, or lives too long"
	case c.NotBefore > seconds+clockSkew:
		wrong = "it is not valid yet"
	case c.Email == "" || !c.EmailVerified:
		wrong = "it has no verified e-mail address (on the metadata server: format=full)"
	case c.Sub == "":
		wrong = "it has no subject"
	}
	if wrong != "" {
		return claims{}, fmt.Errorf("%w: %s", ErrUnauthenticated, wrong)
	}
	return c, nil
}

// decodeAlike reads one JSON object, strictly: no name twice, and none of the names in another case. The validator's own
// decoder takes both, and the last one wins: what was judged here would not be what it sees.
func decodeAlike(data []byte, v any, names []string) error {
	var fields map[string]jsontext.Value
	if err := json.Unmarshal(data, &fields); err != nil {
		return fmt.Errorf("%w: a part of the token is no JSON object", ErrUnauthenticated)
	}
	for field := range fields {
		for _, name := range names {
			if field != name && strings.EqualFold(field, name) {
				return fmt.Errorf("%w: the token has a field in an unusual case", ErrUnauthenticated)
			}
		}
	}
	if fields == nil || json.Unmarshal(data, v) != nil {
		return fmt.Errorf("%w: a field of the token has the wrong type", ErrUnauthenticated)
	}
	return nil
}
