package erasure

import (
	"strings"
	"testing"
	"time"

	"recount/internal/wire"
)

// TestNothingIsOverBeforeOneAttemptHadEveryCell: cells that are down in turn never hear what the others resolved.
func TestNothingIsOverBeforeOneAttemptHadEveryCell(t *testing.T) {
	w := newWorld(t)
	w.populate()
	s := w.service("a")
	id := w.filed(s)
	digest := w.previewed(s, id)
	w.cells[1].down = "peer_unreachable"
	w.approveBoth(s, id, digest)
	w.resume(s)
	wantState(t, w.show(s, id), Pending)
	w.cells[1].down, w.cells[0].down = "", "peer_unreachable"
	w.move(time.Hour)
	w.resume(s)
	r := w.show(s, id)
	wantState(t, r, Pending)
	if !strings.Contains(r.StateDetail, w.cells[0].name+"/") {
		t.Errorf("it is pending because of %q", r.StateDetail)
	}
	w.cells[0].down = ""
	w.move(time.Hour)
	w.resume(s)
	wantState(t, w.show(s, id), Closed)
}

func TestACellThatWasDownAtFirstIsHeldToThePreviewWhenItIsBack(t *testing.T) {
	w := newWorld(t)
	w.populate()
	s := w.service("a")
	id := w.filed(s)
	digest := w.previewed(s, id)
	w.cells[1].down = "peer_unreachable"
	w.approveBoth(s, id, digest)
	w.resume(s)
	for range 50 {
		w.cells[1].stores[0].add(w.person(alice), w.source(sourceName, "imported-meanwhile"))
	}
	w.cells[1].down = ""
	w.move(time.Hour)
	w.resume(s)
	r := w.show(s, id)
	wantState(t, r, Verified)
	if !strings.HasPrefix(r.StateDetail, "drift") || len(r.Approvals) != 0 {
		t.Errorf("%q, %d approvals", r.StateDetail, len(r.Approvals))
	}
}

func TestAnExclusionThatWasTakenBackLeavesNothingCalledRetained(t *testing.T) {
	w := newWorld(t)
	w.populate()
	s := w.service("a")
	id := w.filed(s)
	w.previewed(s, id)
	name := w.cells[0].name + "/" + w.cells[0].stores[0].name
	later := w.Now().AddDate(1, 0, 0)
	_, err := s.Exclude(t.Context(), cid, id, wire.ActionRequest{Store: name, Article: "17(3)(b)", CounselRef: "op-1", ReviewAt: &later})
	must(t, err)
	_, err = s.change(t.Context(), id, func(r *request) error { // as an enumeration that was undone left it
		r.Stores = []wire.StoreOutcome{{Cell: w.cells[0].name, Store: w.cells[0].stores[0].name, Status: retained, Basis: "17(3)(b)"}}
		return nil
	})
	must(t, err)
	_, err = s.Exclude(t.Context(), cid, id, wire.ActionRequest{Store: name, RemoveStore: true})
	must(t, err)
	w.approveBoth(s, id, w.previewedAgain(s, id))
	w.resume(s)
	r := w.show(s, id)
	wantState(t, r, Closed)
	for _, o := range r.Stores {
		if o.Status != "erased" || o.Basis != "" {
			t.Errorf("%s/%s is %s %s", o.Cell, o.Store, o.Status, o.Basis)
		}
	}
}

func TestAnIdentityThatIsVerifiedAnewTakesTheApprovalsBack(t *testing.T) {
	w := newWorld(t)
	w.populate()
	s := w.service("a")
	id := w.filed(s)
	digest := w.previewed(s, id)
	_, err := s.Approve(t.Context(), bob, id, digest)
	must(t, err)
	r, err := s.VerifyIdentity(t.Context(), bob, id, "a letter")
	must(t, err)
	wantState(t, r, Verified)
	if len(r.Approvals) != 0 || r.StateDetail == "" {
		t.Errorf("%d approvals, %q", len(r.Approvals), r.StateDetail)
	}
	if _, err := s.Approve(t.Context(), cid, id, digest); refusedFor(err) != "state" {
		t.Errorf("approved what was seen with another verification: %v", err)
	}
	w.approveBoth(s, id, w.previewedAgain(s, id))
	w.resume(s)
	wantState(t, w.show(s, id), Closed)
}

func TestAURLThatQuotesThePersonInAnySpellingIsRefused(t *testing.T) {
	d := wire.Descriptor{PersonIDs: []string{"person-email:erika@x.io"}}
	for _, url := range []string{
		"https://h.example/?u=person-email%3Aerika%40x.io", "https://h.example/?u=erika@x.io", "https://h.example/?u=ERIKA%40X.IO",
	} {
		if !namesInCode(d, url) {
			t.Errorf("%s is taken", url)
		}
	}
	if namesInCode(d, "https://h.example/erasures") {
		t.Error("a URL that names nobody is refused")
	}
}
