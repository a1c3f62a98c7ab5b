package auth_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"recount/internal/auth"
	"recount/internal/auth/authtest"
)

const (
	audience = "https://ingest.example.run.app"
	listed   = "coordinator@shop.iam.gserviceaccount.com"
	reader   = "reader@shop.iam.gserviceaccount.com"
	pinned   = "pinned@shop.iam.gserviceaccount.com"
)

// metadataHost is read once in a process.
var metadata *authtest.Issuer

func TestMain(m *testing.M) {
	metadata = authtest.New(listed)
	for name, value := range map[string]string{
		"GCE_METADATA_HOST": metadata.MetadataHost(), "GOOGLE_APPLICATION_CREDENTIALS": "", "HOME": os.TempDir(), "CLOUDSDK_CONFIG": os.TempDir(),
	} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	code := m.Run()
	metadata.Close()
	os.Exit(code)
}

func authenticator(t testing.TB, issuer *authtest.Issuer) *auth.IDToken {
	t.Helper()
	callers, err := auth.ParseCallers(listed + ", " + reader + "=read@acme|globex," + pinned + "#99=erase")
	if err != nil {
		t.Fatal(err)
	}
	a, err := auth.NewIDToken(t.Context(), auth.IDTokenConfig{
		Audience: audience, Callers: callers, CertsURL: issuer.CertsURL(), ListenAddr: "127.0.0.1:8080",
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func request(headers ...string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "http://x/v1/intent/subject:delete", nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

func bearer(token string) *http.Request { return request("Authorization", "Bearer "+token) }

// with is a good token's claims with changes; a nil value takes a claim away.
func with(changes map[string]any) jwt.MapClaims {
	claims := authtest.Claims(listed, audience)
	maps.Copy(claims, changes)
	maps.DeleteFunc(claims, func(_ string, v any) bool { return v == nil })
	return claims
}

// raw signs any header and payload.
func raw(t testing.TB, method jwt.SigningMethod, key any, header, payload string) string {
	t.Helper()
	b64 := base64.RawURLEncoding
	text := b64.EncodeToString([]byte(header)) + "." + b64.EncodeToString([]byte(payload))
	signature, err := method.Sign(text, key)
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + b64.EncodeToString(signature)
}

func text(t testing.TB, claims jwt.MapClaims) string {
	t.Helper()
	out, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestAGoodTokenOfAListedCallerIsLetIn(t *testing.T) {
	issuer := authtest.Start(t, listed)
	a := authenticator(t, issuer)
	for name, r := range map[string]*http.Request{
		"as Google writes it":        bearer(issuer.Token(listed, audience)),
		"the issuer without scheme":  bearer(issuer.Sign(with(map[string]any{"iss": "accounts.google.com"}))),
		"the address in capitals":    bearer(issuer.Token(strings.ToUpper(listed), audience)),
		"the scheme in lower case":   request("Authorization", "bearer "+issuer.Token(listed, audience)),
		"a clock half a minute fast": bearer(issuer.Sign(with(map[string]any{"iat": time.Now().Add(30 * time.Second).Unix()}))),
		"beside one for the platform": request("Authorization", "Bearer "+issuer.Token(listed, audience),
			"X-Serverless-Authorization", "Bearer a.b.SIGNATURE_REMOVED_BY_GOOGLE"),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := a.Authenticate(r)
			if err != nil {
				t.Fatal(err)
			}
			if got.Actor() != listed || got.Sub != authtest.Sub || !got.May(auth.Read|auth.Write|auth.Erase, "any") || got.Has(auth.Allow) {
				t.Fatalf("%+v", got)
			}
		})
	}
	if issuer.KeysAsked() != 1 {
		t.Errorf("the keys were fetched %d times", issuer.KeysAsked())
	}
}

// TestForgedTokensAreRefused is the matrix of what must not get in.
func TestForgedTokensAreRefused(t *testing.T) {
	issuer := authtest.Start(t, listed)
	a := authenticator(t, issuer)
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	good, claims := issuer.Token(listed, audience), text(t, with(nil))
	parts := strings.Split(good, ".")
	const header = `{"alg":"RS256","kid":"test-key-1","typ":"JWT"}`
	rs := func(header, payload string) string {
		return raw(t, jwt.SigningMethodRS256, issuer.Key, header, payload)
	}
	public := issuer.Key.N.Bytes()
	short := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"ES256","kid":"test-key-1"}`)) + "." + parts[1] + ".AAAA"
	confused := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"RS256","ALG":"ES256","kid":"test-key-1"}`)) + "." + parts[1] + ".AAAA"
	for name, token := range map[string]string{
		"alg none":                       raw(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, `{"alg":"none","kid":"test-key-1"}`, claims),
		"alg HS256, the public key":      raw(t, jwt.SigningMethodHS256, public, `{"alg":"HS256","kid":"test-key-1"}`, claims),
		"alg ES256, well signed":         raw(t, jwt.SigningMethodES256, curve, `{"alg":"ES256","kid":"test-key-1"}`, claims),
		"alg ES256, a short signature":   short,
		"alg RS256 and ALG ES256":        confused,
		"alg RS512":                      raw(t, jwt.SigningMethodRS512, issuer.Key, `{"alg":"RS512","kid":"test-key-1"}`, claims),
		"alg PS256":                      raw(t, jwt.SigningMethodPS256, issuer.Key, `{"alg":"PS256","kid":"test-key-1"}`, claims),
		"alg in another case":            rs(`{"alg":"rs256","kid":"test-key-1"}`, claims),
		"alg twice":                      rs(`{"alg":"RS256","alg":"RS256","kid":"test-key-1"}`, claims),
		"no alg":                         rs(`{"kid":"test-key-1"}`, claims),
		"a critical extension":           rs(`{"alg":"RS256","kid":"test-key-1","crit":["x"]}`, claims),
		"an unknown kid":                 rs(`{"alg":"RS256","kid":"other"}`, claims),
		"no kid":                         rs(`{"alg":"RS256"}`, claims),
		"a kid with the Kelvin sign":     rs(`{"alg":"RS256","kid":"test-key-1","\u212Aid":"x"}`, claims),
		"header null":                    rs(`null`, claims),
		"header is a list":               rs(`[]`, claims),
		"signed with another key":        raw(t, jwt.SigningMethodRS256, other, header, claims),
		"another payload, its signature": parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(text(t, with(map[string]any{"email": reader})))) + "." + parts[2],
		"no signature":                   parts[0] + "." + parts[1] + ".",
		"the signature taken off":        parts[0] + "." + parts[1] + ".SIGNATURE_REMOVED_BY_GOOGLE",
		"a signature with loose bits":    good[:len(good)-1] + "_",
		"two parts":                      parts[0] + "." + parts[1],
		"four parts":                     good + ".x",
		"a line end within":              parts[0] + "." + parts[1] + "\n." + parts[2],
		"not base64":                     "!." + parts[1] + "." + parts[2],
		"nothing":                        "",
		"a space behind":                 good + " ",
		"too long":                       good + strings.Repeat("A", 17<<10),
		"payload null":                   rs(header, `null`),
		"payload cut":                    rs(header, claims[:len(claims)-1]),
		"two payloads":                   rs(header, claims+claims),
		"aud and AUD":                    rs(header, strings.Replace(text(t, with(map[string]any{"aud": "x"})), "{", `{"AUD":"`+audience+`",`, 1)),
		"aud twice":                      rs(header, strings.Replace(claims, "{", `{"aud":"`+audience+`",`, 1)),
		"expired":                        issuer.Sign(with(map[string]any{"iat": time.Now().Unix() - 7200, "exp": time.Now().Unix() - 2})),
		"no expiry":                      issuer.Sign(with(map[string]any{"exp": nil})),
		"expires before it begins":       issuer.Sign(with(map[string]any{"iat": time.Now().Unix() + 30, "exp": time.Now().Unix() + 20})),
		"lives for years":                issuer.Sign(with(map[string]any{"exp": time.Now().Unix() + 1e8})),
		"expiry is a string":             issuer.Sign(with(map[string]any{"exp": "9999999999"})),
		"issued in the future":           issuer.Sign(with(map[string]any{"iat": time.Now().Unix() + 300})),
		"never issued":                   issuer.Sign(with(map[string]any{"iat": nil})),
		"not valid yet":                  issuer.Sign(with(map[string]any{"nbf": time.Now().Unix() + 300})),
		"another issuer":                 issuer.Sign(with(map[string]any{"iss": "https://accounts.google.com.evil.example"})),
		"no issuer":                      issuer.Sign(with(map[string]any{"iss": nil})),
		"another cell's audience":        issuer.Token(listed, "https://graph.example.run.app"),
		"the audience and a slash":       issuer.Token(listed, audience+"/"),
		"an empty audience":              issuer.Token(listed, ""),
		"no audience":                    issuer.Sign(with(map[string]any{"aud": nil})),
		"many audiences":                 issuer.Sign(with(map[string]any{"aud": []string{audience, "https://graph.example.run.app"}})),
		"one audience in a list":         issuer.Sign(with(map[string]any{"aud": []string{audience}})),
		"an unverified address":          issuer.Sign(with(map[string]any{"email_verified": false})),
		"verified is a string":           issuer.Sign(with(map[string]any{"email_verified": "true"})),
		"verified is 1":                  issuer.Sign(with(map[string]any{"email_verified": 1})),
		"verified is missing":            issuer.Sign(with(map[string]any{"email_verified": nil})),
		"no address":                     issuer.Sign(with(map[string]any{"email": nil})),
		"the address is a list":          issuer.Sign(with(map[string]any{"email": []string{listed}})),
		"no sub":                         issuer.Sign(with(map[string]any{"sub": nil})),
	} {
		t.Run(name, func(t *testing.T) { refused(t, a, bearer(token), auth.ErrUnauthenticated) })
	}
}

