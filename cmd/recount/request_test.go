package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"recount/internal/subject"
	"recount/internal/wire"
)

// fileArgs files a request with everything that there is.
func fileArgs(t *testing.T, more ...string) []string {
	t.Helper()
	dir := t.TempDir()
	return append([]string{
		"request", "--tenant", "acme", "--identity-file", write(t, dir, "person", herMail+"\nalice-2\n"), "--alias", "alice-3", "--alias", herMail,
		"--identifier-file", write(t, dir, "texts", "strong:+49 30 1\nweak:Alice: the one\n"), "--source-file", write(t, dir, "sources", "crm\talice-17\n"),
		"--ground", "17(1)(a)", "--received", received, "--policy", "delete", "--recipient", "mailer=https://mailer.example.com/x?a=b",
		"--recipient", "partner!impossible=gone, out of business", "--callback", "https://hook.example.com/",
	}, more...)
}

const filedBody = `{"kind":"subject","tenant_id":"acme","descriptor":{"person_ids":["alice@x.io","alice-2","alice-3"],` +
	`"identifier_strings":[{"value":"+49 30 1","strength":"strong"},{"value":"Alice: the one","strength":"weak"}],` +
	`"whole_sources":[{"source":"crm","source_ref":"alice-17"}]},"legal_ref":"17(1)(a)","received_at":"2026-03-01T09:00:00Z","policy":"delete",` +
	`"recipients":[{"name":"mailer","callback_url":"https://mailer.example.com/x?a=b"},` +
	`{"name":"partner","status":"impossible","reason":"gone, out of business"}],"callback_url":"https://hook.example.com/"}`

func nameless(t *testing.T, got ran) {
	t.Helper()
	for _, word := range []string{herMail, "alice", "Alice", "+49"} {
		if strings.Contains(got.all(), word) {
			t.Errorf("%q is printed:\n%s", word, got.all())
		}
	}
}

func TestARequestIsFiled(t *testing.T) {
	d := newDesk(t)
	got := d.run(t, fileArgs(t)...)
	got.wants(t, 0, "✓ filed: 2 identity ids of one person", theID, "due in 12 days", "filed", "recount verify-identity "+theID)
	nameless(t, got)
	if want := []string{"POST /admin/erasure " + filedBody}; !slices.Equal(d.requests(), want) {
		t.Errorf("asked %q\nwant  %q", d.requests(), want)
	}
	if by := d.header(0).Get("X-Dev-Principal"); by != officer {
		t.Errorf("acted as %q", by)
	}
	d.run(t, fileArgs(t, "--json")...).wants(t, 0, `{"id":"`+theID+`","kind":"subject"`)

	d.refuse("POST /admin/erasure", http.StatusUnprocessableEntity, "recipients[0]: alice@x.io is no host; policy: no")
	got = d.run(t, fileArgs(t)...)
	got.wants(t, 4, "not filed: recipients[0]: (what you typed) is no host; policy: no (HTTP 422)")
	nameless(t, got)
}

func TestWhatCannotBeMeantIsNotFiled(t *testing.T) {
	d, dir := newDesk(t), t.TempDir()
	base := []string{"request", "--tenant", "acme", "--ground", "17(1)(a)", "--policy", "delete"}
	for name, args := range map[string][]string{
		"nobody":            {"--received", received},
		"an identity twice": {"--received", received, "--identity", herMail, "--identity-file", write(t, dir, "p", herMail)},
		"no date":           {"--received", "yesterday", "--identity", herMail},
		"a future":          {"--received", "2999-01-01", "--identity", herMail},
		"an alias":          {"--received", received, "--identity", herMail, "--alias", ".."},
		"identifiers":       {"--received", received, "--identity", herMail, "--identifier-file", write(t, dir, "i", "loud:alice\n")},
		"sources":           {"--received", received, "--identity", herMail, "--source-file", write(t, dir, "s", "crm alice\n")},
		"a missing file":    {"--received", received, "--identity", herMail, "--source-file", filepath.Join(dir, "none")},
		"a recipient":       {"--received", received, "--identity", herMail, "--recipient", "alice"},
		"an excuse":         {"--received", received, "--identity", herMail, "--recipient", "x!lazy=alice"},
		"a policy":          {"--received", received, "--identity", herMail, "--policy", "alice"},
	} {
		got := d.run(t, append(slices.Clone(base), args...)...)
		if got.code != 2 {
			t.Errorf("%s: exit code %d\n%s", name, got.code, got.all())
		}
		nameless(t, got)
	}
	if len(d.requests()) > 0 {
		t.Errorf("it asked: %v", d.requests())
	}
}

