package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"recount/internal/subject"
	"recount/internal/wire"
)

type requestCmd struct {
	Tenant         string   `required:"" placeholder:"TENANT" help:"The tenant that knows the person."`
	Identity       string   `xor:"who" required:"" placeholder:"ID" help:"The person's identity_id. It lands in the shell's history and the process list: prefer --identity-file."`
	IdentityFile   string   `xor:"who" required:"" placeholder:"FILE" help:"A file with the one person's identity_id, and below it any aliases, one a line, byte for byte; '-' is standard input."`
	Alias          []string `sep:"none" placeholder:"ID" help:"Another identity_id of the same person; repeat it for each. Prefer --identity-file."`
	IdentifierFile string   `placeholder:"FILE" help:"A file of texts that name the person, one a line: strong:VALUE for an address or a number, weak:VALUE for a name."`
	SourceFile     string   `placeholder:"FILE" help:"A file of sources that go as a whole, one a line: the source, a tab, its reference."`
	Ground         string   `required:"" placeholder:"17(1)(a)" help:"The ground of Art. 17(1): 17(1)(a) to 17(1)(f)."`
	Received       string   `required:"" placeholder:"DATE" help:"When the person asked, a date or a time of RFC 3339: the month of Art. 12(3) begins there."`
	Policy         string   `required:"" enum:"delete,redact" placeholder:"POLICY" help:"'delete', or 'redact' for surfaces that mask in place: the rows of stores are removed either way."`
	Recipient      []string `sep:"none" placeholder:"NAME=URL" help:"Somebody whom the data was disclosed to and who is told (Art. 19): NAME=URL, or NAME!impossible=REASON, or NAME!disproportionate=REASON. Repeat it for each. A company or a code, never a person."`
	Callback       string   `placeholder:"URL" help:"Is told of every change of state, with a payload that names nobody."`
}

// Help is shown below the flags.
func (requestCmd) Help() string {
	return `Nothing is erased yet: the request is written down, and its month begins to run. One request is about one person. The identity is
sealed by the coordinator and never printed; the request's id stands for it from then on.

  recount request --tenant acme --identity-file person.txt --ground '17(1)(a)' --received 2026-03-01 --policy delete
  recount request … --recipient 'mailer=https://mailer.example.com/erased' --recipient 'partner!impossible=went out of business'`
}

// Run checks what was typed, and files it.
func (c *requestCmd) Run(ctx context.Context, s *session) error {
	a, err := s.asAdmin()
	if err != nil {
		return err
	}
	asked, err := c.request(ctx, s)
	if err != nil {
		return err
	}
	got, err := a.caller.post(ctx, a.coordinator, adminPath, asked, maxAnswer)
	if interrupted(ctx) {
		s.note("Interrupted. It may have been filed: look with recount requests before you file it again.")
		return exit(exitInterrupted)
	}
	var lost *callError
	if errors.As(err, &lost) && lost.reason != subject.ReasonPeerUnauthorised { // it went out, for all that is known here
		s.note("It may have been filed: look with recount requests before you file it again.")
	}
	r, err := a.read(ctx, got, err, http.StatusCreated, "")
	if err != nil {
		return fmt.Errorf("not filed: %s", withoutThem(err.Error(), asked.Descriptor))
	}
	words := fmt.Sprintf("%s: %s of one person, %s, %s.", a.paint(bold, "filed"), plural(r.Persons, "identity id"),
		plural(r.Identifiers, "identifier string"), plural(r.WholeSources, "whole source"))
	return a.done(r, words)
}

// withoutThem takes whom a request is about out of what is said of it.
func withoutThem(words string, d wire.Descriptor) string {
	for _, id := range d.PersonIDs {
		words = without(words, id)
	}
	for _, text := range d.IdentifierStrings {
		words = without(words, text.Value)
	}
	for _, source := range d.WholeSources {
		words = without(words, source.SourceRef)
	}
	return words
}

