// Package subject holds the words of the house and the rule that gives the product its name: a store is
// counted, deleted from and counted again, and only a recount of exactly zero may be called erased.
//
// It imports the standard library only. Storage, transport and configuration live elsewhere and depend on it.
package subject

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"unicode/utf8"
	"unique"
)

// MaxIdentityBytes is the longest identity that is accepted.
const MaxIdentityBytes = 512

const (
	maxTenantBytes = 63
	minSaltBytes   = 16
	redacted       = "[redacted]"
)

// ErrTenant says that a tenant id does not have the form [a-z0-9][a-z0-9_-]{0,62}.
var ErrTenant = errors.New("tenant_id must match [a-z0-9][a-z0-9_-]{0,62}")

// ErrIdentity says that an identity is not one that every part of the system can carry unchanged.
var ErrIdentity = errors.New(`identity_id must be 1 to 512 bytes of valid UTF-8 without control characters, and neither "." nor ".."`)

// Subject is one person as one tenant knows them. It is compared byte for byte. Every way of printing it answers
// "[redacted]", and printing a struct that holds one answers no more than an address: an identity must not reach a log,
// an error or a metric by accident.
type Subject struct {
	of unique.Handle[named]
}

type named struct{ tenant, identity string }

// New checks both halves and returns the subject. It MUST be the only way in: a Subject that exists is valid.
// Errors: ErrTenant, ErrIdentity. Neither carries the value that was refused.
func New(tenant, identity string) (Subject, error) {
	if err := CheckTenant(tenant); err != nil {
		return Subject{}, err
	}
	if err := CheckIdentity(identity); err != nil {
		return Subject{}, err
	}
	return Subject{of: unique.Make(named{tenant: tenant, identity: identity})}, nil
}

// CheckTenant reports ErrTenant unless the id has the form that the wire contract fixes.
func CheckTenant(tenant string) error {
	if tenant == "" || len(tenant) > maxTenantBytes {
		return ErrTenant
	}
	for i := range len(tenant) {
		c := tenant[i]
		letter := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !letter && (i == 0 || c != '_' && c != '-') {
			return ErrTenant
		}
	}
	return nil
}

// CheckIdentity reports ErrIdentity unless the id is one that every store and every transport can carry.
func CheckIdentity(identity string) error {
	if identity == "" || len(identity) > MaxIdentityBytes || !utf8.ValidString(identity) {
		return ErrIdentity
	}
	if identity == "." || identity == ".." { // no URL can carry them: clients resolve them away
		return ErrIdentity
	}
	for _, r := range identity {
		if r < 0x20 || r >= 0x7f && r < 0xa0 {
			return ErrIdentity
		}
	}
	return nil
}

// Tenant is the tenant id. It is not personal data.
func (s Subject) Tenant() string { return s.named().tenant }

// Identity is the plaintext identity: for a store's predicate, and for nothing that outlives the erasure.
func (s Subject) Identity() string { return s.named().identity }

func (s Subject) named() named {
	if s.IsZero() {
		return named{}
	}
	return s.of.Value()
}

// IsZero reports whether s was never made by New.
func (s Subject) IsZero() bool { return s == Subject{} }

// Format keeps every fmt verb from printing the identity.
func (Subject) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// String keeps the identity out of text.
func (Subject) String() string { return redacted }

// LogValue keeps the identity out of structured logs.
func (Subject) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText keeps the identity out of JSON and every other encoding that asks for text.
func (Subject) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Salt is the secret that makes a Ref one-way. It prints as "[redacted]".
type Salt struct{ value *string }

// NewSalt takes at least 16 bytes. The salt MUST be the same in every cell of a deployment.
func NewSalt(secret string) (Salt, error) {
	if len(secret) < minSaltBytes {
		return Salt{}, fmt.Errorf("the subject salt needs at least %d bytes, this one has %d", minSaltBytes, len(secret))
	}
	return Salt{value: &secret}, nil
}

// Bytes is the secret itself, for deriving keys.
func (s Salt) Bytes() []byte {
	if s.value == nil {
		return nil
	}
	return []byte(*s.value)
}

// Format keeps every fmt verb from printing the secret.
func (Salt) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// String keeps the secret out of text.
func (Salt) String() string { return redacted }

// LogValue keeps the secret out of structured logs.
func (Salt) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText keeps the secret out of JSON.
func (Salt) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Ref is the pseudonym of a subject that receipts and audit rows carry: 64 lower-case hex digits.
type Ref string

// Ref is the hex SHA-256 of salt|tenant_id|identity_id. A tenant id holds no '|', so two subjects never share the
// hashed text.
func (s Subject) Ref(salt Salt) Ref {
	p := s.named()
	sum := sha256.Sum256([]byte(string(salt.Bytes()) + "|" + p.tenant + "|" + p.identity))
	return Ref(hex.EncodeToString(sum[:]))
}
