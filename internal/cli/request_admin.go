package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"recount/internal/auth"
	"recount/internal/subject"
	"recount/internal/wire"
)

// devPrincipal is the header that names who acts, for a coordinator on loopback that takes a name without a token.
const devPrincipal = "X-Dev-Principal"

// maxDetail bounds what is shown of a refusal: it may name every fault of a request at once.
const maxDetail = 2000

// The states of a request that the command tells apart.
const (
	stateFiled      = "filed"
	stateVerified   = "verified"
	statePreviewed  = "previewed"
	stateApproved   = "approved"
	stateRunning    = "running"
	statePending    = "pending"
	stateClosed     = "closed"
	stateUnverified = "closed_unverified_strings"
	stateRejected   = "rejected"
	stateCancelled  = "cancelled"
	stateFailed     = "stage_failed"
)

// admin is a session that acts on erasure requests, with a principal's own token.
type admin struct {
	*session
	caller *caller
}

// asAdmin makes the session one of a principal. What it needs for that is checked here, so that no other command does.
func (s *session) asAdmin() (*admin, error) {
	g, own := s.flags, *s.call
	switch {
	case g.Principal != "" && !isLoopback(s.coordinator.base.Hostname()):
		return nil, usagef("--principal (RECOUNT_PRINCIPAL) is a name without a proof, and is only sent to a coordinator on loopback: use --admin-token or --auth google")
	case strings.ContainsFunc(g.Principal, func(r rune) bool { return r <= ' ' || r >= 0x7f }) || g.Principal != "" && !strings.Contains(g.Principal, "@"):
		return nil, usagef("--principal must be an e-mail address")
	case g.AdminToken != "" && !isToken(g.AdminToken):
		return nil, usagef("--admin-token is given as it was signed")
	case g.AdminToken != "":
		own.tokens = givenTokens{"": g.AdminToken}
	case g.Principal == "" && g.AdminToken == "" && g.Auth == "" && isLoopback(s.coordinator.base.Hostname()):
		return nil, usagef("say who acts: --principal EMAIL (RECOUNT_PRINCIPAL) for a coordinator on loopback, else --admin-token or --auth google")
	case g.Auth == "google" && g.AdminAud == "":
		return nil, usagef("--auth google needs --admin-audience here: the coordinator takes a token for its admin audience alone")
	case g.Auth == "google":
		own.tokens = audienceTokens{auth.GoogleTokens(g.AdminAud)}
	default:
		own.tokens = givenTokens{}
	}
	own.principal = g.Principal
	return &admin{session: s, caller: &own}, nil
}

// audienceTokens are for one audience, whatever the address.
type audienceTokens struct{ tokens *auth.Tokens }

func (a audienceTokens) token(ctx context.Context, _ target) (string, error) {
	return a.tokens.Token(ctx) //nolint:wrapcheck // *auth.TokenError says all that may be said
}

// requestID is the argument that names a request.
type requestID struct {
	ID string `arg:"" name:"id" help:"The request's id, as recount request printed it."`
}

func (r requestID) check() error {
	if len(r.ID) != 36 || strings.Trim(r.ID, "0123456789abcdef-") != "" {
		return usagef("a request's id has 36 characters, as recount request and recount requests print it")
	}
	return nil
}

// begin checks the id, and makes the session one of a principal.
func (r requestID) begin(s *session) (*admin, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	return s.asAdmin()
}

const adminPath = "/admin/erasure"

// shown is a request as the server answered it.
type shown struct {
	wire.Request
	raw jsontext.Value
}

// fetch asks for one request as it is now.
func (a *admin) fetch(ctx context.Context, id string) (shown, error) {
	got, err := a.caller.get(ctx, a.coordinator, adminPath+"/"+id)
	return a.read(ctx, got, err, http.StatusOK, id)
}

// act does something to a request, and answers it as it then is.
func (a *admin) act(ctx context.Context, id, action string, body wire.ActionRequest) (shown, error) {
	got, err := a.caller.post(ctx, a.coordinator, adminPath+"/"+id+":"+action, body, maxAnswer)
	if interrupted(ctx) {
		a.note("Interrupted. What was sent may have been done: recount status %s shows it.", id)
	}
	return a.read(ctx, got, err, http.StatusOK, id)
}

// read takes an answer for a request only when it is one, of that id; "" takes any.
func (a *admin) read(ctx context.Context, got answer, err error, code int, id string) (shown, error) {
	var r shown
	if err = a.accept(ctx, got, err, code); err != nil {
		return r, err
	}
	if decodeOwn(got.body, &r.Request) != nil || (requestID{r.ID}).check() != nil || id != "" && r.ID != id {
		return r, errNotThis
	}
	r.raw = got.body
	return r, nil
}

