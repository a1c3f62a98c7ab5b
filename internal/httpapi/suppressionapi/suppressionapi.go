// Package suppressionapi is what may be asked of a cell's suppression ledger: what it holds, to let one source come back,
// whether records may be written, and to take up erasures of the past.
package suppressionapi

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"
	"unicode"

	"recount/internal/audit"
	"recount/internal/auth"
	"recount/internal/httpapi"
	"recount/internal/subject"
	"recount/internal/suppression"
	"recount/internal/wire"
)

// Ledger is what the list needs.
type Ledger interface {
	List(ctx context.Context, tenant, cursor string, limit int) ([]suppression.Entry, string, error)
}

// Checker decides about records, before they are written. fenced means that one of them has to wait.
type Checker interface {
	Decide(ctx context.Context, records []subject.Record) (d suppression.Decision, fenced bool)
}

// Allower lets a source come back, in one cell or in all of them, and answers for each.
type Allower interface {
	Allow(ctx context.Context, requestID string, s subject.Source, reason, consentRef string) []wire.CellAllowed
}

// Backfiller records a page of past erasures. Errors: suppression.ErrCursor, *BackfillError.
type Backfiller interface {
	Backfill(ctx context.Context, asked wire.BackfillRequest) (wire.BackfillResponse, error)
}

// BackfillError says what is wrong with what was asked. Its text names tables and columns only.
type BackfillError struct{ Problem string }

// Error is the problem.
func (e *BackfillError) Error() string { return e.Problem }

// Surface is what is mounted.
type Surface struct {
	Cell       string
	Salt       subject.Salt
	Ledger     Ledger
	Checker    Checker
	Allower    Allower
	Backfiller Backfiller
	Audit      interface{ Record(rows ...audit.Row) }
}

const (
	root        = "/v1/suppression"
	pageEntries = 500
	maxText     = 256 // bytes of a reason or a reference to a consent
	paramTenant = "tenant_id"
	paramPage   = "page_token"
)

// Mount adds the operations to the API.
func Mount(api *httpapi.API, s Surface) {
	api.Mount(httpapi.Resource{Route: root, Methods: map[string]httpapi.Operation{
		http.MethodGet: {Role: auth.Read, Query: []string{paramTenant, paramPage}, Serve: s.list},
	}})
	post := func(verb string, role auth.Role, serve func(*httpapi.Call) error) {
		api.Mount(httpapi.Resource{Route: root + ":" + verb, Methods: map[string]httpapi.Operation{
			http.MethodPost: {Role: role, Body: httpapi.JSONBody, Serve: serve},
		}})
	}
	post("allow", auth.Allow, s.allow)
	post("check", auth.Write, s.check)
	post("backfill", auth.Erase, s.backfill)
}

func (s Surface) list(c *httpapi.Call) error {
	tenant := c.Query(paramTenant)
	if err := c.Tenant(tenant); err != nil {
		return err
	}
	entries, next, err := s.Ledger.List(c.R.Context(), tenant, c.Query(paramPage), pageEntries)
	if errors.Is(err, suppression.ErrCursor) {
		return httpapi.Unprocessable("page_token was not made for this list: start again without one")
	}
	s.Audit.Record(s.event(c, tenant, "", wire.OpSuppressionList).Ledger(s.Cell, outcome(err == nil, "listed"), ""))
	if err != nil {
		return unreadable(err)
	}
	answer := wire.SuppressionList{
		RequestID: c.RequestID(), TenantID: tenant, Cell: s.Cell, Operation: wire.OpSuppressionList,
		Entries: make([]wire.SuppressionEntry, len(entries)), NextPageToken: next, GeneratedAt: time.Now().UTC(),
	}
	for i, e := range entries {
		answer.Entries[i] = wire.SuppressionEntry{Source: e.Source.Origin(), SourceRef: e.Source.Reference(), Reason: e.Reason, ErasedAt: e.ErasedAt}
	}
	return c.Answer(http.StatusOK, answer, 0)
}

func outcome(ok bool, word string) string {
	if ok {
		return word
	}
	return subject.Failed.String()
}

func unreadable(err error) error {
	var fault *subject.Fault
	if errors.As(err, &fault) {
		return fault
	}
	return &subject.Fault{Reason: subject.ReasonSuppression, Cause: err}
}

func (s Surface) event(c *httpapi.Call, tenant string, ref subject.Ref, operation string) audit.Event {
	return audit.Event{RequestID: c.RequestID(), TenantID: tenant, Ref: ref, Operation: operation, Actor: c.Caller.Actor(), At: time.Now()}
}

