package auth_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"recount/internal/auth"
)

func TestAListOfPrincipalsIsRead(t *testing.T) {
	for text, want := range map[string]auth.Callers{
		"dpo@x.io":                     {{Email: "dpo@x.io", Roles: auth.Admin}},
		" DPO@X.io#12 , privacy@x.io ": {{Email: "dpo@x.io", Sub: "12", Roles: auth.Admin}, {Email: "privacy@x.io", Roles: auth.Admin}},
	} {
		got, err := auth.ParsePrincipals(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
		for _, principal := range got {
			if principal.Has(auth.Read) || principal.Has(auth.Write) || principal.Has(auth.Erase) || principal.Has(auth.Allow) {
				t.Errorf("%+v may do what callers may", principal)
			}
		}
	}
}

func TestEveryFaultOfAListOfPrincipalsIsNamedAtOnce(t *testing.T) {
	got, err := auth.ParsePrincipals("a@x.io,,bot,b@x.io#,A@X.IO,c@x.io#7,d@x.io#7,e@x.io=read,f@x.io=,a@x.io#9,k\u212A@x.io")
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || got != nil {
		t.Fatalf("%v and %v", got, err)
	}
	want := []string{
		"entry 2: write email[#sub]", `entry 3: "bot" is not an e-mail`, `entry 4: "" is not an account's unique id`, "entry 5: the address or the account is listed twice",
		"entry 7: the address or the account is listed twice", "entry 8: write email[#sub], without roles", "entry 9: write email[#sub], without roles",
		"entry 10: the address or the account is listed twice", "entry 11: \"k\u212a@x.io\" is not an e-mail",
	}
	faults := joined.Unwrap()
	if len(faults) != len(want) {
		t.Fatalf("%d faults, want %d:\n%v", len(faults), len(want), err)
	}
	for i := range want {
		if !strings.HasPrefix(faults[i].Error(), want[i]) {
			t.Errorf("fault %d is %s, want %s", i, faults[i], want[i])
		}
	}
	if _, err := auth.ParsePrincipals(""); err == nil {
		t.Error("nobody is a list of principals")
	}
}

func TestNoAllowListOfCallersMakesAPrincipal(t *testing.T) {
	if got, err := auth.ParseCallers("a@x.io=admin"); err == nil {
		t.Errorf("%+v", got)
	}
	got, err := auth.ParseCallers("a@x.io=read+write+erase+allow")
	if err != nil || got[0].Has(auth.Admin) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestDevPrincipalsAreServedOnALoopbackAddressAlone(t *testing.T) {
	for addr, fine := range map[string]bool{"127.0.0.1:8080": true, "[::1]:0": true, ":8080": false, "0.0.0.0:8080": false, "10.0.0.1:8080": false} {
		if _, err := auth.NewDevPrincipals(addr); (err == nil) != fine {
			t.Errorf("%q: %v", addr, err)
		}
	}
}

func TestADevPrincipalIsNamedOnceAndComparedWithoutCase(t *testing.T) {
	a, err := auth.NewDevPrincipals("127.0.0.1:8080")
	if err != nil {
		t.Fatal(err)
	}
	ask := func(host string, given []string, header ...string) (auth.Caller, error) {
		r := httptest.NewRequest(http.MethodPost, "http://x/", nil)
		r.Host = host
		for _, name := range given {
			r.Header.Add(auth.HeaderDevPrincipal, name)
		}
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		return a.Authenticate(r)
	}
	const local = "127.0.0.1:8080"
	for _, spelling := range []string{"dpo@x.io", "DPO@X.io", " dpo@x.io "} {
		got, err := ask(local, []string{spelling})
		if want := (auth.Caller{Email: "dpo@x.io", Sub: "dev-dpo@x.io", Roles: auth.Admin}); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v", spelling, got, err)
		}
	}
	for what, given := range map[string][]string{
		"none": nil, "empty": {""}, "two": {"a@x.io", "b@x.io"}, "the same twice": {"a@x.io", "a@x.io"}, "a list": {"a@x.io,b@x.io"}, "no address": {"dpo"}, "a letter that folds": {"k\u212A@x.io"},
	} {
		if got, err := ask(local, given); !errors.Is(err, auth.ErrUnauthenticated) || got.Roles != 0 {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
	one := []string{"dpo@x.io"}
	for what, refused := range map[string]func() (auth.Caller, error){
		"a rebound name":      func() (auth.Caller, error) { return ask("evil.example", one) },
		"no host":             func() (auth.Caller, error) { return ask("", one) },
		"another site's page": func() (auth.Caller, error) { return ask(local, one, "Origin", "https://evil.example") },
		"another port's page": func() (auth.Caller, error) { return ask(local, one, "Origin", "http://127.0.0.1:3000") },
		"a cross-site fetch":  func() (auth.Caller, error) { return ask(local, one, "Sec-Fetch-Site", "cross-site") },
	} {
		if got, err := refused(); !errors.Is(err, auth.ErrForbidden) || got.Roles != 0 {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
}

func TestAnAddressWithADotAtItsEndIsNoSecondPrincipal(t *testing.T) {
	if _, err := auth.ParsePrincipals("dpo@acme.example,dpo@acme.example."); err == nil {
		t.Error("two spellings of one address are two principals")
	}
}
