package notify

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The headers of Standard Webhooks, https://www.standardwebhooks.com.
const (
	headerID        = "webhook-id"
	headerTimestamp = "webhook-timestamp"
	headerSignature = "webhook-signature"
)

const (
	secretPrefix    = "whsec_"
	signatureScheme = "v1,"
	minSecret       = 24 // bytes
	maxSecret       = 64 // bytes
	maxSignatures   = 16 // looked at in one header
	redacted        = "[redacted]"
)

// ErrUnverified is a webhook that nobody with a secret of ours has signed, or not at about this time.
var ErrUnverified = errors.New("the webhook's signature is not verified")

// WebhookSecret is a key of 24 to 64 bytes that callbacks are signed with. It prints as "[redacted]", and as an address
// with %p and %w, which fmt lets no type answer. The zero value signs nothing and verifies nothing.
type WebhookSecret struct {
	// Behind a pointer, so that a struct with the secret in an unexported field prints an address at most; and to a
	// string, as %s of a pointer to a slice prints what is in it.
	key *string
}

// WebhookSecrets are in use at once while one takes the place of another: all sign, and each verifies.
type WebhookSecrets []WebhookSecret

// ParseWebhookSecret reads "whsec_" and the key in padded base64. The error doesn't quote it.
func ParseWebhookSecret(text string) (WebhookSecret, error) {
	encoded, ok := strings.CutPrefix(strings.TrimSpace(text), secretPrefix)
	if !ok {
		return WebhookSecret{}, errors.New("a webhook secret begins with whsec_: write that before its base64")
	}
	key, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil { // not wrapped: it says where in the secret
		return WebhookSecret{}, errors.New("a webhook secret is padded base64 after whsec_: openssl rand -base64 32 makes some")
	}
	if len(key) < minSecret || len(key) > maxSecret {
		return WebhookSecret{}, fmt.Errorf("a webhook secret has %d to %d bytes, and not %d", minSecret, maxSecret, len(key))
	}
	held := string(key)
	return WebhookSecret{key: &held}, nil
}

// ParseWebhookSecrets reads "new,old", one or more of ParseWebhookSecret. Blank text is none. The error names every fault
// by the number of its secret.
func ParseWebhookSecrets(text string) (WebhookSecrets, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var secrets WebhookSecrets
	var faults []error
	for i, item := range strings.Split(text, ",") {
		secret, err := ParseWebhookSecret(item)
		if err != nil {
			faults = append(faults, fmt.Errorf("secret %d of the list: %w", i+1, err))
		}
		secrets = append(secrets, secret)
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return secrets, nil
}

// Format keeps every fmt verb from printing the secret.
func (WebhookSecret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// LogValue keeps the secret out of structured logs.
func (WebhookSecret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText keeps the secret out of JSON.
func (WebhookSecret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Sign is WebhookSecrets.Sign with one secret.
func (s WebhookSecret) Sign(id string, at time.Time, body []byte) http.Header {
	return WebhookSecrets{s}.Sign(id, at, body)
}

// Verify is WebhookSecrets.Verify with one secret.
func (s WebhookSecret) Verify(header http.Header, body []byte, now time.Time, tolerance time.Duration) error {
	return WebhookSecrets{s}.Verify(header, body, now, tolerance)
}

// Sign answers the three headers of a webhook: its id, the time in unix seconds, and a signature for each secret, with
// no signature header where there is no secret. The id stays the same through all attempts, and has neither a dot nor
// a character that a header can't have.
func (s WebhookSecrets) Sign(id string, at time.Time, body []byte) http.Header {
	timestamp := strconv.FormatInt(at.Unix(), 10)
	header := make(http.Header)
	header.Set(headerID, id)
	header.Set(headerTimestamp, timestamp)
	var signatures []string
	for _, secret := range s {
		if secret.key != nil {
			mac := secret.mac(id, timestamp, body)
			signatures = append(signatures, signatureScheme+base64.StdEncoding.EncodeToString(mac))
		}
	}
	if len(signatures) > 0 {
		header.Set(headerSignature, strings.Join(signatures, " "))
	}
	return header
}

// Verify reports whether one of the secrets has signed the body, within tolerance of now on either side. The body is as
// it was received, byte for byte. The error is ErrUnverified.
func (s WebhookSecrets) Verify(header http.Header, body []byte, now time.Time, tolerance time.Duration) error {
	id, timestamp, list := single(header, headerID), single(header, headerTimestamp), single(header, headerSignature)
	if id == "" || timestamp == "" || list == "" {
		return fmt.Errorf("%w: a header is missing or there twice", ErrUnverified)
	}
	if strings.Contains(id, ".") { // else a part of the id could pass for the time, and the time for the body
		return fmt.Errorf("%w: the id has a dot", ErrUnverified)
	}
	seconds, err := strconv.ParseInt(timestamp, 10, 40) // bits that time.Unix takes without overflow
	if err != nil || seconds < 0 {
		return fmt.Errorf("%w: the timestamp is not in unix seconds", ErrUnverified)
	}
	if now.Sub(time.Unix(seconds, 0)).Abs() > tolerance {
		return fmt.Errorf("%w: the timestamp is too old or too new", ErrUnverified)
	}
	signatures := strings.Fields(list)
	for _, signature := range signatures[:min(len(signatures), maxSignatures)] {
		encoded, ok := strings.CutPrefix(signature, signatureScheme)
		given, err := base64.StdEncoding.Strict().DecodeString(encoded)
		if !ok || err != nil {
			continue // of a scheme of others
		}
		for _, secret := range s {
			if secret.key != nil && hmac.Equal(given, secret.mac(id, timestamp, body)) {
				return nil
			}
		}
	}
	return fmt.Errorf("%w: no signature is of a known secret", ErrUnverified)
}

func (s WebhookSecret) mac(id, timestamp string, body []byte) []byte {
	h := hmac.New(sha256.New, []byte(*s.key))
	_, _ = h.Write([]byte(id + "." + timestamp + "."))
	_, _ = h.Write(body)
	return h.Sum(nil)
}

// single is a header's value, or "" where it is not there exactly once.
func single(header http.Header, name string) string {
	if values := header.Values(name); len(values) == 1 {
		return values[0]
	}
	return ""
}
