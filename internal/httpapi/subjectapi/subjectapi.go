// Package subjectapi is what may be asked about a person: what is held, how much of it, and to erase it, from one cell
// or, on the coordinator, from every cell.
package subjectapi

import (
	"context"
	"net/http"
	"slices"
	"time"

	"recount/internal/auth"
	"recount/internal/httpapi"
	"recount/internal/subject"
	"recount/internal/wire"
)

// Cell answers for its own stores. Its erasures MUST NOT end with the context that they are given: a caller that hangs
// up does not stop what it has started.
type Cell interface {
	// Serving answers a *subject.Fault when the cell may not answer for its stores now.
	Serving() error
	Name() string
	Salt() subject.Salt
	Health() wire.Health
	Eraser
	Enumerator
	Count(ctx context.Context, s subject.Subject) []subject.CountReceipt
	// Access answers subject.ErrPageToken for a token that was not made for this cell, subject and caller.
	Access(ctx context.Context, s subject.Subject, page subject.PageRequest) ([]subject.AccessReceipt, error)
}

// Eraser erases. The Coordinator is one too, for all the cells.
type Eraser interface {
	Erase(ctx context.Context, requestID string, t subject.Target) subject.Erasure
	// EraseBatch answers for each target, in order.
	EraseBatch(ctx context.Context, requestID string, targets []subject.Target) []subject.Erasure
}

// Surface is what is mounted.
type Surface struct {
	Cell Cell
	// Coordinator is nil on a cell that coordinates nobody: its erase operations are then 405.
	Coordinator Eraser
	Audit       Auditor
}

const (
	root         = "/v1/intent/subject"
	below        = root + "/"
	routeByID    = root + "/{identity_id}"
	routeErase   = routeByID + ":erase"
	paramTenant  = "tenant_id"
	paramPage    = "page_token"
	methodGet    = http.MethodGet
	methodPost   = http.MethodPost
	methodDelete = http.MethodDelete
)

// Mount adds the operations to the API.
func Mount(api *httpapi.API, s Surface) {
	post := func(verb string, op httpapi.Operation) {
		api.Mount(httpapi.Resource{Route: root + ":" + verb, Methods: map[string]httpapi.Operation{methodPost: op}})
	}
	post("access", s.body(auth.Read, s.accessByBody))
	post("count", s.body(auth.Read, s.countByBody))
	post("delete", s.body(auth.Erase, func(c *httpapi.Call) error { return s.eraseByBody(c, s.Cell) }))
	post("batchDelete", s.body(auth.Erase, func(c *httpapi.Call) error { return s.eraseBatch(c, s.Cell) }))
	if s.Coordinator != nil {
		post("erase", s.body(auth.Erase, func(c *httpapi.Call) error { return s.eraseByBody(c, s.Coordinator) }))
		post("batchErase", s.body(auth.Erase, func(c *httpapi.Call) error { return s.eraseBatch(c, s.Coordinator) }))
	} else {
		api.Mount(httpapi.Resource{Route: root + ":erase"}, httpapi.Resource{Route: root + ":batchErase"})
	}
	s.mountEnumerate(post)
	s.mountSources(api)
	api.MountBelow(below, s.find)
}

func (s Surface) body(role auth.Role, serve func(*httpapi.Call) error) httpapi.Operation {
	return httpapi.Operation{Role: role, Gate: s.Cell.Serving, Body: httpapi.JSONBody, Serve: serve}
}

// find is the resource of a path that names a person. A POST is the verb behind the last ":erase"; every other method
// takes the whole segment for the id, which may end in ":erase" itself.
func (s Surface) find(method, escaped string) (httpapi.Resource, bool) {
	path, ok := split(escaped)
	if !ok {
		return httpapi.Resource{}, false
	}
	byPath := func(role auth.Role, segment string, params []string, serve func(c *httpapi.Call, person subject.Subject) error) httpapi.Operation {
		return httpapi.Operation{Role: role, Gate: s.Cell.Serving, Query: params, Serve: func(c *httpapi.Call) error {
			identity, err := decode(segment)
			if err != nil {
				return err
			}
			person, err := c.Subject(c.Query(paramTenant), identity)
			if err != nil {
				return err
			}
			return serve(c, person)
		}}
	}
	tenant := []string{paramTenant}
	res := httpapi.Resource{Route: routeByID, Methods: map[string]httpapi.Operation{
		methodGet: byPath(auth.Read, path.whole, []string{paramTenant, paramPage}, func(c *httpapi.Call, person subject.Subject) error {
			return s.access(c, person, c.Query(paramPage))
		}),
		methodDelete: byPath(auth.Erase, path.whole, tenant, func(c *httpapi.Call, person subject.Subject) error {
			return s.erase(c, s.Cell, person)
		}),
	}}
	if path.hasVerb && s.Coordinator != nil {
		res.Methods[methodPost] = byPath(auth.Erase, path.beforeVerb, tenant, func(c *httpapi.Call, person subject.Subject) error {
			return s.erase(c, s.Coordinator, person)
		})
	}
	if path.hasVerb && method == methodPost {
		res.Route = routeErase
	}
	return res, true
}

