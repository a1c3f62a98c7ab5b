// Package cli is the recount command: what a privacy engineer, an operator or a script types. It speaks the HTTP
// contract of api/openapi.yaml and believes an answer only as far as its receipts go.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// The exit codes. They are part of the command's contract with scripts.
const (
	exitOK          = 0
	exitSuspects    = 1 // coverage: a column looks like a person's key and no store covers it
	exitUsage       = 2
	exitPending     = 3
	exitFailed      = 4
	exitInterrupted = 130
)

const description = `Carry out a person's right to erasure and access across every service that holds their data, and prove it by
counting again after the delete. It talks HTTP to the coordinator and the cells, https unless they are on loopback, never
follows a redirect, and honours HTTPS_PROXY, which then carries a tunnel that it can't read.

An erasure request goes: request, verify-identity, preview, approve by two people, status --watch, certificate, report.

Exit codes: 0 erased or all is well, 1 coverage found suspects, 2 usage, 3 pending, 4 failed or incomplete, 130 interrupted.`

// command is every flag and command there is.
type command struct {
	globals
	Erase       eraseCmd       `cmd:"" help:"Erase people from every cell, through the coordinator."`
	EraseSource eraseSourceCmd `cmd:"" help:"Erase one source's records, and what derives from them, from every cell."`
	Suppression suppressionCmd `cmd:"" help:"What was erased and is kept from coming back."`
	Access      accessCmd      `cmd:"" help:"Assemble everything that every cell holds about a person."`
	Health      healthCmd      `cmd:"" help:"Ask the coordinator and every cell how they are."`
	Coverage    coverageCmd    `cmd:"" help:"List columns that look like a person's key and belong to no store."`
	Journal     journalCmd     `cmd:"" help:"Look after the graph's journal."`

	Request        requestCmd        `cmd:"" help:"File a person's erasure request: two people approve what it would hit before anything goes."`
	Requests       requestsCmd       `cmd:"" help:"List a tenant's erasure requests, and the days that each has left."`
	VerifyIdentity verifyIdentityCmd `cmd:"" help:"Write down how the person who asked was verified."`
	Preview        previewCmd        `cmd:"" help:"Count what a request would hit. Nothing is touched."`
	Approve        approveCmd        `cmd:"" help:"Give one of the two approvals, to a preview that you have seen."`
	Reject         rejectCmd         `cmd:"" help:"Refuse a request, with the reasons that the person is told."`
	Cancel         cancelCmd         `cmd:"" help:"Take a request back before anything is deleted."`
	Extend         extendCmd         `cmd:"" help:"Extend a request's time, once, by up to two months."`
	Hold           holdCmd           `cmd:"" help:"Write a legal hold down, or release it."`
	Exclude        excludeCmd        `cmd:"" help:"Retain what one store holds, under Art. 17(3)."`
	Status         statusCmd         `cmd:"" help:"Show how far a request is, and follow it."`
	Report         reportCmd         `cmd:"" help:"Print a request's completion report, or write its page."`
	Certificate    certificateCmd    `cmd:"" help:"Write the certificate of a request that was carried out."`
	Verify         verifyCmd         `cmd:"" help:"Check a certificate or a ledger offline, with a public key and nothing else."`
	Keygen         keygenCmd         `cmd:"" help:"Make a key that signs the ledger."`

	CheckPeer checkPeerCmd     `cmd:"" help:"Play the contract against a cell, in whatever language it is written."`
	Version   kong.VersionFlag `help:"Print the version and leave."`
}

// The addresses of make up, which the help spells out too.
const (
	defaultCoordinator = "http://127.0.0.1:8080"
	defaultCells       = "ingest=http://127.0.0.1:8081,graph=http://127.0.0.1:8082,causal=http://127.0.0.1:8083"
)

// globals are the flags of every command.
type globals struct {
	Coordinator string        `env:"RECOUNT_COORDINATOR" default:"http://127.0.0.1:8080" placeholder:"URL" help:"The coordinator, which is also the cell 'scoring'. Default: port 8080 of this machine." group:"Where"`
	Cell        []string      `env:"RECOUNT_CELLS" default:"ingest=http://127.0.0.1:8081,graph=http://127.0.0.1:8082,causal=http://127.0.0.1:8083" sep:"," placeholder:"NAME=URL" help:"A cell beside the coordinator; repeat it for each, because it replaces the default: ingest, graph and causal on ports 8081 to 8083, beside the default coordinator. https, unless the address is loopback." group:"Where"`
	Token       []string      `env:"RECOUNT_TOKEN" sep:"," placeholder:"[NAME=]TOKEN" help:"An ID token, for every address or for the named cell alone. Prefer the environment: a command line is seen in the process list." group:"Who"`
	AdminToken  string        `env:"RECOUNT_ADMIN_TOKEN" placeholder:"TOKEN" help:"An ID token of yours for the admin audience, which the commands about erasure requests need. Prefer the environment." group:"Who"`
	AdminAud    string        `name:"admin-audience" env:"RECOUNT_ADMIN_AUDIENCE" placeholder:"AUDIENCE" help:"The admin audience of the coordinator, for which --auth google takes a token." group:"Who"`
	Principal   string        `env:"RECOUNT_PRINCIPAL" placeholder:"EMAIL" help:"Who acts on erasure requests, for a coordinator on loopback that takes a name without a token." group:"Who"`
	Auth        string        `enum:",google" default:"" placeholder:"google" help:"'google' takes a token for each address from Application Default Credentials." group:"Who"`
	Timeout     time.Duration `default:"90s" help:"How long one request may take." group:"How"`
	JSON        bool          `name:"json" help:"Print one JSON object on standard output, for machines." group:"How"`
}

