package bigquery_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	rest "google.golang.org/api/bigquery/v2"

	"recount/internal/stores/bigquery"
	"recount/internal/stores/bigquery/bqemu"
	"recount/internal/subject"
)

const streamingMessage = "UPDATE or DELETE statement over table would affect rows in the streaming buffer, which is not supported"

// receipt erases a subject as a cell does, and answers the one receipt.
func (w *world) receipt(tab subject.Store, s subject.Subject) subject.Receipt {
	w.t.Helper()
	e := subject.Eraser{Cell: "test", Groups: []subject.Group{{Stores: []subject.Store{tab}}}, Timeout: 20 * time.Second}
	return e.Erase(w.t.Context(), subject.Target{Tenant: s.Tenant(), Subject: s}).Receipts[0]
}

func (w *world) wantReceipt(tab subject.Store, status subject.Status, reason subject.Reason) subject.Receipt {
	w.t.Helper()
	got := w.receipt(tab, w.alice())
	if got.Status() != status || got.Reason() != reason {
		w.t.Fatalf("receipt: %s %q, want %s %q", got.Status(), got.Reason(), status, reason)
	}
	return got
}

func TestRowsInTheStreamingBufferArePendingUntilTheyHaveAged(t *testing.T) {
	t.Parallel()
	for _, at := range []string{bqemu.AtJobsInsert, bqemu.AtJobWait, bqemu.AtJobStatus} {
		for _, reason := range []string{"invalidQuery", "badRequest"} {
			t.Run(at+" "+reason, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				tab := w.events()
				w.server.SetStreaming(bqemu.Streaming{Window: 90 * time.Minute, At: at, Reason: reason})
				w.seed("alice", "alice", "bob")
				got := w.wantReceipt(tab, subject.Pending, subject.ReasonStreamingBuffer)
				if remaining, _ := got.Counts().Remaining.Value(); remaining != 2 || got.RetryAfter() != subject.DefaultRetryAfter {
					t.Errorf("remaining %d, retry after %s", remaining, got.RetryAfter())
				}
				w.server.Advance(91 * time.Minute)
				w.wantReceipt(tab, subject.Erased, subject.ReasonNone)
				w.wantCount(tab, who(t, "acme", "bob"), 1)
			})
		}
	}
}

func TestARefusalBecauseOfOthersRowsIsErasedWhenNothingRemains(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tab := w.events()
	w.server.SetStreaming(bqemu.Streaming{Window: time.Hour, Whole: true})
	w.seed("bob")
	w.wantReceipt(tab, subject.Erased, subject.ReasonNone)
	w.seed("alice")
	w.wantReceipt(tab, subject.Pending, subject.ReasonStreamingBuffer)
}

func TestOnlyALiveStreamingBufferDefers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tab := w.events()
	w.seed("alice")
	if notYet, err := tab.Deferred(t.Context(), w.alice()); notYet != nil || err != nil {
		t.Errorf("without a buffer: %v, %v", notYet, err)
	}
	w.server.SetStreaming(bqemu.Streaming{Window: time.Hour})
	notYet, err := tab.Deferred(t.Context(), w.alice())
	if err != nil || notYet == nil || notYet.Reason != subject.ReasonStreamingBuffer {
		t.Errorf("with a buffer: %v, %v", notYet, err)
	}
}

// patientCounts keeps a test of a short deadline for deletes from depending on how fast the machine counts.
type patientCounts struct {
	*bigquery.Table
	counter *bigquery.Table
}

func (p patientCounts) Count(ctx context.Context, s subject.Subject) (int64, error) {
	return p.counter.Count(ctx, s) //nolint:wrapcheck // the store's own
}

