package httpapi

import (
	"context"
	"encoding/hex"
	"fmt"
	"net/http"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-chi/chi/v5/middleware"
	"github.com/google/uuid"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"recount/internal/subject"
)

// exchange is what the kernel knows of one request: all that a log entry may say.
type exchange struct {
	requestID string
	route     string // the pattern
	actor     string
	refused   string // why the caller was not let in
	failure   error  // what was answered as an internal failure
	patience  time.Duration
	body      *arriving // nil for a request without one
}

type exchangeKey struct{}

func exchangeOf(r *http.Request) *exchange {
	return r.Context().Value(exchangeKey{}).(*exchange) // identify is the first middleware
}

// HeaderRequestID names a request, from the caller through every cell that it reaches.
const HeaderRequestID = "X-Request-ID"

var requestID = regexp.MustCompile(`^([0-9a-fA-F]{8,64}|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})$`)

// identify names the request, bounds the time of its body, and sets the headers that every answer has.
func (a *API) identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := &exchange{route: "unknown", patience: a.patience}
		if given := r.Header.Values(HeaderRequestID); len(given) == 1 && requestID.MatchString(given[0]) {
			x.requestID = given[0]
		} else {
			x.requestID = uuid.NewString()
		}
		h := w.Header()
		h.Set(HeaderRequestID, x.requestID)
		h.Set("Cache-Control", "no-store")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		h.Set("Referrer-Policy", "no-referrer") // a path may name a person
		r = r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
		if r.ContentLength != 0 && r.Body != nil {
			x.body = x.arriving(w, r.Body)
			r.Body = x.body
		}
		next.ServeHTTP(w, r)
	})
}

// Meter counts requests. Method and route are of a fixed set, never what a caller sent.
type Meter interface {
	Started()
	Finished(method, route string, status int, took time.Duration)
}

// observe writes one log entry and one measurement for each request. Neither has its path or its query.
func (a *API) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		a.config.Meter.Started()
		ww := middleware.NewWrapResponseWriter(w, r.ProtoMajor)
		defer func() {
			x, took, status := exchangeOf(r), time.Since(start), ww.Status()
			if status == 0 { // nothing was written: net/http says 200 for us, or the connection is broken off
				status = http.StatusOK
			}
			method := knownMethod(r.Method)
			a.config.Meter.Finished(method, x.route, status, took)
			a.log(r, x, entry{method, status, ww.BytesWritten(), took})
		}()
		next.ServeHTTP(ww, r)
	})
}

type entry struct {
	method string
	status int
	bytes  int
	took   time.Duration
}

func (a *API) log(r *http.Request, x *exchange, e entry) {
	checked := a.config.Log.Check(levelOf(x.route, e.status), "request")
	if checked == nil {
		return
	}
	fields := []zap.Field{
		zap.String("request_id", x.requestID),
		zap.Object("httpRequest", zapcore.ObjectMarshalerFunc(func(o zapcore.ObjectEncoder) error {
			o.AddString("requestMethod", e.method)
			o.AddString("requestUrl", x.route)
			o.AddInt("status", e.status)
			o.AddString("responseSize", fmt.Sprint(e.bytes))
			o.AddString("latency", fmt.Sprintf("%.6fs", e.took.Seconds()))
			o.AddString("protocol", fmt.Sprintf("HTTP/%d.%d", r.ProtoMajor, r.ProtoMinor))
			return nil
		})),
	}
	if x.actor != "" {
		fields = append(fields, zap.String("actor", x.actor))
	}
	if x.refused != "" {
		fields = append(fields, zap.String("refused", x.refused))
	}
	if x.failure != nil {
		fields = append(fields, zap.String("failure", typesOf(x.failure)))
	}
	if trace := traceOf(r); trace != "" && a.config.TraceProject != "" {
		fields = append(fields, zap.String("logging.googleapis.com/trace", "projects/"+a.config.TraceProject+"/traces/"+trace))
	}
	checked.Write(fields...)
}

// levelOf keeps the platform's probes out of a log at info.
func levelOf(route string, status int) zapcore.Level {
	switch {
	case status == http.StatusInternalServerError:
		return zapcore.ErrorLevel
	case status > http.StatusInternalServerError:
		return zapcore.WarnLevel
	case route == "/health" || route == "/ready" || route == "/metrics":
		return zapcore.DebugLevel
	default:
		return zapcore.InfoLevel
	}
}

// typesOf names the types of an error's chain. Its text may quote a person, the types can't.
func typesOf(err error) string {
	if fault, ok := err.(*subject.Fault); ok { //nolint:errorlint // this link of the chain alone
		return "fault " + string(fault.Reason)
	}
	names := fmt.Sprintf("%T", err)
	switch wrapped := err.(type) { //nolint:errorlint // this link of the chain alone
	case interface{ Unwrap() error }:
		if inner := wrapped.Unwrap(); inner != nil {
			names += " > " + typesOf(inner)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range wrapped.Unwrap() {
			names += " > " + typesOf(inner)
		}
	}
	return names
}

func knownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return method
	default:
		return "OTHER"
	}
}

// traceOf is the trace id of a W3C traceparent or of Cloud Run's own header: 32 hex digits, or "".
func traceOf(r *http.Request) string {
	id, _, _ := strings.Cut(r.Header.Get("X-Cloud-Trace-Context"), "/")
	if parts := strings.Split(r.Header.Get("Traceparent"), "-"); len(parts) == 4 {
		id = parts[1]
	}
	if raw, err := hex.DecodeString(id); err != nil || len(raw) != 16 {
		return ""
	}
	return id
}

// recoverPanic answers a panic as an internal failure. Its value may quote a person and is logged as its type alone.
func (a *API) recoverPanic(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			value := recover()
			if value == nil {
				return
			}
			if value == any(http.ErrAbortHandler) {
				panic(value)
			}
			x := exchangeOf(r)
			a.config.Log.Error("panic", zap.String("request_id", x.requestID), zap.String("route", x.route),
				zap.String("type", fmt.Sprintf("%T", value)), zap.ByteString("stack", debug.Stack()))
			if ww, ok := w.(middleware.WrapResponseWriter); ok && ww.Status() != 0 {
				panic(http.ErrAbortHandler) // half an answer must not look whole
			}
			x.refuse(w, fmt.Errorf("panic of type %T", value)) //nolint:err113 // nobody tells it apart
		}()
		next.ServeHTTP(w, r)
	})
}
