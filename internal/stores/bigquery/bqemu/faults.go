package bqemu

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"time"

	bq "google.golang.org/api/bigquery/v2"
)

// Where a fault can strike: a REST call by its name, or a job after it was taken in.
const (
	AtDatasetsInsert = "datasets.insert"
	AtDatasetsGet    = "datasets.get"
	AtTablesList     = "tables.list"
	AtTablesInsert   = "tables.insert"
	AtTablesGet      = "tables.get"
	AtTablesDelete   = "tables.delete"
	AtInsertAll      = "tabledata.insertAll"
	AtInsertRows     = "tabledata.insertAll.rows" // single rows are refused, see Fault.Rows
	AtRowPolicies    = "rowAccessPolicies.list"
	AtJobsInsert     = "jobs.insert"
	AtJobsGet        = "jobs.get"
	AtJobsCancel     = "jobs.cancel"
	AtJobsQuery      = "jobs.query"
	AtQueryResults   = "jobs.getQueryResults"
	AtJobWait        = "job.wait"   // the job fails, and getQueryResults answers that as an HTTP error
	AtJobStatus      = "job.status" // the job fails, and only jobs.get shows it, as status.errorResult
	AtJobHold        = "job.hold"   // the job stays RUNNING for DelayMS, or until it is cancelled; then it does its work
)

// When a connection is cut.
const (
	DropBefore = "before" // nothing was done
	DropAfter  = "after"  // the work was done, and the answer is lost
)

// Fault is something that goes wrong at chosen calls.
type Fault struct {
	At      string `json:"at"`       // one of the At constants
	Kind    string `json:"kind"`     // select, delete, insert, ddl; "" is every kind
	Table   string `json:"table"`    // table id; "" is every table
	After   int    `json:"after"`    // matching calls that pass unharmed first
	Times   int    `json:"times"`    // calls to harm; 0 is one, below 0 is every one
	Code    int    `json:"code"`     // HTTP status to answer; 0 is no error
	Reason  string `json:"reason"`   // of the error, or of each of Rows
	Message string `json:"message"`  // of the error
	DelayMS int64  `json:"delay_ms"` // wait before anything else
	Hang    bool   `json:"hang"`     // never answer
	Drop    string `json:"drop"`     // one of the Drop constants
	Rows    []int  `json:"rows"`     // insertAll: these rows are refused with Reason, the others are taken
	Done    bool   `json:"done"`     // a job that fails has done its work all the same
}

type fault struct {
	Fault
	seen, struck int
}

// Streaming says how rows that came by insertAll are held in the buffer.
type Streaming struct {
	Window time.Duration `json:"-"`      // rows younger than this refuse DML; 0 is no buffer
	At     string        `json:"at"`     // AtJobsInsert, AtJobWait (the default) or AtJobStatus: where the refusal shows
	Reason string        `json:"reason"` // of the refusal; "" is invalidQuery
	Whole  bool          `json:"whole"`  // any young row of the table refuses, not only a matching one
}

// Inject adds a fault.
func (s *Server) Inject(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, &fault{Fault: f})
}

// Heal takes every fault away.
func (s *Server) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

// SetStreaming sets the streaming buffer's behaviour.
func (s *Server) SetStreaming(v Streaming) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streaming = v
}

// Advance moves the emulator's clock on.
func (s *Server) Advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advanced += d
}

// Statements are the statements that were submitted so far.
func (s *Server) Statements() []Statement {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Statement(nil), s.log...)
}

// target is what a call is about.
type target struct{ kind, table string }

// targetOf looks ahead at what a call is about, and leaves the body unread.
func (s *Server) targetOf(at string, r *http.Request) (target, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return target{}, err //nolint:wrapcheck // answered as it is
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	t := target{table: r.PathValue("table")}
	switch at {
	case AtJobsInsert:
		var j bq.Job
		if json.Unmarshal(body, &j) == nil && j.Configuration != nil && j.Configuration.Query != nil {
			t.kind, t.table = glance(j.Configuration.Query.Query)
		}
	case AtJobsQuery:
		var q bq.QueryRequest
		if json.Unmarshal(body, &q) == nil {
			t.kind, t.table = glance(q.Query)
		}
	case AtJobsGet, AtQueryResults, AtJobsCancel:
		s.mu.Lock()
		defer s.mu.Unlock()
		if j := s.jobs[key(r.PathValue("project"), r.PathValue("job"))]; j != nil {
			t = j.target
		}
	}
	return t, nil
}

// take finds the fault that strikes this call, and uses it up.
func (s *Server) take(at string, t target) *Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.takeLocked(at, t)
}

func (s *Server) takeLocked(at string, t target) *Fault {
	for _, f := range s.faults {
		if f.At != at || f.Kind != "" && f.Kind != t.kind || f.Table != "" && f.Table != t.table {
			continue
		}
		if f.seen++; f.seen <= f.After || f.Times >= 0 && f.struck >= max(1, f.Times) {
			continue
		}
		f.struck++
		hit := f.Fault
		return &hit
	}
	return nil
}

// suffer waits as the fault says, and reports whether the call goes on.
func (s *Server) suffer(r *http.Request, f *Fault) bool {
	wait := time.After(time.Duration(f.DelayMS) * time.Millisecond)
	if f.Hang {
		wait = nil
	}
	select {
	case <-wait:
		return f.Drop != DropBefore
	case <-r.Context().Done():
	case <-s.stop:
	}
	return false
}