func TestKnownAccountsThatAreNotAllowedAreForbidden(t *testing.T) {
	issuer := authtest.Start(t, listed)
	a := authenticator(t, issuer)
	for name, token := range map[string]string{
		"an unknown account":                issuer.Token("someone@shop.iam.gserviceaccount.com", audience),
		"an address that begins alike":      issuer.Token(listed+".evil.example", audience),
		"an address that Unicode folds":     issuer.Token(strings.Replace(listed, "s", "\u017f", 1), audience),
		"the account made anew, other sub":  issuer.Token(pinned, audience),
		"the pinned account with empty sub": issuer.Sign(with(map[string]any{"email": pinned, "sub": "9"})),
	} {
		t.Run(name, func(t *testing.T) { refused(t, a, bearer(token), auth.ErrForbidden) })
	}
	got, err := a.Authenticate(bearer(issuer.Sign(with(map[string]any{"email": pinned, "sub": "99"}))))
	if err != nil || !got.May(auth.Erase, "acme") || got.Has(auth.Read) {
		t.Errorf("the pinned account: %+v, %v", got, err)
	}
	got, err = a.Authenticate(bearer(issuer.Token(reader, audience)))
	if err != nil || !got.May(auth.Read, "globex") || got.May(auth.Read, "initech") || got.May(auth.Read, "") || got.May(auth.Erase, "acme") {
		t.Errorf("the reader: %+v, %v", got, err)
	}
}

