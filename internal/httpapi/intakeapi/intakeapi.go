// Package intakeapi takes records in: one JSON record, or NDJSON of any size.
package intakeapi

import (
	"context"
	"errors"
	"io"
	"net/http"

	"recount/internal/auth"
	"recount/internal/httpapi"
	"recount/internal/intake"
	"recount/internal/subject"
	"recount/internal/wire"
)

// Intake takes in one kind of record. Errors: intake.ErrNotJSON, intake.ErrTooLarge, the body's own, or the store's:
// after it, sending the same body again MUST be safe.
type Intake interface {
	Take(ctx context.Context, mayWrite func(tenant string) bool, body io.Reader, ndjson bool) (wire.IntakeResponse, error)
}

// Endpoint is where one kind of record is taken in.
type Endpoint struct {
	Path   string
	Intake Intake
	// Serving answers a *subject.Fault when the cell may not write to its stores now.
	Serving func() error
}

// Mount adds the endpoints to the API.
func Mount(api *httpapi.API, endpoints ...Endpoint) {
	for _, e := range endpoints {
		api.Mount(httpapi.Resource{Route: e.Path, Methods: map[string]httpapi.Operation{
			http.MethodPost: {Role: auth.Write, Gate: e.Serving, Body: httpapi.RecordsBody, Serve: e.take},
		}})
	}
}

func (e Endpoint) take(c *httpapi.Call) error {
	answer, err := e.Intake.Take(c.R.Context(), c.May, c.R.Body, c.NDJSON)
	if err != nil {
		return judged(err)
	}
	return c.Answer(http.StatusOK, answer, 0)
}

// judged tells what the sender did wrong from what the store did, which it may try again.
func judged(err error) error {
	var (
		refusal  *httpapi.Refusal
		tooLarge *http.MaxBytesError
		fault    *subject.Fault
	)
	if errors.Is(err, intake.ErrNotJSON) || errors.Is(err, intake.ErrTooLarge) ||
		errors.As(err, &refusal) || errors.As(err, &tooLarge) || errors.As(err, &fault) {
		return err
	}
	return httpapi.Unavailable("the records could not be stored: send them again, those that were stored count as duplicates", err)
}
