package cli

import (
	"context"
	"errors"
	"time"

	"recount/internal/subject"
	"recount/internal/wire"
)

type eraseCmd struct {
	who
	Wait     bool          `help:"While stores are pending, call again when they allow it, until --deadline."`
	Deadline time.Duration `default:"3h" help:"How long --wait goes on."`
}

// Help is shown below the flags.
func (eraseCmd) Help() string {
	return `Every store of every cell is counted, deleted from and counted again. 'erased' means that each of them then held 0 rows
that match its declared keys. 'pending' means that a platform will not delete some rows yet: run it again, or --wait.
Repeating an erasure is safe. The identity is never printed; the line of the file and the subject_ref stand for it.

  recount erase --tenant acme --identity-file people.txt --wait
  pass show dsar/4711 | recount erase --tenant acme --identity-file -`
}

// eraser is one run of the command.
type eraser struct {
	*session
	tenant   string
	cells    []string
	people   []person
	outcomes []outcome // one for each person; without receipts while nobody answered
	progress *progressBar
}

// Run erases, and answers the exit code of the worst status.
func (c *eraseCmd) Run(ctx context.Context, s *session) error {
	people, err := c.people(ctx, s)
	if err != nil {
		return err
	}
	e := &eraser{session: s, tenant: c.Tenant, people: people, outcomes: make([]outcome, len(people))}
	for _, t := range s.everyone() {
		e.cells = append(e.cells, t.name)
	}
	todo := make([]int, len(people))
	for i := range todo {
		todo[i] = i
	}
	give := time.Now()
	if c.Wait {
		give = give.Add(c.Deadline)
	}
	for {
		again, after := e.pass(ctx, todo)
		if interrupted(ctx) || len(again) == 0 || !time.Now().Add(after).Before(give) {
			if c.Wait && len(again) > 0 && !interrupted(ctx) {
				s.note("Gave up waiting: the next try would be in %s, past the deadline.", after.Round(time.Second))
			}
			break
		}
		s.note("%s not done yet: next try at %s, in %s.", plural(len(again), "person's erasure"),
			time.Now().Add(after).Format("15:04:05"), after.Round(time.Second))
		sleep(ctx, after)
		if interrupted(ctx) {
			break
		}
		todo = again
	}
	return e.report(ctx)
}

// pass asks for everybody in todo once, and answers who is worth asking for again, and after how long.
func (e *eraser) pass(ctx context.Context, todo []int) (again []int, after time.Duration) {
	e.progress = e.newProgress(len(todo))
	defer e.progress.stop()
	for len(todo) > 0 {
		chunk := todo[:e.fitting(todo)]
		todo = todo[len(chunk):]
		err := e.ask(ctx, chunk)
		e.progress.add(len(chunk))
		for _, i := range chunk {
			if e.outcomes[i].status() == subject.Pending {
				again = append(again, i)
				after = max(after, e.outcomes[i].retryAfter())
			}
		}
		if err == nil {
			continue
		}
		// What broke this call would break the next.
		e.fill(ctx, todo, nothing(subject.ReasonCancelled, "", "not asked for, because a call before it failed"))
		var later *callError
		if errors.As(err, &later) && later.retryAfter > 0 {
			again, after = append(append(again, chunk...), todo...), max(after, later.retryAfter)
		}
		break
	}
	return again, after
}

// maxBatchBytes keeps a request below the size that a coordinator takes (1 MiB), with room for its other fields.
const maxBatchBytes = 1<<20 - 4<<10

// fitting is how many people go into one request.
func (e *eraser) fitting(todo []int) int {
	size := 0
	for n, i := range todo {
		size += 6*len(e.people[i].Identity()) + 3 // JSON may write a byte as six
		if n == wire.MaxBatch || n > 0 && size > maxBatchBytes {
			return n
		}
	}
	return len(todo)
}

// ask sends one request and fills in what its answer is good for. The error is one that the next request would meet too.
func (e *eraser) ask(ctx context.Context, chunk []int) error {
	path, limit := "/v1/intent/subject:batchErase", maxAnswer+int64(len(chunk))*maxPerResult
	var body any
	if len(e.people) == 1 {
		path = "/v1/intent/subject:erase"
		body = wire.SubjectRequest{TenantID: e.tenant, IdentityID: e.people[0].Identity()}
	} else {
		ids := make([]string, len(chunk))
		for i, who := range chunk {
			ids[i] = e.people[who].Identity()
		}
		body = wire.BatchRequest{TenantID: e.tenant, IdentityIDs: ids}
	}
	got, err := e.call.post(ctx, e.coordinator, path, body, limit)
	if err == nil && got.code != 200 && got.code != 409 && got.code != 502 {
		err = got.refusal()
	}
	if err != nil {
		e.fill(ctx, chunk, failure(err, got.requestID))
		return err
	}
	q := question{requestID: got.requestID, tenant: e.tenant, cells: e.cells}
	if len(e.people) == 1 {
		e.settle(chunk[0], judgeErase(got, q))
		return nil
	}
	for i, o := range judgeBatch(got, q, len(chunk)) {
		e.settle(chunk[i], o)
	}
	return nil
}

// settle takes an answer, unless it is about another person than the answer before it.
func (e *eraser) settle(i int, o outcome) {
	if before := e.outcomes[i].ref; before != "" && o.ref != "" && before != o.ref {
		o = nothing(subject.ReasonPeerWrongSubject, o.requestID, "")
	}
	e.outcomes[i] = o
}

// fill gives people the outcome of a call that measured nothing. When the person who asked has taken the call back, what an
// earlier one measured still stands.
func (e *eraser) fill(ctx context.Context, chunk []int, o outcome) {
	for _, i := range chunk {
		if interrupted(ctx) && len(e.outcomes[i].receipts) > 0 {
			continue
		}
		o.ref = e.outcomes[i].ref
		e.outcomes[i] = o
	}
}

// failure is the outcome of a request that brought nothing to judge.
func failure(err error, requestID string) outcome {
	var failed *callError
	if !errors.As(err, &failed) {
		return nothing(subject.ReasonPeerUnreachable, requestID, "")
	}
	return nothing(failed.reason, requestID, failed.hint)
}

// worst is the fold over everybody.
func (e *eraser) worst() subject.Status {
	worst := subject.Erased
	for _, o := range e.outcomes {
		worst = worst.Worse(o.status())
	}
	return worst
}

func exitFor(status subject.Status) error {
	switch status {
	case subject.Erased:
		return nil
	case subject.Pending:
		return exit(exitPending)
	default:
		return exit(exitFailed)
	}
}

// report prints everything and answers the exit code.
func (e *eraser) report(ctx context.Context) error {
	var err error
	switch {
	case e.json:
		err = e.reportJSON()
	case len(e.people) == 1:
		e.reportOne(e.outcomes[0])
	default:
		e.reportMany()
	}
	switch {
	case err != nil:
		return err
	case interrupted(ctx):
		e.note("Interrupted. An erasure that has started goes on in the services; run the command again to see it counted.")
		return exit(exitInterrupted)
	default:
		return exitFor(e.worst())
	}
}

func (e *eraser) reportJSON() error {
	now := time.Now()
	out := wire.BatchResponse{Status: e.worst().String(), Results: make([]wire.EraseResponse, len(e.people))}
	for i, o := range e.outcomes {
		out.Results[i] = wire.FromReceipts(o.requestID, subject.Target{Tenant: e.tenant, Subject: e.people[i].Subject, Ref: o.ref}, o.receipts, now)
	}
	if len(e.people) == 1 {
		return e.writeJSON(out.Results[0])
	}
	return e.writeJSON(out)
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