func (s Surface) allow(c *httpapi.Call) error {
	var asked wire.AllowRequest
	if err := c.Decode(&asked); err != nil {
		return err
	}
	source, err := source(c, asked.TenantID, wire.Source{Source: asked.Source, SourceRef: asked.SourceRef})
	if err != nil {
		return err
	}
	for field, text := range map[string]string{"reason": asked.Reason, "consent_ref": asked.ConsentRef} {
		if err := checkText(field, text, asked.SourceRef); err != nil {
			return err
		}
	}
	answer := wire.AllowResponse{RequestID: c.RequestID(), TenantID: asked.TenantID, Operation: wire.OpSuppressionAllow, Status: "allowed"}
	answer.Cells = s.Allower.Allow(context.WithoutCancel(c.R.Context()), c.RequestID(), source, asked.Reason, asked.ConsentRef)
	detail := "reason=" + asked.Reason + " consent_ref=" + asked.ConsentRef
	code := http.StatusOK
	for _, cell := range answer.Cells {
		status := outcome(cell.Status == "allowed", map[bool]string{true: "allowed", false: "not_found"}[cell.Removed])
		s.Audit.Record(s.event(c, asked.TenantID, source.Ref(s.Salt), wire.OpSuppressionAllow).Ledger(cell.Cell, status, detail))
		answer.Removed = answer.Removed || cell.Removed
		if cell.Status != "allowed" {
			answer.Status, code = subject.Failed.String(), http.StatusBadGateway
		}
	}
	return c.Answer(code, answer, 0)
}

// checkText refuses what would name a person in the audit, where both texts are kept.
func checkText(field, text, ref string) error {
	switch {
	case text == "":
		return httpapi.Unprocessable(field + " is required")
	case len(text) > maxText || strings.ContainsFunc(text, unicode.IsControl):
		return httpapi.Unprocessable(field + " must be at most 256 bytes without control characters")
	case strings.Contains(text, "@") || strings.Contains(strings.ToLower(text), strings.ToLower(ref)) && len(ref) > 2:
		return httpapi.Unprocessable(field + " is kept in the audit and must not name the person: give the consent's record, not its subject")
	}
	return nil
}

func source(c *httpapi.Call, tenant string, named wire.Source) (subject.Source, error) {
	if err := c.Tenant(tenant); err != nil {
		return subject.Source{}, err
	}
	s, err := subject.NewSource(tenant, named.Source, named.SourceRef)
	if err != nil {
		return s, httpapi.Unprocessable(err.Error())
	}
	return s, nil
}

func (s Surface) check(c *httpapi.Call) error {
	var asked wire.CheckRequest
	if err := c.Decode(&asked); err != nil {
		return err
	}
	if n := len(asked.Items); n == 0 || n > wire.MaxBatch {
		return httpapi.Unprocessable("a check names 1 to 1,000 records in items")
	}
	records := make([]subject.Record, len(asked.Items))
	for i, item := range asked.Items {
		var err error
		if records[i].Source, err = source(c, asked.TenantID, wire.Source{Source: item.Source, SourceRef: item.SourceRef}); err != nil {
			return err
		}
		for _, parent := range item.DerivedFrom {
			p, err := source(c, asked.TenantID, parent)
			if err != nil {
				return err
			}
			records[i].Parents = append(records[i].Parents, p)
		}
	}
	d, _ := s.Checker.Decide(c.R.Context(), records) // records without identities are behind no fence
	answer := wire.CheckResponse{
		RequestID: c.RequestID(), TenantID: asked.TenantID, Cell: s.Cell, Operation: wire.OpSuppressionCheck, Verdicts: make([]string, len(records)),
	}
	for i, v := range d.Verdicts {
		answer.Verdicts[i] = map[suppression.Verdict]string{
			suppression.Admitted: "admitted", suppression.Suppressed: "suppressed", suppression.Unreadable: "unreadable",
		}[v]
	}
	return c.Answer(http.StatusOK, answer, 0)
}

// backfill takes rows of any tenant where the table says whose they are, so that takes a caller for all tenants.
func (s Surface) backfill(c *httpapi.Call) error {
	var asked wire.BackfillRequest
	if err := c.Decode(&asked); err != nil {
		return err
	}
	switch {
	case (asked.TenantID == "") == (asked.TenantColumn == ""):
		return httpapi.Unprocessable("give exactly one of tenant_id and tenant_column")
	case asked.TenantID == "" && c.Caller.Tenants != nil:
		return auth.ErrForbidden
	case asked.TenantID != "":
		if err := c.Tenant(asked.TenantID); err != nil {
			return err
		}
	}
	answer, err := s.Backfiller.Backfill(c.R.Context(), asked)
	var refused *BackfillError
	switch {
	case errors.As(err, &refused):
		return httpapi.Unprocessable(refused.Problem)
	case errors.Is(err, suppression.ErrCursor):
		return httpapi.Unprocessable("cursor was not made for this table: start again without one")
	case err != nil:
		return unreadable(err)
	}
	answer.RequestID, answer.Cell, answer.Operation = c.RequestID(), s.Cell, wire.OpSuppressionBackfill
	s.Audit.Record(s.event(c, asked.TenantID, "", wire.OpSuppressionBackfill).Ledger(s.Cell, "recorded", ""))
	return c.Answer(http.StatusOK, answer, 0)
}
