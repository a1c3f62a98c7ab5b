package cli

import (
	"context"
	"fmt"

	"recount/internal/wire"
)

// change is an action without anything to show beforehand.
func (r requestID) change(ctx context.Context, s *session, action string, body wire.ActionRequest, words string) error {
	a, err := r.begin(s)
	if err != nil {
		return err
	}
	got, err := a.act(ctx, r.ID, action, body)
	if err != nil {
		return undone(err)
	}
	return a.done(got, words)
}

// undone says that an action was not taken.
func undone(err error) error { return fmt.Errorf("not done: %w", err) }

type verifyIdentityCmd struct {
	requestID
	Method string `required:"" placeholder:"TEXT" help:"How: such as 'signed in and answered a mail to the address on file'. Never whom, and never a copy of a document (Art. 12(6))."`
}

// Help is shown below the flags.
func (verifyIdentityCmd) Help() string {
	return `Nothing is approved before it. The method is kept for good, so it must not name the person.`
}

// Run writes it down.
func (c *verifyIdentityCmd) Run(ctx context.Context, s *session) error {
	return c.change(ctx, s, "verify-identity", wire.ActionRequest{Method: c.Method}, "The identity is verified.")
}

type rejectCmd struct {
	requestID
	Reason string `required:"" placeholder:"TEXT" help:"Why, as the person is told (Art. 12(4)). It is kept, and must not name the person."`
}

// Run refuses the request.
func (c *rejectCmd) Run(ctx context.Context, s *session) error {
	return c.change(ctx, s, "reject", wire.ActionRequest{Reason: c.Reason}, "The request is rejected; nothing was deleted.")
}

type cancelCmd struct {
	requestID
	Reason string `required:"" placeholder:"TEXT" help:"Why. It is kept, and must not name the person."`
}

// Run takes the request back.
func (c *cancelCmd) Run(ctx context.Context, s *session) error {
	return c.change(ctx, s, "cancel", wire.ActionRequest{Reason: c.Reason}, "The request is cancelled; nothing was deleted.")
}

type extendCmd struct {
	requestID
	Until  string `required:"" placeholder:"DATE" help:"The new date, at most three months after the person asked."`
	Reason string `required:"" placeholder:"TEXT" help:"Why, as the person is told inside the first month. It is kept, and must not name the person."`
}

// Run extends the time.
func (c *extendCmd) Run(ctx context.Context, s *session) error {
	until, err := parseMoment("--until", c.Until)
	if err != nil {
		return err
	}
	return c.change(ctx, s, "extend", wire.ActionRequest{Until: &until, Reason: c.Reason}, "The time is extended. Tell the person, with the reasons.")
}

type holdCmd struct {
	requestID
	Ref     string `xor:"hold" required:"" placeholder:"REF" help:"The hold's number, a code."`
	Release bool   `xor:"hold" required:"" help:"Release the hold."`
}

// Help is shown below the flags.
func (holdCmd) Help() string {
	return `A hold takes the approvals back, also of a request that is being carried out: both approvers see it in the next preview, and approve again, or do not.`
}

// Run writes the hold down, or releases it.
func (c *holdCmd) Run(ctx context.Context, s *session) error {
	words := "The hold is written down."
	if c.Release {
		words = "The hold is released."
	}
	return c.change(ctx, s, "hold", wire.ActionRequest{HoldRef: c.Ref, Release: c.Release}, words)
}

type excludeCmd struct {
	requestID
	Store      string `required:"" placeholder:"CELL/STORE" help:"The store whose rows are retained, as the preview names it."`
	Article    string `placeholder:"17(3)(b)" help:"The point of Art. 17(3): 17(3)(a) to 17(3)(e)."`
	CounselRef string `placeholder:"REF" help:"The number of counsel's opinion, a code."`
	Review     string `placeholder:"DATE" help:"When the exclusion is looked at again."`
	Remove     bool   `help:"Take the exclusion of that store back."`
}

// Help is shown below the flags.
func (excludeCmd) Help() string {
	return `What is retained is not deleted, and the certificate says so with the article. It takes the approvals back: preview and approve again.

  recount exclude ID --store causal/outcomes --article '17(3)(b)' --counsel-ref OP-112 --review 2027-03-01`
}

// Run excludes the store, or takes that back.
func (c *excludeCmd) Run(ctx context.Context, s *session) error {
	rest := c.Article != "" || c.CounselRef != "" || c.Review != ""
	switch {
	case c.Remove && rest:
		return usagef("--remove goes with --store alone")
	case c.Remove:
		return c.change(ctx, s, "exclude", wire.ActionRequest{Store: c.Store, RemoveStore: true}, "The store is excluded no more.")
	case c.Article == "" || c.CounselRef == "" || c.Review == "":
		return usagef("an exclusion needs --article, --counsel-ref and --review")
	}
	review, err := parseMoment("--review", c.Review)
	if err != nil {
		return err
	}
	return c.change(ctx, s, "exclude", wire.ActionRequest{
		Store: c.Store, Article: c.Article, CounselRef: c.CounselRef, ReviewAt: &review,
	}, "The store is excluded.")
}
