// Package erasureapi is what principals do with erasure requests, and the one call by which a scheduler drives them. It
// decides nothing: every rule is in package erasure, behind every route alike.
package erasureapi

import (
	"context"
	"net/http"
	"strings"
	"time"

	"recount/internal/auth"
	"recount/internal/erasure"
	"recount/internal/httpapi"
	"recount/internal/wire"
)

// Requests is erasure.Service, as far as it is asked here.
type Requests interface {
	File(ctx context.Context, by wire.Principal, asked wire.FileRequest) (wire.Request, error)
	Show(ctx context.Context, id string) (wire.Request, error)
	List(ctx context.Context, tenant, cursor string) (wire.RequestList, error)
	Descriptor(ctx context.Context, by wire.Principal, id string) (wire.Descriptor, error)
	VerifyIdentity(ctx context.Context, by wire.Principal, id, method string) (wire.Request, error)
	Preview(ctx context.Context, by wire.Principal, id string, asked wire.ActionRequest) (wire.Request, error)
	Approve(ctx context.Context, by wire.Principal, id, digest string) (wire.Request, error)
	Reject(ctx context.Context, by wire.Principal, id, reason string) (wire.Request, error)
	Cancel(ctx context.Context, by wire.Principal, id, reason string) (wire.Request, error)
	Extend(ctx context.Context, by wire.Principal, id string, until *time.Time, reason string) (wire.Request, error)
	Hold(ctx context.Context, by wire.Principal, id, ref string, release bool) (wire.Request, error)
	Exclude(ctx context.Context, by wire.Principal, id string, asked wire.ActionRequest) (wire.Request, error)
	Report(ctx context.Context, by wire.Principal, id string) (wire.Report, error)
	Certificate(ctx context.Context, by wire.Principal, id string) (wire.CertificateResponse, error)
	Verifiers() []string
	Resume(ctx context.Context) (driven, left int, err error)
}

const (
	root        = "/admin/erasure"
	below       = root + "/"
	routeByID   = root + "/{id}"
	paramTenant = "tenant_id"
	paramPage   = "page_token"
	// pageCSP lets the report's own styles apply, and nothing else be loaded.
	pageCSP = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
)

// Mount adds the operations to the API. A scheduler's account is no principal: it may have done what is due of approved
// requests, as a caller with a role of its own, and approve nothing.
func Mount(api *httpapi.API, s Requests) {
	api.Mount(httpapi.Resource{Route: root, Methods: map[string]httpapi.Operation{
		http.MethodPost: {Role: auth.Admin, Body: httpapi.JSONBody, Serve: surface{s}.file},
		http.MethodGet:  {Role: auth.Admin, Query: []string{paramTenant, paramPage}, Serve: surface{s}.list},
	}}, httpapi.Resource{Route: root + ":resume", Methods: map[string]httpapi.Operation{
		http.MethodPost: {Role: auth.Drive, Serve: surface{s}.resume},
	}})
	api.MountBelow(below, surface{s}.find)
}

type surface struct{ Requests }

func principal(c *httpapi.Call) wire.Principal {
	return wire.Principal{Sub: c.Caller.Sub, Email: c.Caller.Email}
}

func (s surface) file(c *httpapi.Call) error {
	var asked wire.FileRequest
	if err := c.Decode(&asked); err != nil {
		return err
	}
	r, err := s.File(context.WithoutCancel(c.R.Context()), principal(c), asked)
	if err != nil {
		return err //nolint:wrapcheck // the mapper's
	}
	c.W.Header().Set("Location", below+r.ID)
	return c.Answer(http.StatusCreated, r, 0)
}

func (s surface) list(c *httpapi.Call) error {
	tenant := c.Query(paramTenant)
	if err := c.Tenant(tenant); err != nil {
		return err
	}
	page, err := s.List(c.R.Context(), tenant, c.Query(paramPage))
	if err != nil {
		return err //nolint:wrapcheck // the mapper's
	}
	return c.Answer(http.StatusOK, page, 0)
}

func (s surface) resume(c *httpapi.Call) error {
	driven, left, err := s.Resume(context.WithoutCancel(c.R.Context()))
	if err != nil {
		return httpapi.Unavailable("the requests can not be driven now", err)
	}
	return c.Answer(http.StatusOK, wire.ResumeResponse{Driven: driven, Left: left}, 0)
}

// find is the resource of a path below the root: a request, what can be read of it, or an action on it.
func (s surface) find(_, escaped string) (httpapi.Resource, bool) {
	if escaped == "keys" {
		return read(root+"/keys", s.keys), true
	}
	id, rest, nested := strings.Cut(escaped, "/")
	if nested {
		serve, known := map[string]func(*httpapi.Call, string) error{
			"report": s.report, "report.html": s.page, "certificate": s.certificate,
		}[rest]
		return read(routeByID+"/"+rest, func(c *httpapi.Call) error { return serve(c, id) }), known
	}
	id, verb, acts := strings.Cut(id, ":")
	if !acts {
		return read(routeByID, func(c *httpapi.Call) error { return s.show(c, id) }), true
	}
	act, known := s.actions()[verb]
	return httpapi.Resource{Route: routeByID + ":" + verb, Methods: map[string]httpapi.Operation{
		http.MethodPost: {Role: auth.Admin, Body: httpapi.JSONBody, Serve: func(c *httpapi.Call) error {
			var asked wire.ActionRequest
			if err := c.Decode(&asked); err != nil {
				return err
			}
			return act(c, id, asked)
		}},
	}}, known
}

