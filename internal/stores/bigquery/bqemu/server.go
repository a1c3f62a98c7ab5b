// Package bqemu is a small BigQuery for tests: the v2 REST calls that the official client makes, over SQLite in memory,
// on loopback. It refuses, delays, breaks and forgets on demand, at the places where the live service does, so that the
// adapter is tested over the wire. It understands the few statement shapes that this product emits, and no others.
package bqemu

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	bq "google.golang.org/api/bigquery/v2"
	_ "modernc.org/sqlite" // the engine below
)

// Options say where to listen and what to hold at the start.
type Options struct {
	Addr     string   // host:port; "" is a free port on 127.0.0.1
	Project  string   // of the first dataset; "" is "test"
	Dataset  string   // made at the start; "" is "intent"
	Location string   // of that dataset; "" is "EU"
	DDL      []string // CREATE TABLE statements to run in that dataset
}

// Server is a running emulator.
type Server struct {
	opts     Options
	listener net.Listener
	http     *http.Server
	db       *sql.DB
	stop     chan struct{} // closed by Close: hung calls and held jobs end

	mu        sync.Mutex
	datasets  map[string]*bq.Dataset
	tables    map[string]*table
	jobs      map[string]*job
	faults    []*fault
	streaming Streaming
	advanced  time.Duration
	cache     map[string]*result
	insertIDs map[string]inserted
	log       []Statement
}

// Statement is one statement that was submitted as a job, in order.
type Statement struct {
	JobID string `json:"job_id"`
	Kind  string `json:"kind"` // select, delete, insert, ddl
	Table string `json:"table"`
	SQL   string `json:"sql"`
	Cache bool   `json:"cache"` // whether the caller allowed a cached result
}

// Start starts an emulator. It ends with the context or with Close, whichever is first.
func Start(ctx context.Context, opts Options) (*Server, error) {
	opts.Addr = orElse(opts.Addr, "127.0.0.1:0")
	opts.Project, opts.Dataset = orElse(opts.Project, "test"), orElse(opts.Dataset, "intent")
	opts.Location = orElse(opts.Location, "EU")
	db, err := openDB()
	if err != nil {
		return nil, err
	}
	s := &Server{
		opts: opts, db: db, stop: make(chan struct{}),
		datasets: map[string]*bq.Dataset{}, tables: map[string]*table{}, jobs: map[string]*job{},
		cache: map[string]*result{}, insertIDs: map[string]inserted{},
	}
	s.addDataset(opts.Project, &bq.Dataset{
		DatasetReference: &bq.DatasetReference{ProjectId: opts.Project, DatasetId: opts.Dataset}, Location: opts.Location,
	})
	for _, ddl := range opts.DDL {
		if err := s.Exec(ddl); err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	if s.listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", opts.Addr); err != nil {
		return nil, errors.Join(fmt.Errorf("bqemu: %w", err), db.Close())
	}
	s.http = &http.Server{Handler: s.routes(), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = s.http.Serve(s.listener) }() // ends with Close, with ErrServerClosed
	context.AfterFunc(ctx, s.Close)
	return s, nil
}

func orElse(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}

// Host is host:port, as BIGQUERY_EMULATOR_HOST takes it.
func (s *Server) Host() string { return s.listener.Addr().String() }

// URL is the emulator's base URL.
func (s *Server) URL() string { return "http://" + s.Host() }

// Project is the project of the first dataset.
func (s *Server) Project() string { return s.opts.Project }

// Dataset is the first dataset.
func (s *Server) Dataset() string { return s.opts.Dataset }

// Close stops the emulator. It may be called more than once.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.stop:
		return
	default:
		close(s.stop)
	}
	_ = s.http.Close()
	_ = s.db.Close()
}

