package notify

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// answers is a resolver that gives one answer after the other, and the last one again.
type answers struct {
	each  [][]netip.Addr
	asked atomic.Int32
}

func (a *answers) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return a.each[min(int(a.asked.Add(1)), len(a.each))-1], nil
}

func addrs(texts ...string) []netip.Addr {
	var list []netip.Addr
	for _, text := range texts {
		list = append(list, netip.MustParseAddr(text))
	}
	return list
}

// local is a server on loopback, its host, and the requests that it got.
func local(t *testing.T, handler http.HandlerFunc) (address string, host Host, requests *atomic.Int32) {
	requests = new(atomic.Int32)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		handler(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL, Host(strings.TrimPrefix(server.URL, "http://")), requests
}

// listener accepts on loopback and counts.
func listener(t *testing.T) (port string, accepted *atomic.Int32) {
	accepted = new(atomic.Int32)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			_ = conn.Close()
		}
	}()
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return port, accepted
}

func TestACallbackArrivesOnceAsItWasGiven(t *testing.T) {
	address, host, requests := local(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Method != http.MethodPost || string(body) != "body" || r.Header.Get("Webhook-Id") != "msg_1" || r.URL.RawQuery != "q=1" {
			t.Errorf("%s %s %q %v", r.Method, r.URL, body, r.Header)
		}
		w.WriteHeader(http.StatusAccepted)
	})
	s := New(Config{Hosts: Hosts{host}, AllowLoopback: true})
	header := http.Header{"Webhook-Id": {"msg_1"}}
	status, err := s.Post(t.Context(), address+"/x?q=1", header, []byte("body"))
	if status != http.StatusAccepted || err != nil || requests.Load() != 1 || len(header) != 1 {
		t.Errorf("%d, %v, %d requests, %v", status, err, requests.Load(), header)
	}
	if s.transport.Proxy != nil {
		t.Error("a proxy would dial in our stead")
	}
}

func TestACallbackOverTLSIsToTheRegisteredName(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.TLS.ServerName != "hooks.example.com" {
			t.Errorf("server name %q", r.TLS.ServerName)
		}
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // the handshake that is meant to fail
	server.StartTLS()
	defer server.Close()
	port := server.URL[strings.LastIndex(server.URL, ":"):]
	s := New(Config{
		Hosts: Hosts{Host("hooks.example.com" + port), Host("hooks.example.org" + port)}, AllowLoopback: true,
		Resolver: &answers{each: [][]netip.Addr{addrs("127.0.0.1")}},
	})
	s.transport.TLSClientConfig.RootCAs = x509.NewCertPool()
	s.transport.TLSClientConfig.RootCAs.AddCert(server.Certificate())
	if status, err := s.Post(t.Context(), "https://hooks.example.com"+port, nil, nil); status != http.StatusOK || err != nil {
		t.Errorf("%d, %v, %v", status, err, errors.Unwrap(err))
	}
	var failed *DeliveryError // the certificate is not for this name
	if _, err := s.Post(t.Context(), "https://hooks.example.org"+port, nil, nil); !errors.As(err, &failed) || !failed.Retryable {
		t.Errorf("%v", err)
	}
}

func TestWhatAStatusMeans(t *testing.T) {
	address, host, _ := local(t, func(w http.ResponseWriter, r *http.Request) {
		var status int
		_, _ = fmt.Sscanf(r.URL.Path, "/%d", &status)
		w.WriteHeader(status)
	})
	s := New(Config{Hosts: Hosts{host}, AllowLoopback: true})
	for status, want := range map[int]struct{ ok, retryable bool }{
		200: {ok: true}, 204: {ok: true}, 299: {ok: true}, 300: {}, 304: {}, 400: {}, 401: {}, 404: {}, 410: {},
		408: {retryable: true}, 425: {retryable: true}, 429: {retryable: true}, 500: {retryable: true}, 503: {retryable: true}, 599: {retryable: true},
	} {
		got, err := s.Post(t.Context(), fmt.Sprintf("%s/%d", address, status), nil, nil)
		var failed *DeliveryError
		if got != status || (err == nil) != want.ok {
			t.Errorf("%d: got %d, %v", status, got, err)
		} else if err != nil && (!errors.As(err, &failed) || failed.Status != status || failed.Retryable != want.retryable) {
			t.Errorf("%d: %+v", status, failed)
		}
	}
}

