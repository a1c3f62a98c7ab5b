package erasureapi_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"recount/internal/auth"
	"recount/internal/wire"
)

var digestOfNothing = strings.Repeat("0", 64)

// ownFields are a body that each action takes.
var ownFields = map[string]fields{
	"verify-identity": {"method": "signed in"},
	"preview":         {"blast_cap": 1000, "reason": "a big account"},
	"approve":         {"preview_digest": digestOfNothing},
	"reject":          {"reason": "not ours"},
	"cancel":          {"reason": "withdrawn"},
	"extend":          {"until": "2026-12-01T00:00:00Z", "reason": "many systems"},
	"hold":            {"hold_ref": "LH-1"},
	"exclude":         {"store": "graph/edges", "article": "17(3)(b)", "counsel_ref": "OP-1", "review_at": "2036-12-01T00:00:00Z"},
	"descriptor":      {},
}

func TestEachActionTakesItsOwnFieldsAlone(t *testing.T) {
	f := serve(t)
	id := f.file(filing())
	every := fields{"release": true, "remove": true}
	for _, own := range ownFields {
		for name, value := range own {
			every[name] = value
		}
	}
	for verb, own := range ownFields {
		for name, value := range every {
			if _, its := own[name]; its || verb == "hold" && name == "release" || verb == "exclude" && name == "remove" {
				continue
			}
			f.wantProblem(verb+" with "+name, f.act(anna, id, verb, own.with(name, value)), 422, "unprocessable")
		}
		f.wantProblem(verb+" with a field that nobody knows", f.act(anna, id, verb, own.with("force", true)), 400, "invalid-body")
		f.wantProblem(verb+" without a body", f.send(http.MethodPost, root+"/"+id+":"+verb, "", auth.HeaderDevPrincipal, anna, "Content-Type", "application/json"), 400, "invalid-body")
	}
	for verb, body := range map[string]fields{
		"preview": {"reason": "without a cap"}, "hold": {"hold_ref": "LH-1", "release": true},
		"exclude": {"store": "graph/edges", "remove": true, "article": "17(3)(b)"},
	} {
		f.wantProblem(fmt.Sprint(verb, " with ", body), f.act(anna, id, verb, body), 422, "unprocessable")
	}
	if r := f.show(id); r.State != "filed" || r.Hold != nil || r.Preview != nil || len(f.audit.said()) != 1 {
		t.Errorf("%+v, audited %q", r, f.audit.said())
	}
}

// wantRefused wants the action refused, and that written down.
func (f *fixture) wantRefused(email, id, verb string, body fields, code string) {
	f.t.Helper()
	f.wantProblem(verb, f.act(email, id, verb, body), 409, "refused")
	operation := "request_" + strings.ReplaceAll(verb, "-", "_")
	if want := operation + " refused " + code + " " + strings.ToLower(email); f.audit.last() != want {
		f.t.Errorf("audited %q, want %q", f.audit.last(), want)
	}
}

func TestTwoPrincipalsAreTwoPeople(t *testing.T) {
	f := serve(t)
	id, digest := f.ready(filing())
	body := fields{"preview_digest": digest}
	if r := f.did("a@x.example", id, "approve", body); r.State != "previewed" || len(r.Approved) != 1 {
		t.Errorf("%+v", r)
	}
	for _, again := range []string{"a@x.example", "A@x.example", "a@X.Example"} {
		f.wantRefused(again, id, "approve", body, "same_principal")
	}
	if r := f.show(id); r.State != "previewed" || len(r.Approved) != 1 {
		t.Errorf("%+v", r)
	}
}

func TestNothingIsApprovedBeforeItWasVerifiedAndPreviewed(t *testing.T) {
	f := serve(t)
	id := f.file(filing())
	f.wantRefused(ben, id, "approve", ownFields["approve"], "not_verified")
	f.did(anna, id, "verify-identity", ownFields["verify-identity"])
	f.wantRefused(ben, id, "approve", ownFields["approve"], "no_preview")
	first := f.did(anna, id, "preview", fields{}).Preview.Digest
	f.wantRefused(ben, id, "approve", ownFields["approve"], "digest")
	f.did(ben, id, "approve", fields{"preview_digest": first})
	same := f.did(anna, id, "preview", fields{})
	if len(same.Approved) != 1 || same.Preview.Digest != first {
		t.Errorf("a second look at what is still the same took the approval back: %+v", same)
	}
	f.stores.set("ingest", 9)
	second := f.did(anna, id, "preview", fields{})
	if len(second.Approved) != 0 || second.Preview.Digest == first {
		t.Errorf("another preview left the approvals of the first: %+v", second)
	}
	f.wantRefused(ben, id, "approve", fields{"preview_digest": first}, "digest")
	f.stores.set("ingest", 90)
	f.wantRefused(ben, id, "approve", fields{"preview_digest": second.Preview.Digest}, "drift")
	if r := f.show(id); r.State != "verified" {
		t.Errorf("after a drift it is %s, and still offers its preview", r.State)
	}
}

func TestAPreviewAboveTheCapIsApprovedWithAReasonAlone(t *testing.T) {
	f := serve(t)
	f.stores.set("graph", 1000)
	id, digest := f.ready(filing())
	f.wantRefused(ben, id, "approve", fields{"preview_digest": digest}, "cap")
	f.wantProblem("a cap without a reason", f.act(anna, id, "preview", fields{"blast_cap": 5000}), 422, "unprocessable")
	f.wantProblem("a cap below the cap", f.act(anna, id, "preview", fields{"blast_cap": 50, "reason": "x"}), 422, "unprocessable")
	digest = f.did(anna, id, "preview", fields{"blast_cap": 5000, "reason": "an account of many years"}).Preview.Digest
	f.did(ben, id, "approve", fields{"preview_digest": digest})
}

