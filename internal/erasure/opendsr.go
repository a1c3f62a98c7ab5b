package erasure

import (
	"context"
	"errors"
	"time"

	"recount/internal/stores"
	"recount/internal/wire"
)

// DSR is what is kept of a request that an OpenDSR controller filed: it names the controller, and nobody else.
type DSR struct {
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

// CheckOpenDSR answers what FileOpenDSR would refuse now, so that an id is bound to nothing that can't be filed. Errors:
// *RefusedError.
func (s *Service) CheckOpenDSR(by wire.Principal, asked wire.FileRequest, from DSR) error {
	err := s.checkFiled(asked, s.Now().UTC())
	for _, url := range from.Callbacks {
		refused := s.Poster.CheckURL(url)
		if refused == nil && namesInCode(asked.Descriptor, url) {
			refused = errors.New(namesPerson)
		}
		if refused != nil {
			err = invalid("status_callback_urls: " + refused.Error())
			break
		}
	}
	if namesInCode(asked.Descriptor, from.SubjectRequestID) || namesInCode(asked.Descriptor, from.ControllerID) {
		err = invalid("subject_request_id and controller_id: " + namesPerson)
	}
	if err != nil {
		s.auditUnfiled(asked, by, err)
	}
	return err
}

// FileOpenDSR files a request for an OpenDSR controller. It files, and never approves. The caller draws the id with NewID and
// keeps it before: of all that file under one id, also at the same time, one files, and the others answer what it filed,
// whatever they asked. Errors: *RefusedError.
func (s *Service) FileOpenDSR(ctx context.Context, by wire.Principal, id string, asked wire.FileRequest, from DSR) (wire.Request, error) {
	if !isID(id) {
		return wire.Request{}, errNotAnID
	}
	if r, err := s.Show(ctx, id); !errors.Is(err, ErrNotFound) {
		return r, err
	}
	if err := s.CheckOpenDSR(by, asked, from); err != nil {
		return wire.Request{}, err
	}
	r, err := s.file(ctx, by, id, asked, &from)
	if errors.Is(err, stores.ErrDocumentExists) {
		return s.Show(ctx, id)
	}
	return r, err
}

var errNotAnID = errors.New("the id of a request is one that NewID draws")