func TestARedirectIsNeverFollowed(t *testing.T) {
	second, secondHost, requests := local(t, func(http.ResponseWriter, *http.Request) {})
	for _, status := range []int{301, 302, 303, 307, 308} {
		first, firstHost, _ := local(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, second, status) })
		s := New(Config{Hosts: Hosts{firstHost, secondHost}, AllowLoopback: true})
		got, err := s.Post(t.Context(), first, nil, []byte("body"))
		var failed *DeliveryError
		if got != status || !errors.As(err, &failed) || failed.Retryable {
			t.Errorf("%d: got %d, %v", status, got, err)
		}
	}
	if requests.Load() != 0 {
		t.Errorf("%d redirects were followed", requests.Load())
	}
}

func TestAnEndlessAnswerIsCutOff(t *testing.T) {
	address, host, _ := local(t, func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := w.Write(make([]byte, 1024)); err != nil {
				return
			}
		}
	})
	s := New(Config{Hosts: Hosts{host}, AllowLoopback: true, Timeout: time.Minute})
	started := time.Now()
	if status, err := s.Post(t.Context(), address, nil, nil); status != http.StatusOK || err != nil || time.Since(started) > 30*time.Second {
		t.Errorf("%d, %v after %v", status, err, time.Since(started))
	}
}

func TestNoAnswerInTimeIsRetryableAndNamesNoHost(t *testing.T) {
	silent, silentHost, _ := local(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body); <-r.Context().Done() })
	port, _ := listener(t) // closes each connection
	s := New(Config{Hosts: Hosts{silentHost, Host("127.0.0.1:" + port)}, AllowLoopback: true, Timeout: 50 * time.Millisecond})
	for _, address := range []string{silent, "http://127.0.0.1:" + port} {
		status, err := s.Post(t.Context(), address+"/hunter2", nil, nil)
		var failed *DeliveryError
		if status != 0 || !errors.As(err, &failed) || !failed.Retryable || failed.Unwrap() == nil {
			t.Fatalf("%d, %v", status, err)
		}
		if text := fmt.Sprintf("%v %+v", err, err); strings.Contains(text, "127.0.0.1") || strings.Contains(text, "hunter2") {
			t.Errorf("the error quotes: %s", text)
		}
	}
}

// TestARebindingIsRefusedAtTheDial looks the host up as a check would, which is satisfied, and then has it answered with
// where a listener of this machine waits.
func TestARebindingIsRefusedAtTheDial(t *testing.T) {
	port, accepted := listener(t)
	for _, inner := range []string{"127.0.0.1", "::ffff:127.0.0.1", "127.0.0.2", "240.0.0.1"} { // none leaves this machine if the judge is broken
		resolver := &answers{each: [][]netip.Addr{addrs("93.184.215.14"), addrs(inner, "127.0.0.1")}}
		s := New(Config{Hosts: Hosts{Host("hooks.example:" + port)}, Resolver: resolver, Timeout: 2 * time.Second})
		target := "https://hooks.example:" + port + "/x"
		checked, _ := resolver.LookupNetIP(t.Context(), "ip", "hooks.example")
		if err := s.CheckURL(target); err != nil || refused(checked[0]) {
			t.Fatalf("the check: %v, %v", checked, err)
		}
		_, err := s.Post(t.Context(), target, nil, []byte("body"))
		var failed *DeliveryError
		if !errors.As(err, &failed) || failed.Retryable || !errors.Is(err, ErrAddressRefused) {
			t.Errorf("%s: %v, cause %v", inner, err, errors.Unwrap(err))
		}
		if resolver.asked.Load() != 2 {
			t.Errorf("%s: looked up %d times", inner, resolver.asked.Load())
		}
	}
	if accepted.Load() != 0 {
		t.Errorf("%d connections were made", accepted.Load())
	}
}

func TestARefusedAddressEndsTheDial(t *testing.T) {
	port, accepted := listener(t)
	resolver := &answers{each: [][]netip.Addr{addrs("240.0.0.1", "127.0.0.1")}} // the second alone would be allowed
	s := New(Config{Hosts: Hosts{Host("hooks.example:" + port)}, AllowLoopback: true, Resolver: resolver})
	if _, err := s.Post(t.Context(), "https://hooks.example:"+port, nil, nil); !errors.Is(err, ErrAddressRefused) || accepted.Load() != 0 {
		t.Errorf("%v, %d connections", err, accepted.Load())
	}
}

