package subjectapi

import (
	stdjson "encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"recount/internal/httpapi"
	"recount/internal/subject"
	"recount/internal/wire"
)

// The words of counts and accesses.
const (
	statusCounted = "counted"
	statusRead    = "read"
	statusFailed  = "failed"
)

func (s Surface) countByBody(c *httpapi.Call) error {
	person, err := s.personAlone(c)
	if err != nil {
		return err
	}
	receipts := s.Cell.Count(c.R.Context(), person)
	answer := wire.CountResponse{
		RequestID: c.RequestID(), TenantID: person.Tenant(), SubjectRef: string(person.Ref(s.Cell.Salt())), Operation: wire.OpCount,
		Status: statusCounted, Receipts: make([]wire.CountReceipt, len(receipts)),
	}
	for i, r := range receipts {
		answer.Receipts[i] = wire.CountReceipt{
			Cell: r.Cell, Store: r.Store, Backend: r.Backend, Status: word(r.Reason, statusCounted), Count: r.Count, Detail: string(r.Reason),
		}
	}
	answer.Status = worst(statusCounted, len(receipts), func(i int) string { return answer.Receipts[i].Status })
	answer.GeneratedAt = time.Now().UTC()
	return c.Answer(code(answer.Status), answer, 0)
}

func (s Surface) accessByBody(c *httpapi.Call) error {
	person, asked, err := s.person(c)
	if err != nil {
		return err
	}
	return s.access(c, person, asked.PageToken)
}

// access shows a page of each store. The rows are encoded one by one before the first byte is sent, because one that
// can't be shown makes its store's receipt failed; what is held at a time is a page of each store, no more.
func (s Surface) access(c *httpapi.Call, person subject.Subject, token string) error {
	receipts, err := s.Cell.Access(c.R.Context(), person, subject.PageRequest{Token: token, Caller: c.Caller.Actor()})
	if err != nil {
		return err //nolint:wrapcheck // the mapper's
	}
	answer := wire.AccessResponse{
		RequestID: c.RequestID(), TenantID: person.Tenant(), SubjectRef: string(person.Ref(s.Cell.Salt())), Operation: wire.OpAccess,
		Receipts: make([]wire.AccessReceipt, len(receipts)),
	}
	for i := range receipts {
		answer.Receipts[i] = shown(&receipts[i])
	}
	answer.Status = worst(statusRead, len(receipts), func(i int) string { return answer.Receipts[i].Status })
	answer.GeneratedAt = time.Now().UTC()
	s.auditAccess(c, person, receipts)
	return c.Stream(code(answer.Status), func(w io.Writer) error {
		return json.MarshalWrite(w, answer, json.FormatNilSliceAsNull(false), jsontext.AllowInvalidUTF8(true)) //nolint:wrapcheck // the caller only looks whether
	})
}

// shown encodes a receipt's rows and lets go of each as it does.
func shown(r *subject.AccessReceipt) wire.AccessReceipt {
	out := wire.AccessReceipt{
		Cell: r.Cell, Store: r.Store, Backend: r.Backend, Count: r.Count, Rows: make([]jsontext.Value, 0, len(r.Rows)),
		Scrubbed: r.Scrubbed, About: r.About, NextPageToken: r.NextPageToken,
	}
	for i, row := range r.Rows {
		// Bytes that are no UTF-8 are shown as U+FFFD: a mangled value is better than a file that can't be had.
		encoded, err := json.Marshal(row, json.Deterministic(true), jsontext.AllowInvalidUTF8(true), numbers)
		if err != nil {
			r.Reason = subject.ReasonReadFailed
			out.Count, out.Rows, out.Scrubbed, out.NextPageToken = subject.Unmeasured(), nil, nil, ""
			break
		}
		out.Rows, r.Rows[i] = append(out.Rows, encoded), nil
	}
	out.Status, out.Detail = word(r.Reason, statusRead), string(r.Reason)
	return out
}

// numbers shows a number of a row as the number that it was sent as, digit for digit: stores answer json.Number, which is
// a plain string to this encoder.
var numbers = json.WithMarshalers(json.MarshalToFunc(func(e *jsontext.Encoder, n stdjson.Number) error {
	return e.WriteValue(jsontext.Value(n))
}))

func word(reason subject.Reason, fine string) string {
	if reason != subject.ReasonNone {
		return statusFailed
	}
	return fine
}

// worst is fine only when there are receipts and each of them is.
func worst(fine string, receipts int, status func(i int) string) string {
	if receipts == 0 {
		return statusFailed
	}
	for i := range receipts {
		if status(i) != fine {
			return statusFailed
		}
	}
	return fine
}

func code(status string) int {
	if status == statusFailed {
		return http.StatusBadGateway
	}
	return http.StatusOK
}
