package bqemu

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	bq "google.golang.org/api/bigquery/v2"
)

const pageRows = 1000

// job is a query job. It is guarded by the server's lock.
type job struct {
	target
	ref      *bq.JobReference
	config   *bq.JobConfiguration
	created  time.Time
	done     chan struct{}
	cancel   chan struct{}
	finished bool
	failure  *bq.ErrorProto
	quiet    bool // the failure shows in jobs.get only
	result   *result
}

func (s *Server) jobsInsert(r *http.Request) (any, error) {
	req, err := decode[bq.Job](r)
	if err != nil {
		return nil, err
	}
	if req.Configuration == nil || req.Configuration.Query == nil || req.JobReference == nil {
		return nil, invalid("only query jobs with a reference are emulated")
	}
	j, err := s.submit(r.PathValue("project"), req.JobReference, req.Configuration)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.show(j), nil
}

// submit takes in a job and, unless it is held, runs it.
func (s *Server) submit(project string, ref *bq.JobReference, config *bq.JobConfiguration) (*job, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := key(project, ref.JobId)
	if s.jobs[k] != nil {
		return nil, &apiError{code: http.StatusConflict, reason: "duplicate", message: "Already Exists: Job " + project + ":" + ref.Location + "." + ref.JobId}
	}
	j := &job{ref: ref, config: config, created: s.now(), done: make(chan struct{}), cancel: make(chan struct{})}
	j.ref.ProjectId = project
	if j.ref.Location == "" { // the live service, too, goes by the tables where nobody says
		j.ref.Location = s.opts.Location
	}
	j.kind, j.table = glance(config.Query.Query)
	cached := config.Query.UseQueryCache == nil || *config.Query.UseQueryCache
	s.log = append(s.log, Statement{JobID: ref.JobId, Kind: j.kind, Table: j.table, SQL: config.Query.Query, Cache: cached})
	if hold := s.takeLocked(AtJobHold, j.target); hold != nil {
		s.jobs[k] = j
		go s.runLater(j, time.Duration(hold.DelayMS)*time.Millisecond)
		return j, nil
	}
	if err := s.run(j); err != nil {
		return nil, err
	}
	s.jobs[k] = j
	return j, nil
}

func (s *Server) runLater(j *job, wait time.Duration) {
	after := time.After(wait)
	if wait == 0 {
		after = nil
	}
	select {
	case <-after:
	case <-s.stop:
		return
	case <-j.cancel:
		s.mu.Lock()
		defer s.mu.Unlock()
		j.fail(&bq.ErrorProto{Reason: "stopped", Message: "Job execution was cancelled: User requested cancellation"}, false)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.run(j); err != nil {
		j.fail(protoOf(err), false)
	}
}

func protoOf(err error) *bq.ErrorProto {
	if e, ok := err.(*apiError); ok { //nolint:errorlint // never wrapped here
		return &bq.ErrorProto{Reason: e.reason, Message: e.message}
	}
	return &bq.ErrorProto{Reason: "invalidQuery", Message: err.Error()}
}

func (j *job) fail(e *bq.ErrorProto, quiet bool) {
	j.failure, j.quiet = e, quiet
	j.finish()
}

func (j *job) finish() {
	j.finished = true
	close(j.done)
}

// run does a job's work, and lets it fail as the faults and the streaming buffer say. An error is answered at once.
func (s *Server) run(j *job) error {
	for _, at := range []string{AtJobWait, AtJobStatus} {
		f := s.takeLocked(at, j.target)
		if f == nil {
			continue
		}
		if f.Done {
			if _, err := s.execute(j); err != nil {
				return err
			}
		}
		j.fail(&bq.ErrorProto{Reason: f.Reason, Message: f.Message}, at == AtJobStatus)
		return nil
	}
	res, err := s.execute(j)
	if e, ok := err.(*refused); ok { //nolint:errorlint // never wrapped here
		if s.streaming.At == AtJobsInsert {
			return &apiError{code: http.StatusBadRequest, reason: e.Reason, message: e.Message}
		}
		j.fail(&e.ErrorProto, s.streaming.At == AtJobStatus)
		return nil
	}
	if err != nil {
		return err
	}
	j.result = res
	j.finish()
	return nil
}

func (s *Server) findJob(r *http.Request) (*job, error) {
	k := key(r.PathValue("project"), r.PathValue("job"))
	j := s.jobs[k]
	if j == nil || !strings.EqualFold(j.ref.Location, r.URL.Query().Get("location")) {
		return nil, notFound("Job", r.PathValue("project")+":"+r.PathValue("job"))
	}
	return j, nil
}

func (s *Server) show(j *job) *bq.Job {
	out := &bq.Job{
		JobReference: j.ref, Configuration: j.config, Status: &bq.JobStatus{State: "RUNNING"},
		Statistics: &bq.JobStatistics{CreationTime: j.created.UnixMilli(), Query: &bq.JobStatistics2{StatementType: strings.ToUpper(j.kind)}},
	}
	if !j.finished {
		return out
	}
	out.Status.State = "DONE"
	if out.Status.ErrorResult = j.failure; j.failure != nil {
		out.Status.Errors = []*bq.ErrorProto{j.failure}
	}
	if j.result != nil {
		out.Statistics.Query.NumDmlAffectedRows = j.result.affected
	}
	return out
}

func (s *Server) jobsGet(r *http.Request) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j, err := s.findJob(r)
	if err != nil {
		return nil, err
	}
	return s.show(j), nil
}

