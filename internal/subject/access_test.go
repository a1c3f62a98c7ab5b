package subject

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

type readable struct {
	scripted
	pages []map[string]any
	err   error
}

func (r *readable) Count(context.Context, Subject) (int64, error) { return int64(len(r.pages)), nil }

func (r *readable) Read(_ context.Context, _ Subject, cursor string, _ int) (Page, error) {
	if r.err != nil {
		return Page{}, r.err
	}
	i := 0
	if cursor != "" {
		i, _ = strconv.Atoi(cursor)
	}
	next := ""
	if i+1 < len(r.pages) {
		next = strconv.Itoa(i + 1)
	}
	return Page{Rows: r.pages[i : i+1], Next: next}, nil
}

func (r *readable) IdentityFields() []string { return []string{"identity_id", "related_id"} }

func accessor(stores ...Store) *Accessor {
	salt, _ := NewSalt("0123456789abcdef")
	return &Accessor{Cell: "c", Stores: stores, Timeout: time.Second, Deny: DefaultDeny(), Pages: NewPageKey(salt)}
}

func TestAPageTokenServesItsStoreSubjectAndCallerOnly(t *testing.T) {
	row := func(i int) map[string]any { return map[string]any{"n": i, "identity_id": "alice@example.com"} }
	many := &readable{scripted: scripted{name: "many"}, pages: []map[string]any{row(0), row(1), row(2)}}
	few := &readable{scripted: scripted{name: "few"}, pages: []map[string]any{row(0)}}
	a := accessor(many, few)
	alice := person(t)
	first, err := a.Access(t.Context(), alice, PageRequest{Caller: "dsar"})
	if err != nil || len(first[0].Rows) != 1 || len(first[1].Rows) != 1 || first[0].NextPageToken == "" || first[1].NextPageToken != "" {
		t.Fatalf("first page: %v %+v", err, first)
	}
	token := first[0].NextPageToken
	if strings.ContainsAny(token, "+/=") {
		t.Errorf("not URL-safe: %s", token)
	}
	second, err := a.Access(t.Context(), alice, PageRequest{Token: token, Caller: "dsar"})
	if err != nil || second[0].Rows[0]["n"] != 1 || len(second[1].Rows) != 0 || second[0].Count != Measured(3) || second[1].Count != Measured(1) {
		t.Fatalf("second page: %v %+v", err, second)
	}
	bob, _ := New("acme", "bob")
	aliceElsewhere, _ := New("globex", "alice@example.com")
	other := accessor(many, few)
	other.Cell = "d"
	for name, ask := range map[string]func() error{
		"another subject": func() error {
			_, err := a.Access(t.Context(), bob, PageRequest{Token: token, Caller: "dsar"})
			return err
		},
		"another tenant": func() error {
			_, err := a.Access(t.Context(), aliceElsewhere, PageRequest{Token: token, Caller: "dsar"})
			return err
		},
		"another caller": func() error {
			_, err := a.Access(t.Context(), alice, PageRequest{Token: token, Caller: "eve"})
			return err
		},
		"another cell": func() error {
			_, err := other.Access(t.Context(), alice, PageRequest{Token: token, Caller: "dsar"})
			return err
		},
		"a changed token": func() error {
			_, err := a.Access(t.Context(), alice, PageRequest{Token: "A" + token[1:], Caller: "dsar"})
			return err
		},
		"no token at all": func() error {
			_, err := a.Access(t.Context(), alice, PageRequest{Token: "!", Caller: "dsar"})
			return err
		},
	} {
		if err := ask(); !errors.Is(err, ErrPageToken) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDeniedFieldsAreRemovedAtAnyDepthAndNamed(t *testing.T) {
	s := &readable{scripted: scripted{name: "s"}, pages: []map[string]any{{
		"identity_id": "alice@example.com", "related_id": "bob@example.com", "score": 0.7, "password": "x",
		"payload": map[string]any{"deep": []any{map[string]any{"api_key": "k", "kept": "v"}}},
	}}}
	got, err := accessor(s).Access(t.Context(), person(t), PageRequest{})
	if err != nil {
		t.Fatal(err)
	}
	shown, _ := json.Marshal(got[0].Rows)
	want := `[{"identity_id":"alice@example.com","payload":{"deep":[{"kept":"v"}]},"score":0.7}]`
	if string(shown) != want {
		t.Errorf("shown %s, want %s", shown, want)
	}
	if fmt.Sprint(got[0].Scrubbed) != "[api_key password related_id]" {
		t.Errorf("scrubbed %v", got[0].Scrubbed)
	}
}

func TestAStoreThatCanNotBeReadSaysSoAndItsSiblingsAreRead(t *testing.T) {
	broken := &readable{scripted: scripted{name: "broken"}, pages: []map[string]any{{}}, err: errors.New("row of alice@example.com")}
	blind := &scripted{name: "blind"}
	fine := &readable{scripted: scripted{name: "fine"}, pages: []map[string]any{{"n": 1}}}
	got, err := accessor(broken, blind, fine).Access(t.Context(), person(t), PageRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if got[0].Reason != ReasonReadFailed || got[1].Reason != ReasonUnreadable || got[2].Reason != ReasonNone {
		t.Fatalf("%q %q %q", got[0].Reason, got[1].Reason, got[2].Reason)
	}
}

// hidden is a struct that fmt prints field by field, without asking the fields.
type hidden struct {
	s    Subject
	salt Salt
}

func TestASubjectIsNeverPrinted(t *testing.T) {
	s := person(t)
	salt, _ := NewSalt("a secret of 16 bytes or more")
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "subject", s, "salt", salt)
	encoded, _ := json.Marshal(map[string]any{"s": s, "salt": salt})
	all := log.String() + string(encoded) + fmt.Sprintf("%v %+v %#v %s %q %x %d", s, s, s, s, s, s, s) + fmt.Sprintf("%v %+v %#v %s %x", salt, salt, salt, salt, salt) +
		fmt.Sprintf("%v %+v %#v", hidden{s, salt}, hidden{s, salt}, &hidden{s, salt})
	for _, secret := range []string{"alice", "616c696365", "secret", "736563726574", "acme"} {
		if strings.Contains(all, secret) {
			t.Errorf("%q is in %s", secret, all)
		}
	}
}

func TestTwoSubjectsNeverShareAReference(t *testing.T) {
	salt, _ := NewSalt("0123456789abcdef")
	tenants := rapid.StringMatching(`[a-z0-9][a-z0-9_-]{0,3}`)
	rapid.Check(t, func(t *rapid.T) {
		identities := rapid.StringN(1, 6, 20).Filter(func(s string) bool { return CheckIdentity(s) == nil })
		a, errA := New(tenants.Draw(t, "tenant a"), identities.Draw(t, "identity a"))
		b, errB := New(tenants.Draw(t, "tenant b"), identities.Draw(t, "identity b"))
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		if (a == b) != (a.Ref(salt) == b.Ref(salt)) {
			t.Fatal("one reference for two people, or two for one")
		}
		if len(a.Ref(salt)) != 64 {
			t.Fatalf("%d digits", len(a.Ref(salt)))
		}
	})
}

func TestIdentitiesAndTenantsThatNothingCanCarryAreRefused(t *testing.T) {
	for _, identity := range []string{"", ".", "..", "a\x00", "a\n", "\x7f", "\xff", "a\u0085b", strings.Repeat("x", 513)} {
		if _, err := New("acme", identity); !errors.Is(err, ErrIdentity) || strings.Contains(err.Error(), "xxx") {
			t.Errorf("%q: %v", identity, err)
		}
	}
	for _, identity := range []string{"a", "...", "a/b", "a%2Fb", "urn:user:42:erase", ":erase", "a b", "+", "#?@", "日本", strings.Repeat("x", 512)} {
		if _, err := New("acme", identity); err != nil {
			t.Errorf("%q: %v", identity, err)
		}
	}
	for _, tenant := range []string{"", "-a", "_a", "A", "a b", "a|b", "é", strings.Repeat("a", 64)} {
		if _, err := New(tenant, "x"); !errors.Is(err, ErrTenant) {
			t.Errorf("%q: %v", tenant, err)
		}
	}
}

func FuzzPageToken(f *testing.F) {
	salt, _ := NewSalt("0123456789abcdef")
	key := NewPageKey(salt)
	s, _ := New("acme", "alice")
	f.Add(key.seal("c", "store", "cursor", "caller", s))
	f.Add("")
	f.Fuzz(func(t *testing.T, token string) {
		store, cursor, err := key.open(token, "c", "caller", s)
		if err == nil && key.seal("c", store, cursor, "caller", s) != token {
			t.Fatal("opened a token that the key never made")
		}
	})
}
