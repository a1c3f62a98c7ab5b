package subjectapi_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"recount/internal/subject"
)

// raw sends a path byte for byte, and answers the code.
func (f *fixture) raw(method, path string) int {
	f.t.Helper()
	conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(f.t.Context(), "tcp", strings.TrimPrefix(f.url, "http://"))
	if err != nil {
		f.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		f.t.Fatal(err)
	}
	if _, err := io.WriteString(conn, method+" "+path+" HTTP/1.1\r\nHost: x\r\nAuthorization: all\r\nConnection: close\r\n\r\n"); err != nil {
		f.t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		f.t.Fatal(err)
	}
	_ = response.Body.Close()
	return response.StatusCode
}

func TestPathsReachTheirOneSubjectOrNobody(t *testing.T) {
	f := serve(t, true)
	f.cell.accesses = func() ([]subject.AccessReceipt, error) {
		return []subject.AccessReceipt{{Count: subject.Measured(0)}}, nil
	}
	for _, c := range []struct {
		method, segment string
		code            int
		id              string
	}{
		{"POST", "person-email:a@x.io:erase", 200, "person-email:a@x.io"},
		{"POST", "alice@example.com:erase", 200, "alice@example.com"},
		{"POST", "alice%40example.com:erase", 200, "alice@example.com"},
		{"POST", "a%2Fb:erase", 200, "a/b"},
		{"POST", "a%2fb:erase", 200, "a/b"},
		{"POST", "a%252Fb:erase", 200, "a%2Fb"},
		{"POST", "urn:user:42:erase:erase", 200, "urn:user:42:erase"},
		{"POST", "urn:user:42%3Aerase:erase", 200, "urn:user:42:erase"},
		{"POST", "urn:user:42:erase", 200, "urn:user:42"},
		{"POST", "a:erase:erase", 200, "a:erase"},
		{"POST", "2021-09-15T15:03:39Z:erase:erase", 200, "2021-09-15T15:03:39Z:erase"},
		{"POST", ":erase:erase", 200, ":erase"},
		{"POST", "%C3%A9:erase", 200, "é"},
		{"POST", "\xc3\xa9:erase", 200, "é"},
		{"POST", "a+b:erase", 200, "a+b"},
		{"POST", "a%20b:erase", 200, "a b"},
		{"POST", "%2e%2e%2e:erase", 200, "..."},
		{"POST", ":erase", 400, ""},
		{"POST", ".:erase", 400, ""},
		{"POST", "..:erase", 400, ""},
		{"POST", "%2e:erase", 400, ""},
		{"POST", "%2E%2e:erase", 400, ""},
		{"POST", "%00:erase", 400, ""},
		{"POST", "%ff:erase", 400, ""},
		{"POST", "%zz:erase", 400, ""},
		{"POST", "alice%3Aerase", 405, ""},
		{"POST", "alice%3aerase", 405, ""},
		{"POST", "alice:%65rase", 405, ""},
		{"POST", "\xc3\xa9%3Aerase", 405, ""},
		{"POST", "alice:ERASE", 405, ""},
		{"POST", "alice:erase/", 404, ""},
		{"POST", "a/b:erase", 404, ""},
		{"POST", "a:erase/b", 404, ""},
		{"POST", "../a:erase", 404, ""},
		{"POST", "a", 405, ""},
		{"PUT", "a", 405, ""},
		{"HEAD", "a", 405, ""},
		{"GET", "a", 200, "a"},
		{"GET", "urn:user:42:erase", 200, "urn:user:42:erase"},
		{"GET", "alice%3Aerase", 200, "alice:erase"},
		{"DELETE", "urn:user:42:erase", 200, "urn:user:42:erase"},
		{"DELETE", "a%252Fb", 200, "a%2Fb"},
		{"DELETE", "", 400, ""},
		{"DELETE", ".", 400, ""},
		{"DELETE", "..", 400, ""},
		{"DELETE", "a/b", 404, ""},
	} {
		code := f.raw(c.method, "/v1/intent/subject/"+c.segment+"?tenant_id=acme")
		asked := append(f.cell.took(), f.all.took()...)
		if code != c.code || (c.id == "") != (len(asked) == 0) {
			t.Errorf("%s %q: %d, reached %d", c.method, c.segment, code, len(asked))
			continue
		}
		if c.id != "" && asked[0] != person(t, "acme", c.id) {
			t.Errorf("%s %q reached %q", c.method, c.segment, asked[0].Identity())
		}
	}
}

func TestTheTenantIsGivenExactlyOnce(t *testing.T) {
	f := serve(t, true)
	for query, code := range map[string]int{
		"": 400, "?tenant_id=": 400, "?tenant_id=acme&tenant_id=acme": 400, "?tenant_id=acme&tenant_id=globex": 400, "?tenant_id=ACME": 400,
		"?tenant_id=acme&x=1": 400, "?tenant_id=acme&page_token=x": 400, "?TENANT_ID=acme": 400, "?tenant_id=acme%00": 400, "?tenant_id=acme": 200,
	} {
		for method, segment := range map[string]string{"DELETE": "a", "POST": "a:erase"} {
			if got := f.raw(method, "/v1/intent/subject/"+segment+query); got != code {
				t.Errorf("%s %s: %d, want %d", method, query, got, code)
			}
		}
	}
}

func TestEveryIDSurvivesTheWayThroughARealClient(t *testing.T) {
	f := serve(t, true)
	rapid.Check(t, func(r *rapid.T) {
		id := rapid.StringN(1, 8, 64).Filter(func(s string) bool { return subject.CheckIdentity(s) == nil }).Draw(r, "id")
		escaped := rapid.SampledFrom([]func(string) string{url.PathEscape, func(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }}).Draw(r, "escape")(id)
		if got := f.do("all", http.MethodPost, "/v1/intent/subject/"+escaped+":erase?tenant_id=acme", ""); got.status != 200 {
			r.Fatalf("%q: %d %s", id, got.status, got.body)
		}
		if asked := f.all.took(); len(asked) != 1 || asked[0] != person(t, "acme", id) {
			r.Fatalf("%q reached somebody else", id)
		}
		if got := f.do("all", http.MethodDelete, "/v1/intent/subject/"+escaped+"?tenant_id=acme", ""); got.status != 200 {
			r.Fatalf("%q: %d", id, got.status)
		}
		if asked := f.cell.took(); len(asked) != 1 || asked[0] != person(t, "acme", id) {
			r.Fatalf("%q reached somebody else", id)
		}
	})
}
