// Package httpapi is the kernel of the HTTP surface: it names every request, finds its operation, decides who may call
// it and in which order that is asked, bounds what is read, and turns every error into a problem document. The
// operations themselves are in its sub-packages, one for each surface of the API.
package httpapi

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	lru "github.com/hashicorp/golang-lru/v2"
	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"recount/internal/auth"
)

// Authenticator says who calls. Errors: auth.ErrUnauthenticated, auth.ErrForbidden; any other is answered as 503. Their
// text is logged, so it MUST hold nothing of the token.
type Authenticator interface {
	Authenticate(r *http.Request) (auth.Caller, error)
}

// Config is what the kernel needs. Every field but Admin and TraceProject is required.
type Config struct {
	Log  *zap.Logger
	Auth Authenticator
	// Admin says who the principals of erasure requests are. Nil where there are none: nothing may need auth.Admin then.
	Admin Authenticator
	Meter Meter
	// Rate is how many requests a second one caller may make, and the size of a burst.
	Rate float64
	// MaxInFlight is how many requests that need a role are worked on at a time.
	MaxInFlight int
	// TraceProject is the Google Cloud project of the traces that log entries are tied to; "" ties none.
	TraceProject string
}

// knownCallers is how many callers have a rate of their own at a time: more than any allow-list names.
const knownCallers = 4096

// API is the router. It is safe for concurrent use once everything is mounted.
type API struct {
	config Config
	router *chi.Mux
	slots  chan struct{}
	rates  *lru.Cache[string, *rate.Limiter]
	// patience is how long a caller may stall.
	patience time.Duration
}

// New makes an API without resources.
func New(c Config) *API {
	rates, err := lru.New[string, *rate.Limiter](knownCallers)
	if err != nil {
		panic(err) // a positive size is always taken
	}
	a := &API{config: c, router: chi.NewRouter(), slots: make(chan struct{}, c.MaxInFlight), rates: rates, patience: stalled}
	a.router.Use(a.identify, a.observe, a.recoverPanic, routeByPath)
	a.router.NotFound(func(w http.ResponseWriter, r *http.Request) { exchangeOf(r).refuse(w, NotFound()) })
	return a
}

// Body is what an operation reads.
type Body int

// The kinds of body.
const (
	NoBody      Body = iota // any body is 400
	JSONBody                // application/json, at most MaxJSONBytes
	RecordsBody             // application/json as above, or application/x-ndjson of any size
)

// MaxJSONBytes is how long a JSON body may be.
const MaxJSONBytes = 1 << 20

// Operation is one method of one resource.
type Operation struct {
	// Role is what the caller needs, first of all and then, by Call.Subject or Call.May, for the tenant that it names.
	Role auth.Role
	// Public operations ask nobody who they are and are not limited.
	Public bool
	// Gate, where set, is asked whether the service may do this now, once the caller may. Errors: *subject.Fault, 503.
	Gate  func() error
	Query []string // names of the parameters that it knows
	Body  Body
	// Serve answers, or answers an error and has written nothing.
	Serve func(c *Call) error
}

// Resource is what is at one path.
type Resource struct {
	Route   string // for logs and metrics: the pattern, never a path
	Methods map[string]Operation
}

// allow is the methods that the resource takes, in a fixed order.
func (res Resource) allow() []string {
	var methods []string
	for m := range res.Methods {
		methods = append(methods, m)
	}
	slices.Sort(methods)
	return methods
}

// Mount puts resources at the paths that their routes spell.
func (a *API) Mount(resources ...Resource) {
	for _, res := range resources {
		a.router.Handle(res.Route, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { a.serve(w, r, res) }))
	}
}

// MountBelow finds the resource for every path below the prefix, which ends in "/". find gets the method, and what follows
// the prefix, still escaped, byte for byte as it was sent.
func (a *API) MountBelow(prefix string, find func(method, escaped string) (Resource, bool)) {
	a.router.Handle(prefix+"*", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		res, found := find(r.Method, strings.TrimPrefix(sentPath(r), prefix))
		if !found {
			exchangeOf(r).refuse(w, NotFound())
			return
		}
		a.serve(w, r, res)
	}))
}

// ServeHTTP answers one request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.router.ServeHTTP(w, r) }

// sentPath is the path as it was sent, still escaped. URL.EscapedPath is not that: for a path with a byte that should
// have been escaped and was not, it escapes the decoded path anew, and a "%3A" comes back as ":".
func sentPath(r *http.Request) string {
	if r.URL.RawPath != "" {
		return r.URL.RawPath
	}
	return r.URL.EscapedPath()
}

// routeByPath lets chi choose by the path as sent alone: methods are the resource's to judge, also unheard-of ones.
func routeByPath(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		route := chi.RouteContext(r.Context())
		route.RouteMethod, route.RoutePath = http.MethodGet, sentPath(r)
		next.ServeHTTP(w, r)
	})
}

// serve takes one request through the gates, in the order of the contract, and to its operation.
func (a *API) serve(w http.ResponseWriter, r *http.Request, res Resource) {
	x := exchangeOf(r)
	x.route = res.Route
	op, found := res.Methods[r.Method]
	if !found {
		x.refuse(w, &Refusal{kind: kindMethod, allow: res.allow()})
		return
	}
	c := &Call{W: w, R: r, exchange: x, role: op.Role}
	if !op.Public {
		release, err := a.admit(c, op)
		if err != nil {
			x.refuse(w, err)
			return
		}
		defer release()
	}
	if err := c.open(op); err != nil {
		x.refuse(w, err)
		return
	}
	if err := op.Serve(c); err != nil {
		x.refuse(w, err)
	}
}

// admit asks, in this order: is there room, who is it, how often, may they, may we. Nothing of the body is read yet.
func (a *API) admit(c *Call, op Operation) (release func(), err error) {
	select {
	case a.slots <- struct{}{}:
	default:
		return nil, tooMany("more requests are being worked on than this instance takes at a time")
	}
	leave := func() { <-a.slots }
	defer func() {
		if err != nil {
			leave()
		}
	}()
	who := a.config.Auth
	if op.Role == auth.Admin {
		who = a.config.Admin
	}
	if c.Caller, err = who.Authenticate(c.R); err != nil {
		c.refused = err.Error()
		if !errors.Is(err, auth.ErrUnauthenticated) && !errors.Is(err, auth.ErrForbidden) {
			err = Unavailable("tokens can not be checked now", err)
		}
		return nil, err
	}
	c.actor = c.Caller.Actor()
	if !a.rateOf(c.actor).Allow() {
		return nil, tooMany("this caller makes more requests a second than this instance takes")
	}
	if !c.Caller.Has(op.Role) {
		return nil, auth.ErrForbidden
	}
	if op.Gate != nil {
		if err = op.Gate(); err != nil {
			return nil, err
		}
	}
	return leave, nil
}
