package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"recount/internal/subject"
	"recount/internal/wire"
)

type checkPeerCmd struct {
	URL    string   `arg:"" help:"Where the cell is."`
	Name   string   `required:"" placeholder:"CELL" help:"The name that it must answer by."`
	Stores []string `required:"" sep:"," placeholder:"STORE" help:"The stores that it must answer for."`
	Tenant string   `default:"recount-check" placeholder:"TENANT" help:"The tenant to ask with."`
	Salt   string   `env:"INTENT_SUBJECT_SALT" placeholder:"SALT" help:"The deployment's salt, to check subject_ref by its value. Prefer the environment."`
}

// Help is shown below the flags.
func (checkPeerCmd) Help() string {
	return `Plays the contract that a cell must keep before a coordinator can count on it, with a person that nobody knows: random ids
of this run are erased, counted and read, and so are spellings of them that servers get wrong. No row of anybody else is
touched. Each check that fails says how to mend it; any that does exits 4.`
}

// errSkipped marks a check that can't be made here. Its wrapping says why.
var errSkipped = errors.New("not checked")

// errHopeless marks a failure after which no other check can tell anything.
var errHopeless = errors.New("the other checks were not made")

// check is one promise of the contract.
type check struct {
	name string // what holds
	mend string // what to do when it doesn't
	run  func(ctx context.Context, p *peer) error
}

// checked is what came of a check.
type checked struct {
	Name   string `json:"name"`
	Result string `json:"result"` // "ok", "failed", "skipped"
	Detail string `json:"detail,omitzero"`
	Mend   string `json:"mend,omitzero"`
}

// checkSummary is the command's JSON.
type checkSummary struct {
	Status string    `json:"status"`
	Cell   string    `json:"cell"`
	URL    string    `json:"url"`
	Checks []checked `json:"checks"`
}

// peer is the cell that is being checked.
type peer struct {
	*session
	at       target
	stores   []string
	tenant   string
	salt     *subject.Salt
	id       string          // of nobody
	problems map[string]bool // what was wrong with refusals
	redirect string          // a request that was answered by one
}

// Run makes every check, in order, whatever the ones before it came to.
func (c *checkPeerCmd) Run(ctx context.Context, s *session) error {
	p, err := c.peer(s)
	if err != nil {
		return err
	}
	results, failed := []checked{}, 0
	for _, one := range checks() {
		err := one.run(ctx, p)
		if interrupted(ctx) {
			return exit(exitInterrupted)
		}
		result := checked{Name: one.name, Result: "ok"}
		switch {
		case errors.Is(err, errSkipped):
			result.Result, result.Detail = "skipped", err.Error()
		case err != nil:
			result.Result, result.Detail, result.Mend = "failed", printable(err.Error()), one.mend
			failed++
		}
		results = append(results, result)
		if !s.json {
			s.showCheck(result)
		}
		if errors.Is(err, errHopeless) {
			break
		}
	}
	return s.sumUp(p, results, failed)
}

func (c *checkPeerCmd) peer(s *session) (*peer, error) {
	if !wire.IsName(c.Name) {
		return nil, usagef("--name must be [a-z][a-z0-9_-]{0,62}")
	}
	for _, store := range c.Stores {
		if !wire.IsName(store) {
			return nil, usagef("--stores must be names of the form [a-z][a-z0-9_-]{0,62}")
		}
	}
	if err := subject.CheckTenant(c.Tenant); err != nil {
		return nil, usagef("--tenant: %s", err)
	}
	at, err := newTarget(c.Name, c.URL)
	if err != nil {
		return nil, err
	}
	p := &peer{
		session: s, at: at, stores: c.Stores, tenant: c.Tenant, id: "recount-check-" + rand.Text(), problems: map[string]bool{},
	}
	if c.Salt != "" {
		salt, err := subject.NewSalt(c.Salt)
		if err != nil {
			return nil, usagef("--salt: %s", err)
		}
		p.salt = &salt
	}
	return p, nil
}

func (s *session) showCheck(c checked) {
	switch c.Result {
	case "skipped":
		s.say("%s %s", s.paint(faint, "–"), s.paint(faint, c.Name+" ("+c.Detail+")"))
	case "failed":
		s.say("%s %s", s.good(false), c.Name)
		s.say("    saw:  %s", c.Detail)
		s.say("    mend: %s", c.Mend)
	default:
		s.say("%s %s", s.good(true), c.Name)
	}
}

