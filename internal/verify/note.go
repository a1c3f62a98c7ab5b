package verify

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	algEd25519    = 1
	keyHashSize   = 4
	maxSignatures = 100
	// checkpointOrigin begins the text of every checkpoint.
	checkpointOrigin = "recount erasure ledger v1"
	maxCheckpoint    = 64 << 10
)

// Keys are the public keys whose signatures hold. The zero value knows none. It is not changed once made.
type Keys struct{ known map[keyID]ed25519.PublicKey }

// keyID is how a signature line names its key.
type keyID struct {
	name string
	hash [keyHashSize]byte
}

// ParseKeys reads one or more verifier keys with commas, spaces or line ends between them. The error says which one is bad,
// counting from 1, and quotes none.
func ParseKeys(text string) (Keys, error) {
	keys := Keys{known: map[keyID]ed25519.PublicKey{}}
	parts := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
	if len(parts) == 0 {
		return Keys{}, errors.New("there is no verifier key: one looks like name+1a2b3c4d+base64")
	}
	for i, part := range parts {
		if strings.HasPrefix(part, "PRIVATE+KEY+") {
			return Keys{}, fmt.Errorf("key %d is a signing key, which stays secret: give its verifier key, which looks like name+1a2b3c4d+base64", i+1)
		}
		id, public, ok := parseKey(part)
		if !ok {
			return Keys{}, fmt.Errorf("key %d is no verifier key: one looks like name+1a2b3c4d+base64, and its digits check each other, so look for a typing error", i+1)
		}
		if other, there := keys.known[id]; there && !other.Equal(public) {
			return Keys{}, fmt.Errorf("key %d has the name and the hash of another: each looks like name+1a2b3c4d+base64 and is unlike the others", i+1)
		}
		keys.known[id] = public
	}
	return keys, nil
}

func parseKey(text string) (id keyID, public ed25519.PublicKey, ok bool) {
	name, rest, _ := strings.Cut(text, "+")
	hexHash, encoded, _ := strings.Cut(rest, "+")
	hash, err := hex.DecodeString(hexHash)
	key, good := decodeBase64(encoded)
	if err != nil || !good || !validName(name) || len(hash) != keyHashSize || len(key) != 1+ed25519.PublicKeySize || key[0] != algEd25519 {
		return keyID{}, nil, false
	}
	sum := sha256.Sum256(append([]byte(name+"\n"), key...))
	if !bytes.Equal(sum[:keyHashSize], hash) {
		return keyID{}, nil, false
	}
	return keyID{name: name, hash: [keyHashSize]byte(hash)}, ed25519.PublicKey(key[1:]), true
}

func validName(name string) bool {
	return name != "" && utf8.ValidString(name) && !strings.ContainsFunc(name, unicode.IsSpace) && !strings.Contains(name, "+")
}

// decodeBase64 takes the one standard form of some bytes: encoding/base64 itself passes over line ends.
func decodeBase64(text string) ([]byte, bool) {
	raw, err := base64.StdEncoding.Strict().DecodeString(text)
	return raw, err == nil && len(text) == base64.StdEncoding.EncodedLen(len(raw))
}

var (
	errNoNote    = errors.New("it is no signed note")
	errSignature = errors.New("a known key's signature is wrong")
	errUnsigned  = errors.New("no known key signed it")
)

// open answers the text of a signed note, with its last line end. Errors: errNoNote, errSignature, errUnsigned.
func (k Keys) open(raw []byte) ([]byte, error) {
	if !utf8.Valid(raw) || bytes.ContainsFunc(raw, func(r rune) bool { return r < ' ' && r != '\n' }) {
		return nil, errNoNote
	}
	split := bytes.LastIndex(raw, []byte("\n\n"))
	if split < 0 {
		return nil, errNoNote
	}
	text, signatures := raw[:split+1], string(raw[split+2:])
	if !strings.HasSuffix(signatures, "\n") || strings.Count(signatures, "\n") > maxSignatures {
		return nil, errNoNote
	}
	signed := false
	for line := range strings.Lines(signatures) {
		id, signature, ok := parseSignature(strings.TrimSuffix(line, "\n"))
		if !ok {
			return nil, errNoNote
		}
		public, known := k.known[id]
		switch {
		case !known:
		case len(signature) != ed25519.SignatureSize || !ed25519.Verify(public, text, signature):
			return nil, errSignature
		default:
			signed = true
		}
	}
	if !signed {
		return nil, errUnsigned
	}
	return text, nil
}

func parseSignature(line string) (id keyID, signature []byte, ok bool) {
	line, dashed := strings.CutPrefix(line, "\u2014 ")
	name, encoded, _ := strings.Cut(line, " ")
	raw, good := decodeBase64(encoded)
	if !dashed || !good || !validName(name) || len(raw) <= keyHashSize {
		return keyID{}, nil, false
	}
	return keyID{name: name, hash: [keyHashSize]byte(raw)}, raw[keyHashSize:], true
}

// threeLines splits a note's text, and checks the first line.
func threeLines(text []byte, first string) (second, third []byte, ok bool) {
	lines := bytes.Split(text, []byte("\n"))
	if len(lines) != 4 || string(lines[0]) != first || len(lines[3]) != 0 {
		return nil, nil, false
	}
	return lines[1], lines[2], true
}

// head is a tree: how many lines it is over, and its root.
type head struct {
	size int64
	root hash
}

// checkpoint opens a signed checkpoint. Every error is a *Refusal for the reason of checkpoints.
func (k Keys) checkpoint(raw []byte) (head, error) {
	if len(raw) > maxCheckpoint {
		return head{}, refuse(ReasonCheckpoint, "The checkpoint is too long to be one.")
	}
	text, err := k.open(raw)
	if err != nil {
		return head{}, refuse(ReasonCheckpoint, "The checkpoint does not hold: "+err.Error()+".")
	}
	count, encoded, ok := threeLines(text, checkpointOrigin)
	if !ok {
		return head{}, refuse(ReasonCheckpoint, "What is signed as the checkpoint is none.")
	}
	size, err := strconv.ParseInt(string(count), 10, 64)
	root, good := parseHash(string(encoded))
	if err != nil || size < 0 || strconv.FormatInt(size, 10) != string(count) || !good || (size == 0 && root != hash{}) {
		return head{}, refuse(ReasonCheckpoint, "The checkpoint's number of lines or its root is not in the specified form.")
	}
	return head{size: size, root: root}, nil
}
