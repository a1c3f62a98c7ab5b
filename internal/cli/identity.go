package cli

import (
	"bufio"
	"context"
	"io"
	"os"
	"strings"

	"recount/internal/subject"
)

// who is the flags that name people.
type who struct {
	Tenant       string `required:"" placeholder:"TENANT" help:"The tenant that knows them."`
	Identity     string `xor:"who" required:"" placeholder:"ID" help:"The person's identity_id. It lands in the shell's history and the process list: prefer --identity-file."`
	IdentityFile string `xor:"who" required:"" placeholder:"FILE" help:"A file with one identity_id per line, byte for byte; '-' is standard input."`
}

// person is one subject and where it was named.
type person struct {
	subject.Subject
	line int // in the file; 0 for the flag
}

// people reads and checks them all before anything is sent. Identities that are repeated are sent once. No error holds
// an identity.
func (w who) people(ctx context.Context, s *session) ([]person, error) {
	if err := subject.CheckTenant(w.Tenant); err != nil {
		return nil, usagef("--tenant: %s", err)
	}
	if w.IdentityFile == "" {
		one, err := subject.New(w.Tenant, w.Identity)
		if err != nil {
			return nil, usagef("--identity: %s", err)
		}
		return []person{{Subject: one}}, nil
	}
	in := io.ReadCloser(s.stdin)
	if w.IdentityFile == "-" {
		if isTerminal(s.stdin) {
			s.note("Type one identity per line; end with Ctrl-D.")
		}
	} else {
		file, err := os.Open(w.IdentityFile)
		if err != nil {
			return nil, usagef("--identity-file can't be read: %s", bare(err))
		}
		defer closeQuietly(file)
		in = file
	}
	type read struct {
		people []person
		err    error
	}
	got, done := await(ctx, func() read {
		people, err := readPeople(in, w.Tenant, s.note)
		return read{people, err}
	})
	if !done {
		return nil, exit(exitInterrupted)
	}
	return got.people, got.err
}

const byteOrderMark = "\ufeff"

func readPeople(in io.Reader, tenant string, note func(format string, args ...any)) ([]person, error) {
	var out []person
	seen, repeated, spaced := map[subject.Subject]bool{}, 0, 0
	lines := bufio.NewScanner(in)
	for line := 1; lines.Scan(); line++ {
		identity := lines.Text() // without its LF or CR LF
		if line == 1 && strings.HasPrefix(identity, byteOrderMark) {
			return nil, usagef("--identity-file begins with a byte order mark, which would be taken for a part of the first identity: save it as plain UTF-8")
		}
		if identity == "" {
			continue
		}
		one, err := subject.New(tenant, identity)
		if err != nil {
			return nil, usagef("--identity-file, line %d: %s", line, err)
		}
		if seen[one] {
			repeated++
			continue
		}
		if strings.TrimSpace(identity) != identity {
			spaced++
		}
		seen[one] = true
		out = append(out, person{Subject: one, line: line})
	}
	if err := lines.Err(); err != nil {
		return nil, usagef("--identity-file can't be read: a line is too long, or the file broke off")
	}
	if len(out) == 0 {
		return nil, usagef("--identity-file names nobody")
	}
	if repeated > 0 {
		note("%s repeated: each person is asked for once.", plural(repeated, "line"))
	}
	if spaced > 0 {
		note("%s with a space at an end: identities are taken byte for byte.", plural(spaced, "line"))
	}
	return out, nil
}
