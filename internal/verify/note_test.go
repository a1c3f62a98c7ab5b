package verify

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

func TestKeysAreReadWithCommasSpacesAndLineEndsBetweenThem(t *testing.T) {
	a, b := newIssuer(t, "a.example"), newIssuer(t, "b.example")
	for _, format := range []string{"%s,%s", "%s %s\n", " %s\r\n%s,", "%s\t,\n,%s"} {
		keys, err := ParseKeys(fmt.Sprintf(format, a.public, b.public))
		if err != nil || len(keys.known) != 2 {
			t.Errorf("%q: %d keys, %v", format, len(keys.known), err)
		}
	}
	if keys, err := ParseKeys(a.public + " " + a.public); err != nil || len(keys.known) != 1 {
		t.Errorf("a key twice: %v", err)
	}
}

func TestABadKeyIsNamedByItsNumberAndNotQuoted(t *testing.T) {
	good := newIssuer(t, "recount-test").public
	private, _, err := note.GenerateKey(nil2zero{}, "recount-test")
	must(t, err)
	_, encoded, _ := strings.Cut(strings.TrimPrefix(good, "recount-test+"), "+")
	for name, bad := range map[string]string{
		"a word": "word", "no hash": "recount-test++" + encoded, "a wrong hash": "recount-test+00000000+" + encoded, "another name": "x" + good,
		"no name": strings.TrimPrefix(good, "recount-test"), "cut": good[:len(good)-1], "more": good + "A", "a plus": good + "+", "another algorithm": "x+1a2b3c4d+Ag==",
		"a signing key": private,
	} {
		_, err := ParseKeys(good + "\n" + bad)
		if err == nil || !strings.Contains(err.Error(), "key 2") || !strings.Contains(err.Error(), "name+1a2b3c4d+base64") {
			t.Errorf("%s: %v", name, err)
		} else if strings.Contains(err.Error(), bad[len(bad)/2:]) && len(bad) > 10 {
			t.Errorf("%s is quoted", name)
		}
	}
	for _, nothing := range []string{"", " ,\n"} {
		if _, err := ParseKeys(nothing); err == nil || !strings.Contains(err.Error(), "name+1a2b3c4d+base64") {
			t.Errorf("%q: %v", nothing, err)
		}
	}
}

type nil2zero struct{}

func (nil2zero) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestEveryGoodNoteOpensAndNoOtherFormDoes(t *testing.T) {
	i := newIssuer(t, "recount-test")
	good := i.sign(t, "a\n\nb\n")
	if text, err := i.keys.open([]byte(good)); err != nil || string(text) != "a\n\nb\n" {
		t.Fatalf("%q, %v", text, err)
	}
	at := strings.Index(good, "\n\n\u2014") + 2
	signature := good[at:]
	for name, bad := range map[string]string{
		"no signatures": good[:at], "no empty line": "a\n" + signature, "a hyphen for the dash": good[:at] + strings.Replace(signature, "\u2014", "-", 1),
		"two spaces": good[:at] + strings.Replace(signature, "test ", "test  ", 1), "CRLF": strings.ReplaceAll(good, "\n", "\r\n"), "no end": strings.TrimSuffix(good, "\n"),
		"a space behind": strings.TrimSuffix(good, "\n") + " \n", "a tab": "\t" + good, "broken UTF-8": "\xff" + good, "an empty line behind": good + "\n",
		"another form of base64": good[:at] + nonCanonical(signature),
	} {
		if _, err := i.keys.open([]byte(bad)); err == nil {
			t.Errorf("%s: it opens", name)
		}
	}
}

// nonCanonical sets the bits of a signature's base64 that decode to nothing.
func nonCanonical(line string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	at := strings.LastIndex(line, "=") - 1
	return line[:at] + string(alphabet[strings.IndexByte(alphabet, line[at])|1]) + line[at+1:]
}

func TestTreesAndProofsAreThoseOfTlogForAllSizesUpToForty(t *testing.T) {
	forest, edge := &forest{}, compactRange{}
	var leaves []hash
	for size := int64(1); size <= 40; size++ {
		line := fmt.Sprint("line ", size)
		forest.add(t, line)
		leaves = append(leaves, leafHash([]byte(line)))
		edge.add(leaves[size-1])
		tree := head{size: size, root: hash(forest.root(t, size))}
		if edge.root() != tree.root || edge.size != size {
			t.Fatalf("the root of %d lines is another", size)
		}
		for index := range size {
			path, err := tlog.ProveRecord(size, index, forest)
			must(t, err)
			proof := []hash{}
			for _, h := range path {
				proof = append(proof, hash(h))
			}
			if !included(leaves[index], index, proof, tree) {
				t.Fatalf("entry %d of %d is not found", index, size)
			}
			for other := int64(-1); other <= size; other++ {
				if other != index && included(leaves[index], other, proof, tree) {
					t.Fatalf("entry %d of %d is found at %d", index, size, other)
				}
			}
			if included(leaves[index], index, append(proof, hash{}), tree) || (len(proof) > 0 && included(leaves[index], index, proof[:len(proof)-1], tree)) {
				t.Fatalf("entry %d of %d is found with a path of another length", index, size)
			}
			for i := range proof {
				bad := append([]hash{}, proof...)
				bad[i][0] ^= 1
				if included(leaves[index], index, bad, tree) {
					t.Fatalf("entry %d of %d is found with a wrong path", index, size)
				}
			}
		}
	}
	if (&compactRange{}).root() != (hash{}) {
		t.Error("the root of no lines is not zero")
	}
}

func TestHashesAreStandardBase64OfThirtyTwoBytes(t *testing.T) {
	good := base64.StdEncoding.EncodeToString(make([]byte, 32))
	if _, ok := parseHash(good); !ok {
		t.Fatal("a good one is refused")
	}
	for _, bad := range []string{"", good[:43], good + "\n", "\n" + good, good[:42] + "B=", good[:4] + "\r\n" + good[4:], strings.Repeat("_", 43) + "=", good + good} {
		if _, ok := parseHash(bad); ok {
			t.Errorf("%q is taken", bad)
		}
	}
}
