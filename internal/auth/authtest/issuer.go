// Package authtest stands in for Google on loopback: it signs ID tokens, serves the keys that they are checked with, and
// is the metadata server that hands them out. Services under test are pointed at it by AUTH_CERTS_URL and
// GCE_METADATA_HOST.
package authtest

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// KeyID is the name of the issuer's key.
const KeyID = "test-key-1"

// Sub is the unique id of every account in a token of Claims.
const Sub = "104392837465019283746"

// Issuer signs tokens and serves keys and metadata on one loopback address.
type Issuer struct {
	Key    *rsa.PrivateKey
	server *httptest.Server

	mu      sync.Mutex
	account string
	lives   time.Duration
	status  int

	keysAsked, tokensAsked atomic.Int64
}

// key is shared: making one takes a while under the race detector.
var key = sync.OnceValue(func() *rsa.PrivateKey {
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return k
})

// New starts an issuer whose metadata server speaks for the account of that e-mail address.
func New(account string) *Issuer {
	i := &Issuer{Key: key(), account: account, lives: time.Hour, status: http.StatusOK}
	mux := http.NewServeMux()
	mux.HandleFunc("/certs", i.certs)
	mux.HandleFunc("/computeMetadata/v1/instance/service-accounts/default/identity", i.identity)
	mux.HandleFunc("/computeMetadata/v1/project/project-id", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Metadata-Flavor", "Google")
		_, _ = w.Write([]byte("test-project"))
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Metadata-Flavor", "Google") })
	i.server = httptest.NewServer(mux)
	return i
}

// Start is New, closed at the end of the test.
func Start(t testing.TB, account string) *Issuer {
	i := New(account)
	t.Cleanup(i.Close)
	return i
}

// Close ends the issuer.
func (i *Issuer) Close() { i.server.Close() }

// CertsURL is the value of AUTH_CERTS_URL.
func (i *Issuer) CertsURL() string { return i.server.URL + "/certs" }

// MetadataHost is the value of GCE_METADATA_HOST.
func (i *Issuer) MetadataHost() string { return strings.TrimPrefix(i.server.URL, "http://") }

// Become changes the account that the metadata server speaks for, and how long its tokens live.
func (i *Issuer) Become(account string, lives time.Duration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.account, i.lives = account, lives
}

// Answer makes keys and metadata answer with that status; 200 mends them.
func (i *Issuer) Answer(status int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.status = status
}

// KeysAsked is how often the keys were fetched.
func (i *Issuer) KeysAsked() int { return int(i.keysAsked.Load()) }

// TokensAsked is how often the metadata server was asked for a token.
func (i *Issuer) TokensAsked() int { return int(i.tokensAsked.Load()) }

// Claims are those of a good token, as Google's metadata server makes them with format=full.
func Claims(account, audience string) jwt.MapClaims {
	now := time.Now()
	return jwt.MapClaims{
		"iss": "https://accounts.google.com", "aud": audience, "azp": Sub, "sub": Sub,
		"email": account, "email_verified": true, "iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
	}
}

// Sign makes a token of the claims.
func (i *Issuer) Sign(claims jwt.MapClaims) string {
	token := jwt.NewWithClaims(jwt.SigningMethodRS256, claims)
	token.Header["kid"] = KeyID
	signed, err := token.SignedString(i.Key)
	if err != nil {
		panic(err)
	}
	return signed
}

// Token is a good token of the account for the audience.
func (i *Issuer) Token(account, audience string) string { return i.Sign(Claims(account, audience)) }

func (i *Issuer) certs(w http.ResponseWriter, _ *http.Request) {
	i.keysAsked.Add(1)
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.status != http.StatusOK {
		w.WriteHeader(i.status)
		return
	}
	w.Header().Set("Cache-Control", "public, max-age=3600, must-revalidate")
	_, _ = fmt.Fprintf(w, `{"keys":[{"alg":"RS256","kty":"RSA","use":"sig","kid":%q,"n":%q,"e":%q}]}`, KeyID,
		base64.RawURLEncoding.EncodeToString(i.Key.N.Bytes()),
		base64.RawURLEncoding.EncodeToString(big.NewInt(int64(i.Key.E)).Bytes()))
}

func (i *Issuer) identity(w http.ResponseWriter, r *http.Request) {
	i.tokensAsked.Add(1)
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.status != http.StatusOK {
		w.WriteHeader(i.status)
		return
	}
	if r.Header.Get("Metadata-Flavor") != "Google" {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	claims := Claims(i.account, r.URL.Query().Get("audience"))
	claims["exp"] = time.Now().Add(i.lives).Unix()
	if r.URL.Query().Get("format") != "full" {
		delete(claims, "email")
		delete(claims, "email_verified")
	}
	w.Header().Set("Metadata-Flavor", "Google")
	_, _ = w.Write([]byte(i.Sign(claims)))
}