// person reads the body that names one. A page token belongs to an access alone.
func (s Surface) person(c *httpapi.Call) (subject.Subject, wire.SubjectRequest, error) {
	var asked wire.SubjectRequest
	if err := c.Decode(&asked); err != nil {
		return subject.Subject{}, asked, err
	}
	person, err := c.Subject(asked.TenantID, asked.IdentityID)
	return person, asked, err
}

func (s Surface) personAlone(c *httpapi.Call) (subject.Subject, error) {
	person, asked, err := s.person(c)
	if err == nil && asked.PageToken != "" {
		err = httpapi.BadBody("a page_token belongs to an access alone")
	}
	return person, err
}

func (s Surface) eraseByBody(c *httpapi.Call, by Eraser) error {
	person, err := s.personAlone(c)
	if err != nil {
		return err
	}
	return s.erase(c, by, person)
}

func (s Surface) erase(c *httpapi.Call, by Eraser, person subject.Subject) error {
	return s.eraseTarget(c, by, subject.TargetOf(person, s.Cell.Salt()))
}

// eraseTarget erases, audits and answers.
func (s Surface) eraseTarget(c *httpapi.Call, by Eraser, t subject.Target) error {
	erasure := by.Erase(c.R.Context(), c.RequestID(), t)
	s.auditErase(c, t, erasure.Receipts)
	answer := s.answer(c, t, erasure)
	return c.Answer(wire.HTTPStatus(subject.Fold(erasure.Receipts)), answer, seconds(answer.RetryAfterS))
}

// answer holds the sources that were resolved only for a caller that prefers to have them: a coordinator, which asks the
// other cells for them.
func (s Surface) answer(c *httpapi.Call, t subject.Target, e subject.Erasure) wire.EraseResponse {
	answer := wire.FromReceipts(c.RequestID(), t, e.Receipts, time.Now())
	if slices.Contains(c.R.Header.Values("Prefer"), wire.PreferSources) {
		answer.Sources = wire.FromSources(e.Sources)
	}
	return answer
}

func (s Surface) eraseBatch(c *httpapi.Call, by Eraser) error {
	people, keep, err := s.people(c)
	if err != nil {
		return err
	}
	if by != Eraser(s.Cell) && len(keep) > 0 {
		return httpapi.Unprocessable("keep belongs to batchDelete alone: stores are excluded by an erasure request, which two people approve")
	}
	targets := make([]subject.Target, len(people))
	for i, person := range people {
		targets[i] = subject.TargetOf(person, s.Cell.Salt())
		targets[i].Keep = keep
	}
	return s.eraseTargets(c, by, targets)
}

// eraseTargets is eraseTarget for many: the worst status is the answer's.
func (s Surface) eraseTargets(c *httpapi.Call, by Eraser, targets []subject.Target) error {
	erasures := by.EraseBatch(c.R.Context(), c.RequestID(), targets)
	status, after := subject.Erased, time.Duration(0)
	answer := wire.BatchResponse{Results: make([]wire.EraseResponse, len(targets))}
	for i, t := range targets {
		var erasure subject.Erasure // none, so failed, for one that is not there
		if i < len(erasures) {
			erasure = erasures[i]
		}
		s.auditErase(c, t, erasure.Receipts)
		answer.Results[i] = s.answer(c, t, erasure)
		status = status.Worse(subject.Fold(erasure.Receipts))
		after = max(after, seconds(answer.Results[i].RetryAfterS))
	}
	answer.Status = status.String()
	if status != subject.Pending {
		after = 0
	}
	return c.Answer(wire.HTTPStatus(status), answer, after)
}

// people reads the body that names many, and the stores that are to be left alone.
func (s Surface) people(c *httpapi.Call) (people []subject.Subject, keep []string, err error) {
	var asked wire.BatchRequest
	if err := c.Decode(&asked); err != nil {
		return nil, nil, err
	}
	if err := c.Tenant(asked.TenantID); err != nil {
		return nil, nil, err
	}
	if n := len(asked.IdentityIDs); n == 0 || n > wire.MaxBatch {
		return nil, nil, httpapi.Unprocessable("a batch names 1 to 1,000 identities in identity_ids")
	}
	people = make([]subject.Subject, len(asked.IdentityIDs))
	for i, identity := range asked.IdentityIDs {
		if people[i], err = subject.New(asked.TenantID, identity); err != nil {
			return nil, nil, err //nolint:wrapcheck // the mapper's
		}
	}
	keep, err = s.kept(asked.Keep)
	return people, keep, err
}

// kept are the stores to leave alone. A name that the cell doesn't have would leave nothing alone, and erase what was to
// be retained.
func (s Surface) kept(names []string) ([]string, error) {
	var keep []string
	all := s.Cell.Health().Stores
	for _, name := range names {
		if !slices.ContainsFunc(all, func(h wire.HealthStore) bool { return h.Store == name }) {
			return nil, httpapi.Unprocessable("keep names a store that this cell doesn't have")
		}
		if place := s.Cell.Name() + "/" + name; !slices.Contains(keep, place) {
			keep = append(keep, place)
		}
	}
	if len(keep) > 0 && len(keep) >= len(all) {
		return nil, httpapi.Unprocessable("keep names every store of this cell: then there is nothing to ask of it")
	}
	return keep, nil
}

func seconds(n *int64) time.Duration {
	if n == nil {
		return 0
	}
	return time.Duration(*n) * time.Second
}
