package stores

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// ErrDocumentForm says that a document is not one that can be kept. It is wrapped with what is wrong, and nothing of the
// document.
var ErrDocumentForm = errors.New("the document is not of the form that is kept")

// The most that a document holds.
const (
	MaxDocumentBody   = 900 << 10
	maxDocumentID     = 64
	maxDocumentTenant = 512
	maxDocumentYear   = 9999
)

// IsDocumentID reports whether an id is of the form [a-z0-9-]{1,64}.
func IsDocumentID(id string) bool { return ofForm(id, '-') }

// IsDocumentCollection reports whether the name of a collection is of the form [a-z0-9_]{1,64}.
func IsDocumentCollection(name string) bool { return ofForm(name, '_') }

func ofForm(text string, extra byte) bool {
	for i := range len(text) {
		if c := text[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != extra {
			return false
		}
	}
	return text != "" && len(text) <= maxDocumentID
}

// Check reports what keeps a document from being kept. Errors: ErrDocumentForm, wrapped.
func (d Document) Check() error {
	switch {
	case !IsDocumentID(d.ID):
		return fmt.Errorf("%w: its id", ErrDocumentForm)
	case len(d.Tenant) > maxDocumentTenant || !utf8.ValidString(d.Tenant):
		return fmt.Errorf("%w: its tenant", ErrDocumentForm)
	case d.Due.Year() > maxDocumentYear || d.Wake.Year() > maxDocumentYear:
		return fmt.Errorf("%w: its times", ErrDocumentForm)
	case len(d.Body) > MaxDocumentBody:
		return fmt.Errorf("%w: its body has more than %d bytes", ErrDocumentForm, MaxDocumentBody)
	}
	return nil
}

// DocumentTime is an instant as it is kept: UTC, whole microseconds.
func DocumentTime(at time.Time) time.Time { return at.UTC().Truncate(time.Microsecond) }

// DocumentBound is the first instant that can be kept and is not before at.
func DocumentBound(at time.Time) time.Time {
	kept := DocumentTime(at)
	if kept.Before(at) {
		kept = kept.Add(time.Microsecond)
	}
	return kept
}
