package wire

import (
	"bytes"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"recount/internal/subject"
)

// maxPeerReceipts is how many receipts of one subject are read: no cell has that many stores.
const maxPeerReceipts = 256

// maxRetryAfter bounds how long a peer can ask to be left alone.
const maxRetryAfter = 24 * time.Hour

// PeerResponse is what a peer said about one subject: read, and not yet believed. A field that is missing or of
// another type holds its zero value, which no check accepts.
type PeerResponse struct {
	RequestID  PeerText       `json:"request_id"`
	TenantID   PeerText       `json:"tenant_id"`
	SubjectRef PeerText       `json:"subject_ref"`
	Operation  PeerText       `json:"operation"`
	Status     PeerText       `json:"status"`
	RetryAfter PeerSeconds    `json:"retry_after_s"`
	Receipts   PeerReceipts   `json:"receipts"`
	Sources    PeerSources    `json:"sources"`
	Others     jsontext.Value `json:",embed"` // fields of a newer cell: looked at for case-variants, never copied
}

// PeerReceipt is what a peer said about one store.
type PeerReceipt struct {
	Cell             PeerText       `json:"cell"`
	Store            PeerText       `json:"store"`
	Backend          PeerText       `json:"backend"`
	Status           PeerText       `json:"status"`
	Before           PeerCount      `json:"before"`
	Deleted          PeerCount      `json:"deleted"`
	Remaining        PeerCount      `json:"remaining"`
	Suppressed       PeerCount      `json:"suppressed"`
	Derived          PeerCount      `json:"derived"`
	Sticky           PeerBool       `json:"sticky"`
	RecoverableUntil PeerTime       `json:"recoverable_until"`
	Detail           PeerText       `json:"detail"`
	StartedAt        PeerTime       `json:"started_at"`
	FinishedAt       PeerTime       `json:"finished_at"`
	Others           jsontext.Value `json:",embed"`
}

// PeerBatch is what a peer said about many subjects.
type PeerBatch struct {
	Status  PeerText       `json:"status"`
	Results PeerResults    `json:"results"`
	Others  jsontext.Value `json:",embed"`
}

// PeerAllowed is what a peer said about a source that is to come back. Removed is nil where it wrote no boolean.
type PeerAllowed struct {
	RequestID PeerText       `json:"request_id"`
	TenantID  PeerText       `json:"tenant_id"`
	Operation PeerText       `json:"operation"`
	Status    PeerText       `json:"status"`
	Removed   *bool          `json:"removed"`
	Others    jsontext.Value `json:",embed"`
}

// DecodePeerAllowed reads the one JSON object that a peer answered to an allow, as DecodePeer does.
func DecodePeerAllowed(data []byte) (PeerAllowed, error) {
	var said PeerAllowed
	if err := decodeObject(data, &said); err != nil {
		return PeerAllowed{}, err
	}
	if hasCaseVariant(said.Others, allowedFields) {
		return PeerAllowed{}, malformed(errCaseVariant)
	}
	return said, nil
}

// DecodePeer reads the one JSON object that a peer answered about one subject. Anything behind it, a field twice at any
// depth, a field of the contract in another case, and invalid UTF-8 are a *MalformedError. A receipt that is no object
// is read as one without any field, so that its siblings are kept.
func DecodePeer(data []byte) (PeerResponse, error) {
	var said PeerResponse
	if err := decodeObject(data, &said); err != nil {
		return PeerResponse{}, err
	}
	if said.hasCaseVariant() {
		return PeerResponse{}, malformed(errCaseVariant)
	}
	return said, nil
}

// DecodePeerBatch is DecodePeer for an answer about many subjects.
func DecodePeerBatch(data []byte) (PeerBatch, error) {
	var said PeerBatch
	if err := decodeObject(data, &said); err != nil {
		return PeerBatch{}, err
	}
	variant := hasCaseVariant(said.Others, batchFields)
	for _, result := range said.Results {
		variant = variant || result.hasCaseVariant()
	}
	if variant {
		return PeerBatch{}, malformed(errCaseVariant)
	}
	return said, nil
}

// Name is the word if it has the form of a cell's, a store's or a backend's name, [a-z][a-z0-9_-]{0,62}, else "".
func (t PeerText) Name() string {
	if IsName(string(t)) {
		return string(t)
	}
	return ""
}