// request is the body. No error holds anything of a descriptor.
func (c *requestCmd) request(ctx context.Context, s *session) (asked wire.FileRequest, err error) {
	asked = wire.FileRequest{Kind: "subject", TenantID: c.Tenant, LegalRef: c.Ground, Policy: c.Policy, Callback: c.Callback}
	if asked.ReceivedAt, err = parseMoment("--received", c.Received); err != nil {
		return asked, err
	}
	if asked.ReceivedAt.After(time.Now().Add(time.Minute)) {
		return asked, usagef("--received is when the person asked, in the past")
	}
	for i, text := range c.Recipient {
		r, err := parseRecipient(text)
		if err != nil {
			return asked, usagef("--recipient, number %d: %s", i+1, err)
		}
		asked.Recipients = append(asked.Recipients, r)
	}
	people, err := who{Tenant: c.Tenant, Identity: c.Identity, IdentityFile: c.IdentityFile}.people(ctx, s)
	if err != nil {
		return asked, err
	}
	asked.Descriptor, err = c.descriptor(ctx, s, people)
	return asked, err
}

func (c *requestCmd) descriptor(ctx context.Context, s *session, people []person) (d wire.Descriptor, err error) {
	seen := map[string]bool{}
	add := func(one subject.Subject) {
		if !seen[one.Identity()] {
			d.PersonIDs = append(d.PersonIDs, one.Identity())
		}
		seen[one.Identity()] = true
	}
	for _, p := range people {
		add(p.Subject)
	}
	for i, alias := range c.Alias {
		one, err := subject.New(c.Tenant, alias)
		if err != nil {
			return d, usagef("--alias, number %d: %s", i+1, err)
		}
		add(one)
	}
	err = s.eachLine(ctx, "--identifier-file", c.IdentifierFile, func(line string) error {
		strength, value, found := strings.Cut(line, ":")
		if !found || value == "" || strength != "strong" && strength != "weak" {
			return errors.New("written strong:VALUE or weak:VALUE")
		}
		d.IdentifierStrings = append(d.IdentifierStrings, wire.Identifier{Value: value, Strength: strength})
		return nil
	})
	if err != nil {
		return d, err
	}
	err = s.eachLine(ctx, "--source-file", c.SourceFile, func(line string) error {
		name, ref, found := strings.Cut(line, "\t")
		if !found {
			return errors.New("written as the source, a tab, and its reference")
		}
		source, err := subject.NewSource(c.Tenant, name, ref)
		if err != nil {
			return err //nolint:wrapcheck // it says what is wrong, and eachLine where
		}
		d.WholeSources = append(d.WholeSources, wire.Source{Source: source.Origin(), SourceRef: source.Reference()})
		return nil
	})
	return d, err
}

// eachLine reads a file line by line, empty ones left out. No error holds a line.
func (s *session) eachLine(ctx context.Context, flag, path string, take func(line string) error) error {
	if path == "" {
		return nil
	}
	file := s.stdin
	if path != "-" {
		var err error
		if file, err = os.Open(path); err != nil { //nolint:gosec // the caller names the file that is theirs
			return usagef("%s can't be read: %s", flag, bare(err))
		}
		defer closeQuietly(file)
	}
	err, done := await(ctx, func() error {
		lines := bufio.NewScanner(file)
		for n := 1; lines.Scan(); n++ {
			line := lines.Text()
			if n == 1 && strings.HasPrefix(line, byteOrderMark) {
				return usagef("%s begins with a byte order mark: save it as plain UTF-8", flag)
			}
			if line == "" {
				continue
			}
			if err := take(line); err != nil {
				return usagef("%s, line %d: %s", flag, n, err)
			}
		}
		if lines.Err() != nil {
			return usagef("%s can't be read: a line is too long, or the file broke off", flag)
		}
		return nil
	})
	if !done {
		return exit(exitInterrupted)
	}
	return err
}

// parseRecipient reads NAME=URL or NAME!STATUS=REASON.
func parseRecipient(text string) (wire.Recipient, error) {
	name, rest, found := strings.Cut(text, "=")
	name, status, excused := strings.Cut(name, "!")
	switch {
	case !found || name == "" || rest == "":
		return wire.Recipient{}, errors.New("written NAME=URL, NAME!impossible=REASON or NAME!disproportionate=REASON")
	case !excused:
		return wire.Recipient{Name: name, Callback: rest}, nil
	case status != "impossible" && status != "disproportionate":
		return wire.Recipient{}, errors.New("what follows the ! is impossible or disproportionate")
	default:
		return wire.Recipient{Name: name, Status: status, Reason: rest}, nil
	}
}
