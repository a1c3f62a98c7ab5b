package bigquery

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	bq "cloud.google.com/go/bigquery"
	"google.golang.org/api/googleapi"

	"recount/internal/subject"
)

// longWait is what the platform asks for when a table's quota of DML jobs is used up.
const longWait = 10 * time.Minute

// errStillRunning is a job that was taken in and is not done by its deadline: a retry finds it.
var errStillRunning = errors.New("the job is still running")

// failure is an error of a kind that the vocabulary has no word for. Its text is ours; the cause is never printed.
type failure struct {
	what  string
	cause error
}

func (f *failure) Error() string { return "bigquery: " + f.what + " failed" }
func (f *failure) Unwrap() error { return f.cause }

// verdict is what an error means for a receipt. The zero value is: failed, for a reason without a word.
type verdict struct {
	reason subject.Reason
	after  time.Duration
	notYet bool // the platform will not do it yet; what remains is recounted all the same
	again  bool // worth another try, under a new job id
	lookUp bool // the outcome is unknown, or the job is there already: look it up before anything else
}

// rule is one row of the table of errors. An empty condition holds for every error.
type rule struct {
	codes   []int
	reasons []string
	message string // lower case; contained in the error's message
	verdict verdict
}

var rules = []rule{
	{message: "not supported over tables that had upsert streams", verdict: verdict{reason: subject.ReasonUnsupported}},
	{message: "that can be used for partition elimination", verdict: verdict{reason: subject.ReasonUnsupported}},
	{
		message: "would affect rows in the streaming buffer, which is not supported",
		verdict: verdict{reason: subject.ReasonStreamingBuffer, notYet: true},
	},
	{message: "could not serialize access to table", verdict: verdict{reason: subject.ReasonConcurrentUpdate, notYet: true, again: true}},
	{message: "transaction is aborted due to concurrent update", verdict: verdict{reason: subject.ReasonConcurrentUpdate, notYet: true, again: true}},
	{message: "too many dml statements outstanding against table", verdict: verdict{reason: subject.ReasonQuota, notYet: true, again: true}},
	{message: "dml statement has been queued for too long", verdict: verdict{reason: subject.ReasonBackendBusy, notYet: true}},
	{reasons: []string{"jobRateLimitExceeded"}, verdict: verdict{reason: subject.ReasonQuota, notYet: true, again: true}},
	{reasons: []string{"jobBackendError", "jobInternalError"}, verdict: verdict{reason: subject.ReasonBackendBusy, notYet: true, again: true}},
	{
		reasons: []string{"rateLimitExceeded"}, message: "too many table update operations",
		verdict: verdict{reason: subject.ReasonQuota, notYet: true},
	},
	{
		reasons: []string{"quotaExceeded"}, message: "total number of dml jobs writing to a table",
		verdict: verdict{reason: subject.ReasonQuota, notYet: true, after: longWait},
	},
	{reasons: []string{"rateLimitExceeded", "quotaExceeded"}, verdict: verdict{reason: subject.ReasonQuota}},
	{
		codes: []int{http.StatusConflict}, reasons: []string{"duplicate"}, message: "already exists: job",
		verdict: verdict{lookUp: true},
	},
	{reasons: []string{"backendError", "internalError", "stopped"}, verdict: verdict{reason: subject.ReasonBackendBusy, notYet: true, lookUp: true}},
	{reasons: []string{"notFound"}, verdict: verdict{reason: subject.ReasonNotFound}},
	{codes: []int{http.StatusNotFound}, verdict: verdict{reason: subject.ReasonNotFound}},
	{reasons: []string{"accessDenied"}, verdict: verdict{reason: subject.ReasonAccessDenied}},
	{codes: []int{http.StatusUnauthorized}, verdict: verdict{reason: subject.ReasonAccessDenied}},
}

func (r rule) fits(code int, reason, message string) bool {
	return (r.codes == nil || slices.Contains(r.codes, code)) &&
		(r.reasons == nil || slices.Contains(r.reasons, reason)) &&
		strings.Contains(message, r.message)
}

// judge reads an error in whichever of its two types it came. What no rule names has failed.
func judge(err error) verdict {
	code, reason, message, structured := parts(err)
	if structured {
		message = strings.ToLower(message)
		for _, r := range rules {
			if r.fits(code, reason, message) {
				return r.verdict
			}
		}
		if code >= http.StatusInternalServerError {
			return verdict{reason: subject.ReasonBackendBusy, notYet: true, lookUp: true}
		}
		return verdict{}
	}
	var transport *url.Error
	switch {
	case errors.Is(err, errStillRunning):
		return verdict{reason: subject.ReasonBackendBusy, notYet: true}
	case errors.As(err, &transport), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return verdict{lookUp: true}
	default:
		return verdict{}
	}
}

// parts takes an error of the service to pieces. The code is 0 where the error carries none: a job's own error.
func parts(err error) (code int, reason, message string, structured bool) {
	var api *googleapi.Error
	if errors.As(err, &api) {
		message = api.Message
		for i, item := range api.Errors {
			if i == 0 {
				reason = item.Reason
			}
			message += "\n" + item.Message
		}
		return api.Code, reason, message, true
	}
	var job *bq.Error
	if errors.As(err, &job) {
		return 0, job.Reason, job.Message, true
	}
	return 0, "", "", false
}

// dml is the error that a DELETE answers.
func (v verdict) dml(cause error) error {
	if v.notYet {
		return &subject.NotYet{Reason: v.reason, After: v.after, Cause: cause}
	}
	return v.read("the delete", cause)
}

// read is the error that anything else answers: there, not yet is as good as failed.
func (v verdict) read(what string, cause error) error {
	if v.reason != subject.ReasonNone {
		return &subject.Fault{Reason: v.reason, Cause: cause}
	}
	return &failure{what, cause}
}
