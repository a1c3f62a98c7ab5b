package subject

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"unicode/utf8"
)

// The longest source and source reference, in bytes.
const (
	MaxSourceBytes    = 512
	MaxSourceRefBytes = 1024
)

// ErrSource says that a source or a source reference is not one that a ledger can hold.
var ErrSource = errors.New("source must be 1 to 512 bytes, and source_ref 1 to 1024 bytes, of valid UTF-8")

// Source names a record as its origin does: (tenant, source, source_ref). It is what an erasure suppresses, because it
// survives the erasure where the content must not. A source_ref is often an e-mail address, so every way of printing a
// Source answers "[redacted]". Two are equal when all three parts are, byte for byte.
type Source struct{ tenant, source, ref string }

// NewSource checks the three parts. Errors: ErrTenant, ErrSource. Neither carries the value that was refused.
func NewSource(tenant, source, ref string) (Source, error) {
	if err := CheckTenant(tenant); err != nil {
		return Source{}, err
	}
	if source == "" || len(source) > MaxSourceBytes || !utf8.ValidString(source) ||
		ref == "" || len(ref) > MaxSourceRefBytes || !utf8.ValidString(ref) {
		return Source{}, ErrSource
	}
	return Source{tenant: tenant, source: source, ref: ref}, nil
}

// Tenant is the tenant id.
func (s Source) Tenant() string { return s.tenant }

// Origin is the first half of the pair, such as "crm".
func (s Source) Origin() string { return s.source }

// Reference is the second half in plaintext: for a store's predicate and a ledger's key, and for nothing else.
func (s Source) Reference() string { return s.ref }

// Ref is the pseudonym under which an erasure of this source is written down: hex SHA-256 of
// salt|tenant|source|source_ref.
func (s Source) Ref(salt Salt) Ref {
	sum := sha256.Sum256([]byte(string(salt.Bytes()) + "|" + s.tenant + "|" + s.source + "|" + s.ref))
	return Ref(hex.EncodeToString(sum[:]))
}

// Format keeps every fmt verb from printing the reference.
func (Source) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// String keeps the reference out of text.
func (Source) String() string { return redacted }

// LogValue keeps the reference out of structured logs.
func (Source) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText keeps the reference out of JSON and every other encoding that asks for text.
func (Source) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Record is what a row says of itself before it is written: where it comes from, what it was derived from, and the
// identities that it names. It is made for each row of an import, so it holds no more than the row's own strings.
type Record struct {
	Source     Source
	Parents    []Source
	Identities []string
}

// Target is what one erasure is about: a person, or sources of one tenant whose records go whoever they belong to.
type Target struct {
	Tenant  string
	Subject Subject  // zero where the erasure is about sources
	Sources []Source // none where it is about a person
	// Ref is the pseudonym that the erasure is written down under. A retry under the same one finds again what an
	// earlier attempt recorded.
	Ref Ref
	// Keep are stores that are left alone, as "cell/store", or "cell/*" for a whole cell: what they hold is retained under
	// Art. 17(3). They get no receipt. What they alone hold is not suppressed.
	Keep []string
}

// TargetOf is the erasure of a person.
func TargetOf(s Subject, salt Salt) Target {
	return Target{Tenant: s.Tenant(), Subject: s, Ref: s.Ref(salt)}
}

// TargetOfSource is the erasure of one source.
func TargetOfSource(s Source, salt Salt) Target {
	return Target{Tenant: s.Tenant(), Sources: []Source{s}, Ref: s.Ref(salt)}
}

// AboutPerson reports whether the target is a person, and not sources.
func (t Target) AboutPerson() bool { return !t.Subject.IsZero() }

// Erasure is what came of one target in one cell.
type Erasure struct {
	Receipts []Receipt
	// Sources are those that this erasure resolved and those that an earlier attempt at it did, what derives from them
	// included: a coordinator asks every other cell for them.
	Sources []Source
}
