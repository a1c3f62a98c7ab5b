package opendsrapi

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"recount/internal/erasure"
	"recount/internal/httpapi"
	"recount/internal/wire"
)

// createAnswer is the answer to a filed request.
type createAnswer struct {
	ControllerID     string `json:"controller_id"`
	Expected         string `json:"expected_completion_time"`
	Received         string `json:"received_time"`
	Encoded          string `json:"encoded_request"` // the body as it was received, in base64
	SubjectRequestID string `json:"subject_request_id"`
}

// statusAnswer is the answer of a GET.
type statusAnswer struct {
	ControllerID     string `json:"controller_id"`
	Expected         string `json:"expected_completion_time"`
	SubjectRequestID string `json:"subject_request_id"`
	Status           string `json:"request_status"`
	APIVersion       string `json:"api_version"`
	ResultsURL       any    `json:"results_url"` // null: an erasure has no results
}

// cancelAnswer is the answer of a DELETE.
type cancelAnswer struct {
	ControllerID     string `json:"controller_id"`
	Received         string `json:"received_time"`
	SubjectRequestID string `json:"subject_request_id"`
	APIVersion       string `json:"api_version"`
}

func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339) }

func principal(c *httpapi.Call) wire.Principal {
	return wire.Principal{Sub: c.Caller.Sub, Email: c.Caller.Email}
}

// create files a request. Its id is kept before it is filed: whoever asks again, after whatever happened, files under the same.
func (s Surface) create(c *httpapi.Call, tenant string) error {
	raw, err := io.ReadAll(c.R.Body)
	if err != nil {
		return fmt.Errorf("reading the body: %w", err)
	}
	f, err := decode(raw, s.Identities)
	if err != nil {
		return err
	}
	f.asked.TenantID = tenant
	by := principal(c)
	fresh := entry{BodyDigest: s.digest(tenant, raw), Controller: by.Email, ControllerID: f.controllerID, Received: s.Now().UTC()}
	if fresh.ControllerID == "" {
		fresh.ControllerID = by.Email
	}
	from := erasure.DSR{SubjectRequestID: f.subjectRequestID, ControllerID: fresh.ControllerID, Callbacks: f.callbacks}
	kept, err := s.bind(c.R.Context(), tenant, f.subjectRequestID, fresh, func() error {
		return s.Requests.CheckOpenDSR(by, f.asked, from)
	})
	if err != nil {
		return problem(err)
	}
	r, err := s.Requests.FileOpenDSR(c.R.Context(), by, kept.RequestID, f.asked, from)
	if err != nil {
		return problem(err)
	}
	return s.answer(c, http.StatusCreated, createAnswer{
		ControllerID: kept.ControllerID, Expected: stamp(r.DueAt), Received: stamp(kept.Received),
		Encoded: base64.StdEncoding.EncodeToString(raw), SubjectRequestID: f.subjectRequestID,
	})
}

// own is the caller's request of that id: another's is not there.
func (s Surface) own(c *httpapi.Call, tenant, subjectRequestID string) (entry, wire.Request, error) {
	kept, err := s.lookUp(c.R.Context(), tenant, subjectRequestID)
	if err == nil && kept.Controller != c.Caller.Email {
		err = errNoEntry
	}
	if err != nil {
		return kept, wire.Request{}, problem(err)
	}
	r, err := s.Requests.Show(c.R.Context(), kept.RequestID)
	if err == nil && r.TenantID != tenant {
		err = errNoEntry
	}
	if err != nil {
		return kept, wire.Request{}, problem(err)
	}
	return kept, r, nil
}

func (s Surface) show(c *httpapi.Call, tenant, subjectRequestID string) error {
	kept, r, err := s.own(c, tenant, subjectRequestID)
	if err != nil {
		return err
	}
	return s.answer(c, http.StatusOK, statusAnswer{
		ControllerID: kept.ControllerID, Expected: stamp(r.DueAt), SubjectRequestID: subjectRequestID,
		Status: erasure.OpenDSRWord(r.State), APIVersion: version,
	})
}

// The reasons that a cancelled request is kept with. The second is for a person whose id is a word of the first.
const (
	reasonCancelled = "cancelled by the controller"
	reasonNone      = "-"
)

// cancel takes a request back. One that is cancelled already is answered as it was: the answer may have been lost.
func (s Surface) cancel(c *httpapi.Call, tenant, subjectRequestID string) error {
	kept, r, err := s.own(c, tenant, subjectRequestID)
	if err != nil {
		return err
	}
	if r.State != erasure.Cancelled {
		ctx := context.WithoutCancel(c.R.Context())
		by := principal(c)
		r, err = s.Requests.Cancel(ctx, by, kept.RequestID, reasonCancelled)
		var refused *erasure.RefusedError
		if errors.As(err, &refused) && refused.Invalid {
			r, err = s.Requests.Cancel(ctx, by, kept.RequestID, reasonNone)
		}
		if err != nil && r.State != erasure.Cancelled {
			return problem(err)
		}
	}
	answer := cancelAnswer{ControllerID: kept.ControllerID, SubjectRequestID: subjectRequestID, APIVersion: version}
	if r.ClosedAt != nil {
		answer.Received = stamp(*r.ClosedAt)
	}
	return s.answer(c, http.StatusAccepted, answer)
}

// problem is an error as the kernel answers it. Whatever else failed, the same call may be made again.
func problem(err error) error {
	var refused *erasure.RefusedError
	var refusal *httpapi.Refusal
	switch {
	case errors.As(err, &refusal):
		return refusal
	case errors.Is(err, errNoEntry), errors.Is(err, erasure.ErrNotFound):
		return httpapi.NotFound()
	case errors.As(err, &refused) && refused.Invalid:
		return httpapi.Unprocessable(refused.Problem + " (received_at is the submitted_time, and person_ids are made of subject_identities)")
	case errors.As(err, &refused) && refused.Code == "busy":
		return httpapi.Unavailable(refused.Problem, err)
	case errors.As(err, &refused):
		return httpapi.TooLate(refused.Problem)
	default:
		return httpapi.Unavailable("erasure requests can not be read or kept now", err)
	}
}
