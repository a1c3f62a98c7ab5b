package erasure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"recount/internal/audit"
	"recount/internal/subject"
	"recount/internal/wire"
)

const (
	maxRecipients = 50
	maxAge        = 5 * 365 * 24 * time.Hour // of a request that is filed late
)

// grounds are those of Art. 17(1).
var grounds = map[string]bool{"17(1)(a)": true, "17(1)(b)": true, "17(1)(c)": true, "17(1)(d)": true, "17(1)(e)": true, "17(1)(f)": true}

// File takes a request in. The error names every fault at once. Errors: *RefusedError.
func (s *Service) File(ctx context.Context, by wire.Principal, asked wire.FileRequest) (wire.Request, error) {
	id, err := NewID()
	if err != nil {
		return wire.Request{}, err
	}
	return s.file(ctx, by, id, asked, nil)
}

// NewID draws the id of a request. Later ones are greater.
func NewID() (string, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("drawing an id: %w", err)
	}
	return id.String(), nil
}

// file takes a request in under an id that nothing is filed under yet. Errors: *RefusedError, stores.ErrDocumentExists.
func (s *Service) file(ctx context.Context, by wire.Principal, id string, asked wire.FileRequest, from *DSR) (wire.Request, error) {
	now := s.Now().UTC()
	if err := s.checkFiled(asked, now); err != nil {
		s.auditUnfiled(asked, by, err)
		return wire.Request{}, err
	}
	people, sources, err := targets(asked.TenantID, asked.Descriptor, s.Salt)
	if err != nil {
		return wire.Request{}, err
	}
	r := &request{
		Request: wire.Request{
			ID: id, Kind: asked.Kind, TenantID: asked.TenantID, State: Filed, LegalRef: asked.LegalRef, Policy: asked.Policy,
			SubjectRef: string(append(people, sources...)[0].Ref),
			Persons:    len(people), Identifiers: len(asked.Descriptor.IdentifierStrings), WholeSources: len(sources),
			ReceivedAt: asked.ReceivedAt.UTC(), FiledAt: now, FiledBy: by, DueAt: oneMonthAfter(asked.ReceivedAt.UTC()), Recipients: asked.Recipients,
		},
		Callback: asked.Callback, FreezeID: strings.ReplaceAll(uuid.NewString(), "-", ""), DSR: from, version: 1,
	}
	for i := range r.Recipients {
		if r.Recipients[i].Status == "" {
			r.Recipients[i].Status = "due"
		}
	}
	for _, name := range stageNames {
		r.Stages = append(r.Stages, wire.Stage{Name: name, Status: stageWaiting})
	}
	if err := s.seal(ctx, r, asked.Descriptor); err != nil {
		return wire.Request{}, err
	}
	head, err := s.Ledger.Head(ctx)
	if err != nil {
		return wire.Request{}, fmt.Errorf("reading the ledger: %w", err)
	}
	r.LedgerFrom = head.Size
	r.note(now, by.Email, "filed", r.LegalRef)
	s.tell(r, now)
	d, err := r.document()
	if err != nil {
		return wire.Request{}, err
	}
	if err := s.Requests.Create(ctx, d); err != nil {
		// The key stays: the request may be there all the same, or the id was filed at the same time under this key.
		return wire.Request{}, fmt.Errorf("keeping a request: %w", err)
	}
	s.audit(r.Request, by, "request_file", nil)
	return r.Request, nil
}

// auditUnfiled writes a refusal down. A tenant that is none could be anything, a person's name too.
func (s *Service) auditUnfiled(asked wire.FileRequest, by wire.Principal, err error) {
	r := wire.Request{TenantID: asked.TenantID}
	if subject.CheckTenant(asked.TenantID) != nil {
		r.TenantID = "-"
	}
	s.audit(r, by, "request_file", err)
}

func (s *Service) seal(ctx context.Context, r *request, d wire.Descriptor) error {
	plain, err := json.Marshal(sealedPart{Descriptor: d, Nonce: newNonce()})
	if err != nil {
		return fmt.Errorf("writing a descriptor: %w", err)
	}
	if r.Sealed, err = s.Sealer.Seal(ctx, r.ID, plain); err != nil {
		return fmt.Errorf("sealing a descriptor: %w", err)
	}
	text, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("writing a descriptor: %w", err)
	}
	r.RequestDigest = s.Digest(r.TenantID, text)
	return nil
}

// oneMonthAfter is the calendar month of Art. 12(3): the same day of the next month, or its last day where it has none.
func oneMonthAfter(at time.Time) time.Time { return monthsAfter(at, 1) }

func monthsAfter(at time.Time, months int) time.Time {
	due := at.AddDate(0, months, 0)
	if due.Day() != at.Day() { // 31 January and a month is no 3 March
		due = due.AddDate(0, 0, -due.Day())
	}
	return due
}

