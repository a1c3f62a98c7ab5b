package wire

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

func TestDecodeRequestRefusesWhatIsNotExactlyTheContract(t *testing.T) {
	for name, body := range map[string]string{
		"empty body":              ``,
		"null":                    `null`,
		"array":                   `[{"tenant_id":"acme"}]`,
		"string":                  `"acme"`,
		"html":                    `<html></html>`,
		"cut off":                 `{"tenant_id":"acme"`,
		"unknown field":           `{"tenant_id":"acme","identity_id":"a","colour":"red"}`,
		"case-variant field":      `{"tenant_id":"acme","Identity_ID":"a"}`,
		"case-variant twin":       `{"tenant_id":"acme","identity_id":"a","IDENTITY_ID":"b"}`,
		"field spelt with dashes": `{"tenant-id":"acme","identity_id":"a"}`,
		"duplicate field":         `{"tenant_id":"acme","identity_id":"a","identity_id":"b"}`,
		"duplicate by an escape":  `{"tenant_id":"acme","identity_id":"a","identity\u005fid":"b"}`,
		"second value":            `{"tenant_id":"acme","identity_id":"a"}{}`,
		"trailing text":           `{"tenant_id":"acme","identity_id":"a"} x`,
		"trailing null":           `{"tenant_id":"acme","identity_id":"a"}null`,
		"invalid UTF-8":           "{\"tenant_id\":\"acme\",\"identity_id\":\"\xff\"}",
		"lone surrogate":          `{"tenant_id":"acme","identity_id":"\ud800"}`,
		"number for a string":     `{"tenant_id":"acme","identity_id":7}`,
		"object for a string":     `{"tenant_id":"acme","identity_id":{}}`,
		"byte order mark":         "\ufeff" + `{"tenant_id":"acme","identity_id":"a"}`,
		"comment":                 `{"tenant_id":"acme",/**/"identity_id":"a"}`,
		"endless depth":           `{"tenant_id":` + strings.Repeat("[", 100_000),
	} {
		t.Run(name, func(t *testing.T) {
			var got SubjectRequest
			err := DecodeRequest(strings.NewReader(body), &got)
			var broken *MalformedError
			if !errors.As(err, &broken) {
				t.Fatalf("want a MalformedError, got %v with %+v", err, got)
			}
			if strings.Contains(err.Error(), "acme") || strings.Contains(err.Error(), "colour") {
				t.Errorf("the error quotes the body: %q", err)
			}
		})
	}
}

func TestDecodeRequestTakesEveryIdentityUnchanged(t *testing.T) {
	var got BatchRequest
	body := ` {"identity_ids":["a\u002fb","a%2Fb","é","\ud83d\ude00"],"tenant_id":"acme"} ` + "\n"
	if err := DecodeRequest(iotest.OneByteReader(strings.NewReader(body)), &got); err != nil {
		t.Fatal(err)
	}
	want := BatchRequest{TenantID: "acme", IdentityIDs: []string{"a/b", "a%2Fb", "é", "😀"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestDecodeRequestTellsABodyOverItsLimitFromABrokenOne(t *testing.T) {
	body := io.NopCloser(strings.NewReader(`{"tenant_id":"acme","identity_id":"` + strings.Repeat("a", 100) + `"}`))
	var got SubjectRequest
	err := DecodeRequest(http.MaxBytesReader(httptest.NewRecorder(), body, 50), &got)
	var over *http.MaxBytesError
	if !errors.As(err, &over) {
		t.Errorf("want the reader's own error, got %v", err)
	}
}

func FuzzDecodeRequest(f *testing.F) {
	f.Add([]byte(`{"tenant_id":"acme","identity_ids":["a","b"]}`))
	f.Add([]byte(`{"tenant_id":"acme","identity_ids":["a"],"tenant_id":"b"}`))
	f.Add([]byte(`{"Tenant_id":"acme"} 1`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var got BatchRequest
		if DecodeRequest(bytes.NewReader(body), &got) != nil {
			return
		}
		again, err := Marshal(got)
		if err != nil {
			t.Fatalf("what was read can't be written: %v", err)
		}
		var back BatchRequest
		if err := DecodeRequest(bytes.NewReader(again), &back); err != nil {
			t.Fatalf("what was written can't be read: %v", err)
		}
		if got.TenantID != back.TenantID || strings.Join(got.IdentityIDs, "\x00") != strings.Join(back.IdentityIDs, "\x00") {
			t.Errorf("%+v came back as %+v", got, back)
		}
	})
}
