package notify

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"
)

// The example of the Standard Webhooks libraries.
const (
	vectorSecret    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	vectorID        = "msg_p5jXN8AQM9LWM0D4loKWxJek"
	vectorTime      = 1614265330
	vectorBody      = `{"test": 2432232314}`
	vectorSignature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
)

func secrets(t *testing.T, text string) WebhookSecrets {
	t.Helper()
	s, err := ParseWebhookSecrets(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func otherSecret() string {
	return "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 64))
}

func TestASignatureIsTheOneOfTheStandard(t *testing.T) {
	key, _ := base64.StdEncoding.DecodeString("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	mac := hmac.New(sha256.New, key)
	_, _ = fmt.Fprintf(mac, "%s.%d.%s", vectorID, vectorTime, vectorBody)
	if computed := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); computed != vectorSignature {
		t.Fatalf("the vector itself: %s", computed)
	}
	secret, err := ParseWebhookSecret(vectorSecret)
	if err != nil {
		t.Fatal(err)
	}
	header := secret.Sign(vectorID, time.Unix(vectorTime, 999), []byte(vectorBody))
	if header.Get("webhook-id") != vectorID || header.Get("webhook-timestamp") != "1614265330" || header.Get("webhook-signature") != vectorSignature || len(header) != 3 {
		t.Errorf("%v", header)
	}
	if err := secret.Verify(header, []byte(vectorBody), time.Unix(vectorTime, 0), 0); err != nil {
		t.Error(err)
	}
}

func TestSecretsOverlapWhileOneReplacesAnother(t *testing.T) {
	at, body := time.Unix(vectorTime, 0), []byte(vectorBody)
	both := secrets(t, otherSecret()+" , "+vectorSecret)
	header := both.Sign(vectorID, at, body)
	if list := strings.Split(header.Get("webhook-signature"), " "); len(list) != 2 || list[1] != vectorSignature {
		t.Errorf("%q", list)
	}
	for _, one := range both {
		if err := one.Verify(header, body, at, time.Minute); err != nil {
			t.Error(err)
		}
		if err := both.Verify(one.Sign(vectorID, at, body), body, at, time.Minute); err != nil {
			t.Error(err)
		}
	}
	if err := both[0].Verify(both[1].Sign(vectorID, at, body), body, at, time.Minute); !errors.Is(err, ErrUnverified) {
		t.Errorf("another's signature: %v", err)
	}
}

func TestWhatWasNotSignedIsNotVerified(t *testing.T) {
	at, body := time.Unix(vectorTime, 0), []byte(vectorBody)
	s := secrets(t, vectorSecret)
	for name, change := range map[string]func(http.Header){
		"another id":         func(h http.Header) { h.Set("webhook-id", "msg_2") },
		"an id with a dot":   func(h http.Header) { maps.Copy(h, s.Sign("a.b", at, body)) },
		"no id":              func(h http.Header) { h.Del("webhook-id") },
		"two ids":            func(h http.Header) { h.Add("webhook-id", vectorID) },
		"another time":       func(h http.Header) { h.Set("webhook-timestamp", "1614265331") },
		"too old":            func(h http.Header) { maps.Copy(h, s.Sign(vectorID, at.Add(-61*time.Second), body)) },
		"too new":            func(h http.Header) { maps.Copy(h, s.Sign(vectorID, at.Add(61*time.Second), body)) },
		"a time in words":    func(h http.Header) { h.Set("webhook-timestamp", "now") },
		"a negative time":    func(h http.Header) { h.Set("webhook-timestamp", "-1") },
		"a time past all":    func(h http.Header) { h.Set("webhook-timestamp", "9223372036854775807") },
		"no signature":       func(h http.Header) { h.Del("webhook-signature") },
		"an empty one":       func(h http.Header) { h.Set("webhook-signature", "v1,") },
		"another scheme":     func(h http.Header) { h.Set("webhook-signature", "v1a"+vectorSignature[2:]) },
		"cut":                func(h http.Header) { h.Set("webhook-signature", vectorSignature[:len(vectorSignature)-4]) },
		"behind many":        func(h http.Header) { h.Set("webhook-signature", strings.Repeat("v1,AA== ", 16)+vectorSignature) },
		"no key's, which is": func(h http.Header) { h.Set("webhook-signature", unkeyed()) },
	} {
		header := s.Sign(vectorID, at, body)
		change(header)
		for _, those := range []WebhookSecrets{s, {WebhookSecret{}}, nil} {
			if err := those.Verify(header, body, at, time.Minute); !errors.Is(err, ErrUnverified) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if err := s.Verify(s.Sign(vectorID, at, body), []byte(vectorBody+" "), at, time.Minute); !errors.Is(err, ErrUnverified) {
		t.Errorf("another body: %v", err)
	}
	if header := (WebhookSecret{}).Sign(vectorID, at, body); header.Get("webhook-signature") != "" {
		t.Errorf("the zero secret signs: %v", header)
	}
	header := s.Sign(vectorID, at, body)
	header.Set("webhook-signature", "v2,x v1,!! "+vectorSignature)
	if err := s.Verify(header, body, at.Add(time.Minute), time.Minute); err != nil {
		t.Errorf("among others: %v", err)
	}
}

// unkeyed is what anyone can compute.
func unkeyed() string {
	mac := hmac.New(sha256.New, nil)
	_, _ = fmt.Fprintf(mac, "%s.%d.%s", vectorID, vectorTime, vectorBody)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

func TestABadSecretIsNamedAndNotQuoted(t *testing.T) {
	for _, text := range []string{
		"hunter2", "whsec_", "whsec_hunter2!", "WHSEC_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_hunter2aaaa", "whsec_hunter2" + strings.Repeat("a", 25) + "==",
		"whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 23)), "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 65)),
		"whsec_" + base64.RawStdEncoding.EncodeToString(make([]byte, 25)),
	} {
		got, err := ParseWebhookSecrets(vectorSecret + "," + text + ",")
		if err == nil || got != nil || !strings.Contains(err.Error(), "secret 2 of") || !strings.Contains(err.Error(), "secret 3 of") {
			t.Errorf("%q: %v", text, err)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error quotes: %v", err)
		}
	}
	if got, err := ParseWebhookSecrets(" "); got != nil || err != nil {
		t.Errorf("%v, %v", got, err)
	}
}

func TestASecretNeverPrints(t *testing.T) {
	secret := secrets(t, "whsec_"+base64.StdEncoding.EncodeToString([]byte("hunter2 hunter2 hunter2 hunter2")))[0]
	type holder struct {
		Secret WebhookSecret
		Hidden map[string]WebhookSecrets
		inner  WebhookSecrets
	}
	held := holder{Secret: secret, Hidden: map[string]WebhookSecrets{"x": {secret}}, inner: WebhookSecrets{secret}}
	var out strings.Builder
	for _, verb := range "vsdxXqbcoOUeEfFgGtTpw" {
		for _, flags := range []string{"", "+", "#", " ", "0", "-50", "+#"} {
			format := "%" + flags + string(verb)
			for _, value := range []any{secret, &secret, held, &held, WebhookSecrets{secret}} {
				_, _ = fmt.Fprintf(&out, format+"\n", value)
			}
			if got := fmt.Sprintf(format, secret); got != redacted && !strings.ContainsRune("Tpw", verb) {
				t.Errorf("%s prints %q", format, got)
			}
		}
	}
	text, err := json.Marshal(held)
	if err != nil || !strings.Contains(string(text), redacted) {
		t.Errorf("%s, %v", text, err)
	}
	logger := slog.New(slog.NewTextHandler(&out, nil))
	logger.Info("x", "secret", secret, "held", held, "list", held.inner)
	_, _ = fmt.Fprintln(&out, string(text), held.inner)
	plain := "hunter2"
	for _, leak := range []string{plain, hex.EncodeToString([]byte(plain)), strings.ToUpper(hex.EncodeToString([]byte(plain))), "68 75 6e", "104 117 110", "aHVudGVyM"} {
		if strings.Contains(out.String(), leak) {
			t.Errorf("%q is printed", leak)
		}
	}
}

func TestRetriesGoOnForThreeDaysAndEnd(t *testing.T) {
	since := time.Unix(vectorTime, 0)
	want := []string{"5s", "5m", "30m", "2h", "5h", "10h", "14h", "20h", "24h"}
	for range 200 {
		now := since
		for i, text := range want {
			delay, _ := time.ParseDuration(text)
			next, ok := Next(i+1, since, now)
			if waited := next.Sub(now); !ok || waited < delay || waited > delay+delay/5 {
				t.Fatalf("after attempt %d: %v, %v", i+1, waited, ok)
			}
			now = next.Add(10 * time.Second)
		}
		if next, ok := Next(len(want)+1, since, now); ok || !next.IsZero() {
			t.Fatalf("one more at %v", next)
		}
	}
	if next, ok := Next(0, since, since); !ok || !next.Equal(since) {
		t.Errorf("the first: %v, %v", next, ok)
	}
	if _, ok := Next(1, since, since.Add(5*24*time.Hour)); ok {
		t.Error("tried again after five days")
	}
	seen := make(map[time.Time]bool)
	for range 50 {
		next, _ := Next(9, since, since)
		seen[next] = true
	}
	if len(seen) < 2 {
		t.Error("there is no jitter")
	}
}
