package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestEscapedControlsMeanTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.String().Draw(t, "words") + rapid.StringOf(rapid.RuneFrom([]rune{0x7f, 0x9b, 0x202e, 0x2066, 'a', '"', '\\'})).Draw(t, "marks")
		written, err := json.Marshal(words)
		if err != nil {
			t.Fatal(err)
		}
		safe := escapeControls(written)
		if strings.ContainsFunc(string(safe), obeyed) {
			t.Fatalf("a terminal obeys %q", safe)
		}
		var back, plain string
		if json.Unmarshal(safe, &back) != nil || json.Unmarshal(written, &plain) != nil || back != plain {
			t.Fatalf("%q became %q", plain, back)
		}
	})
}

func TestForeignWordsArePrintable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := printable(string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")))
		if !utf8.ValidString(words) || strings.ContainsAny(words, "\x1b\r\n\u009b") || len([]rune(words)) > 201 {
			t.Fatalf("got %q", words)
		}
	})
}

func TestAnAddressSendsNothingInTheClear(t *testing.T) {
	for address, good := range map[string]bool{
		"https://cell.example.com": true, "https://cell.example.com/base/": true, "http://127.0.0.1:8080": true, "http://[::1]:8080": true,
		"http://localhost:1": true, "http://example.com": false, "http://127.0.0.1.example.com": false, "ftp://127.0.0.1": false, "": false,
		"https://": false, "https://me@example.com": false, "https://example.com?x=1": false, "https://example.com#x": false, "cell.example.com": false,
	} {
		if _, err := newTarget("graph", address); (err == nil) != good {
			t.Errorf("%q: %v", address, err)
		}
	}
}

func TestWhatWasTypedIsNotInAParseError(t *testing.T) {
	for _, args := range [][]string{
		{"erase", "alice@x.io"}, {"erase", "--identiy=alice@x.io"}, {"erase", "--wait=alice@x.io"}, {"erase", "--deadline", "alice@x.io"}, {"alice@x.io"},
	} {
		err := run(t.Context(), args, "test", nil, &screen{out: &strings.Builder{}, err: &strings.Builder{}})
		if err == nil || strings.Contains(err.Error(), "alice") {
			t.Errorf("%v: %v", args, err)
		}
	}
}
