package httpapi_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"recount/internal/audit"
	"recount/internal/auth"
	"recount/internal/cell"
	"recount/internal/httpapi"
	"recount/internal/httpapi/apitest"
	"recount/internal/httpapi/opsapi"
	"recount/internal/httpapi/subjectapi"
	"recount/internal/subject"
	"recount/internal/suppression/suppressiontest"
)

type anyone struct{}

func (anyone) Authenticate(*http.Request) (auth.Caller, error) {
	return auth.Caller{Email: "dsar@example.com", Roles: auth.Read | auth.Write | auth.Erase}, nil
}

type noAudit struct{}

func (noAudit) Record(...audit.Row) {}

// slowStore holds one row until its delete, which takes until let go or until its context ends.
type slowStore struct {
	rows    atomic.Int64
	entered chan struct{}
	letGo   chan struct{}
}

func newSlowStore() *slowStore {
	s := &slowStore{entered: make(chan struct{}, 100), letGo: make(chan struct{})}
	s.rows.Store(1)
	return s
}

func (*slowStore) Name() string    { return "slow" }
func (*slowStore) Backend() string { return "memory" }

func (s *slowStore) Count(context.Context, subject.Subject) (int64, error) { return s.rows.Load(), nil }

func (s *slowStore) Delete(ctx context.Context, _ subject.Subject) (int64, error) {
	s.entered <- struct{}{}
	select {
	case <-s.letGo:
		s.rows.Store(0)
		return 1, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

type service struct {
	life    *httpapi.Life
	url     string
	stop    context.CancelFunc
	stopped chan error
}

func start(t *testing.T, store subject.Store, quick bool) *service {
	t.Helper()
	life := httpapi.NewLife()
	if quick {
		life.Hurry(400*time.Millisecond, time.Second)
	}
	salt, err := subject.NewSalt("0123456789abcdef")
	if err != nil {
		t.Fatal(err)
	}
	c := cell.New(cell.Config{
		Ledger: suppressiontest.NewModel(),
		Name:   "scoring", Version: "test", Salt: salt, Groups: []subject.Group{{Stores: []subject.Store{store}}},
		StoreTimeout: 20 * time.Second, Stopping: life.Erasures(),
	})
	api := httpapi.New(httpapi.Config{
		Log: zap.NewNop(), Auth: anyone{}, Meter: httpapi.NewMetrics(prometheus.NewRegistry()), Rate: 1e6, MaxInFlight: 100,
	})
	subjectapi.Mount(api, subjectapi.Surface{Cell: c, Coordinator: c, Audit: noAudit{}})
	opsapi.Mount(api, opsapi.Surface{Health: c.Health, Ready: c.Ready, Stopping: life.Stopping, Coverage: c.Coverage})
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &service{life: life, url: "http://" + listener.Addr().String(), stop: stop, stopped: make(chan error, 1)}
	go func() { s.stopped <- life.Serve(ctx, zap.NewNop(), httpapi.Site{Listener: listener, Handler: api}) }()
	t.Cleanup(stop)
	return s
}

func (s *service) client(t *testing.T, http2 bool) *http.Client {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!http2)
	protocols.SetUnencryptedHTTP2(http2)
	transport := &http.Transport{Protocols: protocols}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: apitest.Transport(t, transport)}
}

func (s *service) erase(ctx context.Context, client *http.Client) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/v1/intent/subject:erase", strings.NewReader(`{"tenant_id":"acme","identity_id":"a"}`))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	return client.Do(r)
}

// eraseAndHangUp leaves as soon as the erasure has started.
func (s *service) eraseAndHangUp(t *testing.T, store *slowStore, client *http.Client) {
	t.Helper()
	ctx, hangUp := context.WithCancel(t.Context())
	defer hangUp()
	gone := make(chan error, 1)
	go func() {
		response, err := s.erase(ctx, client)
		if err == nil {
			_ = response.Body.Close()
		}
		gone <- err
	}()
	await(t, "the delete", store.entered)
	hangUp()
	if err := await(t, "hanging up", gone); !errors.Is(err, context.Canceled) {
		t.Fatalf("the caller did not hang up: %v", err)
	}
}

type outcome struct {
	status int
	body   string
	proto  int
	err    error
}

func (s *service) erasing(t *testing.T, client *http.Client) <-chan outcome {
	done := make(chan outcome, 1)
	go func() {
		response, err := s.erase(t.Context(), client)
		if err != nil {
			done <- outcome{err: err}
			return
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		done <- outcome{response.StatusCode, string(body), response.ProtoMajor, err}
	}()
	return done
}

func await[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(15 * time.Second):
		t.Fatalf("%s: nothing within 15 s", what)
		panic("unreachable")
	}
}