// IsName reports whether a word has the form of a cell's, a store's or a backend's name: [a-z][a-z0-9_-]{0,62}.
func IsName(word string) bool {
	if word == "" || len(word) > 63 || word[0] < 'a' || word[0] > 'z' {
		return false
	}
	return strings.Trim(word, "abcdefghijklmnopqrstuvwxyz0123456789_-") == ""
}

// PeerText is a string of a peer; anything but a JSON string reads as "".
type PeerText string

// UnmarshalJSONFrom reads any JSON value.
func (t *PeerText) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if dec.PeekKind() != '"' {
		return dec.SkipValue() //nolint:wrapcheck // the decoder's own error, read by malformed
	}
	token, err := dec.ReadToken()
	*t = PeerText(token.String())
	return err //nolint:wrapcheck // as above
}

// PeerCount is a count as a peer wrote it. The zero value is one that it did not write.
type PeerCount struct {
	count subject.Count
	sound bool
	given bool
}

// Count is the number or null that the peer wrote. It is not sound when the field was missing or held anything but null
// or an integer from 0 to 2^63-1 without sign, fraction or exponent.
func (c PeerCount) Count() (count subject.Count, sound bool) { return c.count, c.sound }

// Optional is Count for a field that a peer need not write: sound too, and not measured, where it is missing.
func (c PeerCount) Optional() (count subject.Count, sound bool) { return c.count, c.sound || !c.given }

// UnmarshalJSONFrom reads any JSON value.
func (c *PeerCount) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	value, err := dec.ReadValue()
	if err != nil {
		return err //nolint:wrapcheck // the decoder's own error, read by malformed
	}
	*c = PeerCount{given: true}
	if value.Kind() == 'n' {
		c.sound = true
	} else if n, ok := integer(value); ok {
		c.count, c.sound = subject.Measured(n), true
	}
	return nil
}

// PeerSeconds is a number of seconds as a duration: 0 where a peer wrote nothing usable, and never over a day.
type PeerSeconds time.Duration

// UnmarshalJSONFrom reads any JSON value.
func (s *PeerSeconds) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	value, err := dec.ReadValue()
	if err != nil {
		return err //nolint:wrapcheck // the decoder's own error, read by malformed
	}
	n, _ := integer(value)
	*s = PeerSeconds(time.Duration(min(n, int64(maxRetryAfter/time.Second))) * time.Second)
	return nil
}

// integer reads a JSON number that is written in digits alone.
func integer(value jsontext.Value) (int64, bool) {
	n, err := strconv.ParseUint(string(value), 10, 63) // takes no sign, fraction, exponent or quote
	return int64(n), err == nil
}

// PeerTime is a time of a peer: zero where it wrote null, nothing, or no time at all. The last is told apart.
type PeerTime struct {
	Time      time.Time
	Malformed bool
}

// UnmarshalJSONFrom reads any JSON value.
func (t *PeerTime) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	kind := dec.PeekKind()
	if kind != '"' {
		*t = PeerTime{Malformed: kind != 'n'}
		return dec.SkipValue() //nolint:wrapcheck // the decoder's own error, read by malformed
	}
	token, err := dec.ReadToken()
	if err != nil {
		return err //nolint:wrapcheck // as above
	}
	parsed, err := time.Parse(time.RFC3339Nano, token.String())
	parsed = parsed.UTC()
	if err != nil || parsed.Year() < 1 || parsed.Year() > 9999 { // a zone can push it past what JSON can write
		*t = PeerTime{Malformed: true}
		return nil
	}
	*t = PeerTime{Time: parsed}
	return nil
}

// PeerBool is a boolean of a peer: false where it wrote anything but true.
type PeerBool bool

// UnmarshalJSONFrom reads any JSON value.
func (b *PeerBool) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	value, err := dec.ReadValue()
	*b = err == nil && value.Kind() == 't'
	return err //nolint:wrapcheck // the decoder's own error, read by malformed
}

// PeerSources are the sources that a peer resolved. Given says that it wrote a list at all; one with anything else in it
// than pairs of texts is Malformed, because a source that is lost is not erased elsewhere.
type PeerSources struct {
	Listed    []Source
	Given     bool
	Malformed bool
}

