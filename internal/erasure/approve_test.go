package erasure

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"recount/internal/subject"
	"recount/internal/wire"
)

// wantRefused checks that it was refused with that code, and that the audit says so without naming anybody.
func (w *world) wantRefused(t *testing.T, what string, err error, code string) {
	t.Helper()
	row := w.audit.last()
	if refusedFor(err) != code || row.Status != "refused" || row.Detail != code {
		t.Errorf("%s: %v instead of %s; the audit says %s %s", what, err, code, row.Status, row.Detail)
	}
	if text := fmt.Sprintf("%+v %v", row, err); strings.Contains(text, alice) || strings.Contains(text, alias) || strings.Contains(text, sourceRef) {
		t.Errorf("%s: it names the person: %s", what, text)
	}
}

// refusals try to approve what must not be approved, and answer the code that they expect.
var refusals = map[string]func(t *testing.T, w *world, s *Service, id string) (string, error){
	"the same address in another case": func(t *testing.T, w *world, s *Service, id string) (string, error) {
		digest := w.previewed(s, id)
		_, err := s.Approve(t.Context(), wire.Principal{Sub: "1", Email: "a@x"}, id, digest)
		must(t, err)
		_, err = s.Approve(t.Context(), wire.Principal{Sub: "2", Email: "A@x"}, id, digest)
		return "same_principal", err
	},
	"the same account": func(t *testing.T, w *world, s *Service, id string) (string, error) {
		digest := w.previewed(s, id)
		_, err := s.Approve(t.Context(), bob, id, digest)
		must(t, err)
		_, err = s.Approve(t.Context(), wire.Principal{Sub: bob.Sub, Email: "other@x"}, id, digest)
		return "same_principal", err
	},
	"the requester under two accounts": func(t *testing.T, w *world, s *Service, id string) (string, error) {
		digest := w.previewed(s, id)
		_, err := s.Approve(t.Context(), wire.Principal{Sub: ann.Sub, Email: "other@x"}, id, digest)
		must(t, err)
		_, err = s.Approve(t.Context(), wire.Principal{Sub: "another", Email: strings.ToUpper(ann.Email)}, id, digest)
		return "requester", err
	},
	"nobody": func(t *testing.T, w *world, s *Service, id string) (string, error) {
		_, err := s.Approve(t.Context(), wire.Principal{Sub: "1"}, id, w.previewed(s, id))
		return "principal", err
	},
	"an identity that is not verified": func(t *testing.T, w *world, s *Service, id string) (string, error) {
		_, err := s.Approve(t.Context(), bob, id, w.previewedAgain(s, id))
		return "not_verified", err
	},
	"no preview": func(t *testing.T, w *world, s *Service, id string) (string, error) {
		_, err := s.VerifyIdentity(t.Context(), ann, id, "in person")
		must(t, err)
		_, err = s.Approve(t.Context(), bob, id, "")
		return "no_preview", err
	},
	"another digest": func(t *testing.T, w *world, s *Service, id string) (string, error) {
		first := w.previewed(s, id)
		w.cells[0].stores[0].add(w.person(alice), w.source(sourceName, "one-more")) // another sight, another digest
		w.previewedAgain(s, id)
		_, err := s.Approve(t.Context(), bob, id, first)
		return "digest", err
	},
	"an expired preview": func(t *testing.T, w *world, s *Service, id string) (string, error) {
		digest := w.previewed(s, id)
		w.move(w.limits.ApprovalTTL)
		_, err := s.Approve(t.Context(), bob, id, digest)
		return "expired", err
	},
	"counts that drifted": func(t *testing.T, w *world, s *Service, id string) (string, error) {
		digest := w.previewed(s, id)
		must(t, w.cell("causal").write("outcomes", alice))
		_, err := s.Approve(t.Context(), bob, id, digest)
		return "drift", err
	},
	"more than the cap": func(t *testing.T, w *world, s *Service, id string) (string, error) {
		s.Limits.BlastCap = 14
		_, err := s.Approve(t.Context(), bob, id, w.previewed(s, id))
		return "cap", err
	},
	"one that is rejected": func(t *testing.T, w *world, s *Service, id string) (string, error) {
		digest := w.previewed(s, id)
		_, err := s.Reject(t.Context(), bob, id, "manifestly unfounded")
		must(t, err)
		_, err = s.Approve(t.Context(), bob, id, digest)
		return "state", err
	},
	"one that is cancelled": func(t *testing.T, w *world, s *Service, id string) (string, error) {
		digest := w.previewed(s, id)
		_, err := s.Cancel(t.Context(), bob, id, "taken back")
		must(t, err)
		_, err = s.Approve(t.Context(), bob, id, digest)
		return "state", err
	},
	"a hold that appeared": func(t *testing.T, w *world, s *Service, id string) (string, error) {
		digest := w.previewed(s, id)
		_, err := s.Hold(t.Context(), cid, id, "case-9", false)
		must(t, err)
		_, err = s.Approve(t.Context(), bob, id, digest)
		return "state", err
	},
}

func TestAnApprovalIsRefusedFor(t *testing.T) {
	for what, test := range refusals {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			w.populate()
			s := w.service("a")
			id := w.filed(s)
			code, err := test(t, w, s, id)
			w.wantRefused(t, what, err, code)
			w.resume(s)
			if w.eraser.calls > 0 {
				t.Error("something was deleted")
			}
		})
	}
}

