package ledger

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// origin begins the text of every checkpoint, so that a signature over something else is never one over a tree.
const origin = "recount erasure ledger v1"

// Keys sign checkpoints and certificates, and know whose signatures hold. They print as "[redacted]".
type Keys struct {
	signer    note.Signer
	verifiers []string // as text, the signer's own first
	list      note.Verifiers
}

// Format keeps every fmt verb from printing a key.
func (*Keys) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("[redacted]")) }

// GenerateKey makes a signing key of that name, as LEDGER_SIGNING_KEY takes it.
func GenerateKey(name string) (string, error) {
	private, _, err := note.GenerateKey(rand.Reader, name)
	if err != nil {
		return "", fmt.Errorf("making a signing key: %w", err)
	}
	return private, nil
}

// ParseKeys reads signing keys with commas between them: the first signs, and what the others signed before stays good. The
// errors hold nothing of a key.
func ParseKeys(text string) (*Keys, error) {
	k := &Keys{}
	var list []note.Verifier
	for i, private := range strings.Split(text, ",") {
		private = strings.TrimSpace(private)
		signer, err := note.NewSigner(private)
		if err != nil {
			return nil, fmt.Errorf("key %d is none: give one as `recount keygen` makes it, the new one in front of the old, with a comma between", i+1)
		}
		public, err := publicOf(private)
		if err != nil {
			return nil, err
		}
		verifier, err := note.NewVerifier(public)
		if err != nil {
			return nil, fmt.Errorf("key %d is none", i+1)
		}
		if i == 0 {
			k.signer = signer
		}
		k.verifiers, list = append(k.verifiers, public), append(list, verifier)
	}
	k.list = note.VerifierList(list...)
	return k, nil
}

// publicOf is the verifier key of a signing key. Package note makes both at once and never one from the other.
func publicOf(private string) (string, error) {
	parts := strings.SplitN(private, "+", 5) // PRIVATE+KEY+name+hash+base64
	if len(parts) != 5 {
		return "", errors.New("a signing key has five parts")
	}
	raw, err := base64.StdEncoding.DecodeString(parts[4])
	if err != nil || len(raw) != 33 || raw[0] != 1 {
		return "", errors.New("a signing key holds an Ed25519 seed")
	}
	public, ok := ed25519.NewKeyFromSeed(raw[1:]).Public().(ed25519.PublicKey)
	if !ok {
		return "", errors.New("a signing key holds an Ed25519 seed")
	}
	verifier, err := note.NewEd25519VerifierKey(parts[2], public)
	if err != nil {
		return "", fmt.Errorf("making the public key: %w", err)
	}
	return verifier, nil
}

// Verifiers are the public keys, newest first, as `recount verify --key` takes them.
func (k *Keys) Verifiers() []string { return k.verifiers }

// Sign is the signed note over a text that ends with a line's end.
func (k *Keys) Sign(text string) ([]byte, error) {
	signed, err := note.Sign(&note.Note{Text: text}, k.signer)
	if err != nil {
		return nil, fmt.Errorf("signing: %w", err)
	}
	return signed, nil
}

// Checkpoint is the signed note over a head.
func (k *Keys) Checkpoint(h Head) ([]byte, error) {
	return k.Sign(fmt.Sprintf("%s\n%d\n%s\n", origin, h.Size, base64.StdEncoding.EncodeToString(h.Root[:])))
}

// Open reads a checkpoint that any of the keys signed. Errors: ErrTampered, wrapped.
func (k *Keys) Open(checkpoint []byte) (Head, error) {
	opened, err := note.Open(checkpoint, k.list)
	if err != nil {
		return Head{}, fmt.Errorf("%w: no known key signed the checkpoint", ErrTampered)
	}
	lines := strings.Split(opened.Text, "\n")
	if len(lines) != 4 || lines[0] != origin || lines[3] != "" {
		return Head{}, fmt.Errorf("%w: the note is no checkpoint", ErrTampered)
	}
	size, err := strconv.ParseInt(lines[1], 10, 64)
	raw, err64 := base64.StdEncoding.DecodeString(lines[2])
	if err != nil || err64 != nil || size < 0 || len(raw) != tlog.HashSize {
		return Head{}, fmt.Errorf("%w: the note is no checkpoint", ErrTampered)
	}
	return Head{Size: size, Root: tlog.Hash(raw)}, nil
}