func TestOnlyOneAuthorizationHeaderIsRead(t *testing.T) {
	issuer := authtest.Start(t, listed)
	a := authenticator(t, issuer)
	good := issuer.Token(listed, audience)
	for name, r := range map[string]*http.Request{
		"none":                        request(),
		"only the platform's":         request("X-Serverless-Authorization", "Bearer "+good),
		"two":                         request("Authorization", "Bearer "+good, "Authorization", "Bearer "+good),
		"Basic":                       request("Authorization", "Basic "+good),
		"the token alone":             request("Authorization", good),
		"two tokens":                  request("Authorization", "Bearer "+good+", Bearer "+good),
		"bad, the platform's is good": request("Authorization", "Bearer x", "X-Serverless-Authorization", "Bearer "+good),
	} {
		t.Run(name, func(t *testing.T) { refused(t, a, r, auth.ErrUnauthenticated) })
	}
}

// refused checks the kind of a refusal, and that it tells nothing of the token.
func refused(t *testing.T, a *auth.IDToken, r *http.Request, kind error) {
	t.Helper()
	got, err := a.Authenticate(r)
	if !errors.Is(err, kind) {
		t.Fatalf("got %v, want %v", err, kind)
	}
	if got.Has(auth.Read) || got.Actor() != "" {
		t.Errorf("a caller came with the refusal: %+v", got)
	}
	for _, secret := range append(strings.Split(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), "."), listed, reader, pinned) {
		if len(secret) > 4 && secret != "SIGNATURE_REMOVED_BY_GOOGLE" && strings.Contains(err.Error(), secret) {
			t.Errorf("the error tells %q: %v", secret, err)
		}
	}
}