// exit is an error that only carries an exit code: what there was to say has been said.
type exit int

// Error names the code.
func (e exit) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// usageError is something that the person who typed can mend.
type usageError struct{ text string }

// Error is the sentence.
func (e *usageError) Error() string { return e.text }

func usagef(format string, args ...any) error { return &usageError{text: fmt.Sprintf(format, args...)} }

// Run carries out one command line on the process's own streams and answers its exit code. When ctx ends it stops
// waiting and answers 130.
func Run(ctx context.Context, args []string, version string) int {
	screen := newScreen(os.Stdout, os.Stderr)
	err := run(ctx, args, versionOr(version), os.Stdin, screen)
	var code exit
	var usage *usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, &usage):
		screen.note("recount: %s", usage.text)
		return exitUsage
	default:
		screen.note("recount: %s", err)
		return exitFailed
	}
}

func run(ctx context.Context, args []string, version string, stdin *os.File, screen *screen) error {
	var c command
	parser, err := kong.New(
		&c, kong.Name("recount"), kong.Description(description), kong.Vars{"version": "recount " + version},
		kong.Writers(screen.out, screen.err), kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
	)
	if err != nil {
		return fmt.Errorf("reading the command's own definition: %w", err)
	}
	parsed, err := parser.Parse(args)
	if err != nil {
		return usagef("%s\nTry `recount --help`.", withoutValues(err.Error(), args))
	}
	s, err := newSession(&c.globals, version, stdin, screen)
	if err != nil {
		return err
	}
	parsed.BindTo(ctx, (*context.Context)(nil))
	return parsed.Run(s) //nolint:wrapcheck // our own error, carried through
}

// withoutValues takes what was typed out of a parse error, unless it is a flag's or a command's name: it may be an
// identity in the wrong place.
func withoutValues(problem string, args []string) string {
	for _, arg := range args {
		value := arg
		if strings.HasPrefix(arg, "-") {
			_, value, _ = strings.Cut(arg, "=")
		}
		if !commandWords[value] {
			problem = without(problem, value)
		}
	}
	return problem
}

// without takes a value out of a text where it stands as a word: a letter of it in another word gives nothing away.
func without(words, value string) string {
	if value == "" {
		return words
	}
	alone := regexp.MustCompile(`(^|[^\pL\pN_-])` + regexp.QuoteMeta(value) + `($|[^\pL\pN_-])`)
	return alone.ReplaceAllString(words, "${1}(what you typed)${2}")
}

var commandWords = map[string]bool{
	"erase": true, "access": true, "health": true, "coverage": true, "journal": true, "purge": true,
	"erase-source": true, "suppression": true, "list": true, "allow": true, "backfill": true, "check-peer": true,
	"request": true, "requests": true, "verify-identity": true, "preview": true, "approve": true, "reject": true, "cancel": true,
	"extend": true, "hold": true, "exclude": true, "status": true, "report": true, "certificate": true, "verify": true, "keygen": true,
}

// session is what a command works with.
type session struct {
	*screen
	stdin       *os.File
	coordinator target
	cells       []target
	call        *caller
	json        bool
	tokens      bool // there are some to send
	flags       *globals
}

// everyone is the coordinator's own cell and every other.
func (s *session) everyone() []target { return append([]target{s.coordinator}, s.cells...) }

func newSession(g *globals, version string, stdin *os.File, screen *screen) (*session, error) {
	coordinator, err := newTarget(coordinatorCell, g.Coordinator)
	if err != nil {
		return nil, err
	}
	if g.Coordinator != defaultCoordinator && slices.Equal(g.Cell, strings.Split(defaultCells, ",")) {
		g.Cell = nil // the default cells are the default coordinator's, and no other's
	}
	cells, err := newTargets(g.Cell)
	if err != nil {
		return nil, err
	}
	if g.Timeout <= 0 {
		return nil, usagef("--timeout must be positive")
	}
	tokens, err := newTokens(g)
	if err != nil {
		return nil, err
	}
	return &session{
		screen: screen, stdin: stdin, coordinator: coordinator, cells: cells, json: g.JSON, tokens: len(g.Token) > 0 || g.Auth != "",
		call: newCaller(tokens, g.Timeout, version), flags: g,
	}, nil
}

// interrupted reports whether the person has stopped the command.
func interrupted(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

// await does something that can't be interrupted, such as reading from a terminal, for as long as nobody stops the
// command. It answers false when somebody did; the work is then left to end with the process.
func await[T any](ctx context.Context, work func() T) (T, bool) {
	done := make(chan T, 1)
	go func() { done <- work() }()
	select {
	case result := <-done:
		return result, true
	case <-ctx.Done():
		var none T
		return none, false
	}
}

// versionOr falls back to what the toolchain wrote into the binary.
func versionOr(version string) string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

func closeQuietly(c io.Closer) { _ = c.Close() }