func TestEachActionSendsItsOwnFields(t *testing.T) {
	for _, c := range []struct {
		args       string
		path, body string
		want       string
	}{
		{"verify-identity ID|--method|signed in", "verify-identity", `{"method":"signed in"}`, "verified"},
		{"reject ID|--reason|no ground", "reject", `{"reason":"no ground"}`, "rejected"},
		{"cancel ID|--reason|taken back", "cancel", `{"reason":"taken back"}`, "cancelled"},
		{"extend ID|--until|2026-05-01|--reason|many", "extend", `{"reason":"many","until":"2026-05-01T00:00:00Z"}`, "extended"},
		{"hold ID|--ref|LH-7", "hold", `{"hold_ref":"LH-7"}`, "written down"},
		{"hold ID|--release", "hold", `{"release":true}`, "released"},
		{
			"exclude ID|--store|causal/outcomes|--article|17(3)(b)|--counsel-ref|OP-1|--review|2027-01-01", "exclude",
			`{"store":"causal/outcomes","article":"17(3)(b)","counsel_ref":"OP-1","review_at":"2027-01-01T00:00:00Z"}`, "excluded",
		},
		{"exclude ID|--store|causal/outcomes|--remove", "exclude", `{"store":"causal/outcomes","remove":true}`, "no more"},
		{"preview ID", "preview", `{}`, theDigest},
		{"preview ID|--blast-cap|9000|--reason|big", "preview", `{"reason":"big","blast_cap":9000}`, "1215 rows"},
	} {
		t.Run(c.args, func(t *testing.T) {
			d := newDesk(t)
			d.is(previewed())
			args := strings.Split(strings.Replace(c.args, " ID", "|"+theID, 1), "|")
			d.run(t, args...).wants(t, 0, c.want, theID)
			route := "POST /admin/erasure/" + theID + ":" + c.path
			if want := []string{route + " " + c.body}; !slices.Equal(d.requests(), want) {
				t.Errorf("asked %q\nwant  %q", d.requests(), want)
			}
			d.run(t, append(args, "--json")...).wants(t, 0, `{"id":"`+theID+`"`, `"already_suppressed":null`)
			d.refuse(route, http.StatusConflict, "the request is closed already")
			d.run(t, args...).wants(t, 4, "not done: the request is closed already (HTTP 409)")
			d.refuse(route, http.StatusForbidden, "this needs the role dpo")
			d.run(t, args...).wants(t, 4, "this needs the role dpo (HTTP 403)")
			d.answer(route, http.StatusOK, "application/json", strings.ReplaceAll(jsonOf(t, previewed()), theID, otherID))
			d.run(t, args...).wants(t, 4, "the answer is not one to this request")
			d.answer(route, http.StatusUnauthorized, "text/plain", "")
			d.run(t, args...).wants(t, 4, "--admin-token")
		})
	}
}

func jsonOf(t *testing.T, r wire.Request) string {
	t.Helper()
	body, err := wire.Marshal(r)
	must(t, err)
	return string(body)
}

func TestAnActionThatCannotBeMeantIsNotSent(t *testing.T) {
	d := newDesk(t)
	for _, args := range []string{
		"preview alice@x.io", "status", "preview ID --blast-cap 9", "preview ID --reason x", "preview ID --blast-cap -9 --reason x", "hold ID", "hold ID --ref a --release",
		"exclude ID --store a/b", "exclude ID --store a/b --remove --article 17(3)(b)", "extend ID --until soon --reason x", "reject ID", "verify-identity ID",
		"approve ID --digest abc --yes", "approve ID --yes", "requests --tenant Acme", "preview ID --principal nobody", "preview ID --admin-token a,b",
		"preview ID --auth google", "preview ID --coordinator https://coordinator.example.com",
	} {
		got := d.run(t, strings.Fields(strings.Replace(args, "ID", theID, 1))...)
		got.wants(t, 2)
		nameless(t, got)
	}
	if len(d.requests()) > 0 {
		t.Errorf("it asked: %v", d.requests())
	}
}

