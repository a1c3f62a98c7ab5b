package auth_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"recount/internal/auth"
)

func TestAnAllowListIsRead(t *testing.T) {
	all := auth.Read | auth.Write | auth.Erase
	for text, want := range map[string]auth.Callers{
		"a@x.io":                           {{Email: "a@x.io", Roles: all}},
		" A@X.io , b@x.io ":                {{Email: "a@x.io", Roles: all}, {Email: "b@x.io", Roles: all}},
		"a@x.io#12":                        {{Email: "a@x.io", Sub: "12", Roles: all}},
		"a+b@x.io=read+allow":              {{Email: "a+b@x.io", Roles: auth.Read | auth.Allow}},
		"a@x.io#12=erase@acme|globex":      {{Email: "a@x.io", Sub: "12", Roles: auth.Erase, Tenants: []string{"acme", "globex"}}},
		"a@x.io=write,b@x.io=read@acme":    {{Email: "a@x.io", Roles: auth.Write}, {Email: "b@x.io", Roles: auth.Read, Tenants: []string{"acme"}}},
		"a@x.io=allow+erase+write+read@_0": nil,
	} {
		got, err := auth.ParseCallers(text)
		if (err != nil) != (want == nil) || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}

func TestEveryFaultOfAnAllowListIsNamedAtOnce(t *testing.T) {
	_, err := auth.ParseCallers("a@x.io,,bot,b@x.io#=reed+read+read@Acme||acme|acme,A@x.io,k\u212A@x.io,=read,c@x.io#1#2,d@x.io=,e@x.io=read@")
	if err == nil {
		t.Fatal("no fault")
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("not a join of faults: %T", err)
	}
	var got []string
	for _, fault := range joined.Unwrap() {
		got = append(got, fault.Error())
	}
	want := []string{
		`entry 2 is empty`, `entry 3: "bot" is not an e-mail`, `entry 4: "" is not an account's unique id`, `entry 4: role "reed"`,
		`entry 4: role "read" is written twice`, `entry 4: tenant "Acme"`, `entry 4: tenant ""`, `entry 4: tenant "acme" is written twice`,
		`entry 5: the address is listed twice`, "entry 6: \"k\u212a@x.io\" is not an e-mail", `entry 7: "" is not an e-mail`,
		`entry 8: "1#2" is not an account's unique id`, `entry 9: role ""`, `entry 10: tenant ""`,
	}
	if len(got) != len(want) {
		t.Fatalf("%d faults, want %d:\n%s", len(got), len(want), strings.Join(got, "\n"))
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) || !strings.Contains(got[i], ":") {
			t.Errorf("fault %d is %s, want %s", i, got[i], want[i])
		}
	}
}

func TestAnEmptyAllowListIsAFault(t *testing.T) {
	for _, text := range []string{"", " ", ","} {
		if _, err := auth.ParseCallers(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

func TestAnAllowListIsReadAsItIsWritten(t *testing.T) {
	role := rapid.SampledFrom([]auth.Role{auth.Read, auth.Write, auth.Erase, auth.Allow, auth.Drive})
	tenant := rapid.StringMatching(`[a-z0-9][a-z0-9_-]{0,5}`)
	caller := rapid.Custom(func(t *rapid.T) auth.Caller {
		c := auth.Caller{
			Email: rapid.StringMatching(`[a-z0-9._%+'-]{1,8}@[a-z0-9-]{1,4}([.][a-z0-9-]{1,4})?`).Draw(t, "email"),
			Sub:   rapid.StringMatching(`([A-Za-z0-9_-]{1,21})?`).Draw(t, "sub"),
		}
		for _, r := range rapid.SliceOfN(role, 1, 4).Draw(t, "roles") {
			c.Roles |= r
		}
		if tenants := rapid.SliceOfNDistinct(tenant, 0, 3, rapid.ID).Draw(t, "tenants"); len(tenants) > 0 {
			c.Tenants = tenants
		}
		return c
	})
	rapid.Check(t, func(t *rapid.T) {
		want := auth.Callers(rapid.SliceOfNDistinct(caller, 1, 4, func(c auth.Caller) string { return c.Email }).Draw(t, "callers"))
		got, err := auth.ParseCallers(want.String())
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%s: %+v, %v", want, got, err)
		}
	})
}

func TestACallerMayDoWhatIsGrantedAndNothingElse(t *testing.T) {
	roles := []auth.Role{auth.Read, auth.Write, auth.Erase, auth.Allow}
	rapid.Check(t, func(t *rapid.T) {
		granted := auth.Role(rapid.IntRange(0, 15).Draw(t, "granted"))
		tenants := rapid.SampledFrom([][]string{nil, {}, {"acme"}, {"acme", "globex"}}).Draw(t, "tenants")
		c := auth.Caller{Roles: granted, Tenants: tenants}
		for _, r := range roles {
			for _, tenant := range []string{"acme", "globex", "initech", "", "ACME"} {
				want := granted&r != 0 && (tenants == nil || slices.Contains(tenants, tenant))
				if c.May(r, tenant) != want {
					t.Fatalf("%v of %v for %q: %v", r, granted, tenant, !want)
				}
			}
		}
		if c.Has(0) || c.May(0, "acme") || (auth.Caller{}).May(auth.Read, "acme") {
			t.Fatal("no role, and allowed")
		}
	})
}

func FuzzParseCallers(f *testing.F) {
	f.Add("a@x.io#12=erase@acme|globex,b@x.io")
	f.Add("a@x.io=read+read@")
	f.Fuzz(func(t *testing.T, text string) {
		callers, err := auth.ParseCallers(text)
		if err != nil {
			return
		}
		again, err := auth.ParseCallers(callers.String())
		if err != nil || !reflect.DeepEqual(callers, again) {
			t.Fatalf("%q: %v, %v, %v", text, callers, again, err)
		}
	})
}
