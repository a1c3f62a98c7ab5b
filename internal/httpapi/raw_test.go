package httpapi

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// raw sends bytes that no HTTP client would, and reads the answer.
func (s *served) raw(t *testing.T, request string) told {
	t.Helper()
	conn := s.dial(t)
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%q: %v", request, err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return told{response.StatusCode, response.Header, body}
}

func (s *served) dial(t *testing.T) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return conn
}

func TestAPathBelowAPrefixArrivesByteForByte(t *testing.T) {
	var got string
	s := serveAPI(t, nil, resource("/exact:verb", http.MethodGet, Operation{Public: true, Serve: fine}))
	s.MountBelow("/p/", func(_, escaped string) (Resource, bool) {
		got = escaped
		return resource("/p/{id}", http.MethodGet, Operation{Public: true, Serve: fine}), true
	})
	for _, sent := range []string{
		"a", "a%2Fb", "a%252Fb", "a/b", "a:erase", "a%3Aerase", "\xc3\xa9%3Aerase", "\xc3\xa9", "%C3%A9", ".", "..", "%2e%2E", "../x", "a//b", "", "+", "%20", "a;b", "a%00", "[x]%3Aerase",
		"\"%3Aerase", "a|%3Aerase", "%FF", "a%3Fb", "a#b", "*",
	} {
		if answer := s.raw(t, "GET /p/"+sent+"?q HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); answer.status != 400 || got != sent {
			t.Errorf("%q arrived as %q (%d)", sent, got, answer.status) // 400: the operation knows no q
		}
	}
	for _, path := range []string{"/exact%3Averb", "/p", "//p/a", "/P/a", "/./p/a", "/%70/a", "/x/../p/a"} {
		if answer := s.raw(t, "GET "+path+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); answer.status != 404 {
			t.Errorf("%s: %d", path, answer.status)
		}
	}
	if answer := s.raw(t, "OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); answer.status != 404 {
		t.Errorf("OPTIONS *: %d", answer.status)
	}
	if answer := s.raw(t, "GET http://x/exact:verb HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); answer.status != 200 {
		t.Errorf("absolute form: %d", answer.status)
	}
}

func TestABodyThatStallsOrBreaksOffIsGivenUp(t *testing.T) {
	s := serveAPI(t, nil, resource("/x", http.MethodPost, Operation{Public: true, Body: RecordsBody, Serve: func(c *Call) error {
		if _, err := io.Copy(io.Discard, c.R.Body); err != nil {
			return err
		}
		return fine(c)
	}}))
	s.patience = 300 * time.Millisecond
	for _, kind := range []string{"json", "x-ndjson"} {
		start := time.Now()
		got := s.raw(t, "POST /x HTTP/1.1\r\nHost: x\r\nContent-Type: application/"+kind+"\r\nContent-Length: 10\r\n\r\n{")
		if got.status != 400 || got.problem(t) != "invalid-body" || time.Since(start) > 5*time.Second {
			t.Errorf("%s: %d after %s", kind, got.status, time.Since(start))
		}
	}
	if got := s.raw(t, "POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{"); got.status != 404 {
		t.Errorf("a refused one: %d", got.status)
	}
	// NDJSON may take its time as a whole, as long as it goes on.
	conn := s.dial(t)
	_, _ = io.WriteString(conn, "POST /x HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n")
	for range 8 {
		time.Sleep(250 * time.Millisecond)
		_, _ = io.WriteString(conn, "3\r\n{}\n\r\n")
	}
	_, _ = io.WriteString(conn, "0\r\n\r\n")
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != 200 {
		t.Errorf("slow but steady: %d", response.StatusCode)
	}
}

func TestTheDeadlineOfABodyDoesNotEndItsOperation(t *testing.T) {
	s := serveAPI(t, nil, resource("/x", http.MethodPost, Operation{Public: true, Body: JSONBody, Serve: func(c *Call) error {
		if _, err := io.Copy(io.Discard, c.R.Body); err != nil {
			return err
		}
		select {
		case <-c.R.Context().Done():
			return fmt.Errorf("the request was ended: %w", c.R.Context().Err())
		case <-time.After(500 * time.Millisecond):
			return fine(c)
		}
	}}))
	s.patience = 100 * time.Millisecond
	if got := s.do(t, ask{method: "POST", path: "/x", contentType: "application/json", body: "{}"}); got.status != 200 {
		t.Errorf("%d %s", got.status, got.body)
	}
}

func TestACallerThatDoesNotReadItsAnswerIsLeft(t *testing.T) {
	left := make(chan struct{})
	s := serveAPI(t, nil, resource("/x", http.MethodGet, Operation{Public: true, Serve: func(c *Call) error {
		defer close(left)
		return c.Stream(http.StatusOK, func(w io.Writer) error {
			piece := make([]byte, 1<<20)
			for range 256 {
				if _, err := w.Write(piece); err != nil {
					return err
				}
			}
			return nil
		})
	}}))
	s.patience = 200 * time.Millisecond
	conn := s.dial(t)
	_, _ = io.WriteString(conn, "GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
	within(t, 10*time.Second, "giving up", left)
}

func TestTheDeadlineOfAnAnswerDoesNotEndTheNext(t *testing.T) {
	s := serveAPI(t, nil,
		resource("/long", http.MethodGet, Operation{Public: true, Serve: func(c *Call) error {
			return c.Stream(http.StatusOK, func(w io.Writer) error { _, err := io.WriteString(w, "{}"); return err })
		}}),
		resource("/short", http.MethodGet, Operation{Public: true, Serve: fine})) // too short for a deadline of its own
	s.patience = 100 * time.Millisecond
	conn := s.dial(t)
	reader := bufio.NewReader(conn)
	for _, path := range []string{"/long", "/short"} {
		_, _ = io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(response.Body); err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		time.Sleep(200 * time.Millisecond)
	}
}