func TestAnAdminTokenIsSentAndNoOther(t *testing.T) {
	d := newDesk(t)
	command := d.command(t, "preview", theID, "--admin-token", "mine", "--token", "theirs")
	command.Env = command.Env[:1]
	finish(t, command)
	if h := d.header(0); h.Get("Authorization") != "Bearer mine" || h.Get("X-Dev-Principal") != "" {
		t.Errorf("got %v", h)
	}
	d.run(t, "preview", theID, "--token", "theirs")
	if h := d.header(1); h.Get("Authorization") != "" {
		t.Errorf("got %v", h)
	}
	d.run(t, "health") // needs no principal, and sends none
	if h := d.header(2); h.Get("X-Dev-Principal") != "" {
		t.Errorf("got %v", h)
	}
}

func TestAPreviewShowsEverythingThatIsApproved(t *testing.T) {
	d := newDesk(t)
	d.is(previewed())
	d.run(t, "preview", theID).wants(t, 0, "1a1a1a1a1a1a1a1a…", "1212", "ALREADY SUPPRESSED", "intent_events", "2026-05-06 07:08 UTC", "retained", "not counted",
		"1215 rows would be erased", "legal hold: LH-7", "causal/outcomes under Art. 17(3)(b)", "Not counted: graph/edges: peer_unreachable", "Not searched: archives",
		"recount approve "+theID+" --digest "+theDigest)
	over := previewed()
	over.Preview.BlastCap = 1000
	d.is(over)
	d.run(t, "preview", theID).wants(t, 0, "over the cap of 1000")
	over.Preview.CapOverride = &wire.CapOverride{Cap: 2000, Reason: "many events", By: over.FiledBy}
	d.is(over)
	if got := d.run(t, "preview", theID); strings.Contains(got.out, "over the cap") || !strings.Contains(got.out, "raised from 1000 to 2000 by "+officer+": many events") {
		t.Errorf("got\n%s", got.out)
	}
}

func TestAnApprovalIsToWhatWasSeen(t *testing.T) {
	d := newDesk(t)
	route := "POST /admin/erasure/" + theID + ":approve"
	approve := []string{"approve", theID, "--digest", theDigest, "--yes"}
	d.is(previewed())
	d.run(t, approve...).wants(t, 0, "1215 rows would be erased", "One of two approvals is given")
	if want := []string{"GET /admin/erasure/" + theID, route + ` {"preview_digest":"` + theDigest + `"}`}; !slices.Equal(d.requests(), want) {
		t.Errorf("asked %q", d.requests())
	}
	got := d.run(t, append(approve, "--json")...)
	got.wants(t, 0, `{"id":"`+theID+`"`)
	if strings.Count(got.out, "\n") != 1 {
		t.Errorf("not one object:\n%s", got.out)
	}
	asked := len(d.requests())
	d.run(t, approve[:4]...).wants(t, 2, "say --yes")
	changed := previewed()
	changed.Preview.Digest = strings.Repeat("cd", 32)
	d.is(changed)
	d.run(t, approve...).wants(t, 4, "not approved: the preview is another one")
	d.is(filed())
	d.run(t, approve...).wants(t, 4, "not approved: there is no preview yet")
	for _, one := range d.requests()[asked:] {
		if strings.HasPrefix(one, "POST") {
			t.Errorf("it approved: %s", one)
		}
	}
	d.is(previewed())
	d.refuse(route, http.StatusConflict, "two distinct principals approve, and this one has already")
	d.run(t, approve...).wants(t, 4, "not approved: two distinct principals approve, and this one has already (HTTP 409)")
}

func TestAnApprovalIsFollowed(t *testing.T) {
	d := newDesk(t)
	d.is(previewed(), func(*wire.Request) {}, half, pending, closed)
	d.run(t, "approve", theID, "--digest", theDigest, "--yes", "--watch").wants(t, 0,
		"request: previewed", "request: running", "stage execute: running", "request: pending (execute: streaming_buffer)",
		"store ingest/intent_events: pending, 600 of 1215 left", "✓ closed", "8 of 8", "0 of 1215 left", "retained under Art. 17(3)(b)", "recount certificate "+theID)
}

