package bigquery

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	bq "cloud.google.com/go/bigquery"
	"google.golang.org/api/googleapi"

	"recount/internal/subject"
)

const streamingMessage = "UPDATE or DELETE statement over table p.d.t would affect rows in the streaming buffer, which is not supported"

func notYet(reason subject.Reason) verdict { return verdict{reason: reason, notYet: true} }

func again(reason subject.Reason) verdict { return verdict{reason: reason, notYet: true, again: true} }

var unknown = verdict{reason: subject.ReasonBackendBusy, notYet: true, lookUp: true}

// errorTable is the platform's table of errors, and what lies beside it.
var errorTable = map[string]struct {
	codes   []int // 0 is the job's own error, which has none
	reasons []string
	message string
	want    verdict
}{
	"streaming buffer": {[]int{0, 400}, []string{"invalidQuery", "badRequest"}, streamingMessage, notYet(subject.ReasonStreamingBuffer)},
	"streaming buffer, merge": {
		[]int{0, 400},
		[]string{"invalidQuery", "badRequest"},
		"MERGE statement over table p.d.t would affect rows in the streaming buffer, which is not supported", notYet(subject.ReasonStreamingBuffer),
	},
	"streaming buffer, truncate": {
		[]int{0, 400},
		[]string{"invalidQuery", "badRequest"},
		"TRUNCATE TABLE statement over table p.d.t would affect rows in the streaming buffer, which is not supported", notYet(subject.ReasonStreamingBuffer),
	},
	"serialization": {
		[]int{0, 400},
		[]string{"invalidQuery"},
		"Could not serialize access to table p:d.t due to concurrent update", again(subject.ReasonConcurrentUpdate),
	},
	"concurrent transaction": {
		[]int{0, 400},
		[]string{"invalidQuery", "invalid"},
		"Transaction is aborted due to concurrent update against table p.d.t",
		again(subject.ReasonConcurrentUpdate),
	},
	"too many outstanding": {
		[]int{0, 400},
		[]string{"resourcesExceeded"},
		"Resources exceeded: Too many DML statements outstanding against table p:d.t, limit is 20", again(subject.ReasonQuota),
	},
	"queued too long":            {[]int{0, 400}, []string{"", "invalid"}, "DML statement has been queued for too long", notYet(subject.ReasonBackendBusy)},
	"job rate limit":             {[]int{0, 400}, []string{"jobRateLimitExceeded"}, "any", again(subject.ReasonQuota)},
	"job backend":                {[]int{0, 400}, []string{"jobBackendError", "jobInternalError"}, "any", again(subject.ReasonBackendBusy)},
	"table update rate":          {[]int{0, 403, 400}, []string{"rateLimitExceeded"}, "Exceeded rate limits: too many table update operations for this table", notYet(subject.ReasonQuota)},
	"DML quota":                  {[]int{0, 403}, []string{"quotaExceeded"}, "Quota exceeded: Your table exceeded quota for total number of dml jobs writing to a table, pending + running", verdict{reason: subject.ReasonQuota, notYet: true, after: 10 * time.Minute}},
	"backend":                    {[]int{0, 500, 502, 503}, []string{"backendError", "internalError"}, "any", unknown},
	"5xx without reason":         {[]int{500, 502, 503, 504}, []string{""}, "", unknown},
	"stopped":                    {[]int{0, 400}, []string{"stopped"}, "Job execution was cancelled", unknown},
	"duplicate":                  {[]int{409}, []string{"duplicate"}, "Already Exists: Job p:EU.recount-1", verdict{lookUp: true}},
	"duplicate of another thing": {[]int{409}, []string{"duplicate"}, "Already Exists: Table p:d.t", verdict{}},
	"upsert streams": {
		[]int{0, 400},
		[]string{"invalid", "invalidQuery"},
		"UPDATE or DELETE statement is not supported over tables that had UPSERT streams",
		verdict{reason: subject.ReasonUnsupported},
	},
	"partition filter": {
		[]int{0, 400},
		[]string{"invalidQuery"},
		"Cannot query over table 'd.t' without a filter over column(s) 'ts' that can be used for partition elimination",
		verdict{reason: subject.ReasonUnsupported},
	},
	"gone":                {[]int{0, 404}, []string{"notFound"}, "Not found: Table p:d.t was not found in location US", verdict{reason: subject.ReasonNotFound}},
	"gone without reason": {[]int{404}, []string{""}, "", verdict{reason: subject.ReasonNotFound}},
	"denied":              {[]int{0, 403}, []string{"accessDenied"}, "Access Denied: Table p:d.t", verdict{reason: subject.ReasonAccessDenied}},
	"no token":            {[]int{401}, []string{"authError", ""}, "Invalid Credentials", verdict{reason: subject.ReasonAccessDenied}},
	"other rate":          {[]int{0, 403}, []string{"rateLimitExceeded", "quotaExceeded"}, "Custom quota exceeded", verdict{reason: subject.ReasonQuota}},
	"syntax":              {[]int{0, 400}, []string{"invalidQuery", "invalid", ""}, "Syntax error at [1:1]", verdict{}},
	"billing":             {[]int{0, 403}, []string{"billingNotEnabled"}, "Billing has not been enabled", verdict{}},
}

