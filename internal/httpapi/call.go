package httpapi

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	"recount/internal/auth"
	"recount/internal/subject"
	"recount/internal/wire"
)

// Call is one request on its way through an operation. It is the operation's own.
type Call struct {
	*exchange
	W      http.ResponseWriter
	R      *http.Request
	Caller auth.Caller // nobody, for a public operation
	NDJSON bool        // the records of the body are one a line

	role  auth.Role
	query url.Values
}

// RequestID is the name of the request, as sent when it is well-formed, else our own: hex digits or a UUID.
func (c *Call) RequestID() string { return c.requestID }

// open reads the query and judges the head of the body.
func (c *Call) open(op Operation) error {
	var err error
	if c.query, err = strictQuery(c.R.URL.RawQuery, op.Query); err != nil {
		return err
	}
	if op.Body == NoBody {
		return c.refuseBody()
	}
	if c.NDJSON, err = mediaType(c.R.Header, op.Body); err != nil {
		return err
	}
	if c.body == nil {
		return nil // empty: the reader of it will say so
	}
	if c.NDJSON {
		c.body.steady = true
		c.body.renew(time.Now())
	} else {
		c.R.Body = http.MaxBytesReader(c.W, c.body, MaxJSONBytes)
	}
	return nil
}

// refuseBody keeps a body from being taken for something that was read: it might name another person than the path.
func (c *Call) refuseBody() error {
	if c.body == nil {
		return nil
	}
	if n, err := io.ReadFull(c.body, make([]byte, 1)); n == 0 && errors.Is(err, io.EOF) {
		return nil // of unknown length, and empty
	}
	return BadBody("this request takes no body")
}

// strictQuery reads a query that may hold each known parameter once and nothing else.
func strictQuery(raw string, known []string) (url.Values, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, &Refusal{kind: kindQuery, detail: "the query is not well-formed", cause: err}
	}
	for name, given := range values {
		if !slices.Contains(known, name) {
			return nil, &Refusal{kind: kindQuery, detail: "the query has a parameter that this request does not know (names are case-sensitive)"}
		}
		if len(given) != 1 {
			return nil, &Refusal{kind: kindQuery, detail: "the query has the same parameter more than once"}
		}
	}
	return values, nil
}

// Query is a parameter that the operation knows, "" when it was not given.
func (c *Call) Query(name string) string { return c.query.Get(name) }

// Decode reads the body, one strict JSON object, into v, a pointer to a zero value.
func (c *Call) Decode(v any) error {
	return wire.DecodeRequest(c.R.Body, v) //nolint:wrapcheck // the mapper tells its errors apart
}

// May says whether the caller may do this operation for the tenant.
func (c *Call) May(tenant string) bool { return c.Caller.May(c.role, tenant) }

// Tenant checks a tenant's form, and then that the caller may do this operation for it. Errors: subject.ErrTenant,
// auth.ErrForbidden.
func (c *Call) Tenant(tenant string) error {
	if err := subject.CheckTenant(tenant); err != nil {
		return err //nolint:wrapcheck // the mapper's
	}
	if !c.May(tenant) {
		return auth.ErrForbidden
	}
	return nil
}

// Subject is the person that the request names, when the caller may do this operation for the tenant. Errors:
// subject.ErrTenant, auth.ErrForbidden, subject.ErrIdentity.
func (c *Call) Subject(tenant, identity string) (subject.Subject, error) {
	if err := c.Tenant(tenant); err != nil {
		return subject.Subject{}, err
	}
	return subject.New(tenant, identity) //nolint:wrapcheck // the mapper's
}

// Answer sends a value of package wire. retry is sent as Retry-After when it is positive.
func (c *Call) Answer(status int, v any, retry time.Duration) error {
	body, err := wire.Marshal(v)
	if err != nil {
		return err //nolint:wrapcheck // answered as an internal failure, its text shown to nobody
	}
	if retry > 0 {
		c.W.Header().Set("Retry-After", retryAfter(retry))
	}
	c.send(c.W, status, "application/json", body)
	return nil
}

// Send sends an answer that is not JSON.
func (c *Call) Send(status int, contentType string, body []byte) {
	c.send(c.W, status, contentType, body)
}

// Stream sends an answer that write makes piece by piece. What fails in mid-answer breaks the connection, so that
// nobody takes the part for the whole.
func (c *Call) Stream(status int, write func(w io.Writer) error) error {
	c.W.Header().Set("Content-Type", "application/json")
	c.W.WriteHeader(status)
	if err := write(c.leaving(c.W)); err != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}