// now is the emulator's own clock: what it was advanced by, ahead of the real one.
func (s *Server) now() time.Time { return time.Now().Add(s.advanced) }

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	const project = "/bigquery/v2/projects/{project}"
	const dataset = project + "/datasets/{dataset}"
	const tables = dataset + "/tables"
	for pattern, h := range map[string]http.HandlerFunc{
		"POST " + project + "/datasets":                s.serve(AtDatasetsInsert, s.datasetsInsert),
		"GET " + dataset:                               s.serve(AtDatasetsGet, s.datasetsGet),
		"GET " + tables:                                s.serve(AtTablesList, s.tablesList),
		"POST " + tables:                               s.serve(AtTablesInsert, s.tablesInsert),
		"GET " + tables + "/{table}":                   s.serve(AtTablesGet, s.tablesGet),
		"DELETE " + tables + "/{table}":                s.serve(AtTablesDelete, s.tablesDelete),
		"POST " + tables + "/{table}/insertAll":        s.serve(AtInsertAll, s.insertAll),
		"GET " + tables + "/{table}/rowAccessPolicies": s.serve(AtRowPolicies, s.rowPolicies),
		"POST " + project + "/jobs":                    s.serve(AtJobsInsert, s.jobsInsert),
		"GET " + project + "/jobs/{job}":               s.serve(AtJobsGet, s.jobsGet),
		"POST " + project + "/jobs/{job}/cancel":       s.serve(AtJobsCancel, s.jobsCancel),
		"GET " + project + "/queries/{job}":            s.serve(AtQueryResults, s.queryResults),
		"POST " + project + "/queries":                 s.serve(AtJobsQuery, s.jobsQuery),
		"POST /_emulator/faults":                       s.control(s.postFault),
		"DELETE /_emulator/faults":                     s.control(s.deleteFaults),
		"POST /_emulator/streaming":                    s.control(s.postStreaming),
		"POST /_emulator/clock":                        s.control(s.postClock),
		"POST /_emulator/tables/drop":                  s.control(s.postDrop),
		"POST /_emulator/tables/policies":              s.control(s.postPolicies),
		"GET /_emulator/statements":                    s.control(s.getStatements),
		"GET /_emulator/ready":                         s.control(func(*http.Request) (any, error) { return nil, nil }), //nolint:nilnil // an empty answer
	} {
		mux.HandleFunc(pattern, h)
	}
	return mux
}

// apiError is an error as the REST interface answers it.
type apiError struct {
	code            int
	reason, message string
}

func (e *apiError) Error() string { return fmt.Sprintf("%d %s: %s", e.code, e.reason, e.message) }

func notFound(what, name string) *apiError {
	return &apiError{code: http.StatusNotFound, reason: "notFound", message: "Not found: " + what + " " + name}
}

func invalid(format string, args ...any) *apiError {
	return &apiError{code: http.StatusBadRequest, reason: "invalidQuery", message: fmt.Sprintf(format, args...)}
}

// serve wraps one REST call in the faults that were injected for it.
func (s *Server) serve(at string, handle func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		target, err := s.targetOf(at, r)
		if err != nil {
			writeError(w, err)
			return
		}
		f := s.take(at, target)
		if f != nil && !s.suffer(r, f) {
			panic(http.ErrAbortHandler) // the connection breaks without an answer
		}
		if f != nil && f.Code != 0 {
			writeError(w, &apiError{code: f.Code, reason: f.Reason, message: f.Message})
			return
		}
		v, err := handle(r)
		switch {
		case f != nil && f.Drop == DropAfter:
			panic(http.ErrAbortHandler)
		case err != nil:
			writeError(w, err)
		default:
			writeJSON(w, http.StatusOK, v)
		}
	}
}

func writeError(w http.ResponseWriter, err error) {
	e, ok := errors.AsType[*apiError](err)
	if !ok {
		e = &apiError{code: http.StatusBadRequest, reason: "invalid", message: err.Error()}
	}
	item := map[string]any{"reason": e.reason, "message": e.message, "domain": "global"}
	writeJSON(w, e.code, map[string]any{"error": map[string]any{"code": e.code, "message": e.message, "errors": []any{item}}})
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // a client that left is no failure of ours
}

func decode[T any](r *http.Request) (*T, error) {
	v := new(T)
	d := json.NewDecoder(r.Body)
	d.UseNumber()
	if err := d.Decode(v); err != nil {
		return nil, &apiError{code: http.StatusBadRequest, reason: "parseError", message: "the body is not JSON: " + err.Error()}
	}
	return v, nil
}

func key(parts ...string) string { return strings.Join(parts, ".") }