func read(route string, serve func(*httpapi.Call) error) httpapi.Resource {
	return httpapi.Resource{Route: route, Methods: map[string]httpapi.Operation{http.MethodGet: {Role: auth.Admin, Serve: serve}}}
}

type action func(c *httpapi.Call, id string, asked wire.ActionRequest) error

// actions are what can be done to a request. Each takes its own fields and no others: one that is ignored would mean
// something to whoever sent it.
func (s surface) actions() map[string]action {
	do := func(own func(wire.ActionRequest) wire.ActionRequest, f func(ctx context.Context, by wire.Principal, id string, a wire.ActionRequest) (wire.Request, error)) action {
		return func(c *httpapi.Call, id string, asked wire.ActionRequest) error {
			if own(asked) != asked {
				return notItsOwn()
			}
			r, err := f(context.WithoutCancel(c.R.Context()), principal(c), id, asked)
			if err != nil {
				return err
			}
			return c.Answer(http.StatusOK, r, 0)
		}
	}
	type ask = wire.ActionRequest
	return map[string]action{
		"verify-identity": do(func(a ask) ask { return ask{Method: a.Method} },
			func(ctx context.Context, by wire.Principal, id string, a ask) (wire.Request, error) {
				return s.VerifyIdentity(ctx, by, id, a.Method)
			}),
		"preview": do(previewOwn, s.Preview),
		"approve": do(func(a ask) ask { return ask{Digest: a.Digest} },
			func(ctx context.Context, by wire.Principal, id string, a ask) (wire.Request, error) {
				return s.Approve(ctx, by, id, a.Digest)
			}),
		"reject": do(reasonAlone, func(ctx context.Context, by wire.Principal, id string, a ask) (wire.Request, error) {
			return s.Reject(ctx, by, id, a.Reason)
		}),
		"cancel": do(reasonAlone, func(ctx context.Context, by wire.Principal, id string, a ask) (wire.Request, error) {
			return s.Cancel(ctx, by, id, a.Reason)
		}),
		"extend": do(func(a ask) ask { return ask{Until: a.Until, Reason: a.Reason} },
			func(ctx context.Context, by wire.Principal, id string, a ask) (wire.Request, error) {
				return s.Extend(ctx, by, id, a.Until, a.Reason)
			}),
		"hold": do(holdOwn,
			func(ctx context.Context, by wire.Principal, id string, a ask) (wire.Request, error) {
				return s.Hold(ctx, by, id, a.HoldRef, a.Release)
			}),
		"exclude":    do(excludeOwn, s.Exclude),
		"descriptor": s.descriptor,
	}
}

func notItsOwn() error {
	return httpapi.Unprocessable("the body has a field that belongs to another action, or that says nothing beside the others")
}

// Some fields stand alone: a reference beside a release would be ignored, and so would a reason without a cap.

func previewOwn(a wire.ActionRequest) wire.ActionRequest {
	if a.BlastCap == 0 {
		return wire.ActionRequest{}
	}
	return wire.ActionRequest{BlastCap: a.BlastCap, Reason: a.Reason}
}

func holdOwn(a wire.ActionRequest) wire.ActionRequest {
	if a.Release {
		return wire.ActionRequest{Release: true}
	}
	return wire.ActionRequest{HoldRef: a.HoldRef}
}

func excludeOwn(a wire.ActionRequest) wire.ActionRequest {
	if a.RemoveStore {
		return wire.ActionRequest{Store: a.Store, RemoveStore: true}
	}
	return wire.ActionRequest{Store: a.Store, Article: a.Article, CounselRef: a.CounselRef, ReviewAt: a.ReviewAt}
}

func reasonAlone(a wire.ActionRequest) wire.ActionRequest {
	return wire.ActionRequest{Reason: a.Reason}
}

// descriptor is a POST: it shows whom the request means, and is written down.
func (s surface) descriptor(c *httpapi.Call, id string, asked wire.ActionRequest) error {
	if asked != (wire.ActionRequest{}) {
		return notItsOwn()
	}
	d, err := s.Descriptor(c.R.Context(), principal(c), id)
	if err != nil {
		return err //nolint:wrapcheck // the mapper's
	}
	return c.Answer(http.StatusOK, wire.DescriptorAnswer{ID: id, Descriptor: d}, 0)
}

func (s surface) show(c *httpapi.Call, id string) error {
	r, err := s.Show(c.R.Context(), id)
	if err != nil {
		return err //nolint:wrapcheck // the mapper's
	}
	return c.Answer(http.StatusOK, r, 0)
}

func (s surface) report(c *httpapi.Call, id string) error {
	r, err := s.Report(c.R.Context(), principal(c), id)
	if err != nil {
		return err //nolint:wrapcheck // the mapper's
	}
	return c.Answer(http.StatusOK, r, 0)
}

func (s surface) page(c *httpapi.Call, id string) error {
	r, err := s.Report(c.R.Context(), principal(c), id)
	if err != nil {
		return err //nolint:wrapcheck // the mapper's
	}
	page, err := erasure.Page(r)
	if err != nil {
		return err //nolint:wrapcheck // the mapper's
	}
	c.W.Header().Set("Content-Security-Policy", pageCSP)
	c.Send(http.StatusOK, "text/html; charset=utf-8", page)
	return nil
}

func (s surface) certificate(c *httpapi.Call, id string) error {
	answer, err := s.Certificate(c.R.Context(), principal(c), id)
	if err != nil {
		return err //nolint:wrapcheck // the mapper's
	}
	return c.Answer(http.StatusOK, answer, 0)
}

func (s surface) keys(c *httpapi.Call) error {
	return c.Answer(http.StatusOK, wire.KeysResponse{Keys: s.Verifiers()}, 0)
}