func TestOneApprovalRunsNothingAndTwoDo(t *testing.T) {
	w := newWorld(t)
	w.populate()
	s := w.service("a")
	id := w.filed(s)
	digest := w.previewed(s, id)
	_, err := s.Approve(t.Context(), ann, id, digest)
	must(t, err)
	w.resume(s)
	wantState(t, w.show(s, id), Previewed)
	if w.eraser.calls > 0 {
		t.Fatal("one approval deleted something")
	}
	w.move(w.limits.ApprovalTTL) // it expires
	if r, err := s.Approve(t.Context(), bob, id, w.previewedAgain(s, id)); err != nil || len(r.Approvals) != 1 || r.State != Previewed {
		t.Fatalf("%v, %+v", err, r.Approvals)
	}
	_, err = s.Approve(t.Context(), cid, id, w.show(s, id).Preview.Digest)
	must(t, err)
	w.resume(s)
	wantState(t, w.show(s, id), Closed)
}

func TestACapCanBeLiftedForOnePreviewThatBothSee(t *testing.T) {
	w := newWorld(t)
	w.populate()
	w.limits.BlastCap = 14
	s := w.service("a")
	id := w.filed(s)
	w.previewed(s, id)
	for _, asked := range []wire.ActionRequest{{BlastCap: 15}, {BlastCap: 14, Reason: "many rows"}, {BlastCap: 15, Reason: "for " + alias}} {
		if _, err := s.Preview(t.Context(), ann, id, asked); refusedFor(err) != "invalid" {
			t.Errorf("%+v: %v", asked, err)
		}
	}
	r, err := s.Preview(t.Context(), cid, id, wire.ActionRequest{BlastCap: 15, Reason: "a customer of ten years"})
	must(t, err)
	if r.Preview.CapOverride == nil || r.Preview.CapOverride.Cap != 15 || r.Preview.Total != 15 {
		t.Fatalf("%+v", r.Preview)
	}
	w.approveBoth(s, id, r.Preview.Digest)
	w.resume(s)
	wantState(t, w.show(s, id), Closed)
}

func TestAPreviewSaysWhatCouldNotBeReachedAndTouchesNothing(t *testing.T) {
	w := newWorld(t)
	w.populate()
	s := w.service("a")
	w.cell("causal").down = subject.ReasonPeerTimeout
	id := w.filed(s, func(f *wire.FileRequest) { f.Callback = "https://hooks.example/x" })
	w.previewedAgain(s, id)
	w.previewedAgain(s, id)
	p := w.show(s, id).Preview
	if len(p.Unreachable) != 1 || !strings.Contains(p.Unreachable[0], "peer_timeout") || p.Total != 10 || len(p.Targets) != 3 {
		t.Errorf("%+v", p)
	}
	if w.cell("ingest").froze > 0 || w.eraser.calls > 0 || w.cell("ingest").count("events", alice) != 3 {
		t.Error("it touched something")
	}
	if n := len(w.stored(id).Outbox); n != 1 { // that it was filed
		t.Errorf("%d callbacks are due although the state has not changed", n)
	}
}

// TestNothingIsApprovedWithoutTwoPeople: whatever anybody does, in any order.
func TestNothingIsApprovedWithoutTwoPeople(t *testing.T) {
	people := []wire.Principal{ann, bob, cid, {Sub: "x", Email: "ANN@acme.example"}, {Sub: bob.Sub, Email: "else@x"}, {Sub: "y"}}
	w := newWorld(t)
	w.populate()
	s := w.service("a")
	rapid.Check(t, func(rt *rapid.T) {
		id := w.filed(s)
		digests := []string{"", strings.Repeat("0", 64)}
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			by := rapid.SampledFrom(people).Draw(rt, "by")
			switch rapid.IntRange(0, 11).Draw(rt, "action") {
			case 0:
				_, _ = s.VerifyIdentity(t.Context(), by, id, "in person")
			case 1, 2:
				if r, err := s.Preview(t.Context(), by, id, wire.ActionRequest{}); err == nil {
					digests = append(digests, r.Preview.Digest)
				}
			case 3:
				w.move(time.Duration(rapid.IntRange(1, 40).Draw(rt, "hours")) * time.Hour)
			case 4:
				_, _ = s.Hold(t.Context(), by, id, "case-1", rapid.Bool().Draw(rt, "release"))
			default:
				digest := digests[len(digests)-1]
				if rapid.IntRange(0, 5).Draw(rt, "stale") == 0 {
					digest = rapid.SampledFrom(digests).Draw(rt, "digest")
				}
				_, _ = s.Approve(t.Context(), by, id, digest)
			}
			r := w.show(s, id)
			if r.State != Approved {
				continue
			}
			if why := notTwo(r, w.Now()); why != "" {
				rt.Fatalf("it is approved, and %s: %+v", why, r.Approvals)
			}
			return
		}
	})
}

// notTwo says what is missing of two approvals.
func notTwo(r wire.Request, now time.Time) string {
	subs, emails := map[string]bool{}, map[string]bool{}
	requester := 0
	for _, a := range r.Approvals {
		switch {
		case a.Digest != r.Preview.Digest:
			return "one is of another preview"
		case !now.Before(a.ExpiresAt) || !now.Before(r.Preview.ExpiresAt):
			return "one has expired"
		case r.Verification == nil || a.At.Before(r.Preview.At):
			return "one came before the preview or the verification"
		}
		subs[a.By.Sub], emails[strings.ToLower(a.By.Email)] = true, true
		if a.By.Sub == r.FiledBy.Sub || strings.EqualFold(a.By.Email, r.FiledBy.Email) {
			requester++
		}
	}
	if len(subs) < 2 || len(emails) < 2 || requester > 1 {
		return "they are not two people's"
	}
	return ""
}
