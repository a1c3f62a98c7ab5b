package auth

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	googleCerts  = "https://www.googleapis.com/oauth2/v3/certs" // where the validator reads RS256 keys
	certsTimeout = 10 * time.Second
	maxCerts     = 1 << 20 // bytes
)

// keysError says that keys could not be had. It tells an outage apart from a bad token, which the validator does not.
type keysError struct{ why string }

func (e *keysError) Error() string { return "the keys " + e.why }

// certsURL is where keys are read, or why they may not be read from there.
func certsURL(text, listenAddr string) (*url.URL, error) {
	if text == "" {
		return url.Parse(googleCerts) //nolint:wrapcheck // a constant, which parses
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("AUTH_CERTS_URL: for tests only: it must be a plain http:// URL on a loopback IP address; unset it to use Google's keys")
	}
	if ip, err := netip.ParseAddr(u.Hostname()); err != nil || !ip.IsLoopback() || ip.Zone() != "" {
		return nil, errors.New("AUTH_CERTS_URL: for tests only: its host must be a loopback IP address, such as 127.0.0.1; unset it to use Google's keys")
	}
	if !IsLoopback(listenAddr) {
		return nil, fmt.Errorf("AUTH_CERTS_URL: for tests only: refused while the service listens on %q, which is no loopback address; unset it to use Google's keys", listenAddr)
	}
	return u, nil
}

// fetchingFrom is the client, narrowed to reading keys from one URL, without redirects.
func fetchingFrom(client *http.Client, certs *url.URL) *http.Client {
	base := client.Transport
	if base == nil {
		base = http.DefaultTransport
		if certs.Scheme == "http" { // loopback: straight there, whatever proxy the environment names
			base = &http.Transport{}
		}
	}
	narrowed := *client
	narrowed.Transport = &keysTransport{base: base, certs: certs}
	narrowed.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &narrowed
}

type keysTransport struct {
	base  http.RoundTripper
	certs *url.URL
}

// RoundTrip answers keys with 200, or a *keysError.
func (t *keysTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.String() != googleCerts {
		return nil, &keysError{"are asked for at an address that is not Google's for RS256"}
	}
	there := r.Clone(r.Context())
	there.URL, there.Host = t.certs, ""
	response, err := t.base.RoundTrip(there)
	if err != nil {
		return nil, &keysError{"can not be reached"}
	}
	defer response.Body.Close() //nolint:errcheck // nothing is left to lose
	if response.StatusCode != http.StatusOK {
		return nil, &keysError{fmt.Sprintf("are answered with HTTP %d", response.StatusCode)}
	}
	keys, err := io.ReadAll(io.LimitReader(response.Body, maxCerts))
	if err != nil || !jsontext.Value(keys).IsValid() {
		return nil, &keysError{"are no whole JSON text"}
	}
	response.Body = io.NopCloser(bytes.NewReader(keys))
	return response, nil
}
