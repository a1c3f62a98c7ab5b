package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"recount/internal/auth"
	"recount/internal/erasure"
	"recount/internal/intake"
	"recount/internal/subject"
	"recount/internal/wire"
)

// TypePrefix begins the type of every problem document; the word behind it is part of the contract.
const TypePrefix = "urn:recount:problem:"

// kind is one type of problem: its word, its title and its code never change.
type kind struct {
	word, title string
	status      int
}

var (
	kindTenant      = kind{"invalid-tenant-id", "The tenant id is not valid", http.StatusBadRequest}
	kindIdentity    = kind{"invalid-identity-id", "The identity id is not valid", http.StatusBadRequest}
	kindPageToken   = kind{"invalid-page-token", "The page token is not valid", http.StatusBadRequest}
	kindQuery       = kind{"invalid-query", "The query is not valid", http.StatusBadRequest}
	kindBody        = kind{"invalid-body", "The body is not valid", http.StatusBadRequest}
	kindUnknown     = kind{"unauthenticated", "A good token is needed", http.StatusUnauthorized}
	kindForbidden   = kind{"forbidden", "The caller may not do this", http.StatusForbidden}
	kindNotFound    = kind{"not-found", "There is no such resource", http.StatusNotFound}
	kindRefused     = kind{"refused", "The request is refused", http.StatusConflict}
	kindMethod      = kind{"method-not-allowed", "The resource does not take this method", http.StatusMethodNotAllowed}
	kindTooLate     = kind{"too-late", "It is too late for this", http.StatusBadRequest}
	kindConflict    = kind{"conflict", "The request is in conflict with an earlier one", http.StatusConflict}
	kindTooLarge    = kind{"body-too-large", "The body is too large", http.StatusRequestEntityTooLarge}
	kindMediaType   = kind{"unsupported-media-type", "The body has an unsupported media type", http.StatusUnsupportedMediaType}
	kindUnprocessed = kind{"unprocessable", "The request can not be processed", http.StatusUnprocessableEntity}
	kindTooMany     = kind{"too-many-requests", "Too many requests", http.StatusTooManyRequests}
	kindInternal    = kind{"internal", "The service failed", http.StatusInternalServerError}
	kindUnavailable = kind{"unavailable", "The service can not answer now", http.StatusServiceUnavailable}
)

// Refusal is an error that is answered as a problem document. Its text is shown to callers: it never quotes what was
// sent, and never what a backend said.
type Refusal struct {
	kind       kind
	detail     string
	allow      []string // 405 only
	retryAfter time.Duration
	cause      error // for the log's type names alone
}

// Error is the detail, or the title where there is none.
func (r *Refusal) Error() string {
	if r.detail == "" {
		return r.kind.title
	}
	return r.detail
}

// Unwrap is the cause, which may quote personal data: never print it.
func (r *Refusal) Unwrap() error { return r.cause }

// NotFound says that nothing is at the path.
func NotFound() *Refusal { return &Refusal{kind: kindNotFound} }

// BadBody says what is wrong with a body, in a fixed sentence.
func BadBody(detail string) *Refusal { return &Refusal{kind: kindBody, detail: detail} }

// TooLate says, in a fixed sentence, what has happened already that keeps the request from being carried out.
func TooLate(detail string) *Refusal { return &Refusal{kind: kindTooLate, detail: detail} }

// Conflict says, in a fixed sentence, with which earlier request this one is in conflict.
func Conflict(detail string) *Refusal { return &Refusal{kind: kindConflict, detail: detail} }

// Unprocessable says why a well-formed request can't be carried out, in a fixed sentence.
func Unprocessable(detail string) *Refusal { return &Refusal{kind: kindUnprocessed, detail: detail} }

// Unavailable says, in a fixed sentence, that the service can't do this now and that calling again is safe. The cause's
// text is shown to nobody.
func Unavailable(detail string, cause error) *Refusal {
	return &Refusal{kind: kindUnavailable, detail: detail, retryAfter: time.Second, cause: cause}
}

// refusalOf is the one place where an error becomes an answer.
func refusalOf(err error) *Refusal {
	var (
		refusal   *Refusal
		malformed *wire.MalformedError
		tooLarge  *http.MaxBytesError
		fault     *subject.Fault
		refused   *erasure.RefusedError
	)
	switch {
	case errors.As(err, &refusal):
		return refusal
	case errors.As(err, &refused) && refused.Invalid:
		return Unprocessable(refused.Problem)
	case errors.As(err, &refused):
		return &Refusal{kind: kindRefused, detail: refused.Problem}
	case errors.Is(err, erasure.ErrNotFound):
		return &Refusal{kind: kindNotFound, detail: erasure.ErrNotFound.Error()}
	case errors.As(err, &malformed):
		return &Refusal{kind: kindBody, detail: malformed.Problem, cause: err}
	case errors.As(err, &tooLarge):
		return &Refusal{kind: kindTooLarge, detail: "a JSON body may be up to " + strconv.FormatInt(tooLarge.Limit>>20, 10) + " MiB long"}
	case errors.Is(err, intake.ErrTooLarge):
		return &Refusal{kind: kindTooLarge, detail: intake.ErrTooLarge.Error()}
	case errors.Is(err, intake.ErrNotJSON):
		return &Refusal{kind: kindBody, detail: intake.ErrNotJSON.Error()}
	case errors.Is(err, subject.ErrTenant):
		return &Refusal{kind: kindTenant, detail: subject.ErrTenant.Error()}
	case errors.Is(err, subject.ErrIdentity):
		return &Refusal{kind: kindIdentity, detail: subject.ErrIdentity.Error()}
	case errors.Is(err, subject.ErrPageToken):
		return &Refusal{kind: kindPageToken, detail: subject.ErrPageToken.Error()}
	case errors.Is(err, auth.ErrUnauthenticated):
		return &Refusal{kind: kindUnknown}
	case errors.Is(err, auth.ErrForbidden):
		return &Refusal{kind: kindForbidden}
	case errors.As(err, &fault):
		return Unavailable(string(fault.Reason), err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return Unavailable("the service did not finish in time", err)
	default:
		return &Refusal{kind: kindInternal, cause: err}
	}
}

// refuse writes the problem document of an error.
func (x *exchange) refuse(w http.ResponseWriter, err error) {
	r := refusalOf(err)
	if r.kind == kindInternal {
		x.failure = err
	}
	h := w.Header()
	switch r.kind {
	case kindUnknown:
		h.Set("WWW-Authenticate", "Bearer")
	case kindMethod:
		h.Set("Allow", strings.Join(r.allow, ", "))
	}
	if r.retryAfter > 0 {
		h.Set("Retry-After", retryAfter(r.retryAfter))
	}
	body, err := wire.Marshal(wire.Problem{
		Type: TypePrefix + r.kind.word, Title: r.kind.title, Status: r.kind.status, Detail: r.detail, RequestID: x.requestID,
	})
	if err != nil {
		panic(err) // five plain fields always encode
	}
	x.send(w, r.kind.status, "application/problem+json", body)
}

// retryAfter is a duration in whole seconds, at least 1.
func retryAfter(d time.Duration) string {
	return strconv.FormatInt(max(1, int64((d+time.Second-1)/time.Second)), 10)
}