func TestNoTextThatIsKeptMayNameThePerson(t *testing.T) {
	f := serve(t)
	id := f.file(filing())
	f.did(anna, id, "preview", fields{})
	for verb, field := range map[string]string{
		"verify-identity": "method", "preview": "reason", "reject": "reason", "cancel": "reason", "extend": "reason", "hold": "hold_ref", "exclude": "counsel_ref",
	} {
		for _, text := range []string{"of customer-77", "customer-77", "somebody@example.com", "a\nb", strings.Repeat("x", 501)} {
			f.wantProblem(verb+" "+field, f.act(anna, id, verb, ownFields[verb].with(field, text)), 422, "unprocessable")
		}
	}
	if r := f.show(id); r.Hold != nil || len(r.Exclusions) != 0 {
		t.Errorf("%+v", r)
	}
}

func TestAHoldAndAnExclusionGoBackToBothApprovers(t *testing.T) {
	f := serve(t)
	id, digest := f.ready(filing())
	f.did(anna, id, "approve", fields{"preview_digest": digest})
	if r := f.did(ben, id, "hold", fields{"hold_ref": "LH-2026-17"}); r.Hold == nil || r.Hold.Ref != "LH-2026-17" || len(r.Approved) != 0 || r.State != "verified" {
		t.Errorf("%+v", r)
	}
	f.wantRefused(ben, id, "approve", fields{"preview_digest": digest}, "state")
	if r := f.did(ben, id, "hold", fields{"release": true}); r.Hold != nil {
		t.Errorf("%+v", r)
	}
	f.wantRefused(ben, id, "hold", fields{"release": true}, "no_hold")
	if r := f.did(anna, id, "exclude", ownFields["exclude"]); len(r.Exclusions) != 1 || r.Exclusions[0].Store != "graph/edges" {
		t.Errorf("%+v", r)
	}
	for name, value := range map[string]any{"store": "graph/nothing", "article": "17(1)(a)", "counsel_ref": "", "review_at": "2020-01-01T00:00:00Z"} {
		f.wantProblem(name, f.act(anna, id, "exclude", ownFields["exclude"].with(name, value)), 422, "unprocessable")
	}
	if r := f.did(anna, id, "exclude", fields{"store": "graph/edges", "remove": true}); len(r.Exclusions) != 0 {
		t.Errorf("%+v", r)
	}
	f.wantRefused(anna, id, "exclude", fields{"store": "graph/edges", "remove": true}, "no_exclusion")
}

func TestTheTimeIsExtendedOnceInsideTheFirstMonth(t *testing.T) {
	f := serve(t)
	received := time.Now().AddDate(0, 0, -10).UTC().Truncate(time.Second)
	id := f.file(filing().with("received_at", received))
	until := received.AddDate(0, 0, 75)
	f.wantProblem("too long", f.act(anna, id, "extend", fields{"until": received.AddDate(0, 0, 100), "reason": "many systems"}), 422, "unprocessable")
	f.wantProblem("no day", f.act(anna, id, "extend", fields{"reason": "many systems"}), 422, "unprocessable")
	if r := f.did(anna, id, "extend", fields{"until": until, "reason": "many systems"}); !r.DueAt.Equal(until) {
		t.Errorf("%+v", r)
	}
	f.wantRefused(anna, id, "extend", fields{"until": until.AddDate(0, 0, 1), "reason": "many systems"}, "extended")
	late := f.file(filing().with("received_at", received.AddDate(0, 0, -30)))
	f.wantRefused(anna, late, "extend", fields{"until": time.Now().AddDate(0, 0, 20).UTC(), "reason": "many systems"}, "too_late")
}

func TestAnEndedRequestIsOverAndItsDescriptorDestroyed(t *testing.T) {
	f := serve(t)
	for verb, state := range map[string]string{"reject": "rejected", "cancel": "cancelled"} {
		id := f.file(filing())
		if r := f.did(ben, id, verb, fields{"reason": "it is not for us to do"}); r.State != state {
			t.Errorf("%+v", r)
		}
		for other, body := range ownFields {
			if other != "descriptor" && other != "approve" {
				if other == "preview" {
					body = fields{}
				}
				f.wantRefused(anna, id, other, body, "state")
			}
		}
		must(0, f.drive())(t)
		f.wantRefused(anna, id, "descriptor", fields{}, "descriptor_destroyed")
	}
}

// drive drives what is due.
func (f *fixture) drive() error {
	_, _, err := f.service.Resume(f.t.Context())
	return err
}

func TestADescriptorIsShownToPrincipalsAndEachLookAudited(t *testing.T) {
	f := serve(t)
	id := f.file(filing().with("descriptor", fields{
		"person_ids": []string{"person@example.com"}, "identifier_strings": []fields{{"value": "+43 1 5550", "strength": "strong"}},
		"whole_sources": []fields{{"source": "crm", "source_ref": "crm-7001"}},
	}))
	var said wire.DescriptorAnswer
	for range 2 {
		f.act(ben, id, "descriptor", fields{}).into(t, 200, &said)
	}
	d := said.Descriptor
	if said.ID != id || !slices.Equal(d.PersonIDs, []string{"person@example.com"}) || len(d.IdentifierStrings) != 1 || d.IdentifierStrings[0].Value != "+43 1 5550" ||
		len(d.WholeSources) != 1 || d.WholeSources[0].SourceRef != "crm-7001" {
		t.Errorf("%+v", said)
	}
	look := "request_descriptor done  " + ben
	if rows := f.audit.said(); !slices.Equal(rows[1:], []string{look, look}) {
		t.Errorf("audited %q", rows)
	}
}
