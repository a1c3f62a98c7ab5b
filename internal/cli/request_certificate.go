package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"recount/internal/verify"
	"recount/internal/wire"
)

type certificateCmd struct {
	requestID
	Out     string `placeholder:"FILE" help:"Write the certificate there. Default: standard output."`
	Opening string `placeholder:"FILE" help:"Write its opening there: with it, and with the identity ids, anybody can see whom the certificate is about. Give it to the person, and to nobody else."`
	Force   bool   `help:"Replace files when they are there already."`
}

// Help is shown below the flags.
func (certificateCmd) Help() string {
	return `The certificate states what was counted, store by store, and what proves it. It doesn't say who; the opening does, and is there until
the descriptor is destroyed. Whoever gets the certificate checks it with recount verify, offline, and with a key that they
have from somewhere they trust: the keys that are printed come from the server that signed.`
}

// Run writes the certificate, and says which key verifies it.
func (c *certificateCmd) Run(ctx context.Context, s *session) error {
	a, err := c.begin(s)
	if err != nil {
		return err
	}
	for flag, path := range map[string]string{"--out": c.Out, "--opening": c.Opening} {
		if path != "" {
			if err := free(flag, path, c.Force); err != nil {
				return err
			}
		}
	}
	got, err := a.caller.get(ctx, a.coordinator, adminPath+"/"+c.ID+"/certificate")
	if err := a.accept(ctx, got, err, http.StatusOK); err != nil {
		return unread("certificate", err)
	}
	var said wire.CertificateResponse
	if decodeOwn(got.body, &said) != nil || said.Certificate == "" {
		return unread("certificate", errNotThis)
	}
	key, err := c.keyOf(said)
	if err != nil {
		return unread("certificate", err)
	}
	if c.Out != "" {
		if err := keep("--out", c.Out, c.Force, []byte(said.Certificate)); err != nil {
			return err
		}
		s.note("%s The certificate is in %s", s.good(true), c.Out)
	}
	if err := c.open(s, said); err != nil {
		return err
	}
	if s.json {
		return a.writeRaw(got.body)
	}
	if c.Out == "" {
		_, _ = fmt.Fprint(s.out, said.Certificate)
	}
	s.note("This key verifies it: %s", printable(key))
	return nil
}

// keyOf is the key that the certificate holds by. One that doesn't hold, or is about another request, is not handed on.
func (c *certificateCmd) keyOf(said wire.CertificateResponse) (string, error) {
	err := errors.New("it came without a key")
	for _, key := range said.Keys {
		keys, parsing := verify.ParseKeys(key)
		if parsing != nil {
			err = errors.New("it came with a key that is none")
			continue
		}
		statement, refused := verify.Certificate([]byte(said.Certificate), keys)
		if refused != nil {
			err = fmt.Errorf("what was answered does not hold: %w", refused)
			continue
		}
		if statement.RequestRef != c.ID {
			return "", errors.New("what was answered is about another request")
		}
		return key, nil
	}
	return "", err
}

func (c *certificateCmd) open(s *session, said wire.CertificateResponse) error {
	switch {
	case said.Opening != "" && c.Opening != "":
		if err := keep("--opening", c.Opening, c.Force, []byte(said.Opening+"\n")); err != nil {
			return err
		}
		s.note("%s Its opening is in %s", s.good(true), c.Opening)
	case c.Opening != "":
		return errors.New("there is no opening any more: the descriptor was destroyed")
	case said.Opening != "":
		s.note("There is an opening too, until the descriptor is destroyed: --opening FILE")
	}
	return nil
}
