package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"recount/internal/wire"
)

type previewCmd struct {
	requestID
	BlastCap int64  `placeholder:"N" help:"Let the request hit up to so many rows, above the configured cap. Both approvers see it."`
	Reason   string `placeholder:"TEXT" help:"Why the cap is raised. It is kept, and must not name the person."`
}

// Help is shown below the flags.
func (previewCmd) Help() string {
	return `Every store of every cell is counted; nothing is touched. The digest stands for all that is shown: who approves it approves this and
nothing else. A preview of before is void then, and so are its approvals.`
}

// Run previews, and shows it.
func (c *previewCmd) Run(ctx context.Context, s *session) error {
	switch {
	case c.BlastCap < 0:
		return usagef("--blast-cap is a number of rows")
	case (c.BlastCap != 0) != (c.Reason != ""):
		return usagef("--blast-cap and --reason go together")
	}
	a, err := c.begin(s)
	if err != nil {
		return err
	}
	got, err := a.act(ctx, c.ID, "preview", wire.ActionRequest{BlastCap: c.BlastCap, Reason: c.Reason})
	switch {
	case err != nil:
		return undone(err)
	case got.Preview == nil:
		return errNotThis
	case s.json:
		return a.writeRaw(got.raw)
	}
	s.showPreview(got.Request)
	s.say("")
	s.next(got.Request)
	if got.State == stateFiled {
		s.say("  Then, two people, each: recount approve %s --digest %s", got.ID, printable(got.Preview.Digest))
	}
	if got.Preview.Total == 0 && len(got.Preview.Unreachable) == 0 {
		s.note("Nothing was found. If you expected data, check the tenant and the spelling of the identity: they are compared byte for byte.")
	}
	return nil
}

// showPreview prints everything that an approval is to.
func (s *screen) showPreview(r wire.Request) {
	p := r.Preview
	s.previewTargets(p)
	s.say("")
	s.previewStores(p)
	s.say("")
	atLeast := ""
	if n := len(p.Unreachable); n > 0 {
		atLeast = fmt.Sprintf("at least, with %s not counted, ", plural(n, "store"))
	}
	s.say("  %s%s would be erased, of tenant %s, by the policy %s, on the ground of Art. %s.", atLeast, s.paint(bold, plural64(p.Total, "row")),
		printable(r.TenantID), printable(r.Policy), printable(r.LegalRef))
	if p.Derived > 0 {
		s.say("  %s %s of them derive from the person's own, whoever they belong to, and go too.", s.paint(yellow, "!"), plural64(p.Derived, "row"))
	}
	limit := p.BlastCap
	if p.CapOverride != nil {
		limit = p.CapOverride.Cap
		s.say("  The cap is raised from %d to %d by %s: %s", p.BlastCap, limit, printable(p.CapOverride.By.Email), printable(p.CapOverride.Reason))
	}
	if p.Total > limit {
		s.say("  %s That is over the cap of %d: it can't be approved. Check the request, or preview with --blast-cap and --reason.", s.good(false), limit)
	}
	if p.HoldRef != "" {
		s.say("  %s There is a legal hold: %s", s.paint(yellow, "!"), printable(p.HoldRef))
	}
	for _, e := range p.Exclusions {
		s.say("  %s Retained: %s under Art. %s, counsel %s, reviewed %s", s.paint(yellow, "!"), printable(e.Store), printable(e.Article),
			printable(e.CounselRef), e.ReviewAt.UTC().Format(time.DateOnly))
	}
	for _, place := range p.Unreachable {
		s.say("  %s Not counted: %s", s.good(false), printable(place))
	}
	for _, what := range p.NotSearchable {
		s.say("  %s Not searched: %s", s.paint(yellow, "!"), printable(what))
	}
	s.say("")
	s.field("request_id", r.ID)
	s.field("digest", printable(p.Digest))
	s.field("expires", moment(p.ExpiresAt))
}

func (s *screen) previewTargets(p *wire.Preview) {
	rows := make([][]string, len(p.Targets))
	for i, t := range p.Targets {
		rows[i] = []string{printable(t.Kind), shortRef(t.Ref), strconv.FormatInt(t.Total, 10), number(t.Suppressed)}
	}
	s.table([]column{{title: "TARGET"}, {title: "REF"}, {title: "ROWS", number: true}, {title: "ALREADY SUPPRESSED", number: true}}, rows)
}

