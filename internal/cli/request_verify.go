package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"recount/internal/verify"
)

type verifyCmd struct {
	File         string   `arg:"" optional:"" name:"file" help:"The certificate; '-' is standard input."`
	Ledger       string   `placeholder:"DIR" help:"Verify the ledger in this folder instead: erasure-ledger.jsonl against erasure-ledger.checkpoint."`
	Key          []string `xor:"key" required:"" placeholder:"KEY" help:"The public key to verify with, from somewhere you trust. Repeat it for older keys."`
	KeyFile      string   `xor:"key" required:"" placeholder:"FILE" help:"A file with the keys."`
	Nonce        string   `xor:"nonce" placeholder:"NONCE" help:"The certificate's opening: shows whom it is about, with --identity."`
	Opening      string   `xor:"nonce" placeholder:"FILE" help:"A file with the opening, as recount certificate wrote it."`
	Tenant       string   `placeholder:"TENANT" help:"The tenant that it must be about. Default: whichever it states."`
	Identity     []string `sep:"none" placeholder:"ID" help:"An identity_id that it must be about; repeat it for each of the request. Prefer --identity-file."`
	IdentityFile string   `placeholder:"FILE" help:"A file with the identity_ids, one a line, byte for byte; '-' is standard input."`
}

// Help is shown below the flags.
func (verifyCmd) Help() string {
	return `Nothing is asked of any server. A certificate is good when a key signed it, and when its proof leads to a ledger that a key signed.
docs/certificate.md says how to check it without this program.

  recount verify certificate.txt --key-file keys.txt
  recount verify certificate.txt --key-file keys.txt --opening opening.txt --identity-file person.txt
  recount verify --ledger /var/lib/recount --key-file keys.txt

Exit codes: 0 good, 2 usage, 4 not good, with the reason.`
}

// Run verifies one or the other.
func (c *verifyCmd) Run(ctx context.Context, s *session) error {
	opens := c.Nonce != "" || c.Opening != ""
	people := len(c.Identity) > 0 || c.IdentityFile != ""
	switch {
	case (c.File == "") == (c.Ledger == ""):
		return usagef("give a certificate's file, or --ledger")
	case c.Ledger != "" && (opens || people || c.Tenant != ""):
		return usagef("--nonce, --opening, --tenant and --identity go with a certificate")
	case opens != people:
		return usagef("the opening (--nonce or --opening) and the identities go together")
	}
	keys, err := c.keys()
	if err != nil {
		return err
	}
	type result struct{ err error }
	got, done := await(ctx, func() result {
		if c.Ledger != "" {
			return result{c.ledger(s, keys)}
		}
		return result{c.certificate(ctx, s, keys)}
	})
	if !done {
		return exit(exitInterrupted)
	}
	return got.err
}

func (c *verifyCmd) keys() (verify.Keys, error) {
	text := strings.Join(c.Key, " ")
	if c.KeyFile != "" {
		var err error
		if text, err = readSmall("--key-file", c.KeyFile, nil); err != nil {
			return verify.Keys{}, err
		}
	}
	keys, err := verify.ParseKeys(text)
	if err != nil {
		return keys, usagef("the keys: %s", err)
	}
	return keys, nil
}

// maxRead is more than a certificate can have, which the verifier then says.
const maxRead = 1<<20 + 1

// readSmall reads a file of at most a certificate's size.
func readSmall(flag, path string, stdin *os.File) (string, error) {
	in := io.Reader(stdin)
	if path != "-" || stdin == nil {
		file, err := os.Open(path) //nolint:gosec // the caller names the file that is theirs
		if err != nil {
			return "", usagef("%s can't be read: %s", flag, bare(err))
		}
		defer closeQuietly(file)
		in = file
	}
	text, err := io.ReadAll(io.LimitReader(in, maxRead))
	if err != nil {
		return "", usagef("%s can't be read: %s", flag, bare(err))
	}
	return string(text), nil
}

// verdict is the command's own JSON.
type verdict struct {
	Good      bool             `json:"good"`
	Reason    string           `json:"reason,omitzero"`
	Problem   string           `json:"problem,omitzero"`
	About     *bool            `json:"about_these_people,omitzero"`
	Statement jsontext.Value   `json:"statement,omitzero"`
	Entries   *int64           `json:"entries,omitzero"`
	Covered   *int64           `json:"covered,omitzero"`
	Torn      bool             `json:"torn,omitzero"`
	ByMethod  map[string]int64 `json:"by_method,omitzero"`
	ByPhase   map[string]int64 `json:"by_phase,omitzero"`
}

// notGood says why, and answers the exit code.
func (s *session) notGood(err error) error {
	var refusal *verify.Refusal
	if !errors.As(err, &refusal) {
		return fmt.Errorf("it could not be read to its end: %w", bare(err))
	}
	if s.json {
		if err := s.writeJSON(verdict{Reason: refusal.Reason, Problem: refusal.Problem}); err != nil {
			return err
		}
		return exit(exitFailed)
	}
	s.say("%s %s (%s): %s", s.good(false), s.paint(bold, "not good"), refusal.Reason, printable(refusal.Problem))
	return exit(exitFailed)
}