var errNotThis = errors.New("the answer is not one to this request")

// accept is the error of a call, or of an answer that has another code. A call that was
// interrupted says so by its exit code.
func (a *admin) accept(ctx context.Context, got answer, err error, code int) error {
	switch {
	case interrupted(ctx):
		return exit(exitInterrupted)
	case err != nil:
		return err
	case got.code == code:
		return nil
	}
	if detail := got.detail(maxDetail); detail != "" && got.code >= 400 && got.code < 500 {
		return &refusedError{code: got.code, detail: detail}
	}
	if got.code == http.StatusUnauthorized {
		return &callError{
			reason: subject.ReasonPeerUnauthorised,
			hint:   "HTTP 401: the token is missing, expired or made out to another audience (--admin-token, or --auth google with --admin-audience)",
		}
	}
	return got.refusal()
}

// refusedError is what the coordinator says why something is not done.
type refusedError struct {
	code   int
	detail string
}

// Error is the coordinator's own sentence.
func (e *refusedError) Error() string { return fmt.Sprintf("%s (HTTP %d)", e.detail, e.code) }

// decodeOwn reads what our own coordinator answers, counts included.
func decodeOwn(data []byte, v any) error {
	return json.Unmarshal(data, v, json.WithUnmarshalers(wire.CountReader())) //nolint:wrapcheck // callers only ask whether
}

// writeRaw prints the server's object on one line.
func (a *admin) writeRaw(raw jsontext.Value) error {
	raw = raw.Clone()
	if err := raw.Compact(); err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	return a.writeJSON(raw)
}

// done prints what an action came to: the server's object, or a line, the state, and what to do next.
func (a *admin) done(r shown, words string) error {
	if a.json {
		return a.writeRaw(r.raw)
	}
	a.say("%s %s", a.good(true), words)
	a.field("request_id", r.ID)
	a.field("state", a.stateWord(r.State)+withDetail(r.StateDetail))
	a.field("due", moment(r.DueAt)+", "+clockOf(r.Request, time.Now()))
	a.next(r.Request)
	return nil
}

func withDetail(detail string) string {
	if detail == "" {
		return ""
	}
	return " (" + printable(detail) + ")"
}

// over reports whether a request has come to its end.
func over(state string) bool {
	switch state {
	case stateClosed, stateUnverified, stateRejected, stateCancelled:
		return true
	default:
		return false
	}
}

// exitForState is 0 for what is erased, 3 for what is still open, and 4 for what ended in any other way.
func exitForState(state string) error {
	switch state {
	case stateClosed:
		return nil
	case stateUnverified, stateRejected, stateCancelled, stateFailed:
		return exit(exitFailed)
	default:
		return exit(exitPending)
	}
}

func (s *screen) stateWord(state string) string {
	colour := bold
	switch state {
	case stateClosed:
		colour = green
	case statePending, stateUnverified:
		colour = yellow
	case stateFailed, stateRejected, stateCancelled:
		colour = red
	}
	return s.paint(colour, printable(state))
}

// next says what somebody has to do now.
func (s *screen) next(r wire.Request) {
	for i, line := range nextSteps(r, time.Now()) {
		name := ""
		if i == 0 {
			name = "next"
		}
		s.say("  %s  %s", s.paint(faint, fmt.Sprintf("%-11s", name)), line)
	}
}

func nextSteps(r wire.Request, now time.Time) []string {
	id := r.ID
	switch r.State {
	case stateFiled:
		return []string{`recount verify-identity ` + id + ` --method "how, never a copy of a document"`, "recount preview " + id}
	case stateVerified:
		return []string{"recount preview " + id}
	case statePreviewed:
		if r.Preview == nil || !now.Before(r.Preview.ExpiresAt) {
			return []string{"recount preview " + id + ", because the last one has expired"}
		}
		who := "two people, each:"
		if standing(r, now) > 0 {
			who = "a second person:"
		}
		return []string{who + " recount approve " + id + " --digest " + printable(r.Preview.Digest)}
	case stateApproved, stateRunning, statePending:
		return []string{"recount status " + id + " --watch"}
	case stateFailed:
		return []string{"recount preview " + id + ", and two approvals: what has failed is tried again"}
	case stateClosed, stateUnverified:
		return []string{"recount certificate " + id + " --out certificate.txt", "recount report " + id + " --html report.html"}
	default:
		return nil
	}
}

// standing is how many approvals have not expired.
func standing(r wire.Request, now time.Time) (n int) {
	for _, a := range r.Approvals {
		if now.Before(a.ExpiresAt) {
			n++
		}
	}
	return n
}
