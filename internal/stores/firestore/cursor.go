package firestore

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"

	"recount/internal/subject"
)

var errCursor = errors.New("not a cursor of this store and subject")

// cursorKey seals what a cursor points at: the name of a document, which may itself name a person. A hash of it could be
// guessed, and an offset would skip rows when others are erased.
type cursorKey struct{ aead cipher.AEAD }

func newCursorKey(secret []byte) cursorKey {
	key, err := hkdf.Key(sha256.New, secret, nil, "recount firestore cursor 1", 32)
	if err != nil {
		panic(err) // only for a length that SHA-256 can't give
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // only for a length that AES has not
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // only for a cipher of other blocks than AES's
	}
	return cursorKey{aead}
}

func (k cursorKey) seal(store string, s subject.Subject, name string) string {
	sealed := k.aead.Seal(nil, nil, []byte(name), boundTo(store, s)) //nolint:gosec // this AEAD takes no nonce, it draws its own
	return base64.RawURLEncoding.EncodeToString(sealed)
}

// open answers errCursor for whatever seal did not make for this store and subject.
func (k cursorKey) open(store string, s subject.Subject, cursor string) (name string, err error) {
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil {
		return "", errCursor
	}
	plain, err := k.aead.Open(nil, nil, sealed, boundTo(store, s))
	if err != nil {
		return "", errCursor
	}
	return string(plain), nil
}

func boundTo(store string, s subject.Subject) []byte {
	return prefixed(store, s.Tenant(), s.Identity())
}

// prefixed joins parts so that no two lists of parts give the same bytes.
func prefixed(parts ...string) (out []byte) {
	for _, p := range parts {
		out = binary.BigEndian.AppendUint64(out, uint64(len(p)))
		out = append(out, p...)
	}
	return out
}
