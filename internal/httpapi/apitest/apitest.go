// Package apitest holds the service to its own document: a transport for tests that checks every answer, and every
// request that the service took, against the OpenAPI document that it serves.
package apitest

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
	"github.com/pb33f/libopenapi-validator/config"
	"github.com/pb33f/libopenapi-validator/errors"
	"github.com/pb33f/libopenapi/datamodel/high/v3"

	"recount/api"
	"recount/internal/wire"
)

const (
	byID      = "/v1/intent/subject/"
	byIDRoute = byID + "{identity_id}"
	verb      = ":erase"
	requests  = "/admin/erasure/"
	keys      = requests + "keys"
	opendsr   = "/opendsr/"
	// maxChecked is how long a request body may be and still be checked.
	maxChecked = 1 << 20
)

// document is built once for all the tests of a process: it takes a while.
var document = sync.OnceValues(func() (*checker, error) {
	doc, err := libopenapi.NewDocument(api.OpenAPI)
	if err != nil {
		return nil, fmt.Errorf("reading the document: %w", err)
	}
	model, err := doc.BuildV3Model()
	if err != nil {
		return nil, fmt.Errorf("building the document: %w", err)
	}
	v, faults := validator.NewValidator(doc, config.WithFormatAssertions(), config.WithStrictMode(), config.WithoutSecurityValidation(),
		config.WithStrictIgnoredHeadersExtra("X-Content-Type-Options", "Content-Security-Policy", "Referrer-Policy"),
		// What is in an owner's own objects is no business of the document.
		config.WithStrictIgnorePaths("$.body.receipts[*].rows[*].**", "$.body.payload.**", "$.body.features.**", "$.body.properties.**", "$.body.cascade_peers.*"))
	if len(faults) > 0 {
		return nil, fmt.Errorf("making the validator: %w", faults[0])
	}
	return &checker{model: &model.Model, validator: v}, nil
})

type checker struct {
	mu        sync.Mutex // the validator shares caches
	model     *v3.Document
	validator validator.Validator
}

// Transport is a transport that reports, as errors of the test, every answer that is not in the document, and every
// request that the service took although the document does not allow it. It reads each answer whole. Nil is the default
// transport.
func Transport(t testing.TB, base http.RoundTripper) http.RoundTripper {
	t.Helper()
	c, err := document()
	if err != nil {
		t.Fatal(err)
	}
	if base == nil {
		base = http.DefaultTransport
	}
	return &transport{t: t, base: base, checker: c}
}

type transport struct {
	*checker
	t    testing.TB
	base http.RoundTripper
}

// RoundTrip makes the request as it is, and looks at what came of it.
func (tr *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	sent, err := peekBody(r)
	if err != nil {
		return nil, err
	}
	response, err := tr.base.RoundTrip(r)
	if err != nil {
		return nil, err //nolint:wrapcheck // a transport changes nothing
	}
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	for _, fault := range tr.check(r, sent, response, body) {
		tr.t.Errorf("%s answered %d, and the document disagrees: %s\n%s", r.Method, response.StatusCode, fault, clip(body))
	}
	return response, nil
}

// CloseIdleConnections is how http.Client asks for it.
func (tr *transport) CloseIdleConnections() {
	if closer, ok := tr.base.(interface{ CloseIdleConnections() }); ok {
		closer.CloseIdleConnections()
	}
}

// peekBody is the body of a request, if it can be checked: short, and no NDJSON, whose lines are judged one by one; else
// nil.
func peekBody(r *http.Request) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return []byte{}, nil
	}
	if r.GetBody == nil || r.ContentLength > maxChecked || r.Header.Get("Content-Type") == "application/x-ndjson" {
		return nil, nil
	}
	again, err := r.GetBody()
	if err != nil {
		return nil, fmt.Errorf("reading the request: %w", err)
	}
	defer func() { _ = again.Close() }()
	return io.ReadAll(again) //nolint:wrapcheck // bytes in memory
}

