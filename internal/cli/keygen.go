package cli

import (
	"context"

	"recount/internal/ledger"
)

type keygenCmd struct {
	Name string `arg:"" name:"name" help:"The key's name, such as the deployment's: recount-prod-2026. No spaces and no '+'."`
}

// Help is shown below the flags.
func (keygenCmd) Help() string {
	return `The private key goes to standard output, as LEDGER_SIGNING_KEY takes it, and the public one to standard error. Put the private key
straight into a secret store; publish the public one where whoever gets a certificate finds it.

  recount keygen recount-prod-2026 | gcloud secrets create ledger-signing-key --data-file=-`
}

// keyPair is the command's own JSON.
type keyPair struct {
	SigningKey  string `json:"signing_key"`
	VerifierKey string `json:"verifier_key"`
}

// Run makes a key.
func (c *keygenCmd) Run(_ context.Context, s *session) error {
	private, err := ledger.GenerateKey(c.Name)
	if err != nil {
		return usagef("a key's name has no spaces and no '+'")
	}
	keys, err := ledger.ParseKeys(private)
	if err != nil {
		return usagef("a key's name has no spaces, no ',' and no '+'")
	}
	public := keys.Verifiers()[0]
	if s.json {
		return s.writeJSON(keyPair{private, public})
	}
	s.say("%s", private)
	s.note("The public key, which verifies: %s", public)
	return nil
}
