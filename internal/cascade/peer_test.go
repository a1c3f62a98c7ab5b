package cascade_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"recount/internal/cascade"
	"recount/internal/cascade/cascadetest"
	"recount/internal/subject"
)

var bothErased = []string{"holdout_assignments erased", "outcomes erased"}

// observed records what an Observer is told.
type observed struct {
	mu              sync.Mutex
	failed, retried []subject.Reason
}

func (o *observed) PeerFailed(_ string, reason subject.Reason) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failed = append(o.failed, reason)
}

func (o *observed) PeerRetried(_ string, reason subject.Reason) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.retried = append(o.retried, reason)
}

// roundTrip is a RoundTripper made of a function.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// flaky serves the first requests with the given handlers, one each, and the rest by an honest cell.
func flaky(t *testing.T, first ...http.HandlerFunc) (url string, requests *atomic.Int32) {
	t.Helper()
	requests = new(atomic.Int32)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n := int(requests.Add(1)); n <= len(first) {
			first[n-1](w, r)
			return
		}
		causal().ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL, requests
}

// hangUp takes the request and cuts the connection without an answer, as a peer does that dies after its delete.
func hangUp(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
		_ = conn.Close()
	}
}

// cutOff announces more than it sends.
func cutOff(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "5000")
	_, _ = w.Write([]byte(`{"request_id":"`))
}

// hang answers nothing until the caller is gone.
func hang(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

// trickle sends a good answer's beginning, and then white space for ever.
func trickle(w http.ResponseWriter, r *http.Request) {
	for r.Context().Err() == nil {
		_, _ = w.Write([]byte(" "))
		w.(http.Flusher).Flush()
		time.Sleep(5 * time.Millisecond)
	}
}

func TestAPeerWithoutAURLIsAFailedReceipt(t *testing.T) {
	peer := cascade.NewPeer(cascade.PeerConfig{Name: "causal", Stores: causal().Stores}, cascade.Options{Salt: cascadetest.Salt()})
	if peer.Configured() {
		t.Error("configured")
	}
	if got := told(peer.Erase(t.Context(), requestID, about(someone(t))).Receipts); !slices.Equal(got, envelope(subject.ReasonPeerURLUnset)) {
		t.Errorf("got %q", got)
	}
	for _, got := range peer.EraseBatch(t.Context(), requestID, everyone(someone(t), someone(t))) {
		if !slices.Equal(told(got.Receipts), envelope(subject.ReasonPeerURLUnset)) {
			t.Errorf("got %q", told(got.Receipts))
		}
	}
}

func TestARedirectIsFailedAndNotFollowed(t *testing.T) {
	var followed atomic.Int32
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		followed.Add(1)
		causal().ServeHTTP(w, r)
	}))
	defer elsewhere.Close()
	for _, code := range []int{300, 301, 302, 303, 305, 307, 308, 399} {
		for _, location := range []string{elsewhere.URL + "/v1/intent/subject:delete", "/v1/intent/subject:delete", "://%zz", ""} {
			url, requests := flaky(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", location)
				w.WriteHeader(code)
			})
			got := told(peerAt(url, 10*time.Second).Erase(t.Context(), requestID, about(someone(t))).Receipts)
			if !slices.Equal(got, envelope(subject.ReasonPeerRedirected)) {
				t.Errorf("%d to %q: got %q", code, location, got)
			}
			if requests.Load() != 1 || followed.Load() != 0 {
				t.Errorf("%d to %q: %d requests, %d followed", code, location, requests.Load(), followed.Load())
			}
		}
	}
}

func TestWhatMayPassIsRetriedAndTheRecountSettlesIt(t *testing.T) {
	for name, first := range map[string][]http.HandlerFunc{
		"deleted, then the connection broke": {hangUp},
		"broke twice":                        {hangUp, hangUp},
		"broke in mid-answer":                {cutOff},
		"503":                                {status(503)},
		"429 and 503":                        {busy(429, "0"), busy(503, "0")},
		"503 with a date in the past":        {busy(503, "Mon, 01 Jan 2024 00:00:00 GMT")},
		"503 for as long as nobody reads":    {busy(503, "a while")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, requests := flaky(t, first...)
			got := told(peerAt(url, 10*time.Second).Erase(t.Context(), requestID, about(someone(t))).Receipts)
			if !slices.Equal(got, bothErased) || int(requests.Load()) != len(first)+1 {
				t.Errorf("got %q after %d requests", got, requests.Load())
			}
		})
	}
}

