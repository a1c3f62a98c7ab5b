package suppressionapi_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"recount/internal/subject"
	"recount/internal/suppression"
	"recount/internal/wire"
)

var allow = map[string]any{
	"tenant_id": "acme", "source": "crm", "source_ref": "person@example.com", "reason": "consented again", "consent_ref": "consent-4711",
}

// held reports whether the source is suppressed.
func (f *fixture) held(ref string) bool {
	f.t.Helper()
	answer, err := f.ledger.Check(f.t.Context(), []subject.Record{{Source: source(f.t, "acme", ref)}})
	if err != nil {
		f.t.Fatal(err)
	}
	return answer.Verdicts[0] == suppression.Suppressed
}

func TestAnAllowFreesItsOneSourceAndSaysWhetherItWasHeld(t *testing.T) {
	f := serve(t)
	f.suppress(source(t, "acme", "person@example.com"), source(t, "acme", "other"))
	for _, removed := range []bool{true, false} {
		var said wire.AllowResponse
		f.post("allower", "allow", allow).into(t, 200, &said)
		want := []wire.CellAllowed{{Cell: "scoring", Status: "allowed", Removed: removed}}
		if said.Removed != removed || said.Status != "allowed" || said.TenantID != "acme" || said.Operation != "suppression_allow" || !slices.Equal(said.Cells, want) {
			t.Errorf("%+v", said)
		}
	}
	if f.held("person@example.com") || !f.held("other") {
		t.Error("the wrong source was freed")
	}
}

func TestAnAllowIsAuditedForEachCellWithItsReasonAndNeverWithItsSource(t *testing.T) {
	f := serve(t)
	f.suppress(source(t, "acme", "person@example.com"))
	f.allower.others = []wire.CellAllowed{{Cell: "graph", Status: "allowed"}, {Cell: "causal", Status: "failed", Detail: "peer_timeout"}}
	f.post("allower", "allow", allow)
	rows := f.audit.took()
	var got []string
	for _, r := range rows {
		got = append(got, strings.Join([]string{r.Cell, r.Status, r.Operation, r.TenantID, r.Store, r.Actor, r.Detail}, " "))
		if r.SubjectRef != source(t, "acme", "person@example.com").Ref(salt) || r.RequestID == "" || r.OccurredAt.IsZero() {
			t.Errorf("%+v", r)
		}
	}
	const rest = " suppression_allow acme suppression_ledger allower@example.com reason=consented again consent_ref=consent-4711"
	if want := []string{"scoring allowed" + rest, "graph not_found" + rest, "causal failed" + rest}; !slices.Equal(got, want) {
		t.Errorf("audited %q", got)
	}
	if text := fmt.Sprintf("%+v", rows); strings.Contains(text, "person@") {
		t.Errorf("the audit names the source: %s", text)
	}
}

func TestAnAllowThatACellCouldNotDoFails(t *testing.T) {
	f := serve(t)
	f.suppress(source(t, "acme", "person@example.com"))
	f.allower.others = []wire.CellAllowed{{Cell: "graph", Status: "failed", Detail: "peer_timeout"}, {Cell: "causal", Status: "allowed"}}
	var said wire.AllowResponse
	f.post("allower", "allow", allow).into(t, 502, &said)
	if said.Status != "failed" || !said.Removed || len(said.Cells) != 3 || said.Cells[1].Detail != "peer_timeout" || said.Cells[2].Status != "allowed" {
		t.Errorf("%+v", said)
	}
	f.allower.others = nil
	f.closeLedger()
	f.post("allower", "allow", allow).into(t, 502, &said)
	if said.Status != "failed" || said.Cells[0].Status != "failed" || said.Cells[0].Detail != "suppression_failed" {
		t.Errorf("of a ledger that can't be written: %+v", said)
	}
}

func TestAnAllowTakesARoleThatNobodyHasByDefault(t *testing.T) {
	f := serve(t)
	f.suppress(source(t, "acme", "person@example.com"))
	for _, caller := range []string{"default", "reader", "writer", "eraser", "globex"} {
		wantProblem(t, caller, f.post(caller, "allow", allow), 403, "forbidden")
	}
	if !f.held("person@example.com") {
		t.Error("freed all the same")
	}
}

func TestAnAllowNeedsEveryField(t *testing.T) {
	f := serve(t)
	f.suppress(source(t, "acme", "person@example.com"))
	for name := range allow {
		for what, body := range map[string]map[string]any{"missing": with(allow, name, nil), "empty": with(allow, name, "")} {
			code, word := 422, "unprocessable"
			if name == "tenant_id" { // as everywhere
				code, word = 400, "invalid-tenant-id"
			}
			got := f.post("allower", "allow", body)
			wantProblem(t, name+" "+what, got, code, word)
			if !strings.Contains(got.body, name) {
				t.Errorf("%s is not named: %s", name, got.body)
			}
		}
	}
	if !f.held("person@example.com") || len(f.audit.took()) != 0 {
		t.Error("freed, or audited, all the same")
	}
}

func TestTheTextsOfAnAllowMustNotNameThePerson(t *testing.T) {
	f := serve(t)
	f.suppress(source(t, "acme", "Customer-77"))
	one := with(allow, "source_ref", "Customer-77")
	for _, field := range []string{"reason", "consent_ref"} {
		for what, text := range map[string]string{
			"an address": "asked by person@example.com", "the reference": "Customer-77", "the reference in other letters": "of customer-77, again",
			"a line break": "a\nb", "a control character": "a\u0085b", "too long": strings.Repeat("x", 257), "too long in bytes": strings.Repeat("é", 129),
		} {
			wantProblem(t, field+" with "+what, f.post("allower", "allow", with(one, field, text)), 422, "unprocessable")
		}
	}
	if rows := f.audit.took(); len(rows) != 0 || !f.held("Customer-77") {
		t.Errorf("freed, or audited, all the same: %v", rows)
	}
	for _, text := range []string{strings.Repeat("x", 256), strings.Repeat("é", 128)} {
		if got := f.post("allower", "allow", with(with(one, "reason", text), "consent_ref", text)); got.status != 200 {
			t.Errorf("256 bytes: %d %s", got.status, got.body)
		}
	}
}

func TestAReferenceTooShortToNameAnybodyMayStandInTheTexts(t *testing.T) {
	f := serve(t)
	f.suppress(source(t, "acme", "a7"))
	var said wire.AllowResponse
	if f.post("allower", "allow", with(with(allow, "source_ref", "a7"), "reason", "case a7")).into(t, 200, &said); !said.Removed {
		t.Errorf("%+v", said)
	}
}