// TestEveryRowOfTheErrorTable injects each row where it can occur, and looks at the receipt.
func TestEveryRowOfTheErrorTable(t *testing.T) {
	t.Parallel()
	const again = 3 // times: fewer than the tries of a statement
	for name, c := range map[string]struct {
		code            int
		reason, message string
		times           int
		status          subject.Status
		word            subject.Reason
	}{
		"streaming buffer":         {400, "invalidQuery", streamingMessage, 1, subject.Pending, subject.ReasonStreamingBuffer},
		"serialization, for ever":  {400, "invalidQuery", "Could not serialize access to table p:d.t due to concurrent update", -1, subject.Pending, subject.ReasonConcurrentUpdate},
		"serialization, passing":   {400, "invalidQuery", "Could not serialize access to table p:d.t due to concurrent update", again, subject.Erased, subject.ReasonNone},
		"transaction, for ever":    {400, "invalidQuery", "Transaction is aborted due to concurrent update against table t", -1, subject.Pending, subject.ReasonConcurrentUpdate},
		"transaction, passing":     {400, "invalidQuery", "Transaction is aborted due to concurrent update against table t", again, subject.Erased, subject.ReasonNone},
		"outstanding, for ever":    {400, "resourcesExceeded", "Resources exceeded: Too many DML statements outstanding against table t, limit is 20", -1, subject.Pending, subject.ReasonQuota},
		"outstanding, passing":     {400, "resourcesExceeded", "Resources exceeded: Too many DML statements outstanding against table t, limit is 20", again, subject.Erased, subject.ReasonNone},
		"queued too long":          {400, "invalid", "DML statement has been queued for too long", 1, subject.Pending, subject.ReasonBackendBusy},
		"job backend, passing":     {400, "jobBackendError", "any", again, subject.Erased, subject.ReasonNone},
		"job internal, for ever":   {400, "jobInternalError", "any", -1, subject.Pending, subject.ReasonBackendBusy},
		"job rate limit, for ever": {400, "jobRateLimitExceeded", "any", -1, subject.Pending, subject.ReasonQuota},
		"table updates, for ever":  {403, "rateLimitExceeded", "Exceeded rate limits: too many table update operations for this table", -1, subject.Pending, subject.ReasonQuota},
		"DML quota":                {403, "quotaExceeded", "Quota exceeded: total number of DML jobs writing to a table", 1, subject.Pending, subject.ReasonQuota},
		"backend, for ever":        {503, "backendError", "any", -1, subject.Pending, subject.ReasonBackendBusy},
		"internal, for ever":       {500, "internalError", "any", -1, subject.Pending, subject.ReasonBackendBusy},
		"stopped":                  {400, "stopped", "Job execution was cancelled", -1, subject.Pending, subject.ReasonBackendBusy},
		"upsert streams":           {400, "invalid", "not supported over tables that had UPSERT streams", 1, subject.Failed, subject.ReasonUnsupported},
		"partition filter":         {400, "invalidQuery", "Cannot query without a filter that can be used for partition elimination", 1, subject.Failed, subject.ReasonUnsupported},
		"gone":                     {404, "notFound", "Not found: Table p:d.t", 1, subject.Failed, subject.ReasonNotFound},
		"denied":                   {403, "accessDenied", "Access Denied", 1, subject.Failed, subject.ReasonAccessDenied},
		"anything else":            {400, "invalidQuery", "Syntax error", 1, subject.Failed, subject.ReasonDeleteFailed},
		"anything else, 403":       {403, "billingNotEnabled", "Billing has not been enabled", 1, subject.Failed, subject.ReasonDeleteFailed},
	} {
		for _, at := range []string{bqemu.AtJobsInsert, bqemu.AtJobWait, bqemu.AtJobStatus} {
			t.Run(name+" "+at, func(t *testing.T) {
				t.Parallel()
				deadline := time.Minute
				if c.times < 0 {
					deadline = 4 * time.Second
				}
				w := newWorld(t, impatient(deadline))
				tab := w.events()
				w.seed("alice")
				f := bqemu.Fault{At: at, Kind: "delete", Times: c.times, Reason: c.reason, Message: c.message}
				if at == bqemu.AtJobsInsert {
					f.Code = c.code
				}
				w.server.Inject(f)
				got := w.wantReceipt(patientCounts{tab, w.seeder}, c.status, c.word)
				if name == "DML quota" && got.RetryAfter() < 10*time.Minute {
					t.Errorf("retry after %s", got.RetryAfter())
				}
			})
		}
	}
}

func TestARefusalThatDidTheWorkIsErased(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tab := w.events()
	w.seed("alice")
	w.server.Inject(bqemu.Fault{At: bqemu.AtJobStatus, Kind: "delete", Reason: "backendError", Done: true})
	w.wantReceipt(tab, subject.Erased, subject.ReasonNone)
}

func TestALostAnswerIsLookedUpAndNotSubmittedAgain(t *testing.T) {
	t.Parallel()
	for _, at := range []string{bqemu.AtJobsInsert, bqemu.AtQueryResults, bqemu.AtJobsGet} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			tab := w.events()
			w.seed("alice", "alice")
			w.server.Inject(bqemu.Fault{At: at, Kind: "delete", Drop: bqemu.DropAfter})
			n, err := tab.Delete(t.Context(), w.alice())
			if err != nil || n != 2 {
				t.Fatalf("Delete = %d, %v", n, err)
			}
			if got := len(w.statements("delete")); got != 1 {
				t.Errorf("%d deletes were submitted", got)
			}
		})
	}
}