func (s *screen) previewStores(p *wire.Preview) {
	rows := make([][]string, len(p.Stores))
	for i, st := range p.Stores {
		what := "erased"
		if _, counted := st.Count.Value(); !counted {
			what = s.paint(red, "not counted")
		}
		sticky := "stays away"
		if !st.Sticky {
			sticky = "can come back"
		}
		if st.Excluded {
			what, sticky = s.paint(yellow, "retained"), "–"
		}
		rows[i] = []string{
			printable(st.Cell), printable(st.Store), number(st.Count), derivedOf(st), what, momentOf(st.RecoverableUntil), sticky, printable(st.Detail), printable(st.Backend),
		}
	}
	s.table([]column{
		{title: "CELL"},
		{title: "STORE"},
		{title: "ROWS", number: true},
		{title: "DERIVED", number: true},
		{title: "WOULD BE"},
		{title: "RECOVERABLE UNTIL"},
		{title: "AFTERWARDS", spare: true},
		{title: "DETAIL"},
		{title: "BACKEND", spare: true},
	}, rows)
}

// derivedOf is empty where nothing derives, so that the column is left out where nothing does anywhere.
func derivedOf(st wire.PreviewStore) string {
	if st.Derived.IsZero() {
		return ""
	}
	return number(st.Derived)
}

// shortRef is enough of a reference to tell it from the others of a request.
func shortRef(ref string) string {
	ref = printable(ref)
	if runes := []rune(ref); len(runes) > 16 {
		return string(runes[:16]) + "…"
	}
	return ref
}

func plural64(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.FormatInt(n, 10) + " " + noun + "s"
}

type approveCmd struct {
	requestID
	Digest string `required:"" placeholder:"DIGEST" help:"The digest of the preview that you have seen."`
	Yes    bool   `help:"Don't ask. For scripts."`
	Watch  bool   `help:"Follow the request then, as recount status --watch does."`
}

// Help is shown below the flags.
func (approveCmd) Help() string {
	return `Two people approve, and whoever filed the request is at most one of them. The second approval lets the erasure begin, and it can't be
undone. The preview is shown again first; on a terminal you type its number of rows to go on, a script says --yes.`
}

// Run shows what is approved, asks, and approves.
func (c *approveCmd) Run(ctx context.Context, s *session) error {
	c.Digest = strings.ToLower(c.Digest)
	if len(c.Digest) != 64 || strings.Trim(c.Digest, "0123456789abcdef") != "" {
		return usagef("--digest has 64 hex digits, as recount preview printed it")
	}
	a, err := c.begin(s)
	if err != nil {
		return err
	}
	now, err := a.fetch(ctx, c.ID)
	if err == nil {
		err = c.same(now.Request)
	}
	if err != nil {
		return notApproved(err)
	}
	if !s.json {
		s.showPreview(now.Request)
		s.say("")
	} else if !c.Yes {
		beside := *s.screen
		beside.out, beside.colour, beside.width = s.err, s.errIsColours, 0
		beside.showPreview(now.Request)
	}
	if !c.Yes {
		if err := c.confirm(ctx, a, now.Request); err != nil {
			return err
		}
	}
	got, err := a.act(ctx, c.ID, "approve", wire.ActionRequest{Digest: c.Digest})
	if err != nil {
		return notApproved(err)
	}
	if c.Watch {
		return a.watch(ctx, got, true)
	}
	words := "One of two approvals is given; nothing is erased before the second."
	if got.State != statePreviewed {
		words = "Both approvals are given: the erasure begins."
	}
	return a.done(got, words)
}

func notApproved(err error) error { return fmt.Errorf("not approved: %w", err) }

// same holds the preview that there is against the one that was seen.
func (c *approveCmd) same(r wire.Request) error {
	switch {
	case r.Preview == nil:
		return errors.New("there is no preview yet: recount preview " + r.ID)
	case r.Preview.Digest != c.Digest:
		return errors.New("the preview is another one than that of the digest by now: look at it with recount preview " + r.ID + ", and approve its digest")
	}
	return nil
}

// confirm has the person type how many rows go.
func (c *approveCmd) confirm(ctx context.Context, a *admin, r wire.Request) error {
	word := strconv.FormatInt(r.Preview.Total, 10)
	if r.Preview.Total == 0 {
		word = "erase"
	}
	warning := "This is the first of two approvals."
	if standing(r, time.Now()) > 0 {
		warning = "This is the second approval: the erasure begins with it, and can't be undone."
	}
	return a.confirmWord(ctx, warning, word, "nothing was approved")
}
