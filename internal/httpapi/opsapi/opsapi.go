// Package opsapi is what operators ask a service: how it is, what it measured, which columns nobody covers.
package opsapi

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"time"

	"golang.org/x/sync/singleflight"

	"recount/api"
	"recount/internal/auth"
	"recount/internal/httpapi"
	"recount/internal/stores"
	"recount/internal/subject"
	"recount/internal/wire"
)

// readyTimeout is how long the stores have to say whether they can answer.
const readyTimeout = 5 * time.Second

// Surface is what is mounted.
type Surface struct {
	// Health says what the service is, without a network call.
	Health func() wire.Health
	// Ready reports the first store that can't answer now.
	Ready func(ctx context.Context) error
	// Stopping reports that the process is ending.
	Stopping func() bool
	// Metrics is nil where /metrics has a listener of its own.
	Metrics http.Handler
	// Coverage lists columns that look like a subject's key and belong to no store.
	Coverage func(ctx context.Context) ([]stores.Suspect, error)
	// PurgeJournal is nil but on the graph cell. It empties the graph's journal in a project, of all tenants, and counts
	// it again: it MUST answer an error unless it counted 0.
	PurgeJournal func(ctx context.Context, project string) (deleted int64, err error)
}

// projectID is the form of a Google Cloud project's id.
var projectID = regexp.MustCompile(`^[a-z][a-z0-9-]{4,28}[a-z0-9]$`)

// Mount adds the operations to the API.
func Mount(a *httpapi.API, s Surface) {
	get := func(route string, op httpapi.Operation) {
		a.Mount(httpapi.Resource{Route: route, Methods: map[string]httpapi.Operation{http.MethodGet: op}})
	}
	probe := &readiness{surface: s}
	get("/health", httpapi.Operation{Public: true, Serve: func(c *httpapi.Call) error {
		return c.Answer(http.StatusOK, s.Health(), 0)
	}})
	get("/ready", httpapi.Operation{Public: true, Serve: probe.serve})
	get("/openapi.yaml", httpapi.Operation{Public: true, Serve: func(c *httpapi.Call) error {
		c.Send(http.StatusOK, "application/yaml", api.OpenAPI)
		return nil
	}})
	if s.Metrics != nil {
		get("/metrics", httpapi.Operation{Role: auth.Read, Serve: func(c *httpapi.Call) error {
			s.Metrics.ServeHTTP(c.W, c.R)
			return nil
		}})
	}
	get("/v1/intent/coverage", httpapi.Operation{Role: auth.Read, Serve: s.coverage})
	if s.PurgeJournal != nil {
		a.Mount(httpapi.Resource{Route: "/v1/intent/graph/journal:purge", Methods: map[string]httpapi.Operation{
			http.MethodPost: {Role: auth.Erase, Body: httpapi.JSONBody, Serve: s.purge},
		}})
	}
}

// readiness lets any number of probes share one look at the stores.
type readiness struct {
	surface Surface
	looks   singleflight.Group
}

func (p *readiness) serve(c *httpapi.Call) error {
	if p.surface.Stopping() {
		return httpapi.Unavailable(string(subject.ReasonShuttingDown), nil)
	}
	ctx := context.WithoutCancel(c.R.Context()) // the look is shared: no prober may end it
	_, err, _ := p.looks.Do("", func() (any, error) {
		ctx, cancel := context.WithTimeout(ctx, readyTimeout)
		defer cancel()
		return nil, p.surface.Ready(ctx)
	})
	if err != nil {
		return unavailable("a store can not answer now", err)
	}
	return c.Answer(http.StatusOK, wire.Ready{Status: "ready"}, 0)
}

func (s Surface) coverage(c *httpapi.Call) error {
	found, err := s.Coverage(c.R.Context())
	if err != nil {
		return unavailable("the live schema could not be read", err)
	}
	answer := wire.CoverageResponse{Cell: s.Health().Cell, Suspects: make([]wire.Suspect, len(found))}
	for i, f := range found {
		answer.Suspects[i] = wire.Suspect{Table: f.Table, Column: f.Column}
	}
	return c.Answer(http.StatusOK, answer, 0)
}

// purge takes the rows of every tenant, so it takes a caller that may erase for every tenant.
func (s Surface) purge(c *httpapi.Call) error {
	if c.Caller.Tenants != nil {
		return auth.ErrForbidden
	}
	var asked wire.PurgeRequest
	if err := c.Decode(&asked); err != nil {
		return err
	}
	if !projectID.MatchString(asked.Project) {
		return httpapi.Unprocessable("project must be the id of a Google Cloud project")
	}
	deleted, err := s.PurgeJournal(context.WithoutCancel(c.R.Context()), asked.Project)
	if err != nil {
		return unavailable("the journal could not be emptied, or not be counted afterwards: call again", err)
	}
	return c.Answer(http.StatusOK, wire.PurgeResponse{
		Cell: s.Health().Cell, Deleted: subject.Measured(deleted), Remaining: subject.Measured(0),
	}, 0)
}

// unavailable shows the word of a *subject.Fault, and a fixed sentence for everything else.
func unavailable(sentence string, err error) error {
	var fault *subject.Fault
	if errors.As(err, &fault) {
		return fault
	}
	return httpapi.Unavailable(sentence, err)
}
