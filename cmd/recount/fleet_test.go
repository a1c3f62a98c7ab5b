package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"recount/internal/subject"
	"recount/internal/wire"
)

// lie alters what a service answers. It may answer itself and return nil.
type lie func(w http.ResponseWriter, r *http.Request, body []byte) []byte

// service is a small honest cell that speaks the contract over loopback HTTP, and lies where a test says so.
type service struct {
	name   string
	tables []*table
	peers  []*service // of the coordinator
	salt   subject.Salt
	server *httptest.Server

	mu       sync.Mutex
	lie      lie
	token    string // that it asks for
	down     bool
	suspects []wire.Suspect
	asked    []string // method, path and body of each request
	ledger   []wire.SuppressionEntry
}

func newService(name string, salt subject.Salt, peers []*service, tables ...string) *service {
	s := &service{name: name, salt: salt, peers: peers, suspects: []wire.Suspect{}}
	for _, t := range tables {
		s.tables = append(s.tables, &table{name: t, rows: map[subject.Subject]int{}})
	}
	s.server = httptest.NewServer(s)
	return s
}

func (s *service) groups() []subject.Group {
	var out []subject.Group
	for _, t := range s.tables {
		out = append(out, subject.Group{Stores: []subject.Store{t}})
	}
	return out
}

func (s *service) erase(who subject.Subject) []subject.Receipt {
	eraser := subject.Eraser{Cell: s.name, Groups: s.groups(), Timeout: 5 * time.Second}
	return eraser.Erase(context.Background(), subject.TargetOf(who, s.salt)).Receipts
}

func (s *service) cascade(who subject.Subject) []subject.Receipt {
	out := s.erase(who)
	for _, peer := range s.peers {
		out = append(out, peer.erase(who)...)
	}
	return out
}

func (s *service) accessor() *subject.Accessor {
	a := &subject.Accessor{Cell: s.name, Timeout: 5 * time.Second, Deny: subject.DefaultDeny(), Pages: subject.NewPageKey(s.salt)}
	for _, t := range s.tables {
		a.Stores = append(a.Stores, t)
	}
	return a
}

func (s *service) change(how func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	how()
}

// ServeHTTP notes the request, checks its token, and answers it, through the lie if there is one.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	id := r.Header.Get("X-Request-ID")
	if strings.Trim(id, "0123456789abcdef-") != "" {
		id = "0000000000000000"
	}
	w.Header().Set("X-Request-ID", id)
	s.mu.Lock()
	s.asked = append(s.asked, r.Method+" "+r.URL.RequestURI()+" "+string(body))
	lied, token, down := s.lie, s.token, s.down
	s.mu.Unlock()
	recorder := httptest.NewRecorder()
	switch {
	case down:
		panic(http.ErrAbortHandler)
	case err != nil:
		problem(recorder, http.StatusRequestEntityTooLarge)
	case token != "" && r.Header.Get("Authorization") != "Bearer "+token && strings.HasPrefix(r.URL.Path, "/v1/"):
		problem(recorder, http.StatusUnauthorized)
	default:
		s.route(recorder, r, id, body)
	}
	answered := recorder.Body.Bytes()
	if lied != nil && strings.HasPrefix(r.URL.Path, "/v1/") {
		if answered = lied(w, r, answered); answered == nil {
			return
		}
	}
	for name, values := range recorder.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(recorder.Code)
	_, _ = w.Write(answered)
}

func problem(w http.ResponseWriter, code int) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(code)
	_, _ = fmt.Fprintf(w, `{"type":"urn:test:problem:%d","title":%q,"status":%d}`, code, http.StatusText(code), code)
}

// answer writes a value of the contract.
func answer(w http.ResponseWriter, code int, v any) {
	body, err := wire.Marshal(v)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(body)
}

const subjects = "/v1/intent/subject"

