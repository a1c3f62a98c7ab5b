// Package opendsrapi takes erasure requests from the tools that companies already have for them, by OpenDSR 2.0. It files,
// shows and cancels; whether the person is who they say, and whether anything is erased, is decided elsewhere.
package opendsrapi

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"recount/internal/auth"
	"recount/internal/erasure"
	"recount/internal/httpapi"
	"recount/internal/stores"
	"recount/internal/wire"
)

// Requests is erasure requests, as far as a controller may reach.
type Requests interface {
	CheckOpenDSR(by wire.Principal, asked wire.FileRequest, from erasure.DSR) error
	FileOpenDSR(ctx context.Context, by wire.Principal, id string, asked wire.FileRequest, from erasure.DSR) (wire.Request, error)
	Show(ctx context.Context, id string) (wire.Request, error)
	Cancel(ctx context.Context, by wire.Principal, id, reason string) (wire.Request, error)
}

// Index keeps which request a controller's id stands for.
type Index interface {
	Create(ctx context.Context, d stores.Document) error
	Get(ctx context.Context, id string) (stores.Document, error)
}

// Signer signs answers.
type Signer interface {
	Sign(id string, at time.Time, body []byte) http.Header
	Certificate() []byte
}

// Surface is what is mounted. Every field is required.
type Surface struct {
	Requests   Requests
	Index      Index // a collection of its own
	Key        []byte
	Signer     Signer
	Domain     string // the processor's: where the certificate is shown
	Identities Identities
	Now        func() time.Time
}

const (
	root           = "/opendsr/"
	certificate    = "certificate.pem"
	routeDiscovery = root + "{tenant_id}/discovery"
	routeRequests  = root + "{tenant_id}/requests"
	routeRequest   = routeRequests + "/{subject_request_id}"
	minKey         = 32 // bytes
)

// Mount adds the operations to the API.
func Mount(api *httpapi.API, s Surface) error {
	switch {
	case len(s.Key) < minKey: // an empty one would make a digest that anybody can guess at
		return errors.New("opendsrapi: the key of the digests needs at least 32 bytes")
	case len(s.Identities) == 0:
		return errors.New("opendsrapi: there are no identities by which a request could name a person")
	}
	shown := s.Signer.Certificate()
	signed := s.Signer.Sign("", s.Now(), shown) // once: it is shown to anybody who asks
	api.MountBelow(root, func(_, escaped string) (httpapi.Resource, bool) {
		if escaped == certificate {
			return only(root+certificate, http.MethodGet, httpapi.Operation{Public: true, Serve: func(c *httpapi.Call) error {
				send(c, http.StatusOK, "application/x-pem-file", signed, shown)
				return nil
			}}), true
		}
		return s.find(escaped)
	})
	return nil
}

func only(route, method string, op httpapi.Operation) httpapi.Resource {
	return httpapi.Resource{Route: route, Methods: map[string]httpapi.Operation{method: op}}
}

// find is the resource of a path of a tenant.
func (s Surface) find(escaped string) (httpapi.Resource, bool) {
	segments := strings.Split(escaped, "/")
	for i, segment := range segments {
		var err error
		if segments[i], err = url.PathUnescape(segment); err != nil {
			return httpapi.Resource{}, false
		}
	}
	switch {
	case len(segments) == 2 && segments[1] == "discovery":
		return only(routeDiscovery, http.MethodGet, forTenant(segments[0], httpapi.NoBody, s.discovery)), true
	case len(segments) == 2 && segments[1] == "requests":
		return only(routeRequests, http.MethodPost, forTenant(segments[0], httpapi.JSONBody, func(c *httpapi.Call) error {
			return s.create(c, segments[0])
		})), true
	case len(segments) == 3 && segments[1] == "requests" && uuidV4.MatchString(segments[2]):
		return httpapi.Resource{Route: routeRequest, Methods: map[string]httpapi.Operation{
			http.MethodGet:    forTenant(segments[0], httpapi.NoBody, func(c *httpapi.Call) error { return s.show(c, segments[0], segments[2]) }),
			http.MethodDelete: forTenant(segments[0], httpapi.NoBody, func(c *httpapi.Call) error { return s.cancel(c, segments[0], segments[2]) }),
		}}, true
	default:
		return httpapi.Resource{}, false
	}
}

// forTenant is an operation of a caller who may erase for the tenant.
func forTenant(tenant string, body httpapi.Body, serve func(*httpapi.Call) error) httpapi.Operation {
	return httpapi.Operation{Role: auth.Erase, Body: body, Serve: func(c *httpapi.Call) error {
		if err := c.Tenant(tenant); err != nil {
			return err //nolint:wrapcheck // the kernel's
		}
		return serve(c)
	}}
}

// answer sends a value with its signature.
func (s Surface) answer(c *httpapi.Call, status int, v any) error {
	body, err := wire.Marshal(v)
	if err != nil {
		return err //nolint:wrapcheck // answered as an internal failure, its text shown to nobody
	}
	send(c, status, "application/json", s.Signer.Sign(c.RequestID(), s.Now(), body), body)
	return nil
}

func send(c *httpapi.Call, status int, contentType string, signed http.Header, body []byte) {
	for name, values := range signed {
		c.W.Header()[name] = values
	}
	c.Send(status, contentType, body)
}

type discovery struct {
	APIVersion  string              `json:"api_version"`
	Identities  []supportedIdentity `json:"supported_identities"`
	Types       []string            `json:"supported_subject_request_types"`
	Certificate string              `json:"processor_certificate"`
}

type supportedIdentity struct {
	Type   string `json:"identity_type"`
	Format string `json:"identity_format"`
}

func (s Surface) discovery(c *httpapi.Call) error {
	answer := discovery{APIVersion: version, Types: []string{typeErasure}, Certificate: "https://" + s.Domain + root + certificate}
	for _, known := range s.Identities {
		answer.Identities = append(answer.Identities, supportedIdentity{Type: known.Type, Format: formatRaw})
	}
	return s.answer(c, http.StatusOK, answer)
}
