package auth_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"recount/internal/auth"
)

func TestWithoutTokensOnlyALoopbackAddressIsServed(t *testing.T) {
	for addr, fine := range map[string]bool{
		"127.0.0.1:8080": true, "127.8.8.8:0": true, "[::1]:8080": true, "localhost:8080": true, "[::ffff:127.0.0.1]:1": true,
		":8080": false, "0.0.0.0:8080": false, "[::]:8080": false, "10.0.0.1:8080": false, "127.0.0.1": false, "": false,
		"example.com:80": false, "localhost.example.com:80": false, "127.0.0.1.example.com:80": false, "[fe80::1%lo]:80": false,
		"0177.0.0.1:80": false, "2130706433:80": false,
	} {
		if _, err := auth.NewLoopback(addr); (err == nil) != fine {
			t.Errorf("%q: %v", addr, err)
		}
	}
}

func TestOnlyTheMachineItselfIsLetInWithoutATokenAtAll(t *testing.T) {
	a, err := auth.NewLoopback("127.0.0.1:8080")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		method, host string
		headers      []string
		fine         bool
	}{
		"a tool":                     {http.MethodDelete, "127.0.0.1:8080", nil, true},
		"another port":               {http.MethodPost, "localhost:9", nil, true},
		"no port":                    {http.MethodPost, "LOCALHOST", nil, true},
		"IPv6":                       {http.MethodPost, "[::1]:8080", nil, true},
		"IPv6 without port":          {http.MethodPost, "[::1]", nil, true},
		"a page of its own":          {http.MethodPost, "127.0.0.1:8080", []string{"Origin", "http://127.0.0.1:8080"}, true},
		"a page that asks":           {http.MethodPost, "127.0.0.1:8080", []string{"Sec-Fetch-Site", "same-origin"}, true},
		"a rebound name":             {http.MethodPost, "evil.example:8080", nil, false},
		"a name that begins alike":   {http.MethodPost, "127.0.0.1.evil.example", nil, false},
		"a name below localhost":     {http.MethodPost, "evil.localhost", nil, false},
		"no host":                    {http.MethodPost, "", nil, false},
		"reading by a rebound name":  {http.MethodGet, "evil.example", nil, false},
		"another site's page":        {http.MethodPost, "127.0.0.1:8080", []string{"Origin", "https://evil.example"}, false},
		"another port's page":        {http.MethodPost, "127.0.0.1:8080", []string{"Origin", "http://127.0.0.1:3000"}, false},
		"another site, by its fetch": {http.MethodDelete, "127.0.0.1:8080", []string{"Sec-Fetch-Site", "cross-site"}, false},
		"a sandboxed page":           {http.MethodPost, "127.0.0.1:8080", []string{"Origin", "null"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(test.method, "http://x/", nil)
			r.Host = test.host
			for i := 0; i < len(test.headers); i += 2 {
				r.Header.Set(test.headers[i], test.headers[i+1])
			}
			got, err := a.Authenticate(r)
			if (err == nil) != test.fine || err != nil && !errors.Is(err, auth.ErrForbidden) {
				t.Fatalf("%+v, %v", got, err)
			}
			if all := auth.Read | auth.Write | auth.Erase | auth.Allow; got.May(all, "any") != test.fine || test.fine && got.Actor() != "auth-off" {
				t.Errorf("%+v", got)
			}
		})
	}
}