func TestALoopbackNameMustBeLoopbackAtTheDial(t *testing.T) {
	s := New(Config{AllowLoopback: true})
	for host, want := range map[string]error{"localhost": ErrAddressRefused, "LOCALHOST": ErrAddressRefused, "127.0.0.1": ErrAddressRefused, "hooks.example": nil} {
		if err := s.control(host)(t.Context(), "tcp4", "93.184.215.14:80", nil); !errors.Is(err, want) {
			t.Errorf("%s: %v", host, err)
		}
		if err := s.control(host)(t.Context(), "tcp4", "127.0.0.1:80", nil); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
}

func TestEveryRangeThatIsNotPublicIsRefused(t *testing.T) {
	for _, text := range []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.0", "10.255.255.255", "100.64.0.0", "100.127.255.255", "127.0.0.1", "127.255.255.255",
		"169.254.0.1", "169.254.169.254", "172.16.0.0", "172.31.255.255", "192.0.0.0", "192.0.0.255", "192.0.2.1", "192.88.99.1",
		"192.168.0.0", "192.168.255.255", "198.18.0.0", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1",
		"239.255.255.255", "240.0.0.0", "255.255.255.255",
		"::", "::1", "::7f00:1", "::ffff:10.0.0.1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:0:a00:1",
		"64:ff9b::808:808", "64:ff9b:1::1", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff", "100::1", "2001::1", "2001:0:ffff::1",
		"2001:2::1", "2001:db8::1", "2001:db8:ffff::1", "2002::1", "2002:7f00:1::1", "3fff::1", "3fff:fff::1", "4000::1", "5f00::1",
		"fc00::1", "fd00:ec2::254", "fdff::1", "fe80::1", "fe80::1%eth0", "febf::1", "fec0::1", "feff::1", "ff02::1", "ff0e::1",
	} {
		if !refused(netip.MustParseAddr(text)) {
			t.Errorf("%s is let through", text)
		}
	}
	for _, text := range []string{
		"1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0", "169.253.255.255",
		"169.255.0.0", "172.15.255.255", "172.32.0.0", "192.0.1.0", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0",
		"223.255.255.255", "::ffff:1.1.1.1", "2001:200::1", "2001:4860:4860::8888", "2003::1", "2606:4700:4700::1111", "3ffe::1",
	} {
		if refused(netip.MustParseAddr(text)) {
			t.Errorf("%s is refused", text)
		}
	}
	if !refused(netip.Addr{}) {
		t.Error("no address is let through")
	}
}

// problems are all texts of a TargetError: none of them has room for a part of a URL.
var problems = []string{problemLong, problemForm, problemScheme, problemUser, problemFragment, problemHost, problemLoopback}

func FuzzCheckURL(f *testing.F) {
	for _, seed := range []string{"https://hooks.example/x?y=1", "http://127.0.0.1:80", "https://HOOKS.example:443", "https://a@hooks.example#"} {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	f.Fuzz(func(t *testing.T, raw string, loopback bool) {
		err := New(Config{Hosts: Hosts{"hooks.example", "127.0.0.1:80"}, AllowLoopback: loopback}).CheckURL(raw)
		var target *TargetError
		if err != nil {
			if !errors.As(err, &target) || !slices.Contains(problems, target.Problem) {
				t.Errorf("%v", err)
			}
			return
		}
		request, err := http.NewRequest(http.MethodPost, raw, nil)
		if err != nil {
			t.Fatalf("%q can't be sent: %v", raw, err)
		}
		u := request.URL
		public := u.Scheme == "https" && strings.EqualFold(u.Hostname(), "hooks.example") && (u.Port() == "" || u.Port() == "443")
		addr, _ := netip.ParseAddr(u.Hostname())
		inner := loopback && addr.Unmap() == netip.MustParseAddr("127.0.0.1") && (u.Port() == "80" || u.Port() == "" && u.Scheme == "http")
		if !public && !inner || u.User != nil || u.Fragment != "" || len(raw) > maxURL {
			t.Errorf("%q is let out", raw)
		}
		if strings.ContainsFunc(u.Host, func(r rune) bool { return r > 0x7e }) {
			t.Errorf("%q has a host that is not ASCII", raw)
		}
	})
}
