package cli

import (
	"bufio"
	"context"
	"os"
	"strings"

	"recount/internal/subject"
	"recount/internal/wire"
)

// named is the flags that name one source.
type named struct {
	Tenant        string `required:"" placeholder:"TENANT" help:"The tenant whose source it is."`
	Source        string `required:"" placeholder:"SOURCE" help:"Where the record comes from, such as crm."`
	SourceRef     string `xor:"ref" required:"" placeholder:"REF" help:"The record there. It is often an e-mail address, and lands in the shell's history and the process list: prefer --source-ref-file."`
	SourceRefFile string `xor:"ref" required:"" placeholder:"FILE" help:"A file with the reference on its first line, byte for byte; '-' is standard input."`
}

// source reads and checks it before anything is sent. No error holds the reference.
func (n named) source(ctx context.Context, s *session) (subject.Source, error) {
	ref := n.SourceRef
	if n.SourceRefFile != "" {
		file := s.stdin
		if n.SourceRefFile != "-" {
			var err error
			if file, err = os.Open(n.SourceRefFile); err != nil {
				return subject.Source{}, usagef("--source-ref-file can't be read: %s", bare(err))
			}
			defer closeQuietly(file)
		}
		line, done := await(ctx, func() string {
			line, _ := bufio.NewReader(file).ReadString('\n') // a line that is broken off is one without its end
			return strings.TrimRight(line, "\r\n")
		})
		if !done {
			return subject.Source{}, exit(exitInterrupted)
		}
		ref = line
	}
	source, err := subject.NewSource(n.Tenant, n.Source, ref)
	if err != nil {
		return source, usagef("%s", err)
	}
	return source, nil
}

type eraseSourceCmd struct {
	named
}

// Help is shown below the flags.
func (eraseSourceCmd) Help() string {
	return `Every record that bears the source goes from every cell, whoever it belongs to, and everything that derives from one. The source
is kept out from then on, in cells too that never had it. recount suppression allow lets it come back.`
}

// Run erases one source, and answers the exit code of its status.
func (c *eraseSourceCmd) Run(ctx context.Context, s *session) error {
	source, err := c.source(ctx, s)
	if err != nil {
		return err
	}
	e := &eraser{session: s, tenant: c.Tenant, people: make([]person, 1), outcomes: make([]outcome, 1)}
	q := question{tenant: c.Tenant, operation: wire.OpEraseSource}
	for _, t := range s.everyone() {
		q.cells = append(q.cells, t.name)
	}
	got, err := s.call.post(ctx, s.coordinator, "/v1/intent/source:erase",
		wire.SourceRequest{TenantID: c.Tenant, Source: source.Origin(), SourceRef: source.Reference()}, maxAnswer)
	if err == nil && got.code != 200 && got.code != 409 && got.code != 502 {
		err = got.refusal()
	}
	q.requestID = got.requestID
	if err != nil {
		e.outcomes[0] = failure(err, got.requestID)
	} else {
		e.outcomes[0] = judgeErase(got, q)
	}
	return e.report(ctx)
}
