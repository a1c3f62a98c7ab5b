package erasure

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"recount/internal/wire"
)

func TestEveryFaultOfARequestIsNamedAtOnceAndNothingIsQuoted(t *testing.T) {
	w := newWorld(t)
	s := w.service("a")
	asked := wire.FileRequest{
		Kind: "secret-kind", TenantID: "Secret Tenant", LegalRef: "secret-ground", Policy: "secret-policy", ReceivedAt: begin.Add(time.Hour),
		Descriptor: wire.Descriptor{
			PersonIDs: []string{"secret\x00id", "twice", "twice"}, IdentifierStrings: []wire.Identifier{{Value: "", Strength: "secret-strength"}},
			WholeSources: []wire.Source{{Source: "secret-source"}},
		},
		Callback: "http://secret.example", Recipients: []wire.Recipient{{Name: "twice@secret.example"}, {Name: "secret", Status: "secret"}},
	}
	_, err := s.File(t.Context(), ann, asked)
	var refused *RefusedError
	if !errors.As(err, &refused) || !refused.Invalid {
		t.Fatalf("%v", err)
	}
	for _, want := range []string{
		"kind", "tenant_id", "legal_ref", "policy", "received_at", "person_ids[0]", "person_ids[2]: is there twice", "identifier_strings[0]: value",
		"identifier_strings[0]: strength", "whole_sources[0]", "callback_url", "recipients[0]", "recipients[1]",
	} {
		if !strings.Contains(refused.Problem, want) {
			t.Errorf("%s is not named: %s", want, refused.Problem)
		}
	}
	if strings.Contains(strings.ToLower(refused.Problem), "secret") {
		t.Errorf("it quotes: %s", refused.Problem)
	}
	row := w.audit.last()
	if row.Status != "refused" || row.Detail != "invalid" || row.TenantID != "-" {
		t.Errorf("the audit says %+v", row)
	}
	page, err := s.List(t.Context(), tenant, "")
	must(t, err)
	if len(page.Requests) != 0 {
		t.Error("it was filed")
	}
}

func TestATenantAndStringsAloneAreRefused(t *testing.T) {
	w := newWorld(t)
	s := w.service("a")
	for what, change := range map[string]func(*wire.FileRequest){
		"kind tenant": func(f *wire.FileRequest) { f.Kind = "tenant" },
		"strings alone": func(f *wire.FileRequest) {
			f.Descriptor = wire.Descriptor{IdentifierStrings: []wire.Identifier{{Value: phone, Strength: "strong"}}}
		},
		"more than a document holds": func(f *wire.FileRequest) {
			for i := range 900 {
				f.Descriptor.WholeSources = append(f.Descriptor.WholeSources, wire.Source{Source: "s", SourceRef: strings.Repeat("x", 1000) + strconv.Itoa(i)})
			}
		},
		"a callback that names the person": func(f *wire.FileRequest) { f.Callback = "https://hooks.example/x?who=" + alias },
		"a recipient that names the person": func(f *wire.FileRequest) {
			f.Recipients = []wire.Recipient{{Name: "the mailer of " + alias, Callback: "https://hooks.example/x"}}
		},
		"a recipient's callback that names the person": func(f *wire.FileRequest) {
			f.Recipients = []wire.Recipient{{Name: "mailer", Callback: "https://hooks.example/" + alias}}
		},
		"a reason that names the person": func(f *wire.FileRequest) {
			f.Recipients = []wire.Recipient{{Name: "mailer", Status: "impossible", Reason: alias + " has moved"}}
		},
	} {
		asked := fileRequest()
		change(&asked)
		_, err := s.File(t.Context(), ann, asked)
		var refused *RefusedError
		if !errors.As(err, &refused) || !refused.Invalid {
			t.Errorf("%s: %v", what, err)
		} else if strings.Contains(refused.Problem, alias) || strings.Contains(refused.Problem, phone) {
			t.Errorf("%s: it quotes: %s", what, refused.Problem)
		}
	}
	for _, ids := range [][2]string{{alias, "c"}, {"s", alias}} {
		if _, err := s.FileOpenDSR(t.Context(), ann, drawn(t), fileRequest(), DSR{SubjectRequestID: ids[0], ControllerID: ids[1], Callbacks: nil}); refusedFor(err) != "invalid" {
			t.Errorf("an OpenDSR id that names the person: %v", err)
		}
	}
	if _, err := s.FileOpenDSR(t.Context(), ann, drawn(t), fileRequest(), DSR{SubjectRequestID: "s", ControllerID: "c", Callbacks: []string{"http://evil.example"}}); refusedFor(err) != "invalid" || w.audit.last().Status != "refused" {
		t.Errorf("a callback to anywhere: %v", err)
	}
}

func TestARequestIsDueOneCalendarMonthAfterItWasReceived(t *testing.T) {
	for received, due := range map[string]string{
		"2026-01-31": "2026-02-28", "2028-01-31": "2028-02-29", "2028-01-30": "2028-02-29", "2026-01-28": "2026-02-28", "2026-02-28": "2026-03-28",
		"2028-02-29": "2028-03-29", "2026-03-31": "2026-04-30", "2026-12-31": "2027-01-31", "2026-05-15": "2026-06-15",
	} {
		at, err := time.Parse(time.DateOnly, received)
		must(t, err)
		if got := oneMonthAfter(at).Format(time.DateOnly); got != due {
			t.Errorf("%s is due on %s instead of %s", received, got, due)
		}
	}
	w := newWorld(t)
	s := w.service("a")
	r := w.show(s, w.filed(s))
	if !r.DueAt.Equal(oneMonthAfter(r.ReceivedAt)) || r.State != Filed {
		t.Errorf("%s after %s, %s", r.DueAt, r.ReceivedAt, r.State)
	}
	w.resume(s)
	if w.observer.overdue != 0 || w.observer.soon != 0 {
		t.Error("it is overdue at once")
	}
	w.move(26 * 24 * time.Hour)
	w.resume(s)
	if w.observer.soon != 1 {
		t.Error("nobody is told that it is due soon")
	}
	w.move(10 * 24 * time.Hour)
	w.resume(s)
	if w.observer.overdue != 1 || w.observer.soon != 0 {
		t.Error("nobody is told that it is overdue")
	}
}