func TestAPeerIsTriedThreeTimesAndNoMore(t *testing.T) {
	for name, row := range map[string]struct {
		serve http.HandlerFunc
		want  subject.Reason
	}{
		"always 503":   {status(503), subject.ReasonPeerUnavailable},
		"always 429":   {status(429), subject.ReasonPeerUnavailable},
		"always down":  {hangUp, subject.ReasonPeerUnreachable},
		"always short": {cutOff, subject.ReasonPeerUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, requests := flaky(t, row.serve, row.serve, row.serve)
			var seen observed
			peer := cascade.NewPeer(cascade.PeerConfig{Name: "causal", URL: url, Stores: causal().Stores},
				cascade.Options{Salt: cascadetest.Salt(), Timeout: 10 * time.Second, Transport: plain(), Observer: &seen})
			got := told(peer.Erase(t.Context(), requestID, about(someone(t))).Receipts)
			if !slices.Equal(got, envelope(row.want)) || requests.Load() != 3 {
				t.Errorf("got %q after %d requests", got, requests.Load())
			}
			if !slices.Equal(seen.retried, []subject.Reason{row.want, row.want}) || !slices.Equal(seen.failed, []subject.Reason{row.want}) {
				t.Errorf("observed retries %q, failures %q", seen.retried, seen.failed)
			}
		})
	}
}

func TestNobodyListening(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	got := told(peerAt(url, 10*time.Second).Erase(t.Context(), requestID, about(someone(t))).Receipts)
	if !slices.Equal(got, envelope(subject.ReasonPeerUnreachable)) {
		t.Errorf("got %q", got)
	}
}

func TestRetryAfterIsWaitedFor(t *testing.T) {
	t.Parallel()
	url, _ := flaky(t, busy(503, "1"))
	started := time.Now()
	got := told(peerAt(url, 10*time.Second).Erase(t.Context(), requestID, about(someone(t))).Receipts)
	if took := time.Since(started); !slices.Equal(got, bothErased) || took < time.Second {
		t.Errorf("got %q after %v", got, took)
	}
}

func TestASlowPeerIsGivenUpAtItsDeadline(t *testing.T) {
	for name, serve := range map[string]http.HandlerFunc{"hung": hang, "slow body": trickle} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, _ := flaky(t, serve, serve, serve)
			started := time.Now()
			got := told(peerAt(url, 150*time.Millisecond).Erase(t.Context(), requestID, about(someone(t))).Receipts)
			if took := time.Since(started); !slices.Equal(got, envelope(subject.ReasonPeerTimeout)) || took > 5*time.Second {
				t.Errorf("got %q after %v", got, took)
			}
		})
	}
}

func TestARetryThatTheDeadlineDoesNotLeaveRoomForIsNotMade(t *testing.T) {
	url, requests := flaky(t, busy(503, "2"))
	started := time.Now()
	got := told(peerAt(url, time.Second).Erase(t.Context(), requestID, about(someone(t))).Receipts)
	if !slices.Equal(got, envelope(subject.ReasonPeerUnavailable)) || requests.Load() != 1 || time.Since(started) > 900*time.Millisecond {
		t.Errorf("got %q after %d requests and %v", got, requests.Load(), time.Since(started))
	}
}

func TestTwoURLsAtOneCellDoNotPass(t *testing.T) {
	ingest := &cascadetest.Cell{Name: "ingest", Stores: []string{"intent_events"}}
	server := ingest.Start()
	defer server.Close()
	options := cascade.Options{Salt: cascadetest.Salt(), Timeout: 5 * time.Second, Transport: plain()}
	c := cascade.New(10*time.Second,
		cascade.NewPeer(cascade.PeerConfig{Name: "ingest", URL: server.URL, Stores: []string{"intent_events"}}, options),
		cascade.NewPeer(cascade.PeerConfig{Name: "graph", URL: server.URL, Stores: []string{"graph"}}, options))
	got := c.Erase(t.Context(), requestID, about(someone(t)))
	want := []string{"intent_events erased", "intent_events failed peer_wrong_cell", "graph failed peer_store_missing"}
	if !slices.Equal(told(got), want) {
		t.Errorf("got %q", told(got))
	}
}

func TestTheIdentityIsInTheBodyAlone(t *testing.T) {
	var seen []string
	peer := cascade.NewPeer(cascade.PeerConfig{Name: "causal", URL: "https://causal.example/base", Stores: []string{"outcomes"}},
		cascade.Options{Salt: cascadetest.Salt(), Timeout: time.Second, Transport: func(audience string) http.RoundTripper {
			return roundTrip(func(r *http.Request) (*http.Response, error) {
				body, _ := io.ReadAll(r.Body)
				seen = append(seen, audience, r.Method, r.URL.String(), r.Header.Get("X-Request-ID"), string(body))
				return nil, unauthorised{}
			})
		}})
	s := someone(t)
	peer.Erase(t.Context(), requestID, about(s))
	peer.EraseBatch(t.Context(), requestID, everyone(s))
	want := []string{
		"https://causal.example/base", "POST", "https://causal.example/base/v1/intent/subject:delete", requestID,
		`{"tenant_id":"acme","identity_id":"alice@example.com:erase/%2F"}`,
		"https://causal.example/base", "POST", "https://causal.example/base/v1/intent/subject:batchDelete", requestID,
		`{"tenant_id":"acme","identity_ids":["alice@example.com:erase/%2F"]}`,
	}
	if !slices.Equal(seen, want) {
		t.Errorf("got  %q\nwant %q", seen, want)
	}
}

