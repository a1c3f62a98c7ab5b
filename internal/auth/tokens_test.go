package auth

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// unsigned is a token that ends at that time.
func unsigned(expires time.Time) string {
	b64 := base64.RawURLEncoding.EncodeToString
	return b64([]byte(`{"alg":"RS256"}`)) + "." + b64(fmt.Appendf(nil, `{"exp":%d}`, expires.Unix())) + "."
}

func TestATokenIsRenewedBeforeItExpiresWithoutAnyoneWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fetches := 0
		tokens := &Tokens{now: time.Now, fetch: func() (string, error) {
			fetches++
			time.Sleep(time.Second)
			return unsigned(time.Now().Add(time.Hour)), nil
		}}
		want := func(n int, waits time.Duration) string {
			t.Helper()
			start := time.Now()
			token, err := tokens.Token(t.Context())
			if err != nil || time.Since(start) != waits {
				t.Fatalf("waited %v, want %v: %v", time.Since(start), waits, err)
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if fetches != n {
				t.Fatalf("%d fetches, want %d", fetches, n)
			}
			return token
		}
		first := want(1, time.Second)
		time.Sleep(54 * time.Minute)
		if want(1, 0) != first {
			t.Error("another token in the middle of its life")
		}
		time.Sleep(2 * time.Minute)
		if want(2, 0) != first {
			t.Error("somebody waited for the renewal")
		}
		second := want(2, 0)
		if second == first {
			t.Error("the renewed token is not used")
		}
		time.Sleep(3 * time.Hour)
		if want(3, time.Second) == second {
			t.Error("a token that has expired is used")
		}
	})
}

func TestWhileTheRenewalFailsTheOldTokenServesToItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken, fetches := false, 0
		tokens := &Tokens{now: time.Now, fetch: func() (string, error) {
			fetches++
			if broken {
				return "", errors.New("row of s3cret")
			}
			return unsigned(time.Now().Add(time.Hour)), nil
		}}
		first, err := tokens.Token(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		broken = true
		time.Sleep(56 * time.Minute)
		for range 100 {
			if token, err := tokens.Token(t.Context()); err != nil || token != first {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if fetches != 2 {
			t.Errorf("%d fetches in one instant, want one for the start and one for the renewal", fetches)
		}
		time.Sleep(4 * time.Minute)
		if _, err := tokens.Token(t.Context()); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Fatalf("after its end: %v", err)
		}
		broken = false
		if _, err := tokens.Token(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestAFetchThatHangsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		tokens := &Tokens{now: time.Now, fetch: func() (string, error) {
			<-hang
			return unsigned(time.Now().Add(time.Hour)), nil
		}}
		start := time.Now()
		if _, err := tokens.Token(t.Context()); err == nil || time.Since(start) != fetchTimeout {
			t.Fatalf("%v after %v", err, time.Since(start))
		}
		close(hang)
		if _, err := tokens.Token(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestWhatIsNoGoodTokenIsNotSent(t *testing.T) {
	for _, bad := range []string{"", "<html>", "a.b.c", unsigned(time.Now().Add(-time.Second)), "e30.e30."} {
		tokens := &Tokens{now: time.Now, fetch: func() (string, error) { return bad, nil }}
		if got, err := tokens.Token(t.Context()); err == nil || got != "" {
			t.Errorf("%q is sent", bad)
		} else if bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("the error tells it: %v", err)
		}
	}
}
