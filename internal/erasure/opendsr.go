package erasure

import (
	"context"
	"errors"
	"time"

	"recount/internal/wire"
)

// dsr is what is kept of a request that an OpenDSR controller filed.
type dsr struct {
	SubjectRequestID string   `json:"subject_request_id"`
	ControllerID     string   `json:"controller_id"`
	Callbacks        []string `json:"callbacks"`
}

// OpenDSRStatus is the body of a status callback of OpenDSR 2.0.
type OpenDSRStatus struct {
	ControllerID      string `json:"controller_id"`
	Expected          string `json:"expected_completion_time"`
	StatusCallbackURL string `json:"status_callback_url"`
	SubjectRequestID  string `json:"subject_request_id"`
	RequestStatus     string `json:"request_status"`
	APIVersion        string `json:"api_version"`
	ResultsURL        any    `json:"results_url"` // null: an erasure has no results
}

// OpenDSRWord is a state in the words of OpenDSR 2.0. Nothing but a closed request is completed: one that failed, or that
// could not search for identifier strings, is still being worked on.
func OpenDSRWord(state string) string {
	switch state {
	case Filed, Verified, Previewed:
		return "pending"
	case Closed:
		return "completed"
	case Cancelled, Rejected:
		return "cancelled"
	default:
		return "in_progress"
	}
}

func (s *Service) tellOpenDSR(r *request, now time.Time) {
	for _, url := range r.DSR.Callbacks {
		r.enqueue(kindOpenDSR, url, OpenDSRStatus{
			ControllerID: r.DSR.ControllerID, Expected: r.DueAt.UTC().Format(time.RFC3339), StatusCallbackURL: url,
			SubjectRequestID: r.DSR.SubjectRequestID, RequestStatus: OpenDSRWord(r.State), APIVersion: "2.0",
		}, now, 0)
	}
}

// FileOpenDSR files a request for an OpenDSR controller, under an id of its choice. It files, and never approves.
func (s *Service) FileOpenDSR(ctx context.Context, by wire.Principal, asked wire.FileRequest, subjectRequestID, controllerID string, callbacks []string) (wire.Request, error) {
	for _, url := range callbacks {
		err := s.Poster.CheckURL(url)
		if err == nil && names(asked.Descriptor, url) {
			err = errors.New(namesPerson)
		}
		if err != nil {
			err = invalid("status_callback_urls: " + err.Error())
			s.auditUnfiled(ctx, asked, by, err)
			return wire.Request{}, err
		}
	}
	if names(asked.Descriptor, subjectRequestID) || names(asked.Descriptor, controllerID) {
		err := invalid("subject_request_id and controller_id: " + namesPerson)
		s.auditUnfiled(ctx, asked, by, err)
		return wire.Request{}, err
	}
	return s.file(ctx, by, asked, &dsr{SubjectRequestID: subjectRequestID, ControllerID: controllerID, Callbacks: callbacks})
}
