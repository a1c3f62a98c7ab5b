package sqlite

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"modernc.org/sqlite"

	"recount/internal/subject"
)

// ErrClosed is answered by everything that is asked of a closed DB.
var ErrClosed = errors.New("the database is closed")

// SQLite's primary result codes: https://www.sqlite.org/rescode.html
const (
	codeError    = 1
	codePerm     = 3
	codeBusy     = 5
	codeLocked   = 6
	codeReadOnly = 8
	codeFull     = 13
	codeCantOpen = 14
	codeAuth     = 23
	codeNotADB   = 26
)

// engineError stands for an error of SQLite that no reason of the vocabulary names. Its text is the result code alone:
// SQLite's own words may quote a row.
type engineError struct {
	code  int
	cause error
}

func (e *engineError) Error() string { return fmt.Sprintf("SQLite result code %d", e.code) }

func (e *engineError) Unwrap() error { return e.cause }

// named turns an error of the driver into one whose text may be shown: a *subject.Fault where the kind is known.
func named(err error) error {
	var known *subject.Fault
	var engine *engineError
	var refused *refusal
	var lite *sqlite.Error
	switch {
	case err == nil, errors.As(err, &known), errors.As(err, &engine), errors.As(err, &refused):
		return err
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case !errors.As(err, &lite):
		return &engineError{code: -1, cause: err}
	}
	if reason := reasonFor(lite); reason != subject.ReasonNone {
		return &subject.Fault{Reason: reason, Cause: err}
	}
	return &engineError{code: lite.Code(), cause: err}
}

func reasonFor(err *sqlite.Error) subject.Reason {
	switch err.Code() & 0xff {
	case codeBusy, codeLocked:
		return subject.ReasonStoreLocked
	case codeFull:
		return subject.ReasonStoreFull
	case codeReadOnly:
		return subject.ReasonStoreReadOnly
	case codePerm, codeAuth:
		return subject.ReasonAccessDenied
	case codeCantOpen, codeNotADB:
		return subject.ReasonNotFound
	case codeError: // SQLite gives these no code of their own
		switch text := err.Error(); {
		case strings.Contains(text, "too many SQL variables"):
			return subject.ReasonTooManyVariables
		case strings.Contains(text, "no such table"), strings.Contains(text, "no such column"):
			return subject.ReasonNotFound
		}
	}
	return subject.ReasonNone
}