// UnmarshalJSONFrom reads any JSON value.
func (s *PeerSources) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*s = PeerSources{}
	if kind := dec.PeekKind(); kind != '[' {
		s.Malformed = kind != 'n'
		return dec.SkipValue() //nolint:wrapcheck // the decoder's own error, read by malformed
	}
	s.Given = true
	if _, err := dec.ReadToken(); err != nil {
		return err //nolint:wrapcheck // as above
	}
	for dec.PeekKind() != ']' {
		var one struct {
			Source    PeerText       `json:"source"`
			SourceRef PeerText       `json:"source_ref"`
			Others    jsontext.Value `json:",embed"`
		}
		if dec.PeekKind() != '{' {
			s.Malformed = true
			if err := dec.SkipValue(); err != nil {
				return err //nolint:wrapcheck // as above
			}
			continue
		}
		if err := json.UnmarshalDecode(dec, &one); err != nil {
			return err //nolint:wrapcheck // as above
		}
		if hasCaseVariant(one.Others, sourceFields) {
			return errCaseVariant
		}
		s.Malformed = s.Malformed || one.Source == "" || one.SourceRef == ""
		s.Listed = append(s.Listed, Source{Source: string(one.Source), SourceRef: string(one.SourceRef)})
	}
	_, err := dec.ReadToken()
	return err //nolint:wrapcheck // as above
}

// PeerReceipts is a list of receipts; anything but a JSON array reads as none.
type PeerReceipts []PeerReceipt

// UnmarshalJSONFrom reads any JSON value.
func (r *PeerReceipts) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return readList((*[]PeerReceipt)(r), dec, maxPeerReceipts)
}

// PeerResults is a list of answers about one subject each; anything but a JSON array reads as none.
type PeerResults []PeerResponse

// UnmarshalJSONFrom reads any JSON value.
func (r *PeerResults) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return readList((*[]PeerResponse)(r), dec, MaxBatch)
}

// readList reads an array, each item that is no object as the zero value.
func readList[T any](list *[]T, dec *jsontext.Decoder, most int) error {
	*list = nil
	if dec.PeekKind() != '[' {
		return dec.SkipValue() //nolint:wrapcheck // the decoder's own error, read by malformed
	}
	if _, err := dec.ReadToken(); err != nil {
		return err //nolint:wrapcheck // as above
	}
	for dec.PeekKind() != ']' {
		if len(*list) == most {
			return errTooMany
		}
		var item T
		var err error
		if dec.PeekKind() == '{' {
			err = json.UnmarshalDecode(dec, &item)
		} else {
			err = dec.SkipValue()
		}
		if err != nil {
			return err //nolint:wrapcheck // as above
		}
		*list = append(*list, item)
	}
	_, err := dec.ReadToken()
	return err //nolint:wrapcheck // as above
}

func decodeObject(data []byte, v any) error {
	if jsontext.Value(data).Kind() != '{' {
		return malformed(errNotAnObject)
	}
	return malformed(json.Unmarshal(data, v))
}

var (
	responseFields = fieldsOf[PeerResponse]("detail", "generated_at", "kept")
	receiptFields  = fieldsOf[PeerReceipt]()
	batchFields    = fieldsOf[PeerBatch]()
	allowedFields  = fieldsOf[PeerAllowed]("cells")
	sourceFields   = fieldsOf[Source]()
)

// fieldsOf lists the JSON names of a type, and those of the contract that it doesn't read.
func fieldsOf[T any](unread ...string) []string {
	t := reflect.TypeFor[T]()
	for i := range t.NumField() {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); name != "" {
			unread = append(unread, name)
		}
	}
	return unread
}

func (r PeerResponse) hasCaseVariant() bool {
	if hasCaseVariant(r.Others, responseFields) {
		return true
	}
	for _, receipt := range r.Receipts {
		if hasCaseVariant(receipt.Others, receiptFields) {
			return true
		}
	}
	return false
}

// hasCaseVariant reports whether a name among the fields that weren't recognised is one of the contract's in other
// letters. Which of the two a peer means would be a guess.
func hasCaseVariant(others jsontext.Value, fields []string) bool {
	if len(others) == 0 {
		return false
	}
	dec := jsontext.NewDecoder(bytes.NewReader(others))
	if _, err := dec.ReadToken(); err != nil {
		return true
	}
	for dec.PeekKind() == '"' {
		name, err := dec.ReadToken()
		if err != nil {
			return true
		}
		text := name.String()
		for _, field := range fields {
			if text != field && strings.EqualFold(text, field) {
				return true
			}
		}
		if err := dec.SkipValue(); err != nil {
			return true
		}
	}
	return false
}
