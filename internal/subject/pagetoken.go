package subject

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"strings"
)

// ErrPageToken says that a page token was not made for this cell, subject and caller.
var ErrPageToken = errors.New("page_token was not made for this cell, tenant, subject and caller: start again without one")

// PageKey makes page tokens and recognises its own. Instances of a cell share it, so any of them serves the next page.
type PageKey struct{ key []byte }

// NewPageKey derives the key from the deployment's salt.
func NewPageKey(salt Salt) PageKey {
	mac := hmac.New(sha256.New, salt.Bytes())
	mac.Write([]byte("recount page token 1"))
	return PageKey{key: mac.Sum(nil)}
}

// seal makes the token of a store's cursor: a MAC over all that it is bound to, the store's name, and the cursor. It is
// URL-safe.
func (k PageKey) seal(cell, store, cursor, caller string, s Subject) string {
	payload := store + "\x00" + cursor
	return base64.RawURLEncoding.EncodeToString(append(k.mac(cell, caller, s, payload), payload...))
}

func (k PageKey) open(token, cell, caller string, s Subject) (store, cursor string, err error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(raw) < sha256.Size {
		return "", "", ErrPageToken
	}
	mac, payload := raw[:sha256.Size], string(raw[sha256.Size:])
	if !hmac.Equal(mac, k.mac(cell, caller, s, payload)) {
		return "", "", ErrPageToken
	}
	store, cursor, found := strings.Cut(payload, "\x00")
	if !found {
		return "", "", ErrPageToken
	}
	return store, cursor, nil
}

func (k PageKey) mac(cell, caller string, s Subject, payload string) []byte {
	mac := hmac.New(sha256.New, k.key)
	for _, part := range []string{cell, caller, s.Tenant(), s.Identity(), payload} {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(part)))
		mac.Write(size[:])
		mac.Write([]byte(part))
	}
	return mac.Sum(nil)
}
