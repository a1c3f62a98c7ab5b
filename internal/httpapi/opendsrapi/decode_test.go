package opendsrapi

import (
	"errors"
	"strings"
	"testing"

	"recount/internal/httpapi"
	"recount/internal/wire"
)

func TestIdentitiesAreReadAndTheirFaultsNamedAtOnce(t *testing.T) {
	known, err := ParseIdentities(" ")
	if err != nil || len(known) != 1 || known.person("controller_customer_id", "{value}") != "{value}" {
		t.Errorf("%v %v", known, err)
	}
	known, err = ParseIdentities("email=person-email:{value}, phone_number=tel/{value}#")
	if err != nil || known.types() != "email, phone_number" {
		t.Errorf("%v %v", known, err)
	}
	for value, want := range map[string]string{"A@Ä.Example ": "person-email:a@Ä.example ", "\u212a@x": "person-email:\u212a@x"} {
		if got := known.person("email", value); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
	if got := known.person("phone_number", "A1"); got != "tel/A1#" {
		t.Error(got)
	}
	_, err = ParseIdentities("email,Email={value},x={value}{value},y=none,z={value},z={value},w=\x00{value},")
	if err == nil {
		t.Fatal("taken")
	}
	for _, want := range []string{"identity 1 ", "identity 2 ", "identity 3 ", "identity 4 ", "identity 6 ", "identity 7 ", "identity 8 "} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not in %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "identity 5 ") {
		t.Error(err)
	}
}

func FuzzDecode(f *testing.F) {
	const good = `{"regulation":"gdpr","subject_request_id":"a7551968-d5d6-44b2-9831-815ac9017798","subject_request_type":"erasure",` +
		`"submitted_time":"2026-05-03T10:00:00Z","subject_identities":[{"identity_type":"email","identity_value":"Zora@example.com","identity_format":"raw"}],` +
		`"api_version":"2.0","status_callback_urls":["https://hooks.example/x"],"property_id":"p","controller_id":"c","extensions":{"recount":{"legal_ref":"17(1)(a)"},"x":1}}`
	for _, seed := range []string{good, strings.Replace(good, "gdpr", "ccpa", 1), strings.Replace(good, `"email"`, `"Zora@example.com"`, 1), "{}", "[]", good + good, ""} {
		f.Add(seed)
	}
	known := Identities{{"email", "person-email:{value}"}, {"controller_customer_id", "{value}"}}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := decode([]byte(text), known)
		if err != nil {
			var refusal *httpapi.Refusal
			var malformed *wire.MalformedError
			if !errors.As(err, &refusal) && !errors.As(err, &malformed) {
				t.Errorf("%T", err)
			}
			if strings.Contains(err.Error(), "Zora@") {
				t.Errorf("it quotes: %v", err)
			}
			return
		}
		people := got.asked.Descriptor.PersonIDs
		if len(people) == 0 || len(people) > maxIdentities || !uuidV4.MatchString(got.subjectRequestID) || got.asked.Kind != "subject" ||
			got.asked.Policy != "delete" || got.asked.LegalRef == "" || got.asked.Callback != "" || len(got.asked.Recipients) > 0 {
			t.Errorf("%+v", got)
		}
		again, err := decode([]byte(text), known)
		if err != nil || strings.Join(again.asked.Descriptor.PersonIDs, "\n") != strings.Join(people, "\n") {
			t.Errorf("another time it is %+v, %v", again, err)
		}
	})
}
