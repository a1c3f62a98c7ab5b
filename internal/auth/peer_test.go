package auth_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"recount/internal/auth"
)

// TestACallToAPeerIsLetIn goes all the way: the metadata server signs, both headers go out, the peer verifies.
func TestACallToAPeerIsLetIn(t *testing.T) {
	metadata.Become(listed, time.Hour)
	a := authenticator(t, metadata)
	peer := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got, err := a.Authenticate(r)
		if err != nil || got.Actor() != listed {
			t.Errorf("%+v, %v", got, err)
		}
		if r.Header.Get("X-Serverless-Authorization") != r.Header.Get("Authorization") {
			t.Error("the headers differ")
		}
		if body, _ := io.ReadAll(r.Body); string(body) != "body" {
			t.Errorf("body %q", body)
		}
	}))
	defer peer.Close()
	before := metadata.TokensAsked()
	client := &http.Client{Transport: auth.NewPeerTransport(http.DefaultTransport, auth.GoogleTokens(audience))}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			request, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, peer.URL, strings.NewReader("body"))
			response, err := client.Do(request)
			if err != nil {
				t.Error(err)
				return
			}
			_ = response.Body.Close()
			if request.Header.Get("Authorization") != "" {
				t.Error("the caller's own request was changed")
			}
		})
	}
	wg.Wait()
	if asked := metadata.TokensAsked() - before; asked != 1 {
		t.Errorf("20 calls fetched %d tokens", asked)
	}
}

func TestATokenThatTheMetadataServerKeptIsRenewedByItsOwnExpiry(t *testing.T) {
	metadata.Become(listed, 2*time.Second) // less than what a token must still be good for
	defer metadata.Become(listed, time.Hour)
	before := metadata.TokensAsked()
	tokens := auth.GoogleTokens(audience)
	for range 2 {
		if _, err := tokens.Token(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if asked := metadata.TokensAsked() - before; asked != 2 {
		t.Errorf("2 calls fetched %d tokens", asked)
	}
}

func TestWithoutATokenThePeerIsNotCalledAndTheErrorSaysSo(t *testing.T) {
	defer metadata.Answer(http.StatusOK)
	var called atomic.Bool
	base := roundTrip(func(*http.Request) (*http.Response, error) {
		called.Store(true)
		return nil, errors.New("called")
	})
	for status, hint := range map[int]string{http.StatusNotFound: "knows no service account", http.StatusForbidden: "HTTP 403"} {
		metadata.Answer(status)
		body := &closing{Reader: strings.NewReader("x")}
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1:1", body)
		_, err := auth.NewPeerTransport(base, auth.GoogleTokens(audience)).RoundTrip(request)
		var token interface{ Unauthorised() bool }
		if !errors.As(err, &token) || !token.Unauthorised() || !strings.Contains(err.Error(), hint) {
			t.Errorf("%d: %v", status, err)
		}
		if called.Load() || !body.closed {
			t.Errorf("%d: called %v, body closed %v", status, called.Load(), body.closed)
		}
	}
	metadata.Answer(http.StatusOK)
	if _, err := auth.GoogleTokens(audience).Token(t.Context()); err != nil {
		t.Errorf("once it is mended: %v", err)
	}
}

type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

func TestACallerWhoseTimeIsUpDoesNotWaitForAToken(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	tokens := auth.GoogleTokens(audience)
	_, err := tokens.Token(ctx)
	var missing *auth.TokenError
	if err != nil && (!errors.As(err, &missing) || !errors.Is(err, context.Canceled)) {
		t.Fatal(err)
	}
	if _, err := tokens.Token(t.Context()); err != nil {
		t.Errorf("the fetch was not finished for others: %v", err)
	}
}

func TestCredentialsThatMakeNoTokenAreExplained(t *testing.T) {
	for name, test := range map[string]struct{ json, hint string }{
		"a user's":  {`{"type":"authorized_user","client_id":"x","client_secret":"s3cret","refresh_token":"s3cret"}`, "impersonate a service account"},
		"no JSON":   {`s3cret`, "no usable default credentials"},
		"a bad key": {`{"type":"service_account","client_email":"a@x.io","private_key":"s3cret","token_uri":"http://127.0.0.1:1/"}`, "no usable default credentials"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "key.json")
			if err := os.WriteFile(file, []byte(test.json), 0o600); err != nil {
				t.Fatal(err)
			}
			t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", file)
			_, err := auth.GoogleTokens(audience).Token(t.Context())
			if err == nil || !strings.Contains(err.Error(), test.hint) || strings.Contains(fmt.Sprintf("%v %+v", err, err), "s3cret") {
				t.Fatalf("%v", err)
			}
		})
	}
}

var _ http.RoundTripper = (*auth.PeerTransport)(nil)