func TestAStatusHasAnExitCode(t *testing.T) {
	for state, code := range map[string]int{
		"filed": 3, "verified": 3, "previewed": 3, "approved": 3, "running": 3, "pending": 3, "closed": 0, "rejected": 4, "cancelled": 4, "stage_failed": 4,
		"closed_unverified_strings": 4,
	} {
		d, r := newDesk(t), filed()
		r.State = state
		d.is(r)
		d.run(t, "status", theID).wants(t, code, state, "0 of 2")
		d.run(t, "status", theID, "--json").wants(t, code, `"state":"`+state+`"`)
	}
	d := newDesk(t)
	late := filed()
	late.DueAt = late.ReceivedAt.AddDate(0, 0, -3)
	d.is(late)
	d.run(t, "status", theID).wants(t, 3, "overdue by 3 days", "not verified yet")
	d.is(previewed(), pending)
	d.run(t, "status", theID).wants(t, 3, "tried again in", "600 of 1215 left", "░")
	d.refuse("GET /admin/erasure/"+theID, http.StatusNotFound, "there is no such erasure request")
	d.run(t, "status", theID).wants(t, 4, "there is no such erasure request (HTTP 404)")
}

func TestRequestsAreListedPageByPage(t *testing.T) {
	d := newDesk(t)
	second := previewed()
	second.ID, second.DueAt = otherID, second.ReceivedAt.AddDate(0, 0, -2)
	page := func(next string, r wire.Request) string {
		body, err := wire.Marshal(wire.RequestList{Requests: []wire.Request{r}, NextPageToken: next})
		must(t, err)
		return string(body)
	}
	d.answer("GET /admin/erasure?tenant_id=acme", 200, "application/json", page("a/b", filed()))
	d.answer("GET /admin/erasure?tenant_id=acme&page_token=a%2Fb", 200, "application/json", page("", second))
	d.run(t, "requests", "--tenant", "acme").wants(t, 0, theID, otherID, "DAYS LEFT", "12", "1215", "2 requests, 2 open, 1 overdue")
	got := d.run(t, "requests", "--tenant", "acme", "--json")
	var list struct {
		Requests []struct{ ID string }
	}
	must(t, json.Unmarshal([]byte(got.out), &list))
	if len(list.Requests) != 2 {
		t.Errorf("got %s", got.out)
	}
	d.answer("GET /admin/erasure?tenant_id=acme&page_token=a%2Fb", 200, "application/json", page("a/b", second))
	d.run(t, "requests", "--tenant", "acme").wants(t, 4, "no end")
	d.refuse("GET /admin/erasure?tenant_id=acme", http.StatusForbidden, "this principal may not")
	d.run(t, "requests", "--tenant", "acme").wants(t, 4, "this principal may not")
}