func TestKeysThatCanNotBeHadAreNoVerdict(t *testing.T) {
	issuer := authtest.Start(t, listed)
	a := authenticator(t, issuer)
	good := issuer.Token(listed, audience)
	for _, status := range []int{http.StatusInternalServerError, http.StatusFound, http.StatusNotFound} {
		issuer.Answer(status)
		refused(t, a, bearer(good), auth.ErrUnavailable)
	}
	issuer.Answer(http.StatusOK)
	if _, err := a.Authenticate(bearer(good)); err != nil {
		t.Errorf("once the keys are there: %v", err)
	}
	issuer.Close()
	if _, err := a.Authenticate(bearer(good)); err != nil {
		t.Errorf("with the keys it knows: %v", err)
	}
	refused(t, authenticator(t, issuer), bearer(good), auth.ErrUnavailable)
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestAPanicOfTheValidatorIsNoGoodToken(t *testing.T) {
	issuer := authtest.Start(t, listed)
	callers, _ := auth.ParseCallers(listed)
	a, err := auth.NewIDToken(t.Context(), auth.IDTokenConfig{Audience: audience, Callers: callers, Client: &http.Client{
		Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.URL.String() != "https://www.googleapis.com/oauth2/v3/certs" {
				t.Errorf("asked for %s", r.URL)
			}
			panic("in the middle")
		}),
	}})
	if err != nil {
		t.Fatal(err)
	}
	refused(t, a, bearer(issuer.Token(listed, audience)), auth.ErrUnauthenticated)
}

func TestFaultsOfTheConfigurationStopTheStart(t *testing.T) {
	callers, err := auth.ParseCallers(listed)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		config auth.IDTokenConfig
		says   []string
	}{
		"an empty audience":   {auth.IDTokenConfig{Callers: callers}, []string{"AUTH_AUDIENCE"}},
		"nobody is allowed":   {auth.IDTokenConfig{Audience: audience}, []string{"ALLOWED_CALLER_SA"}},
		"all faults at once":  {auth.IDTokenConfig{CertsURL: "https://keys.example"}, []string{"AUTH_AUDIENCE", "ALLOWED_CALLER_SA", "AUTH_CERTS_URL"}},
		"keys from elsewhere": {auth.IDTokenConfig{Audience: audience, Callers: callers, CertsURL: "http://10.0.0.1/certs", ListenAddr: "127.0.0.1:1"}, []string{"AUTH_CERTS_URL"}},
		"keys from a name":    {auth.IDTokenConfig{Audience: audience, Callers: callers, CertsURL: "http://localhost/certs", ListenAddr: "127.0.0.1:1"}, []string{"AUTH_CERTS_URL"}},
		"keys from a trick":   {auth.IDTokenConfig{Audience: audience, Callers: callers, CertsURL: "http://127.0.0.1@evil.example/certs", ListenAddr: "127.0.0.1:1"}, []string{"AUTH_CERTS_URL"}},
		"keys by TLS":         {auth.IDTokenConfig{Audience: audience, Callers: callers, CertsURL: "https://127.0.0.1/certs", ListenAddr: "127.0.0.1:1"}, []string{"AUTH_CERTS_URL"}},
		"test keys in public": {auth.IDTokenConfig{Audience: audience, Callers: callers, CertsURL: "http://127.0.0.1/certs", ListenAddr: ":8080"}, []string{"AUTH_CERTS_URL", "8080"}},
		"no listen address":   {auth.IDTokenConfig{Audience: audience, Callers: callers, CertsURL: "http://127.0.0.1/certs"}, []string{"AUTH_CERTS_URL"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := auth.NewIDToken(t.Context(), test.config)
			if err == nil {
				t.Fatal("it starts")
			}
			for _, word := range test.says {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q is not in: %v", word, err)
				}
			}
		})
	}
}

func FuzzAuthenticate(f *testing.F) {
	issuer := authtest.New(listed)
	f.Cleanup(issuer.Close)
	a := authenticator(f, issuer)
	f.Add("Bearer " + issuer.Sign(with(map[string]any{"exp": 1})))
	f.Add("Bearer a.b.SIGNATURE_REMOVED_BY_GOOGLE")
	f.Add("Bearer eyJhbGciOiJFUzI1NiIsImtpZCI6InRlc3Qta2V5LTEifQ.e30.AAAA")
	f.Fuzz(func(t *testing.T, header string) {
		r := request()
		r.Header["Authorization"] = []string{header}
		if _, err := a.Authenticate(r); !errors.Is(err, auth.ErrUnauthenticated) {
			t.Fatalf("%q: %v", header, err)
		}
	})
}

func BenchmarkAuthenticate(b *testing.B) {
	issuer := authtest.Start(b, listed)
	a := authenticator(b, issuer)
	r := bearer(issuer.Token(listed, audience))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := a.Authenticate(r); err != nil {
			b.Fatal(err)
		}
	}
}
