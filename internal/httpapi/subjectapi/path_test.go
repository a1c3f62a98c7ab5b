package subjectapi

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"recount/internal/subject"
)

// spell escapes an id: what must be escaped is, and of the rest what the dice say, in either case of the digits.
func spell(t *rapid.T, id string) string {
	var out strings.Builder
	for i := range len(id) {
		b := id[i]
		must := strings.IndexByte("/%?#", b) >= 0 || b <= ' ' || b >= 0x7f
		switch {
		case !must && rapid.Bool().Draw(t, "bare"):
			out.WriteByte(b)
		case rapid.Bool().Draw(t, "upper"):
			fmt.Fprintf(&out, "%%%02X", b)
		default:
			fmt.Fprintf(&out, "%%%02x", b)
		}
	}
	return out.String()
}

func identities() *rapid.Generator[string] {
	part := rapid.SampledFrom([]string{":erase", "%3Aerase", "%2F", "/", "a", ":", "%", "25", ".", "+", " ", "é", "#", "?", "@", "erase", "\\", ";", "\U0001F600"})
	return rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(part, 1, 6).Draw(t, "parts"), "")
	}).Filter(func(id string) bool { return subject.CheckIdentity(id) == nil })
}

// reached is the id that a method on the escaped segment is about.
func reached(t *rapid.T, escaped string, verb bool) (id string, found bool) {
	path, ok := split(escaped)
	if !ok || verb && !path.hasVerb {
		return "", false
	}
	segment := path.whole
	if verb {
		segment = path.beforeVerb
	}
	id, err := decode(segment)
	if err != nil {
		t.Fatalf("%q: %v", escaped, err)
	}
	return id, true
}

func TestEverySpellingOfAnIDIsThatID(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := identities().Draw(t, "id")
		for _, verb := range []string{"", eraseVerb} {
			if got, found := reached(t, spell(t, id)+verb, verb != ""); !found || got != id {
				t.Fatalf("%q%s became %q, %v", id, verb, got, found)
			}
		}
	})
}

func TestTwoIDsNeverReachOneSubject(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := identities().Draw(t, "a"), identities().Draw(t, "b")
		verb := rapid.Bool().Draw(t, "verb")
		suffix := ""
		if verb {
			suffix = eraseVerb
		}
		spelledA, spelledB := spell(t, a)+suffix, spell(t, b)+suffix
		gotA, _ := reached(t, spelledA, verb)
		gotB, _ := reached(t, spelledB, verb)
		if (a == b) != (gotA == gotB) {
			t.Fatalf("%q and %q: %q and %q", a, b, gotA, gotB)
		}
		if spelledA == spelledB && a != b {
			t.Fatalf("%q and %q are both spelled %q", a, b, spelledA)
		}
	})
}

func FuzzPath(f *testing.F) {
	for _, seed := range []string{"a", "a%2Fb", "a%252Fb", ":erase", "urn:user:42:erase:erase", "alice%3Aerase", "%", "..", "a/b", "%zz", "+"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, escaped string) {
		path, ok := split(escaped)
		if ok == strings.Contains(escaped, "/") {
			t.Fatal("more than one segment")
		}
		if path.hasVerb && path.beforeVerb+eraseVerb != path.whole {
			t.Fatalf("%q in front of the verb of %q", path.beforeVerb, path.whole)
		}
		id, err := decode(path.whole)
		if err != nil {
			if !errors.Is(err, subject.ErrIdentity) || strings.Contains(err.Error(), escaped) && len(escaped) > 8 {
				t.Fatalf("%v", err)
			}
			return
		}
		// Escaping it again, whole, must lead to the same id: nothing was decoded twice or not at all.
		if again, err := decode(url.PathEscape(id)); err != nil || again != id {
			t.Fatalf("%q came back as %q", id, again)
		}
	})
}