func TestClassifiesEveryRowOfTheTable(t *testing.T) {
	t.Parallel()
	for name, c := range errorTable {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, code := range c.codes {
				for _, reason := range c.reasons {
					if got := judge(asEither(code, reason, c.message)); got != c.want {
						t.Errorf("%d %q: %+v, want %+v", code, reason, got, c.want)
					}
				}
			}
		})
	}
}

// asEither is the error in the type that it comes in: with an HTTP code or without, and wrapped as the client wraps it.
func asEither(code int, reason, message string) error {
	if code == 0 {
		return fmt.Errorf("wrapped: %w", &bq.Error{Reason: reason, Message: message})
	}
	e := &googleapi.Error{Code: code, Message: message}
	if reason != "" {
		e.Errors = []googleapi.ErrorItem{{Reason: reason, Message: message}}
	}
	return fmt.Errorf("wrapped: %w", e)
}

func TestAnErrorIsNotYetOrAFaultAndNeverQuotesItsCause(t *testing.T) {
	t.Parallel()
	cause := asEither(http.StatusBadRequest, "invalidQuery", streamingMessage+" alice@example.com")
	var later *subject.NotYet
	if err := judge(cause).dml(cause); !errors.As(err, &later) || strings.Contains(err.Error(), "alice") {
		t.Errorf("a delete answered %v", err)
	}
	var fault *subject.Fault
	if err := judge(cause).read("the count", cause); !errors.As(err, &fault) || errors.As(err, &later) || strings.Contains(err.Error(), "alice") {
		t.Errorf("a count answered %v", err)
	}
	cause = asEither(http.StatusBadRequest, "invalidQuery", "Syntax error near alice@example.com")
	for _, err := range []error{judge(cause).dml(cause), judge(cause).read("the count", cause)} {
		if errors.As(err, &fault) || strings.Contains(err.Error(), "alice") || !errors.Is(err, cause) {
			t.Errorf("an unknown error became %v", err)
		}
	}
}

func TestTheClientsOwnTroubleIsAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	for _, err := range []error{context.DeadlineExceeded, context.Canceled} {
		if got := judge(fmt.Errorf("wrapped: %w", err)); got != (verdict{lookUp: true}) {
			t.Errorf("%v: %+v", err, got)
		}
	}
	if got := judge(errors.New("who knows")); got != (verdict{}) {
		t.Errorf("an unknown error: %+v", got)
	}
}

func FuzzACursorOfAnotherIsRefused(f *testing.F) {
	c := &Client{cfg: Config{Key: []byte("0123456789abcdef")}}
	t := &Table{c: c}
	alice, err := subject.New("acme", "alice")
	if err != nil {
		f.Fatal(err)
	}
	mine := t.sealCursor(alice, "row-7")
	f.Add(mine)
	f.Add("")
	f.Add(strings.ToUpper(mine))
	f.Fuzz(func(tt *testing.T, cursor string) {
		position, err := t.openCursor(alice, cursor)
		if err == nil && cursor != "" && (position != "row-7" || cursor != mine) {
			tt.Errorf("the cursor %q was taken for %q", cursor, position)
		}
	})
}