// checkFiled judges a request whole.
func (s *Service) checkFiled(asked wire.FileRequest, now time.Time) error {
	var faults []string
	fault := func(problem string) { faults = append(faults, problem) }
	switch asked.Kind {
	case "subject":
	case "tenant":
		return invalid("kind tenant is still to come: file one request for each person")
	default:
		fault("kind: must be subject")
	}
	if err := subject.CheckTenant(asked.TenantID); err != nil {
		fault(err.Error())
	}
	if !grounds[asked.LegalRef] {
		fault("legal_ref: the ground of Art. 17(1), written 17(1)(a) to 17(1)(f)")
	}
	if asked.Policy != "redact" && asked.Policy != "delete" {
		fault("policy: must be redact or delete")
	}
	if asked.ReceivedAt.IsZero() || asked.ReceivedAt.After(now.Add(time.Minute)) || asked.ReceivedAt.Before(now.Add(-maxAge)) {
		fault("received_at: when the person asked, in the past")
	}
	faults = append(faults, checkDescriptor(asked.TenantID, asked.Descriptor)...)
	faults = append(faults, s.checkRecipients(asked)...)
	if len(faults) > 0 {
		return invalid(strings.Join(faults, "; "))
	}
	return nil
}

const namesPerson = "it outlives the person's data and must not name the person"

func (s *Service) checkRecipients(asked wire.FileRequest) (faults []string) {
	if asked.Callback != "" {
		if err := s.Poster.CheckURL(asked.Callback); err != nil {
			faults = append(faults, "callback_url: "+err.Error())
		}
		if namesInCode(asked.Descriptor, asked.Callback) {
			faults = append(faults, "callback_url: "+namesPerson)
		}
	}
	if len(asked.Recipients) > maxRecipients {
		faults = append(faults, fmt.Sprintf("recipients: at most %d", maxRecipients))
	}
	for i, r := range asked.Recipients {
		problem := ""
		switch {
		case checkText("name", r.Name) != nil || names(asked.Descriptor, r.Name):
			problem = "name is a company or a code, without an address, and never the person"
		case r.At != nil:
			problem = "at is not given: it is when the recipient was told"
		case r.Callback != "" && r.Status == "" && r.Reason == "":
			if err := s.Poster.CheckURL(r.Callback); err != nil {
				problem = err.Error()
			} else if namesInCode(asked.Descriptor, r.Callback) {
				problem = "callback_url: " + namesPerson
			}
		case r.Callback == "" && (r.Status == "impossible" || r.Status == "disproportionate"):
			if checkText("reason", r.Reason) != nil || names(asked.Descriptor, r.Reason) {
				problem = "reason says why (Art. 19), and never names the person"
			}
		default:
			problem = "give a callback_url, or status impossible or disproportionate with a reason"
		}
		if problem != "" {
			faults = append(faults, fmt.Sprintf("recipients[%d]: %s", i, problem))
		}
	}
	return faults
}

// Show is one request.
func (s *Service) Show(ctx context.Context, id string) (wire.Request, error) {
	r, err := s.load(ctx, id)
	if err != nil {
		return wire.Request{}, err
	}
	return r.Request, nil
}

// List is a page of a tenant's requests, the newest first. Errors: subject.ErrPageToken.
func (s *Service) List(ctx context.Context, tenant, cursor string) (wire.RequestList, error) {
	if cursor != "" && !isID(cursor) {
		return wire.RequestList{}, subject.ErrPageToken
	}
	page, next, err := s.Requests.List(ctx, tenant, cursor, pageRequests)
	if err != nil {
		return wire.RequestList{}, fmt.Errorf("listing requests: %w", err)
	}
	out := wire.RequestList{Requests: make([]wire.Request, len(page)), NextPageToken: next}
	for i, d := range page {
		r, err := parse(d)
		if err != nil {
			return out, err
		}
		out.Requests[i] = r.Request
	}
	return out, nil
}

const pageRequests = 50

// Descriptor shows whom a request means. It is audited.
func (s *Service) Descriptor(ctx context.Context, by wire.Principal, id string) (wire.Descriptor, error) {
	r, err := s.load(ctx, id)
	if err != nil {
		return wire.Descriptor{}, err
	}
	part, err := s.opened(ctx, r)
	s.audit(r.Request, by, "request_descriptor", err)
	return part.Descriptor, err
}

// auditStore is the store of an audit row about a request.
const auditStore = "erasure_request"

// audit writes down that somebody did, or was refused, something.
func (s *Service) audit(r wire.Request, by wire.Principal, operation string, err error) {
	row := audit.Row{
		RequestID: orDash(r.ID), TenantID: r.TenantID, SubjectRef: subject.Ref(r.SubjectRef), Cell: s.Cells[0].Name(), Store: auditStore,
		Operation: operation, Status: "done", Actor: by.Email, OccurredAt: s.Now(),
	}
	var refused *RefusedError
	switch {
	case errors.As(err, &refused):
		row.Status, row.Detail = "refused", refused.Code
	case err != nil:
		row.Status = "failed"
		s.Observer.RequestFailed(operation, err)
	}
	s.Audit.Record(row)
}

func orDash(id string) string {
	if id == "" {
		return "-"
	}
	return id
}