func (s *session) sumUp(p *peer, results []checked, failed int) error {
	status := "ok"
	if failed > 0 {
		status = "failed"
	}
	if s.json {
		if err := s.writeJSON(checkSummary{status, p.at.name, p.at.base.String(), results}); err != nil {
			return err
		}
	}
	if failed > 0 {
		if !s.json {
			s.say("")
			s.say("%s %d of %d checks failed: a coordinator would not, or should not, count on this cell yet.", s.good(false), failed, len(results))
		}
		return exit(exitFailed)
	}
	if !s.json {
		s.say("")
		s.say("%s %s keeps the contract, as far as these %d checks see.", s.good(true), s.paint(bold, p.at.name), len(results))
	}
	return nil
}

// send sends a message and remembers redirects.
func (p *peer) send(ctx context.Context, m message) (answer, error) {
	if m.limit == 0 {
		m.limit = maxAnswer
	}
	got, err := p.call.send(ctx, p.at, m)
	if err == nil && got.code >= 300 && got.code < 400 && p.redirect == "" {
		p.redirect = fmt.Sprintf("HTTP %d to a %s", got.code, m.method)
	}
	return got, err //nolint:wrapcheck // our own error
}

// post sends a body of the contract, as any value or as raw bytes.
func (p *peer) post(ctx context.Context, verb string, body any) (answer, error) {
	data, raw := body.([]byte)
	if !raw {
		var err error
		if data, err = wire.Marshal(body); err != nil {
			return answer{}, fmt.Errorf("the request can't be written: %w", err)
		}
	}
	return p.send(ctx, message{
		method: http.MethodPost, path: "/v1/intent/subject:" + verb, contentType: "application/json", body: data,
	})
}

// byPath asks with an id in the path, already escaped. Only this command ever does, and only for nobody's ids.
func (p *peer) byPath(ctx context.Context, method, escaped string) (answer, error) {
	return p.send(ctx, message{method: method, path: "/v1/intent/subject/" + escaped + "?tenant_id=" + p.tenant})
}

func (p *peer) naming(id string) wire.SubjectRequest {
	return wire.SubjectRequest{TenantID: p.tenant, IdentityID: id}
}

// erased judges an answer about an erasure of nobody: a measured zero in every store. It answers the reference.
func (p *peer) erased(got answer, err error) (subject.Ref, error) {
	if err != nil {
		return "", err
	}
	if got.code != http.StatusOK {
		return "", fmt.Errorf("HTTP %d for a person that nobody knows", got.code)
	}
	o := judgeErase(got, question{requestID: got.requestID, tenant: p.tenant, cells: []string{p.at.name}})
	return o.ref, p.zero(o)
}

// zero reports what keeps an outcome from being a measured zero in every store.
func (p *peer) zero(o outcome) error {
	answered := map[string]bool{}
	for _, r := range o.receipts {
		answered[r.Store()] = true
		c := r.Counts()
		switch {
		case r.Status() != subject.Erased:
			return fmt.Errorf("%s is %s, %s: %s", r.Store(), r.Status(), r.Reason(), advice[r.Reason()])
		case r.Cell() != p.at.name:
			return fmt.Errorf("a receipt is another cell's")
		case !c.Before.IsZero() || !c.Deleted.IsZero():
			return fmt.Errorf("%s counts %s before and %s deleted for a person that nobody knows", r.Store(), c.Before, c.Deleted)
		}
	}
	for _, store := range p.stores {
		if !answered[store] {
			return fmt.Errorf("the store %s has no receipt", store)
		}
	}
	return nil
}

// refuses reports an answer that is not a refusal with one of the codes. What is wrong with the problem document itself
// is kept for a check of its own.
func (p *peer) refuses(got answer, err error, codes ...int) error {
	if err != nil {
		return err
	}
	for _, code := range codes {
		if got.code == code {
			p.lookAtProblem(got)
			return nil
		}
	}
	want := strings.Trim(strings.ReplaceAll(fmt.Sprint(codes), " ", " or "), "[]")
	return fmt.Errorf("HTTP %d, not %s", got.code, want)
}

func (p *peer) lookAtProblem(got answer) {
	var problem struct {
		Type   wire.PeerText  `json:"type"`
		Title  wire.PeerText  `json:"title"`
		Status wire.PeerCount `json:"status"`
	}
	_ = decodeLoosely(got.body, &problem) // what is no JSON has none of the three
	count, _ := problem.Status.Count()
	status, _ := count.Value()
	switch {
	case !got.isProblem():
		p.problems[fmt.Sprintf("HTTP %d has the Content-Type %q", got.code, mediaType(got.header))] = true
	case problem.Type == "" || problem.Title == "" || status != int64(got.code):
		p.problems[fmt.Sprintf("HTTP %d lacks type, title, or a status that says the same", got.code)] = true
	case strings.Contains(string(got.body), p.id):
		p.problems[fmt.Sprintf("HTTP %d quotes the identity", got.code)] = true
	}
}