func (c *checker) check(r *http.Request, sent []byte, response *http.Response, body []byte) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	item, route, plain := c.find(r)
	if item == nil || !declares(item, r.Method) {
		return checkUndeclared(response, body)
	}
	asked := &http.Request{Method: r.Method, URL: plain, Header: r.Header.Clone(), Host: r.Host, Body: http.NoBody}
	answered := *response
	answered.Body = io.NopCloser(bytes.NewReader(body))
	answered.Request = asked
	_, faults := c.validator.GetResponseBodyValidator().ValidateResponseBodyWithPathItem(asked, &answered, item, route)
	if taken(response.StatusCode) && sent != nil {
		asked.Body = io.NopCloser(bytes.NewReader(sent))
		asked.ContentLength = int64(len(sent))
		_, more := c.validator.ValidateHttpRequestSyncWithPathItem(asked, item, route)
		faults = append(faults, more...)
	}
	return describe(faults)
}

// taken reports whether the service took a request for a valid one.
func taken(status int) bool {
	return status < 400 || status == http.StatusConflict || status == http.StatusBadGateway
}

// find is the document's item for a request, its route, and a URL that a validator finds by itself: the id of a path
// that names a person is replaced by a plain one, because "{identity_id}" and "{identity_id}:erase" match the same
// paths, and what an id may hold is more than a validator can read.
func (c *checker) find(r *http.Request) (*v3.PathItem, string, *url.URL) {
	path := r.URL.EscapedPath()
	plain := &url.URL{Scheme: r.URL.Scheme, Host: r.URL.Host, Path: path, RawQuery: r.URL.RawQuery}
	if segment, below := strings.CutPrefix(path, byID); below && !strings.Contains(segment, "/") {
		route := byIDRoute
		plain.Path = byID + "person"
		if r.Method == http.MethodPost && strings.HasSuffix(segment, verb) {
			route += verb
			plain.Path += verb
		}
		return c.model.Paths.PathItems.GetOrZero(route), route, plain
	}
	if rest, below := strings.CutPrefix(path, requests); below && path != keys { // an id may be malformed
		what := ""
		if end := strings.IndexAny(rest, ":/"); end >= 0 {
			what = rest[end:]
		}
		plain.Path = requests + "request" + what
		route := requests + "{id}" + what
		return c.model.Paths.PathItems.GetOrZero(route), route, plain
	}
	if rest, below := strings.CutPrefix(path, opendsr); below {
		if parts := strings.Split(rest, "/"); len(parts) > 1 {
			route := opendsr + "{tenant_id}/" + parts[1]
			if len(parts) > 2 {
				route += "/{subject_request_id}"
			}
			return c.model.Paths.PathItems.GetOrZero(route), route, plain
		}
	}
	return c.model.Paths.PathItems.GetOrZero(path), path, plain
}

func declares(item *v3.PathItem, method string) bool {
	_, found := item.GetOperations().Get(strings.ToLower(method))
	return found
}

// checkUndeclared holds an answer to something that the document doesn't have: it can only be 404 or 405.
func checkUndeclared(response *http.Response, body []byte) []string {
	var problem wire.Problem
	switch {
	case response.StatusCode != http.StatusNotFound && response.StatusCode != http.StatusMethodNotAllowed:
		return []string{"the document does not have this operation"}
	case response.StatusCode == http.StatusMethodNotAllowed && response.Header.Values("Allow") == nil:
		return []string{"405 without Allow"}
	case response.Header.Get("Content-Type") != "application/problem+json":
		return []string{"not a problem document"}
	case response.Request != nil && response.Request.Method == http.MethodHead:
		return nil
	}
	if err := json.Unmarshal(body, &problem, json.RejectUnknownMembers(true)); err != nil || problem.Status != response.StatusCode || problem.Type == "" {
		return []string{"a malformed problem document"}
	}
	return nil
}

func describe(faults []*errors.ValidationError) []string {
	var out []string
	for _, f := range faults {
		text := f.Message + ": " + f.Reason
		for _, s := range f.SchemaValidationErrors {
			text += "; at " + s.KeywordLocation + ": " + s.Reason
		}
		out = append(out, text)
	}
	return out
}

func clip(body []byte) []byte { return body[:min(len(body), 2000)] }
