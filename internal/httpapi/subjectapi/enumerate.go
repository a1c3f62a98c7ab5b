package subjectapi

import (
	"context"
	"encoding/hex"
	"time"

	"recount/internal/auth"
	"recount/internal/httpapi"
	"recount/internal/subject"
	"recount/internal/wire"
)

// Enumerator says where rows are, and keeps people from being written for: what an erasure request asks of a cell.
type Enumerator interface {
	// Enumerate answers for each target, in order. It touches nothing.
	Enumerate(ctx context.Context, requestID string, targets []subject.Target, list bool) []wire.Enumerated
	// Freeze keeps the people from being written for, until then or until the freeze is thawed; freezing again under the
	// same id prolongs it. Errors: *subject.Fault.
	Freeze(ctx context.Context, requestID, freezeID string, people []subject.Subject, until time.Time) error
	Thaw(ctx context.Context, requestID, freezeID, tenant string) error
	// Follow answers where each target leads, one step far. Errors: *subject.Fault.
	Follow(ctx context.Context, requestID string, targets []subject.Target) ([][]subject.Source, error)
}

// maxFreeze is how far away the end of a freeze may be: a coordinator that lives prolongs it.
const maxFreeze = 24 * time.Hour

func (s Surface) mountEnumerate(post func(verb string, op httpapi.Operation)) {
	post("enumerate", s.body(auth.Erase, s.enumerate))
	post("freeze", s.body(auth.Erase, s.freeze))
	post("thaw", s.body(auth.Erase, s.thaw))
}

func (s Surface) enumerate(c *httpapi.Call) error {
	var asked wire.EnumerateRequest
	if err := c.Decode(&asked); err != nil {
		return err
	}
	targets, err := s.targets(c, asked.TenantID, asked.IdentityIDs, asked.Sources)
	if err != nil {
		return err
	}
	answer := wire.EnumerateResponse{
		RequestID: c.RequestID(), TenantID: asked.TenantID, Cell: s.Cell.Name(), Operation: wire.OpEnumerate,
		Results: s.Cell.Enumerate(c.R.Context(), c.RequestID(), targets, asked.List), GeneratedAt: time.Now().UTC(),
	}
	answer.Status = worst(statusCounted, len(answer.Results), func(i int) string {
		receipts := answer.Results[i].Receipts
		return worst(statusCounted, len(receipts), func(n int) string { return receipts[n].Status })
	})
	return c.Answer(code(answer.Status), answer, 0)
}

// targets are the people and the sources that a body names, 1 to wire.MaxBatch of them together.
func (s Surface) targets(c *httpapi.Call, tenant string, identities []string, sources []wire.Source) (targets []subject.Target, err error) {
	if err := c.Tenant(tenant); err != nil {
		return nil, err
	}
	if n := len(identities) + len(sources); n == 0 || n > wire.MaxBatch {
		return nil, httpapi.Unprocessable("name 1 to 1,000 identities and sources, all together")
	}
	for _, identity := range identities {
		person, err := subject.New(tenant, identity)
		if err != nil {
			return nil, err //nolint:wrapcheck // the mapper's
		}
		targets = append(targets, subject.TargetOf(person, s.Cell.Salt()))
	}
	for _, named := range sources {
		source, err := s.source(c, tenant, named)
		if err != nil {
			return nil, err
		}
		targets = append(targets, subject.TargetOfSource(source, s.Cell.Salt()))
	}
	return targets, nil
}

// follow is what a coordinator asks before anything is touched, to say what derives from what it would erase.
func (s Surface) follow(c *httpapi.Call) error {
	var asked wire.FollowRequest
	if err := c.Decode(&asked); err != nil {
		return err
	}
	targets, err := s.targets(c, asked.TenantID, asked.IdentityIDs, asked.Sources)
	if err != nil {
		return err
	}
	leads, err := s.Cell.Follow(c.R.Context(), c.RequestID(), targets)
	if err != nil {
		return err //nolint:wrapcheck // the mapper's
	}
	answer := wire.FollowResponse{
		RequestID: c.RequestID(), TenantID: asked.TenantID, Cell: s.Cell.Name(), Operation: wire.OpFollow, Results: make([]wire.Followed, len(leads)),
	}
	for i, sources := range leads {
		answer.Results[i].Sources = wire.FromSources(sources)
	}
	return c.Answer(200, answer, 0)
}

func (s Surface) freeze(c *httpapi.Call) error {
	var asked wire.FreezeRequest
	if err := c.Decode(&asked); err != nil {
		return err
	}
	if err := s.freezeID(c, asked.TenantID, asked.FreezeID); err != nil {
		return err
	}
	if n := len(asked.IdentityIDs); n == 0 || n > wire.MaxBatch {
		return httpapi.Unprocessable("a freeze names 1 to 1,000 identities in identity_ids")
	}
	if left := time.Until(asked.Until); left <= 0 || left > maxFreeze {
		return httpapi.Unprocessable("until must be in the future, and at most 24 h away")
	}
	people := make([]subject.Subject, len(asked.IdentityIDs))
	for i, identity := range asked.IdentityIDs {
		var err error
		if people[i], err = subject.New(asked.TenantID, identity); err != nil {
			return err //nolint:wrapcheck // the mapper's
		}
	}
	if err := s.Cell.Freeze(c.R.Context(), c.RequestID(), asked.FreezeID, people, asked.Until); err != nil {
		return err //nolint:wrapcheck // the mapper's
	}
	return s.frozen(c, asked.TenantID, wire.OpFreeze, "frozen")
}

func (s Surface) thaw(c *httpapi.Call) error {
	var asked wire.ThawRequest
	if err := c.Decode(&asked); err != nil {
		return err
	}
	if err := s.freezeID(c, asked.TenantID, asked.FreezeID); err != nil {
		return err
	}
	if err := s.Cell.Thaw(c.R.Context(), c.RequestID(), asked.FreezeID, asked.TenantID); err != nil {
		return err //nolint:wrapcheck // the mapper's
	}
	return s.frozen(c, asked.TenantID, wire.OpThaw, "thawed")
}

func (s Surface) freezeID(c *httpapi.Call, tenant, id string) error {
	if err := c.Tenant(tenant); err != nil {
		return err
	}
	if raw, err := hex.DecodeString(id); err != nil || len(raw) != 16 {
		return httpapi.Unprocessable("freeze_id is 32 hex digits")
	}
	return nil
}

func (s Surface) frozen(c *httpapi.Call, tenant, operation, status string) error {
	return c.Answer(200, wire.FreezeResponse{
		RequestID: c.RequestID(), TenantID: tenant, Cell: s.Cell.Name(), Operation: operation, Status: status,
	}, 0)
}