func (s *Server) jobsCancel(r *http.Request) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j, err := s.findJob(r)
	if err != nil {
		return nil, err
	}
	select {
	case <-j.cancel:
	default:
		close(j.cancel)
	}
	return bq.JobCancelResponse{Job: s.show(j)}, nil
}

// longPoll is how long getQueryResults waits for a running job; the live service waits 10 s.
const longPoll = 200 * time.Millisecond

func (s *Server) queryResults(r *http.Request) (any, error) {
	s.mu.Lock()
	j, err := s.findJob(r)
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	select {
	case <-j.done:
	case <-time.After(longPoll):
		return bq.GetQueryResultsResponse{JobReference: j.ref}, nil
	case <-r.Context().Done():
	case <-s.stop:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !j.finished {
		return bq.GetQueryResultsResponse{JobReference: j.ref}, nil
	}
	if j.failure != nil && !j.quiet {
		return nil, &apiError{code: codeOf(j.failure.Reason), reason: j.failure.Reason, message: j.failure.Message}
	}
	out := bq.GetQueryResultsResponse{JobReference: j.ref, JobComplete: true}
	if j.result == nil {
		return out, nil
	}
	out.Schema, out.NumDmlAffectedRows, out.TotalRows = j.result.schema, j.result.affected, uint64(len(j.result.rows))
	out.Rows, out.PageToken, err = page(j.result.rows, r.URL.Query().Get("maxResults"), orElse(r.URL.Query().Get("pageToken"), r.URL.Query().Get("startIndex")))
	return out, err
}

// page cuts out the rows that a call asks for. The token is the index of the first row.
func page(rows []*bq.TableRow, limit, from string) ([]*bq.TableRow, string, error) {
	n, start := pageRows, 0
	var err error
	if limit != "" {
		if n, err = strconv.Atoi(limit); err != nil {
			return nil, "", invalid("maxResults")
		}
	}
	if from != "" {
		if start, err = strconv.Atoi(from); err != nil || start > len(rows) {
			return nil, "", invalid("pageToken")
		}
	}
	end := min(len(rows), start+min(n, pageRows))
	if end < len(rows) && end > start {
		return rows[start:end], strconv.Itoa(end), nil
	}
	return rows[start:end], "", nil
}

func codeOf(reason string) int {
	switch reason {
	case "notFound":
		return http.StatusNotFound
	case "accessDenied", "quotaExceeded", "rateLimitExceeded":
		return http.StatusForbidden
	case "backendError":
		return http.StatusServiceUnavailable
	case "internalError":
		return http.StatusInternalServerError
	default:
		return http.StatusBadRequest
	}
}

// jobsQuery is the short way of jobs.insert and getQueryResults, which tests use to look at what is there.
func (s *Server) jobsQuery(r *http.Request) (any, error) {
	q, err := decode[bq.QueryRequest](r)
	if err != nil {
		return nil, err
	}
	ref := &bq.JobReference{JobId: "query-" + q.RequestId, Location: q.Location}
	j, err := s.submit(r.PathValue("project"), ref, &bq.JobConfiguration{Query: &bq.JobConfigurationQuery{
		Query: q.Query, QueryParameters: q.QueryParameters, UseQueryCache: q.UseQueryCache, DefaultDataset: q.DefaultDataset,
	}})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if j.failure != nil {
		return nil, &apiError{code: codeOf(j.failure.Reason), reason: j.failure.Reason, message: j.failure.Message}
	}
	out := bq.QueryResponse{JobReference: j.ref, JobComplete: j.finished}
	if j.result != nil {
		out.Schema, out.NumDmlAffectedRows, out.TotalRows = j.result.schema, j.result.affected, uint64(len(j.result.rows))
		out.Rows, out.PageToken, err = page(j.result.rows, "", "")
	}
	return out, err
}
