// Package suppression keeps what was erased from coming back: the keys under which a ledger remembers sources, the
// contract of the ledgers, the guard that every write asks, and the capture that records what an erasure resolves.
//
// A ledger holds no content, no hash of content and no identity. It is keyed by (tenant, source, source_ref), which at
// rest is a keyed hash; the pair itself is sealed and opened only for the list and for a cascade.
package suppression

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"log/slog"
	"strings"
	"sync"

	"recount/internal/subject"
)

const (
	minSecretBytes = 16
	maxSecrets     = 8
	redacted       = "[redacted]"
)

// MAC is a source as a ledger knows it: the first half of the HMAC-SHA256 of the length-prefixed pair under the tenant's
// secret. 128 bits of it are as hard to hit by chance, and half as much to keep in an index.
type MAC [sha256.Size / 2]byte

// Keys are the deployment's suppression secrets, the current one first. Entries are made under the current one and found
// under all of them, so that a rotation forgets nothing. It is safe for concurrent use and prints as "[redacted]".
type Keys struct{ secrets []*secret }

// secret is one configured secret with what is derived from it.
type secret struct {
	id      string
	value   []byte
	mu      sync.RWMutex
	tenants map[string]*tenantKeys
}

// tenantKeys are the keys of one tenant under one secret: no tenant's entry is ever found with another's.
type tenantKeys struct {
	macs    sync.Pool // of *macState
	erasure []byte
	seal    cipher.AEAD
}

// ParseKeys reads SUPPRESSION_KEY: one secret of 16 bytes or more, or several with commas between them, the current one
// first. The error never quotes one.
func ParseKeys(text string) (*Keys, error) {
	k := &Keys{}
	seen := map[string]bool{}
	for i, value := range strings.Split(text, ",") {
		value = strings.TrimSpace(value)
		if len(value) < minSecretBytes {
			return nil, fmt.Errorf("secret %d has %d bytes and needs at least %d", i+1, len(value), minSecretBytes)
		}
		s := &secret{value: []byte(value), tenants: map[string]*tenantKeys{}}
		s.id = hex.EncodeToString(s.derive("recount suppression key id 1", 4))
		if seen[s.id] {
			return nil, fmt.Errorf("secret %d is there twice", i+1)
		}
		seen[s.id] = true
		k.secrets = append(k.secrets, s)
	}
	if len(k.secrets) > maxSecrets {
		return nil, fmt.Errorf("%d secrets: keep at most %d", len(k.secrets), maxSecrets)
	}
	return k, nil
}

// Current is the id of the key that new entries are made under. An id is derived from its secret, and tells nothing of it.
func (k *Keys) Current() string { return k.secrets[0].id }

// IDs are the ids of all the keys, the current one first.
func (k *Keys) IDs() []string {
	ids := make([]string, len(k.secrets))
	for i, s := range k.secrets {
		ids[i] = s.id
	}
	return ids
}

// CheckIDs reports ErrKeyMissing unless the secret of every id is configured: with one missing, an entry could not be
// found, and what was erased would come back.
func (k *Keys) CheckIDs(ids []string) error {
	for _, id := range ids {
		if k.secret(id) == nil {
			return fmt.Errorf("%w: key %s", ErrKeyMissing, id)
		}
	}
	return nil
}

// ErrKeyMissing says that a ledger has entries under a secret that is not configured.
var ErrKeyMissing = errors.New("the suppression ledger has entries under a secret that SUPPRESSION_KEY does not hold: add it behind the current one")

func (k *Keys) secret(id string) *secret {
	for _, s := range k.secrets {
		if s.id == id {
			return s
		}
	}
	return nil
}

// MAC is the source's key under the current secret.
func (k *Keys) MAC(s subject.Source) MAC { return k.secrets[0].tenant(s.Tenant()).mac(s) }

// AppendMACs appends the source's key under every secret: it is suppressed if any of them is in the ledger.
func (k *Keys) AppendMACs(to []MAC, s subject.Source) []MAC {
	for _, secret := range k.secrets {
		to = append(to, secret.tenant(s.Tenant()).mac(s))
	}
	return to
}

// Width is how many keys AppendMACs appends.
func (k *Keys) Width() int { return len(k.secrets) }

// Erasure is what ties the entries of one erasure together, under every secret, the current one first: a keyed hash of
// the pseudonym that it was written down under.
func (k *Keys) Erasure(tenant string, ref subject.Ref) [][]byte {
	tags := make([][]byte, len(k.secrets))
	for i, s := range k.secrets {
		tags[i] = s.tenant(tenant).tag("erasure", string(ref))
	}
	return tags
}