func TestAReportIsPrintedOrWrittenOnce(t *testing.T) {
	d, page := newDesk(t), filepath.Join(t.TempDir(), "report.html")
	r := filed()
	closed(&r)
	body, err := wire.Marshal(wire.Report{RequestID: theID, Request: r, Outcome: "closed", RowsBefore: subject.Measured(1215), RowsRemaining: subject.Measured(0), Limits: []string{"It has limits."}})
	must(t, err)
	route := "GET /admin/erasure/" + theID + "/report"
	d.answer(route, 200, "application/json", string(body))
	d.answer(route+".html", 200, "text/html; charset=utf-8", "<html>one</html>")
	d.run(t, "report", theID).wants(t, 0, "closed", "1215 before, 0 left", "intent_events", "It has limits.")
	d.run(t, "report", theID, "--json").wants(t, 0, `{"request_id":"`+theID+`"`)
	d.run(t, "report", theID, "--html", page).wants(t, 0, page)
	holds(t, page, "<html>one</html>")
	d.answer(route+".html", 200, "text/html", "<html>two</html>")
	d.run(t, "report", theID, "--html", page).wants(t, 2, "there already")
	holds(t, page, "<html>one</html>")
	must(t, os.Chmod(page, 0o644))
	d.run(t, "report", theID, "--html", page, "--force").wants(t, 0)
	holds(t, page, "<html>two</html>")
	d.refuse(route, http.StatusNotFound, "there is no such erasure request")
	d.run(t, "report", theID).wants(t, 4, "no report: there is no such erasure request (HTTP 404)")
	if left, err := os.ReadDir(filepath.Dir(page)); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// holds wants a file with that content, for its owner alone.
func holds(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	must(t, err)
	about, err := os.Stat(path)
	must(t, err)
	if string(got) != want || about.Mode().Perm() != 0o600 {
		t.Errorf("%s has mode %v and holds %q", path, about.Mode(), got)
	}
}

func TestACertificateIsWrittenWithItsKey(t *testing.T) {
	d, i, dir := newDesk(t), newIssuer(t), t.TempDir()
	good, out, opening := i.certify(t, theID, herMail), filepath.Join(dir, "certificate"), filepath.Join(dir, "opening")
	route := "GET /admin/erasure/" + theID + "/certificate"
	says := func(certificate, nonce string) {
		body, err := wire.Marshal(wire.CertificateResponse{Certificate: certificate, Opening: nonce, Keys: []string{newIssuer(t).public, i.public}})
		must(t, err)
		d.answer(route, 200, "application/json", string(body))
	}
	says(good, theNonce)
	got := d.run(t, "certificate", theID)
	got.wants(t, 0, "This key verifies it: "+i.public, "--opening FILE")
	if got.out != good || strings.Contains(got.err, theNonce) {
		t.Errorf("got %q and %q", got.out, got.err)
	}
	d.run(t, "certificate", theID, "--json").wants(t, 0, `"opening":"`+theNonce+`"`)
	d.run(t, "certificate", theID, "--out", out, "--opening", opening).wants(t, 0, i.public)
	holds(t, out, good)
	holds(t, opening, theNonce+"\n")
	d.run(t, "verify", out, "--key", i.public, "--opening", opening, "--identity", herMail).wants(t, 0, "about these people")
	d.run(t, "certificate", theID, "--out", out).wants(t, 2, "there already")
	says(good, "")
	d.run(t, "certificate", theID, "--opening", opening, "--force").wants(t, 4, "no opening any more")
	says(strings.Replace(good, `"remaining":4`, `"remaining":5`, 1), "")
	d.run(t, "certificate", theID).wants(t, 4, "does not hold")
	says(i.certify(t, otherID, herMail), "")
	d.run(t, "certificate", theID).wants(t, 4, "another request")
	d.refuse(route, http.StatusConflict, "the request is not closed")
	d.run(t, "certificate", theID).wants(t, 4, "no certificate: the request is not closed (HTTP 409)")
}

func TestLookingIsStoppedAndTheRequestGoesOn(t *testing.T) {
	d := newDesk(t)
	d.is(previewed(), half)
	var said bytes.Buffer
	command := d.command(t, "status", theID, "--watch")
	command.Stdout, command.Stderr = &said, &said
	must(t, command.Start())
	for len(d.requests()) < 2 && t.Context().Err() == nil {
		time.Sleep(5 * time.Millisecond)
	}
	must(t, command.Process.Signal(os.Interrupt))
	_ = command.Wait() // it ends with a code
	got := ran{command.ProcessState.ExitCode(), said.String(), ""}
	got.wants(t, 130, "The request goes on by itself: recount status "+theID)
	if strings.Contains(got.all(), "may have been done") {
		t.Errorf("got\n%s", got.all())
	}
}

func TestAnAnswerThatIsMissingOnceIsAskedForAgain(t *testing.T) {
	d := newDesk(t)
	d.is(previewed(), half, closed)
	times := 0
	d.mu.Lock()
	d.other["GET /admin/erasure/"+theID] = func(w http.ResponseWriter) { // called with the lock held
		switch times++; times {
		case 2:
			problem(w, http.StatusServiceUnavailable)
		case 1:
			half(&d.request)
			answer(w, http.StatusOK, d.request)
		default:
			closed(&d.request)
			answer(w, http.StatusOK, d.request)
		}
	}
	d.mu.Unlock()
	d.run(t, "status", theID, "--watch").wants(t, 0, "✓ closed")
	if times != 3 {
		t.Errorf("asked %d times", times)
	}
}