func TestAnErasureThatHasStartedOutlivesItsCaller(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			store := newSlowStore()
			s := start(t, store, false)
			s.eraseAndHangUp(t, store, s.client(t, http2))
			time.Sleep(100 * time.Millisecond) // for the server to see that the caller has gone
			close(store.letGo)
			for deadline := time.Now().Add(10 * time.Second); store.rows.Load() != 0; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("the erasure stopped with its caller")
				}
			}
		})
	}
}

func TestAStoppingServiceFinishesWhatHasStarted(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			store := newSlowStore()
			s := start(t, store, false)
			client := s.client(t, http2)
			done := s.erasing(t, client)
			await(t, "the delete", store.entered)
			s.stop()
			for deadline := time.Now().Add(5 * time.Second); !s.life.Stopping(); time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("not stopping")
				}
			}
			waitRefused(t, s.url)
			close(store.letGo)
			if got := await(t, "the answer", done); got.err != nil || got.status != 200 || (got.proto == 2) != http2 {
				t.Errorf("%+v", got)
			}
			if err := await(t, "the end", s.stopped); err != nil {
				t.Error(err)
			}
		})
	}
}

func waitRefused(t *testing.T, url string) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			return
		}
		_ = conn.Close()
		if time.Now().After(deadline) {
			t.Fatal("connections are still taken")
		}
	}
}

func TestAnErasureThatTakesTooLongAtTheEndSaysSo(t *testing.T) {
	store := newSlowStore()
	s := start(t, store, true)
	done := s.erasing(t, s.client(t, false))
	await(t, "the delete", store.entered)
	s.stop()
	got := await(t, "the answer", done)
	if got.err != nil || got.status != 502 || !strings.Contains(got.body, `"shutting_down"`) {
		t.Errorf("%+v", got)
	}
	if err := await(t, "the end", s.stopped); err != nil {
		t.Error(err)
	}
	if !errors.Is(context.Cause(s.life.Erasures()), subject.ErrShuttingDown) {
		t.Errorf("ended with %v", context.Cause(s.life.Erasures()))
	}
}

func TestTheEndWaitsForAnErasureWhoseCallerHasHungUp(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			store := newSlowStore()
			s := start(t, store, false)
			client := s.client(t, http2)
			s.eraseAndHangUp(t, store, client)
			client.CloseIdleConnections()
			s.stop()
			select {
			case err := <-s.stopped:
				t.Fatalf("stopped under a running erasure: %v", err)
			case <-time.After(1500 * time.Millisecond): // a Shutdown that sees no connection returns much sooner
			}
			close(store.letGo)
			if err := await(t, "the end", s.stopped); err != nil {
				t.Error(err)
			}
			if store.rows.Load() != 0 {
				t.Error("the erasure was lost")
			}
		})
	}
}

func TestTheEndComesAndSaysWhatWasCut(t *testing.T) {
	hold := make(chan struct{})
	defer close(hold)
	entered := make(chan struct{})
	life := httpapi.NewLife()
	life.Hurry(100*time.Millisecond, 300*time.Millisecond)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	handler := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { close(entered); <-hold })
	go func() { stopped <- life.Serve(ctx, zap.NewNop(), httpapi.Site{Listener: listener, Handler: handler}) }()
	go func() {
		if response, err := http.Get("http://" + listener.Addr().String()); err == nil {
			_ = response.Body.Close()
		}
	}()
	await(t, "the request", entered)
	stop()
	if err := await(t, "the end", stopped); err == nil || !strings.Contains(err.Error(), "unfinished requests: 1") {
		t.Errorf("ended with %v", err)
	}
}

func TestAListenerThatBreaksStopsTheService(t *testing.T) {
	life := httpapi.NewLife()
	listeners := make([]net.Listener, 2)
	for i := range listeners {
		var err error
		if listeners[i], err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	stopped := make(chan error, 1)
	go func() {
		stopped <- life.Serve(t.Context(), zap.NewNop(), httpapi.Site{Listener: listeners[0], Handler: http.NotFoundHandler()},
			httpapi.Site{Listener: listeners[1], Handler: http.NotFoundHandler()})
	}()
	_ = listeners[1].Close()
	if err := await(t, "the end", stopped); err == nil {
		t.Error("no error")
	}
}

func TestAStoppingServiceIsNotReady(t *testing.T) {
	store := newSlowStore()
	s := start(t, store, false)
	client := s.client(t, true) // its connection is there already when the listener closes
	done := s.erasing(t, client)
	await(t, "the delete", store.entered)
	ready := func() int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/ready", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(r)
		if err != nil {
			return 0
		}
		_ = response.Body.Close()
		return response.StatusCode
	}
	if got := ready(); got != 200 {
		t.Fatalf("before: %d", got)
	}
	s.stop()
	waitRefused(t, s.url)
	if got := ready(); got != 503 && got != 0 {
		t.Errorf("while stopping: %d", got)
	}
	close(store.letGo)
	await(t, "the answer", done)
	if err := await(t, "the end", s.stopped); err != nil {
		t.Error(err)
	}
}