func TestASubmissionThatNeverArrivedIsSentAgain(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]bqemu.Fault{
		"cut": {Drop: bqemu.DropBefore}, "hung": {Hang: true}, "busy": {Code: 503, Reason: "backendError", Times: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, impatient(10*time.Second))
			tab := w.events()
			w.seed("alice")
			f.At, f.Kind = bqemu.AtJobsInsert, "delete"
			w.server.Inject(f)
			w.wantReceipt(tab, subject.Erased, subject.ReasonNone)
		})
	}
}

func TestARetryFindsTheRunningJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t, impatient(3*time.Second))
	tab := w.events()
	w.seed("alice")
	w.server.Inject(bqemu.Fault{At: bqemu.AtJobHold, Kind: "delete", DelayMS: 4500})
	var notYet *subject.NotYet
	if _, err := tab.Delete(t.Context(), w.alice()); !errors.As(err, &notYet) || notYet.Reason != subject.ReasonBackendBusy {
		t.Fatalf("a delete that is still running answered %v", err)
	}
	// Another instance retries: it waits for the running job, and then deletes what came since it began.
	w.seed("alice", "alice", "alice")
	other, err := open(t, w.server).Table(t.Context(), eventsTable())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Delete(t.Context(), w.alice()); err != nil {
		t.Fatal(err)
	}
	w.wantCount(tab, w.alice(), 0)
	ids := jobIDs(w.statements("delete"))
	if len(ids) != 2 || strings.TrimSuffix(ids[0], "-0") != strings.TrimSuffix(ids[1], "-1") {
		t.Errorf("the retry's jobs are %v", ids)
	}
}

func TestADoneJobsResultIsNeverTakenForANewDelete(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tab := w.events()
	for round := range 12 {
		w.append(tab, row("acme", fmt.Sprint(round), "alice"))
		if n, err := tab.Delete(t.Context(), w.alice()); err != nil || n != 1 {
			t.Fatalf("round %d: Delete = %d, %v", round, n, err)
		}
		w.wantCount(tab, w.alice(), 0)
	}
	for _, kind := range []string{"delete", "select"} {
		ids := jobIDs(w.statements(kind))
		slices.Sort(ids)
		if len(slices.Compact(slices.Clone(ids))) != len(ids) {
			t.Errorf("a %s job's id was used twice", kind)
		}
		if strings.Contains(strings.Join(ids, " "), "alice") {
			t.Errorf("job ids show the subject: %v", ids)
		}
	}
}

func jobIDs(statements []bqemu.Statement) []string {
	var ids []string
	for _, s := range statements {
		ids = append(ids, s.JobID)
	}
	return ids
}

func TestADeleteLeavesTimeForTheRecount(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tab := w.events()
	w.seed("alice")
	w.server.Inject(bqemu.Fault{At: bqemu.AtJobHold, Kind: "delete", DelayMS: 60_000})
	ctx := within(t, 6*time.Second)
	var notYet *subject.NotYet
	if _, err := tab.Delete(ctx, w.alice()); !errors.As(err, &notYet) || ctx.Err() != nil {
		t.Fatalf("Delete answered %v, its context %v", err, ctx.Err())
	}
	if n, err := tab.Count(ctx, w.alice()); err != nil || n != 1 {
		t.Errorf("the recount answered %d, %v", n, err)
	}
}

func TestACancelledDeleteIsNoNotYet(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tab := w.events()
	w.server.Inject(bqemu.Fault{At: bqemu.AtJobHold, Kind: "delete", DelayMS: 60_000})
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	var notYet *subject.NotYet
	if _, err := tab.Delete(ctx, w.alice()); err == nil || errors.As(err, &notYet) || !errors.Is(err, context.Canceled) {
		t.Fatalf("Delete answered %v", err)
	}
}

