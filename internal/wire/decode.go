package wire

import (
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// MalformedError says what is wrong with a JSON text without quoting any of it.
type MalformedError struct {
	Problem string // a fixed sentence
	cause   error
}

// Error is the fixed sentence.
func (e *MalformedError) Error() string { return e.Problem }

// Unwrap is the cause, which may quote what was sent: never print it.
func (e *MalformedError) Unwrap() error { return e.cause }

var (
	errNotAnObject = errors.New("not an object")
	errTrailing    = errors.New("data behind the object")
	errTooMany     = errors.New("more items than the contract allows")
	errCaseVariant = errors.New("a field of the contract in another case")
)

// DecodeRequest reads exactly one JSON object of a caller into v, a pointer to a zero value: an unknown, duplicate or
// case-variant field, invalid UTF-8, or anything after the object is a *MalformedError. An error of the reader itself is
// answered as it is, so that a body over its limit can be told from a broken one.
func DecodeRequest(r io.Reader, v any) error {
	source := &trackedReader{r: r}
	err := decodeOnly(jsontext.NewDecoder(source), v)
	if source.err != nil {
		return source.err
	}
	return malformed(err)
}

func decodeOnly(dec *jsontext.Decoder, v any) error {
	if kind := dec.PeekKind(); kind != '{' && kind != 0 {
		return errNotAnObject
	}
	if err := json.UnmarshalDecode(dec, v, json.RejectUnknownMembers(true)); err != nil {
		return err //nolint:wrapcheck // read by malformed
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return errTrailing
	}
	return nil
}

// Marshal writes a value of this package.
func Marshal(v any) ([]byte, error) {
	return json.Marshal(v, json.FormatNilSliceAsNull(false))
}

func malformed(err error) error {
	if err == nil {
		return nil
	}
	problem := "the body is not one valid JSON value"
	var semantic *json.SemanticError
	switch {
	case errors.Is(err, json.ErrUnknownName):
		problem = "the body has a field that this request does not know (names are case-sensitive)"
	case errors.Is(err, jsontext.ErrDuplicateName):
		problem = "the body has the same field twice"
	case errors.Is(err, errNotAnObject):
		problem = "the body is not one JSON object"
	case errors.Is(err, errTrailing):
		problem = "the body goes on after its JSON object"
	case errors.Is(err, errCaseVariant):
		problem = "the body has a field of the contract in another case"
	case errors.Is(err, errTooMany):
		problem = "a list has more items than the contract allows"
	case errors.As(err, &semantic):
		problem = "a field has a value of the wrong type"
	}
	return &MalformedError{Problem: problem, cause: err}
}

type trackedReader struct {
	r   io.Reader
	err error
}

func (t *trackedReader) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		t.err = fmt.Errorf("reading the body: %w", err)
	}
	return n, err //nolint:wrapcheck // io.Reader's contract
}
