package suppression

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"recount/internal/subject"
)

func parse(t interface{ Fatal(...any) }, text string) *Keys {
	k, err := ParseKeys(text)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func anySource(t *rapid.T, label string) subject.Source {
	text := rapid.StringN(1, 20, 80)
	s, err := subject.NewSource(rapid.SampledFrom([]string{"acme", "globex"}).Draw(t, label+" tenant"), text.Draw(t, label), text.Draw(t, label+" ref"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const secretText, otherSecret = "a suppression secret", "another suppression secret"

func TestTwoSourcesNeverShareAKeyAndOneAlwaysHasTheSame(t *testing.T) {
	one, same, other := parse(t, secretText), parse(t, secretText), parse(t, otherSecret)
	rapid.Check(t, func(t *rapid.T) {
		a, b := anySource(t, "a"), anySource(t, "b")
		if (one.MAC(a) == one.MAC(b)) != (a == b) {
			t.Fatal("two sources share a key, or one has two")
		}
		if one.MAC(a) != same.MAC(a) || one.MAC(a) == other.MAC(a) {
			t.Fatal("a key does not depend on the secret, or on something else")
		}
	})
	join := func(source, ref string) subject.Source {
		s, err := subject.NewSource("acme", source, ref)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if one.MAC(join("ab", "c")) == one.MAC(join("a", "bc")) {
		t.Error("the halves run together")
	}
}

func TestWhatWasSealedIsOpenedByItsOwnKeyTenantAndEntryAlone(t *testing.T) {
	k, rotated := parse(t, secretText), parse(t, otherSecret+","+secretText)
	rapid.Check(t, func(t *rapid.T) {
		s, reason := anySource(t, "source"), rapid.StringN(0, 20, 80).Draw(t, "reason")
		mac := k.MAC(s)
		sealed := k.Seal(s, reason, mac)
		for _, keys := range []*Keys{k, rotated} {
			got, why, err := keys.Open(s.Tenant(), k.Current(), mac, sealed)
			if err != nil || got != s || why != reason {
				t.Fatalf("opened to another source, %q, %v", why, err)
			}
		}
		if _, _, err := k.Open("initech", k.Current(), mac, sealed); !errors.Is(err, ErrSealed) {
			t.Fatalf("another tenant: %v", err)
		}
		if _, _, err := k.Open(s.Tenant(), rotated.Current(), mac, sealed); !errors.Is(err, ErrKeyMissing) {
			t.Fatalf("a key that is not there: %v", err)
		}
		mac[0] ^= 1
		if _, _, err := k.Open(s.Tenant(), k.Current(), mac, sealed); !errors.Is(err, ErrSealed) {
			t.Fatalf("another entry: %v", err)
		}
		mac[0] ^= 1
		sealed[rapid.IntRange(0, len(sealed)-1).Draw(t, "at")] ^= 1
		if _, _, err := k.Open(s.Tenant(), k.Current(), mac, sealed); !errors.Is(err, ErrSealed) {
			t.Fatalf("a changed bit: %v", err)
		}
	})
}

// FuzzCutText reads what a sealed entry holds, as if somebody had the key and wrote nonsense.
func FuzzCutText(f *testing.F) {
	f.Add(appendText(appendText(nil, "crm"), "1"))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Fuzz(func(t *testing.T, data []byte) {
		text, rest, ok := cutText(data)
		if ok && len(text)+len(rest) > len(data) {
			t.Fatal("more came out than was in")
		}
	})
}

func TestABadKeyIsRefusedAndNeverQuoted(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "short": "hush", "a short one behind": secretText + ",hush", "twice": secretText + ", " + secretText, "an empty one": secretText + ",",
		"too many": func() string {
			var all []string
			for i := range 9 {
				all = append(all, fmt.Sprint("secret number ", i, " of nine"))
			}
			return strings.Join(all, ",")
		}(),
	} {
		if _, err := ParseKeys(text); err == nil || strings.Contains(err.Error(), "hush") || strings.Contains(err.Error(), "suppression secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestKeysPrintRedacted(t *testing.T) {
	k := parse(t, secretText)
	text, err := json.Marshal(map[string]any{"k": k})
	if err != nil {
		t.Fatal(err)
	}
	if printed := fmt.Sprintf("%v %+v %#v %s", k, k, k, text); strings.Contains(printed, "suppression secret") {
		t.Errorf("printed: %s", printed)
	}
}

func TestAFilterHoldsEverythingThatWasAdded(t *testing.T) {
	k := parse(t, secretText)
	mac := func(i int) MAC {
		s, err := subject.NewSource("acme", "crm", fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		return k.MAC(s)
	}
	f := NewFilter(10)
	const n = 10_000
	for i := range n {
		f.Add(mac(i))
	}
	inVain := 0
	for i := range n {
		if !f.MayHold(mac(i)) {
			t.Fatalf("entry %d is missed", i)
		}
		if f.MayHold(mac(n + i)) {
			inVain++
		}
	}
	if !f.Full() {
		t.Error("a filter for 10 is not full of 10,000")
	}
	if sized := NewFilter(n); sized.Full() {
		t.Error("a filter for 10,000 is full at once")
	}
	t.Logf("%d of %d looked up in vain", inVain, n)
}
