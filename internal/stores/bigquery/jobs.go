package bigquery

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	bq "cloud.google.com/go/bigquery"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/iterator"
)

const (
	callLabel = "recount_call" // on a job: which call submitted it
	maxTries  = 6              // of a statement that the platform asks to try again
)

// submit submits a statement as a job of that id. Where the outcome is unknown, or a job of that id is there already, it
// looks the job up; ours says whether this very call had submitted it.
func (c *Client) submit(ctx context.Context, st statement, id, call string) (job *bq.Job, ours bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.patience())
	defer cancel()
	q := c.bq.Query(st.sql)
	q.JobID, q.Location = id, c.location
	q.Parameters = st.params
	q.DisableQueryCache = true // a cached count measures nothing
	q.Labels = map[string]string{callLabel: call}
	job, err = q.Run(ctx)
	if err == nil {
		return job, true, nil
	}
	if !judge(err).lookUp {
		return nil, false, err //nolint:wrapcheck // judged by the caller
	}
	return c.lookUp(context.WithoutCancel(ctx), id, call, err)
}

// lookUp finds the job that a submission may or may not have made. Where there is none, it answers the submission's error.
func (c *Client) lookUp(ctx context.Context, id, call string, cause error) (*bq.Job, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, c.patience()/2)
	defer cancel()
	job, err := c.bq.JobFromIDLocation(ctx, id, c.location)
	if err != nil {
		return nil, false, cause
	}
	config, err := job.Config()
	if err != nil {
		return nil, false, cause
	}
	q, ok := config.(*bq.QueryConfig)
	if !ok {
		return nil, false, cause
	}
	return job, q.Labels[callLabel] == call, nil
}

// settle polls a job until poll answers no error, or the job's own. A poll that takes too long, or whose outcome is
// unknown, is followed by a look at the job. The context of the last poll lives until the answered function is called.
func (c *Client) settle(ctx context.Context, job *bq.Job, poll func(context.Context) error) (context.CancelFunc, error) {
	running := false
	for pauses := c.pauses(); ; {
		pollCtx, cancel := context.WithCancel(ctx)
		patience := time.AfterFunc(c.patience(), cancel)
		err := poll(pollCtx)
		if patience.Stop(); err == nil {
			return cancel, nil
		}
		cancel()
		if !judge(err).lookUp {
			return nil, err
		}
		if ctx.Err() == nil {
			lookCtx, cancel := context.WithTimeout(ctx, c.patience())
			status, lookErr := job.Status(lookCtx)
			cancel()
			if lookErr == nil && status.Done() && status.Err() != nil {
				return nil, status.Err() //nolint:wrapcheck // judged by the caller
			}
			running = lookErr == nil
		}
		if ctx.Err() == nil && pause(ctx, pauses.NextBackOff()) {
			continue
		}
		if running {
			return nil, fmt.Errorf("%w: %w", errStillRunning, err)
		}
		return nil, err
	}
}

// query runs a SELECT under a fresh job id and hands its rows to take until that answers false. A result is never older
// than the call.
func (c *Client) query(ctx context.Context, st statement, take func(map[string]bq.Value) (more bool)) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.JobTimeout)
	defer cancel()
	rows, release, err := c.result(ctx, st)
	if err != nil {
		return err
	}
	defer release()
	for {
		var row map[string]bq.Value
		err := rows.Next(&row)
		if errors.Is(err, iterator.Done) {
			return nil
		}
		if err != nil {
			return err //nolint:wrapcheck // judged by the caller
		}
		if !take(row) {
			return nil
		}
	}
}

func (c *Client) result(ctx context.Context, st statement) (*bq.RowIterator, context.CancelFunc, error) {
	call := randomID()
	pauses := c.pauses()
	for try, id := 1, "recount-query-"+randomID(); ; try++ {
		var rows *bq.RowIterator
		job, _, err := c.submit(ctx, st, id, call)
		taken := err == nil
		if taken {
			var release context.CancelFunc
			release, err = c.settle(ctx, job, func(ctx context.Context) (err error) {
				rows, err = job.Read(ctx)
				return err //nolint:wrapcheck // judged by the caller
			})
			if err == nil {
				return rows, release, nil
			}
		}
		v := judge(err)
		if !v.again && (!v.lookUp || taken) || try == maxTries || !pause(ctx, pauses.NextBackOff()) {
			return nil, nil, err
		}
		if v.again {
			id = "recount-query-" + randomID()
		}
	}
}

// exec runs a DELETE, and answers the rows that it affected, as far as the platform says. The id names the statement's
// n-th job: a retry, here or in another instance, finds the one that is still running and waits for it. A job that
// another call submitted is only waited for, because it may have begun before rows that this call must delete were
// written; the next id is then taken.
func (c *Client) exec(ctx context.Context, st statement, id func(n int) string) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.JobTimeout)
	defer cancel()
	call := randomID()
	pauses := c.pauses()
	for n, try := 0, 1; ; {
		job, ours, err := c.submit(ctx, st, id(n), call)
		taken := err == nil
		if taken {
			var affected int64
			affected, err = c.await(ctx, job)
			if ours && err == nil {
				return affected, nil
			}
			if !ours && ctx.Err() == nil && !errors.Is(err, errStillRunning) {
				n++
				continue
			}
		}
		v := judge(err)
		if !v.again && (!v.lookUp || taken) {
			return 0, err
		}
		if try++; v.again {
			if n++; try > maxTries {
				return 0, err
			}
		}
		if !pause(ctx, pauses.NextBackOff()) {
			return 0, err
		}
	}
}

// await waits for a DELETE's job and answers the rows that it affected.
func (c *Client) await(ctx context.Context, job *bq.Job) (affected int64, err error) {
	release, err := c.settle(ctx, job, func(ctx context.Context) error {
		status, err := job.Wait(ctx)
		if err != nil {
			return err //nolint:wrapcheck // judged by the caller
		}
		if err := status.Err(); err != nil {
			return err //nolint:wrapcheck // judged by the caller
		}
		if !status.Done() {
			return errStillRunning
		}
		if details, ok := status.Statistics.Details.(*bq.QueryStatistics); ok {
			affected = details.NumDMLAffectedRows
		}
		return nil
	})
	if err == nil {
		release()
	}
	return affected, err
}

// ask makes one metadata call, and again where the outcome is unknown: it changes nothing.
func ask[T any, C interface {
	Do(...googleapi.CallOption) (T, error)
}](ctx context.Context, c *Client, bound func(context.Context) C) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.JobTimeout)
	defer cancel()
	pauses := c.pauses()
	for try := 1; ; try++ {
		callCtx, cancel := context.WithTimeout(ctx, c.patience())
		v, err := bound(callCtx).Do()
		cancel()
		if err == nil || !isPassing(err) || try == maxTries || !pause(ctx, pauses.NextBackOff()) {
			return v, err //nolint:wrapcheck // judged by the caller
		}
	}
}

// isPassing reports an error of a call that changes nothing which another try may not meet.
func isPassing(err error) bool {
	code, reason, _, _ := parts(err)
	return judge(err).lookUp || code == http.StatusTooManyRequests || reason == "rateLimitExceeded"
}