func (s *service) route(w http.ResponseWriter, r *http.Request, id string, body []byte) {
	path := r.URL.EscapedPath()
	takes := http.MethodGet
	switch {
	case strings.HasPrefix(path, subjects+"/"):
		s.byPath(w, r, id, strings.TrimPrefix(path, subjects+"/"))
		return
	case strings.HasPrefix(path, "/v1/intent/subject:"), path == "/v1/intent/graph/journal:purge", strings.HasPrefix(path, "/v1/suppression:"), path == "/v1/intent/source:erase":
		takes = http.MethodPost
	}
	if r.Method != takes {
		w.Header().Set("Allow", takes)
		problem(w, http.StatusMethodNotAllowed)
		return
	}
	if takes == http.MethodPost && r.Header.Get("Content-Type") != "application/json" {
		problem(w, http.StatusUnsupportedMediaType)
		return
	}
	switch path {
	case "/health":
		answer(w, http.StatusOK, s.health())
	case "/ready":
		answer(w, http.StatusOK, wire.Ready{Status: "ready"})
	case "/v1/intent/coverage":
		var found []wire.Suspect
		s.change(func() { found = s.suspects })
		answer(w, http.StatusOK, wire.CoverageResponse{Cell: s.name, Suspects: found})
	case "/v1/suppression", "/v1/suppression:allow", "/v1/suppression:backfill", "/v1/intent/source:erase":
		s.suppression(w, r, path, id, body)
	case "/v1/intent/graph/journal:purge":
		answer(w, http.StatusOK, wire.PurgeResponse{Cell: s.name, Deleted: subject.Measured(7), Remaining: subject.Measured(0)})
	default:
		verb, found := strings.CutPrefix(path, subjects+":")
		if !found {
			problem(w, http.StatusNotFound)
			return
		}
		s.byBody(w, verb, id, body)
	}
}

func (s *service) health() wire.Health {
	h := wire.Health{Status: "ok", Cell: s.name, Version: "test"}
	for _, t := range s.tables {
		h.Stores = append(h.Stores, wire.HealthStore{Store: t.name, Backend: t.Backend()})
	}
	if s.peers != nil {
		all := true
		h.CascadePeersConfigured, h.CascadePeers = &all, map[string]bool{}
		for _, peer := range s.peers {
			h.CascadePeers[peer.name] = true
		}
	}
	return h
}

func (s *service) byPath(w http.ResponseWriter, r *http.Request, id, segment string) {
	identity, err := url.PathUnescape(segment)
	who, invalid := subject.New(r.URL.Query().Get("tenant_id"), identity)
	switch {
	case strings.Contains(segment, "/"):
		problem(w, http.StatusNotFound)
	case r.Method != http.MethodDelete && r.Method != http.MethodGet:
		w.Header().Set("Allow", "DELETE, GET")
		problem(w, http.StatusMethodNotAllowed)
	case err != nil, invalid != nil, len(r.URL.Query()["tenant_id"]) != 1:
		problem(w, http.StatusBadRequest)
	case r.Method == http.MethodDelete:
		s.erased(w, id, who, s.erase(who))
	default:
		s.access(w, id, who, "")
	}
}

func (s *service) byBody(w http.ResponseWriter, verb, id string, body []byte) {
	if s.peers == nil && (verb == "erase" || verb == "batchErase") {
		w.Header().Set("Allow", "")
		problem(w, http.StatusMethodNotAllowed)
		return
	}
	if verb == "batchDelete" || verb == "batchErase" {
		s.batch(w, verb, id, body)
		return
	}
	var asked wire.SubjectRequest
	err := wire.DecodeRequest(strings.NewReader(string(body)), &asked)
	who, invalid := subject.New(asked.TenantID, asked.IdentityID)
	switch {
	case err != nil, invalid != nil:
		problem(w, http.StatusBadRequest)
	case verb == "erase":
		s.erased(w, id, who, s.cascade(who))
	case verb == "delete":
		s.erased(w, id, who, s.erase(who))
	case verb == "count":
		s.count(w, id, who)
	case verb == "access":
		s.access(w, id, who, asked.PageToken)
	default:
		problem(w, http.StatusNotFound)
	}
}

func (s *service) erased(w http.ResponseWriter, id string, who subject.Subject, receipts []subject.Receipt) {
	answer(w, wire.HTTPStatus(subject.Fold(receipts)), wire.FromReceipts(id, subject.TargetOf(who, s.salt), receipts, time.Now()))
}