// Fence is what a fence on an identity is known by, under every secret, the current one first.
func (k *Keys) Fence(tenant, identity string) [][]byte {
	tags := make([][]byte, len(k.secrets))
	for i, secret := range k.secrets {
		tags[i] = secret.tenant(tenant).tag("fence", identity)
	}
	return tags
}

// Seal encrypts the pair and the reason under the tenant's current key, bound to the entry's MAC.
func (k *Keys) Seal(s subject.Source, reason string, mac MAC) []byte {
	plain := make([]byte, 0, 16+len(s.Origin())+len(s.Reference())+len(reason))
	plain = appendText(appendText(appendText(plain, s.Origin()), s.Reference()), reason)
	return k.secrets[0].tenant(s.Tenant()).seal.Seal(nil, nil, plain, mac[:]) //nolint:gosec // this AEAD takes no nonce, it draws its own
}

// ErrSealed says that a sealed entry can't be opened: it was damaged, or belongs to another entry.
var ErrSealed = errors.New("a sealed entry of the suppression ledger can not be opened")

// Open is the pair and the reason of an entry. Errors: ErrKeyMissing, ErrSealed.
func (k *Keys) Open(tenant, keyID string, mac MAC, sealed []byte) (s subject.Source, reason string, err error) {
	secret := k.secret(keyID)
	if secret == nil {
		return s, "", ErrKeyMissing
	}
	plain, err := secret.tenant(tenant).seal.Open(nil, nil, sealed, mac[:])
	if err != nil {
		return s, "", ErrSealed
	}
	source, rest, ok1 := cutText(plain)
	ref, rest, ok2 := cutText(rest)
	reason, rest, ok3 := cutText(rest)
	if !ok1 || !ok2 || !ok3 || len(rest) > 0 {
		return s, "", ErrSealed
	}
	if s, err = subject.NewSource(tenant, source, ref); err != nil {
		return s, "", ErrSealed
	}
	return s, reason, nil
}

func appendText(to []byte, text string) []byte {
	return append(binary.AppendUvarint(to, uint64(len(text))), text...)
}

func cutText(data []byte) (text string, rest []byte, ok bool) {
	n, width := binary.Uvarint(data)
	if width <= 0 {
		return "", nil, false
	}
	if data = data[width:]; n > uint64(len(data)) {
		return "", nil, false
	}
	return string(data[:n]), data[n:], true
}

func (s *secret) derive(label string, size int) []byte {
	key, err := hkdf.Key(sha256.New, s.value, nil, label, size)
	if err != nil {
		panic(err) // only for a size that is out of all bounds
	}
	return key
}

// tenant derives the tenant's keys once.
func (s *secret) tenant(tenant string) *tenantKeys {
	s.mu.RLock()
	t := s.tenants[tenant]
	s.mu.RUnlock()
	if t != nil {
		return t
	}
	key := s.derive("recount suppression source 1|"+tenant, sha256.Size)
	block, err := aes.NewCipher(s.derive("recount suppression seal 1|"+tenant, 32))
	if err != nil {
		panic(err) // 32 bytes are an AES key
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // AES has blocks of 16 bytes
	}
	t = &tenantKeys{seal: aead, erasure: s.derive("recount suppression erasure 1|"+tenant, sha256.Size)}
	t.macs.New = func() any { return &macState{hash: hmac.New(sha256.New, key)} }
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.tenants[tenant]; known != nil {
		return known
	}
	s.tenants[tenant] = t
	return t
}

// macState is a keyed hash and room for what goes in and out: every row of an import needs one.
type macState struct {
	hash hash.Hash
	buf  []byte
}

func (t *tenantKeys) mac(s subject.Source) (out MAC) {
	m := t.macs.Get().(*macState) // New makes nothing else
	m.hash.Reset()
	m.buf = appendText(appendText(m.buf[:0], s.Origin()), s.Reference())
	_, _ = m.hash.Write(m.buf)
	m.buf = m.hash.Sum(m.buf[:0])
	copy(out[:], m.buf)
	t.macs.Put(m)
	return out
}

func (t *tenantKeys) tag(kind, value string) []byte {
	h := hmac.New(sha256.New, t.erasure)
	_, _ = h.Write(appendText(appendText(nil, kind), value))
	return h.Sum(nil)[:16]
}

// Format keeps every fmt verb from printing the secrets.
func (*Keys) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// LogValue keeps the secrets out of structured logs.
func (*Keys) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText keeps the secrets out of JSON.
func (*Keys) MarshalText() ([]byte, error) { return []byte(redacted), nil }