func TestACountThatCannotBeTrustedIsAnError(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault bqemu.Fault
		word  subject.Reason
	}{
		"gone":         {bqemu.Fault{At: bqemu.AtJobsInsert, Code: 404, Reason: "notFound"}, subject.ReasonNotFound},
		"denied":       {bqemu.Fault{At: bqemu.AtJobWait, Reason: "accessDenied", Message: "Access Denied"}, subject.ReasonAccessDenied},
		"busy":         {bqemu.Fault{At: bqemu.AtJobsInsert, Code: 503, Reason: "backendError", Times: -1}, subject.ReasonBackendBusy},
		"rate limited": {bqemu.Fault{At: bqemu.AtQueryResults, Code: 403, Reason: "rateLimitExceeded", Times: -1}, ""},
		"held":         {bqemu.Fault{At: bqemu.AtJobHold, DelayMS: 60_000, Times: -1}, subject.ReasonBackendBusy},
		"hung":         {bqemu.Fault{At: bqemu.AtQueryResults, Hang: true, Times: -1}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, impatient(4*time.Second))
			tab := w.events()
			c.fault.Kind = "select"
			w.server.Inject(c.fault)
			began := time.Now()
			n, err := tab.Count(t.Context(), w.alice())
			var fault *subject.Fault
			if err == nil || c.word != "" && (!errors.As(err, &fault) || fault.Reason != c.word) {
				t.Errorf("Count = %d, %v, want the reason %q", n, err, c.word)
			}
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}

func TestACountIsTriedAgainUnderANewID(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tab := w.events()
	w.seed("alice")
	w.server.Inject(bqemu.Fault{At: bqemu.AtJobWait, Kind: "select", Reason: "jobBackendError", Times: 2})
	w.server.Inject(bqemu.Fault{At: bqemu.AtJobsInsert, Kind: "select", Drop: bqemu.DropAfter, After: 1})
	w.wantCount(tab, w.alice(), 1)
}

func TestADroppedTableIsFailedAndNeverZero(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tab := w.events()
	w.seed("alice")
	if err := w.server.DropTable("events"); err != nil {
		t.Fatal(err)
	}
	got := w.wantReceipt(tab, subject.Failed, subject.ReasonNotFound)
	if _, measured := got.Counts().Remaining.Value(); measured {
		t.Error("a table that is gone was measured")
	}
	var fault *subject.Fault
	if err := tab.Ready(t.Context()); !errors.As(err, &fault) || fault.Reason != subject.ReasonNotFound {
		t.Errorf("Ready = %v", err)
	}
}

func TestARequiredPartitionFilterIsMetAndHidesNothing(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*rest.Table){
		"time": func(m *rest.Table) { m.TimePartitioning = &rest.TimePartitioning{Type: "DAY", Field: "ts"} },
		"old place": func(m *rest.Table) {
			m.TimePartitioning = &rest.TimePartitioning{Type: "DAY", Field: "ts", RequirePartitionFilter: true}
		},
		"ingestion": func(m *rest.Table) { m.TimePartitioning = &rest.TimePartitioning{Type: "DAY"} },
		"range":     func(m *rest.Table) { m.RangePartitioning = &rest.RangePartitioning{Field: "n"} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			meta := owners("orders", "tenant", "customer")
			meta.Schema.Fields = append(meta.Schema.Fields, &rest.TableFieldSchema{Name: "ts", Type: "TIMESTAMP"}, &rest.TableFieldSchema{Name: "n", Type: "INTEGER"})
			meta.RequirePartitionFilter = true
			change(meta)
			w.create(meta)
			w.exec("INSERT INTO orders (tenant, customer, ts, n) VALUES ('acme', 'alice', NULL, NULL)")
			w.exec("INSERT INTO orders (tenant, customer, ts, n) VALUES ('acme', 'alice', TIMESTAMP '2026-01-01 00:00:00+00', -3)")
			tab := w.table(ordersTable())
			w.wantCount(tab, w.alice(), 2)
			w.wantReceipt(tab, subject.Erased, subject.ReasonNone)
			w.wantCount(tab, w.alice(), 0)
		})
	}
}

func TestWhatTheDatasetKeepsIsToldAndNeverShortened(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.server.SetTimeTravel(48)
	w.client = open(t, w.server)
	tab := w.events()
	deleted := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	until, err := tab.RecoverableUntil(t.Context(), deleted)
	if want := deleted.Add(9 * 24 * time.Hour); err != nil || !until.Equal(want) {
		t.Errorf("recoverable until %s, %v, want %s", until, err, want)
	}
	later, err := tab.RecoverableUntil(t.Context(), deleted.Add(time.Hour))
	if err != nil || later.Before(until) {
		t.Errorf("a repeat shortened it: %s, %v", later, err)
	}
}