func (s *service) batch(w http.ResponseWriter, verb, id string, body []byte) {
	var asked wire.BatchRequest
	if err := wire.DecodeRequest(strings.NewReader(string(body)), &asked); err != nil || len(asked.IdentityIDs) == 0 || len(asked.IdentityIDs) > wire.MaxBatch {
		problem(w, http.StatusUnprocessableEntity)
		return
	}
	worst, out := subject.Erased, wire.BatchResponse{}
	for _, identity := range asked.IdentityIDs {
		who, err := subject.New(asked.TenantID, identity)
		if err != nil {
			problem(w, http.StatusBadRequest)
			return
		}
		erase := s.erase
		if verb == "batchErase" {
			erase = s.cascade
		}
		receipts := erase(who)
		worst = worst.Worse(subject.Fold(receipts))
		out.Results = append(out.Results, wire.FromReceipts(id, subject.TargetOf(who, s.salt), receipts, time.Now()))
	}
	out.Status = worst.String()
	answer(w, wire.HTTPStatus(worst), out)
}

func (s *service) count(w http.ResponseWriter, id string, who subject.Subject) {
	out := wire.CountResponse{
		RequestID: id, TenantID: who.Tenant(), SubjectRef: string(who.Ref(s.salt)), Operation: wire.OpCount, Status: "counted", GeneratedAt: time.Now(),
	}
	for _, r := range s.accessor().Count(context.Background(), who) {
		out.Receipts = append(out.Receipts, wire.CountReceipt{Cell: r.Cell, Store: r.Store, Backend: r.Backend, Status: "counted", Count: r.Count})
	}
	answer(w, http.StatusOK, out)
}

func (s *service) access(w http.ResponseWriter, id string, who subject.Subject, token string) {
	receipts, err := s.accessor().Access(context.Background(), who, subject.PageRequest{Token: token})
	if err != nil {
		problem(w, http.StatusBadRequest)
		return
	}
	code := http.StatusOK
	out := wire.AccessResponse{
		RequestID: id, TenantID: who.Tenant(), SubjectRef: string(who.Ref(s.salt)), Operation: wire.OpAccess, Status: "read", GeneratedAt: time.Now(),
	}
	for _, r := range receipts {
		one := wire.AccessReceipt{
			Cell: r.Cell, Store: r.Store, Backend: r.Backend, Status: "read", Count: r.Count, Scrubbed: r.Scrubbed, About: r.About, NextPageToken: r.NextPageToken,
		}
		if r.Reason != subject.ReasonNone {
			one.Status, one.Detail, out.Status, code = "failed", string(r.Reason), "failed", http.StatusBadGateway
		}
		for _, row := range r.Rows {
			encoded, err := json.Marshal(row)
			if err != nil {
				panic(err)
			}
			one.Rows = append(one.Rows, encoded)
		}
		out.Receipts = append(out.Receipts, one)
	}
	answer(w, code, out)
}

// fleet is the coordinator and its cells.
type fleet struct{ services []*service }

const testSalt = "a salt of the tests alone"

func newFleet() *fleet {
	salt, err := subject.NewSalt(testSalt)
	if err != nil {
		panic(err)
	}
	cells := []*service{
		newService("ingest", salt, nil, "intent_events"), newService("graph", salt, nil, "graph"), newService("causal", salt, nil, "holdout_assignments", "outcomes"),
	}
	coordinator := newService("scoring", salt, cells, "intent_scores")
	return &fleet{services: append([]*service{coordinator}, cells...)}
}

func (f *fleet) close() {
	for _, s := range f.services {
		s.server.CloseClientConnections()
		s.server.Close()
	}
}

func (f *fleet) find(name string) *service {
	i := slices.IndexFunc(f.services, func(s *service) bool { return s.name == name })
	if i < 0 {
		return nil
	}
	return f.services[i]
}

func (f *fleet) table(name string) *table {
	for _, s := range f.services {
		for _, t := range s.tables {
			if t.name == name {
				return t
			}
		}
	}
	return nil
}

// addresses is the environment that tells the command where everybody is.
func (f *fleet) addresses() (coordinator, cells string) {
	var pairs []string
	for _, s := range f.services[1:] {
		pairs = append(pairs, s.name+"="+s.server.URL)
	}
	return f.services[0].server.URL, strings.Join(pairs, ",")
}