type unauthorised struct{}

func (unauthorised) Error() string      { return "no token" }
func (unauthorised) Unauthorised() bool { return true }

func TestAPeerForWhichNoTokenCanBeHadIsUnauthorised(t *testing.T) {
	attempts := 0
	peer := cascade.NewPeer(cascade.PeerConfig{Name: "causal", URL: "https://causal.example", Stores: []string{"outcomes"}},
		cascade.Options{Salt: cascadetest.Salt(), Timeout: time.Second, Transport: func(string) http.RoundTripper {
			return roundTrip(func(*http.Request) (*http.Response, error) {
				attempts++
				return nil, errors.Join(errors.New("auth"), unauthorised{})
			})
		}})
	got := told(peer.Erase(t.Context(), requestID, about(someone(t))).Receipts)
	if !slices.Equal(got, envelope(subject.ReasonPeerUnauthorised)) || attempts != 1 {
		t.Errorf("got %q after %d attempts", got, attempts)
	}
}

func TestConnectionsAreKept(t *testing.T) {
	var opened atomic.Int32
	server := httptest.NewUnstartedServer(causal())
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	peer := peerAt(server.URL, 5*time.Second)
	for range 5 {
		peer.Erase(t.Context(), requestID, about(someone(t)))
	}
	if opened.Load() != 1 {
		t.Errorf("%d connections for 5 erasures", opened.Load())
	}
}

func TestHTTP2IsSpokenWhereItIsOffered(t *testing.T) {
	var major atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		major.Store(int32(r.ProtoMajor))
		causal().ServeHTTP(w, r)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	pool := cascade.NewTransport()
	pool.TLSClientConfig = &tls.Config{RootCAs: server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs, MinVersion: tls.VersionTLS12}
	peer := cascade.NewPeer(cascade.PeerConfig{Name: "causal", URL: server.URL, Stores: causal().Stores},
		cascade.Options{Salt: cascadetest.Salt(), Timeout: 5 * time.Second, Transport: func(string) http.RoundTripper { return pool }})
	got := told(peer.Erase(t.Context(), requestID, about(someone(t))).Receipts)
	if !slices.Equal(got, bothErased) || major.Load() != 2 {
		t.Errorf("got %q over HTTP/%d", got, major.Load())
	}
}

func TestNoProxyIsAsked(t *testing.T) {
	if cascade.NewTransport().Proxy != nil {
		t.Error("the transport asks for a proxy")
	}
}

func TestNothingOfTheIdentityIsInAReceipt(t *testing.T) {
	s := someone(t)
	server := httptest.NewServer(fault{code: 502, change: all(inEnvelope("status", "failed"), inReceipt("status", "failed"),
		inReceipt("detail", s.Identity()), inReceipt("backend", s.Identity()), inReceipt("started_at", s.Identity()))}.handler(t, causal(), s))
	defer server.Close()
	for _, r := range peerAt(server.URL, 5*time.Second).Erase(t.Context(), requestID, about(s)).Receipts {
		if strings.Contains(r.Backend()+string(r.Reason())+r.Store(), "alice") {
			t.Errorf("%+v", r)
		}
	}
}

func TestAnErasureThatTheProcessStopsSaysSo(t *testing.T) {
	url, _ := flaky(t, hang)
	ctx, stop := context.WithCancelCause(t.Context())
	time.AfterFunc(50*time.Millisecond, func() { stop(subject.ErrShuttingDown) })
	got := told(peerAt(url, 30*time.Second).Erase(ctx, requestID, about(someone(t))).Receipts)
	if !slices.Equal(got, envelope(subject.ReasonShuttingDown)) {
		t.Errorf("got %q", got)
	}
	ctx, stop = context.WithCancelCause(t.Context())
	url, _ = flaky(t, busy(503, "5"))
	time.AfterFunc(50*time.Millisecond, func() { stop(subject.ErrShuttingDown) })
	if got := told(peerAt(url, 30*time.Second).Erase(ctx, requestID, about(someone(t))).Receipts); !slices.Equal(got, envelope(subject.ReasonShuttingDown)) {
		t.Errorf("between attempts: got %q", got)
	}
}
