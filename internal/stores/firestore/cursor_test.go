package firestore

import (
	"encoding/base64"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	fs "cloud.google.com/go/firestore"
	"google.golang.org/genproto/googleapis/type/latlng"

	"recount/internal/subject"
)

func TestACursorServesItsStoreAndSubjectAloneAndShowsNothing(t *testing.T) {
	key, name := newCursorKey([]byte("secret")), "users/alice@example.com/orders/1"
	alice := who(t, "acme", "alice@example.com")
	cursor := key.seal("users", alice, name)
	plain, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || strings.Contains(string(plain), "alice") {
		t.Fatalf("%q, %v", plain, err)
	}
	if got, err := newCursorKey([]byte("secret")).open("users", alice, cursor); err != nil || got != name {
		t.Errorf("another instance opened it as %q, %v", got, err)
	}
	for what, open := range map[string]func() (string, error){
		"another store":    func() (string, error) { return key.open("orders", alice, cursor) },
		"another subject":  func() (string, error) { return key.open("users", who(t, "acme", "bob"), cursor) },
		"another tenant":   func() (string, error) { return key.open("users", who(t, "globex", alice.Identity()), cursor) },
		"another secret":   func() (string, error) { return newCursorKey([]byte("other")).open("users", alice, cursor) },
		"a changed cursor": func() (string, error) { return key.open("users", alice, flipped(cursor)) },
	} {
		if got, err := open(); err == nil {
			t.Errorf("%s opened it as %q", what, got)
		}
	}
}

func flipped(cursor string) string {
	if cursor[0] == 'A' {
		return "B" + cursor[1:]
	}
	return "A" + cursor[1:]
}

func FuzzCursor(f *testing.F) {
	key := newCursorKey([]byte("secret"))
	s, err := subject.New("acme", "alice")
	if err != nil {
		f.Fatal(err)
	}
	f.Add("")
	f.Add("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
	f.Add(key.seal("users", s, "users/1"))
	f.Fuzz(func(t *testing.T, cursor string) {
		if name, err := key.open("users", s, cursor); err == nil && name != "users/1" {
			t.Errorf("a forged cursor was opened as %q", name)
		}
	})
}

func TestEveryFirestoreValueIsShownAsJSON(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 8000, time.UTC)
	got, size, err := shownMap(fields{
		"nil": nil, "bool": true, "int": int64(math.MaxInt64), "float": 1.5, "nan": math.NaN(), "inf": math.Inf(-1), "text": "é",
		"at": at, "bytes": []byte{0xff}, "point": &latlng.LatLng{Latitude: 1, Longitude: 2},
		"ref":    &fs.DocumentRef{Path: "projects/p/databases/d/documents/a/b"},
		"vector": fs.Vector64{1, 2}, "vector32": fs.Vector32{0.5}, "list": []any{int64(1), fields{"a": at}},
	})
	want := "map[at:2026-03-04T05:06:07.000008Z bool:true bytes:/w== float:1.5 inf:-Inf int:9223372036854775807 " +
		"list:[1 map[a:2026-03-04T05:06:07.000008Z]] nan:NaN nil:<nil> point:map[latitude:1 longitude:2] ref:a/b text:é vector:[1 2] vector32:[0.5]]"
	if err != nil || fmt.Sprint(got) != want || size < 100 {
		t.Errorf("shown as %v (%d), %v", got, size, err)
	}
	_, _, err = shownValue([]any{fields{"odd": struct{}{}}})
	wantReason(t, err, subject.ReasonReadFailed)
}
