package erasure

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"recount/internal/subject"
	"recount/internal/wire"
)

// The most that a descriptor may name.
const (
	maxPersons     = 100
	maxIdentifiers = 200
	maxSources     = 900
	maxIdentifier  = 512       // bytes
	maxDescriptor  = 256 << 10 // bytes as JSON: it is kept in the request's document
)

// sealedPart is what is kept under the request's own key.
type sealedPart struct {
	Descriptor wire.Descriptor `json:"descriptor"`
	Nonce      string          `json:"nonce"` // opens the certificate's commitment
}

func newNonce() string {
	var nonce [32]byte
	_, _ = rand.Read(nonce[:]) // never fails: crypto/rand ends the program instead
	return hex.EncodeToString(nonce[:])
}

// checkDescriptor answers every fault at once. None quotes what was sent.
func checkDescriptor(tenant string, d wire.Descriptor) []string {
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	if len(d.PersonIDs)+len(d.WholeSources) == 0 {
		fault("descriptor: give person_ids or whole_sources: identifier_strings alone name no row that this version can find")
	}
	if len(d.PersonIDs) > maxPersons || len(d.IdentifierStrings) > maxIdentifiers || len(d.WholeSources) > maxSources {
		fault("descriptor: at most %d person_ids, %d identifier_strings and %d whole_sources", maxPersons, maxIdentifiers, maxSources)
	}
	if text, err := json.Marshal(d); err != nil || len(text) > maxDescriptor {
		fault("descriptor: at most %d bytes in all: file a second request for the rest", maxDescriptor)
	}
	seen := map[string]bool{}
	for i, id := range d.PersonIDs {
		if err := subject.CheckIdentity(id); err != nil {
			fault("person_ids[%d]: %s", i, err)
		}
		if seen[id] {
			fault("person_ids[%d]: is there twice", i)
		}
		seen[id] = true
	}
	for i, s := range d.IdentifierStrings {
		if s.Value == "" || len(s.Value) > maxIdentifier || !utf8.ValidString(s.Value) {
			fault("identifier_strings[%d]: value must be 1 to %d bytes of valid UTF-8", i, maxIdentifier)
		}
		if s.Strength != "strong" && s.Strength != "weak" {
			fault("identifier_strings[%d]: strength is strong (an e-mail address, a number) or weak (a name)", i)
		}
	}
	sources := map[wire.Source]bool{}
	for i, s := range d.WholeSources {
		if _, err := subject.NewSource(tenant, s.Source, s.SourceRef); err != nil {
			fault("whole_sources[%d]: %s", i, err)
		}
		if sources[s] {
			fault("whole_sources[%d]: is there twice", i)
		}
		sources[s] = true
	}
	return faults
}

// targets are the people and the sources that a descriptor names, people first. It MUST have been checked.
func targets(tenant string, d wire.Descriptor, salt subject.Salt) (people, sources []subject.Target, err error) {
	for _, id := range d.PersonIDs {
		person, err := subject.New(tenant, id)
		if err != nil {
			return nil, nil, fmt.Errorf("a sealed descriptor: %w", err)
		}
		people = append(people, subject.TargetOf(person, salt))
	}
	for _, s := range d.WholeSources {
		source, err := subject.NewSource(tenant, s.Source, s.SourceRef)
		if err != nil {
			return nil, nil, fmt.Errorf("a sealed descriptor: %w", err)
		}
		sources = append(sources, subject.TargetOfSource(source, salt))
	}
	return people, sources, nil
}

// names reports whether a text quotes anything of the descriptor: it would outlive the person's data.
func names(d wire.Descriptor, text string) bool { return quotes(d, text, 3) }

// namesInCode is names for URLs and ids, in which a short value stands by chance.
func namesInCode(d wire.Descriptor, text string) bool { return quotes(d, text, 6) }

// quotes reports whether a text holds a value of the descriptor of at least so many bytes.
func quotes(d wire.Descriptor, text string, least int) bool {
	texts := []string{strings.ToLower(text)}
	for _, unescape := range []func(string) (string, error){url.PathUnescape, url.QueryUnescape} {
		if plain, err := unescape(text); err == nil {
			texts = append(texts, strings.ToLower(plain))
		}
	}
	quoted := func(value string) bool {
		_, behind, _ := strings.Cut(value, ":") // "person-email:a@x.io" is quoted by its address too
		return slices.ContainsFunc([]string{value, behind}, func(value string) bool {
			return len(value) >= least && slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(text, strings.ToLower(value)) })
		})
	}
	return slices.ContainsFunc(d.PersonIDs, quoted) ||
		slices.ContainsFunc(d.IdentifierStrings, func(s wire.Identifier) bool { return quoted(s.Value) }) ||
		slices.ContainsFunc(d.WholeSources, func(s wire.Source) bool { return quoted(s.SourceRef) })
}

// checkText refuses what would name a person in something that is kept.
func checkText(field, text string) error {
	switch {
	case text == "":
		return invalid(field + " is required")
	case len(text) > 500 || strings.ContainsFunc(text, unicode.IsControl):
		return invalid(field + " must be at most 500 bytes without control characters")
	case strings.Contains(text, "@"):
		return invalid(field + " outlives the person's data and must not name the person")
	}
	return nil
}

// isCode reports whether a text is a code that a ledger takes.
func isCode(text string) bool {
	return text != "" && len(text) <= 128 && !strings.ContainsFunc(text, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._:/=-", r)
	})
}

// commitment is what a certificate says instead of who: docs/certificate.md.
func commitment(nonce, tenant string, d wire.Descriptor) (string, error) {
	list := append([]string{}, d.PersonIDs...)
	slices.Sort(list)
	var text strings.Builder
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(append([]string{tenant}, list...)); err != nil {
		return "", fmt.Errorf("writing the commitment: %w", err)
	}
	sum := sha256.Sum256([]byte("recount commitment v1\n" + nonce + "\n" + strings.TrimSuffix(text.String(), "\n")))
	return hex.EncodeToString(sum[:]), nil
}