func (c *verifyCmd) certificate(ctx context.Context, s *session, keys verify.Keys) error {
	text, err := readSmall("the certificate", c.File, s.stdin)
	if err != nil {
		return err
	}
	people, nonce, err := c.people(ctx, s)
	if err != nil {
		return err
	}
	statement, err := verify.Certificate([]byte(text), keys)
	if err != nil {
		return s.notGood(err)
	}
	tenant := c.Tenant
	if tenant == "" {
		tenant = statement.TenantID
	}
	out := verdict{Good: tenant == statement.TenantID, Statement: jsontext.Value(strings.Split(text, "\n")[1])}
	if !out.Good {
		out.Reason, out.Problem = "tenant", "It is about another tenant."
	}
	if people != nil {
		about := out.Good && statement.Opens(nonce, tenant, people)
		out.About, out.Good = &about, about
		if !about && out.Reason == "" {
			out.Reason, out.Problem = "commitment", "It is not about these people, all of them and nobody else, or the opening is another's."
		}
	}
	if s.json {
		err = s.writeJSON(out)
	} else {
		s.showStatement(statement)
		s.showVerdict(out)
	}
	if err == nil && !out.Good {
		err = exit(exitFailed)
	}
	return err
}

// people are whom the certificate is to be about, and its opening. No error holds either.
func (c *verifyCmd) people(ctx context.Context, s *session) (people []string, nonce string, err error) {
	people, nonce = c.Identity, c.Nonce
	err = s.eachLine(ctx, "--identity-file", c.IdentityFile, func(line string) error {
		people = append(people, line)
		return nil
	})
	if err == nil && c.Opening != "" {
		nonce, err = readSmall("--opening", c.Opening, nil)
	}
	slices.Sort(people)
	return slices.Compact(people), strings.TrimSpace(nonce), err
}

func (s *screen) showStatement(st verify.Statement) {
	rows := make([][]string, len(st.Stores))
	for i, one := range st.Stores {
		before := "–"
		if one.Before != nil {
			before = strconv.FormatInt(*one.Before, 10)
		}
		status := one.Status
		back := "stays away"
		if !one.Sticky {
			back = "can come back"
		}
		if one.Basis != "" {
			status, back = "retained, Art. "+one.Basis, "–"
		}
		rows[i] = []string{
			printable(one.Cell), printable(one.Store), printable(status), before, strconv.FormatInt(one.Remaining, 10), moment(one.MeasuredAt),
			momentOf(one.RecoverableUntil), back, printable(one.Backend),
		}
	}
	s.table([]column{
		{title: "CELL"},
		{title: "STORE"},
		{title: "STATUS"},
		{title: "BEFORE", number: true},
		{title: "LEFT", number: true},
		{title: "COUNTED AT"},
		{title: "RECOVERABLE UNTIL"},
		{title: "AFTERWARDS", spare: true},
		{title: "BACKEND", spare: true},
	}, rows)
	s.say("")
	s.field("certificate", printable(st.CertificateID))
	s.field("request", printable(st.RequestRef))
	s.field("tenant", printable(st.TenantID))
	s.field("policy", printable(st.Policy+", Art. "+st.LegalRef))
	s.field("received", moment(st.ReceivedAt))
	s.field("closed", moment(st.ClosedAt))
	s.field("outcome", s.stateWord(st.Outcome))
	for _, stage := range st.Stages {
		if stage.Status != "done" {
			s.field("not done", printable(stage.Stage)+": "+strings.ReplaceAll(printable(stage.Status), "_", " "))
		}
	}
	s.field("backups", backups(st.BackupHorizonUntil))
	s.field("recoverable", momentOf(st.RecoverableUntil))
	s.say("")
}

func (s *screen) showVerdict(v verdict) {
	switch {
	case !v.Good:
		s.say("%s %s (%s): %s", s.good(false), s.paint(bold, "not good"), v.Reason, v.Problem)
		s.say("  Its signatures and its proof do hold.")
	case v.About != nil:
		s.say("%s %s: it is signed, its proof holds, and it is about these people.", s.good(true), s.paint(bold, "good"))
	default:
		s.say("%s %s: it is signed, and its proof leads to the signed ledger.", s.good(true), s.paint(bold, "good"))
	}
}

func (c *verifyCmd) ledger(s *session, keys verify.Keys) error {
	checkpoint, err := readSmall("--ledger: erasure-ledger.checkpoint", filepath.Join(c.Ledger, "erasure-ledger.checkpoint"), nil)
	if err != nil {
		return err
	}
	file, err := os.Open(filepath.Join(c.Ledger, "erasure-ledger.jsonl"))
	if err != nil {
		return usagef("--ledger: erasure-ledger.jsonl can't be read: %s", bare(err))
	}
	defer closeQuietly(file)
	r, err := verify.Ledger(file, []byte(checkpoint), keys)
	if err != nil {
		return s.notGood(err)
	}
	if s.json {
		return s.writeJSON(verdict{Good: true, Entries: &r.Entries, Covered: &r.Covered, Torn: r.Torn, ByMethod: r.ByMethod, ByPhase: r.ByPhase})
	}
	rows := [][]string{}
	for _, phase := range slices.Sorted(maps.Keys(r.ByPhase)) {
		rows = append(rows, []string{printable(phase), strconv.FormatInt(r.ByPhase[phase], 10)})
	}
	if len(rows) > 0 {
		s.table([]column{{title: "PHASE"}, {title: "ENTRIES", number: true}}, rows)
		s.say("")
	}
	s.say("%s %s: %d entries, the first %d of them under the signed checkpoint.", s.good(true), s.paint(bold, "good"), r.Entries, r.Covered)
	if r.Entries > r.Covered {
		s.say("  What is behind them is well formed, and no signature covers it yet.")
	}
	if r.Torn {
		s.say("  The last line has no end: it was never acknowledged.")
	}
	return nil
}
