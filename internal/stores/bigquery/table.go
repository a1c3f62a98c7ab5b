package bigquery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	bq "cloud.google.com/go/bigquery"

	"recount/internal/stores"
	"recount/internal/subject"
)

const (
	inspectTTL = time.Minute      // how old the last look at the live table may be when its rows are counted
	idBucket   = 10 * time.Minute // deletes of the same subjects within it find each other's running job
	namedJobs  = 8                // of one statement in one bucket; beyond, nobody looks for a running one
)

var (
	_ subject.Batch      = (*Table)(nil)
	_ subject.Deferrer   = (*Table)(nil)
	_ subject.Retainer   = (*Table)(nil)
	_ subject.Reader     = (*Table)(nil)
	_ subject.Sourced    = (*Table)(nil)
	_ subject.Described  = (*Table)(nil)
	_ subject.Identified = (*Table)(nil)
	_ subject.Prober     = (*Table)(nil)
	_ stores.Appender    = (*Table)(nil)
	_ stores.Surveyor    = (*Client)(nil)
)

// Table is one table of the dataset. It keeps the contracts of subject.Store, Batch, Deferrer, Retainer, Reader,
// Described, Identified and Prober and, for a table that is ours, of stores.Appender.
type Table struct {
	c       *Client
	table   stores.Table
	counts  *shared
	deletes *shared
	writing keyLocks
	// backstop looks at the suppression ledger once more before rows are written; nil where there is none.
	backstop stores.Backstop

	mu        sync.Mutex
	shape     shape
	inspected time.Time
}

// Option changes how a table is opened.
type Option func(*Table)

// WithBackstop lets the table look at the suppression ledger once more before it writes rows.
func WithBackstop(b stores.Backstop) Option { return func(t *Table) { t.backstop = b } }

// Table checks the live table and answers the store over it. What can't be counted truly is refused, all faults at once:
// errors.As finds each *RefusedError.
func (c *Client) Table(ctx context.Context, t stores.Table, options ...Option) (*Table, error) {
	tab := &Table{c: c, table: t}
	for _, option := range options {
		option(tab)
	}
	tab.counts = newShared(c.life, tab.countNow)
	tab.deletes = newShared(c.life, tab.deleteNow)
	if _, err := tab.look(ctx); err != nil {
		return nil, err
	}
	return tab, nil
}

// Name is the table's logical name.
func (t *Table) Name() string { return t.table.Store }

// Backend is "bigquery".
func (t *Table) Backend() string { return backend }

// About is the table's card.
func (t *Table) About() subject.Card { return t.table.Card }

// IdentityFields are the columns that name a row's subjects.
func (t *Table) IdentityFields() []string { return t.table.Identities }

// Ready looks at the live table again: one that can no longer be counted truly is not ready.
func (t *Table) Ready(ctx context.Context) error {
	_, err := t.look(ctx)
	return t.refusal("inspecting the table", err)
}

// look inspects the live table now.
func (t *Table) look(ctx context.Context) (shape, error) {
	at := t.c.now()
	s, err := t.c.inspect(ctx, t.table)
	if err != nil {
		return shape{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.shape, t.inspected = s, at
	return s, nil
}

// current is the table's shape, inspected again when the last look is old: a row policy or a mask that came since would
// turn rows into a false zero.
func (t *Table) current(ctx context.Context) (shape, error) {
	t.mu.Lock()
	s, fresh := t.shape, t.c.now().Sub(t.inspected) < inspectTTL
	t.mu.Unlock()
	if fresh {
		return s, nil
	}
	return t.look(ctx)
}

// refusal is what a running store answers when the live table was refused.
func (t *Table) refusal(what string, err error) error {
	var refused *RefusedError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused) && refused.missing:
		return &subject.Fault{Reason: subject.ReasonNotFound, Cause: err}
	case refused != nil:
		return &subject.Fault{Reason: subject.ReasonUnsupported, Cause: err}
	default:
		return judge(err).read(what, err)
	}
}

// Count counts the subject's rows. Concurrent counts of one tenant share the next statement.
func (t *Table) Count(ctx context.Context, s subject.Subject) (int64, error) {
	return t.counts.do(ctx, s)
}

// Counts counts every subject's rows in one statement.
func (t *Table) Counts(ctx context.Context, subjects []subject.Subject) ([]int64, error) {
	if err := ctx.Err(); err != nil {
		return nil, &failure{"the count", err}
	}
	return t.countNow(ctx, subjects)
}

func (t *Table) countNow(ctx context.Context, subjects []subject.Subject) ([]int64, error) {
	if len(subjects) == 0 {
		return nil, nil
	}
	tenant, ids, err := unpack(subjects)
	if err != nil {
		return nil, err
	}
	s, err := t.current(ctx)
	if err != nil {
		return nil, t.refusal("the count", err)
	}
	return t.positions(ctx, s.count(tenant, ids), len(ids))
}

// positions runs a statement that answers a number for each of n positions, and takes no other answer.
func (t *Table) positions(ctx context.Context, st statement, n int) ([]int64, error) {
	counts, seen, malformed := make([]int64, n), make([]bool, n), false
	err := t.c.query(ctx, st, func(row map[string]bq.Value) bool {
		pos, okPos := row["pos"].(int64)
		number, okN := row["n"].(int64)
		if !okPos || !okN || number < 0 || pos < 0 || pos >= int64(n) || seen[pos] {
			malformed = true
			return false
		}
		counts[pos], seen[pos] = number, true
		return true
	})
	if err != nil {
		return nil, judge(err).read("the count", err)
	}
	if malformed || slices.Contains(seen, false) {
		return nil, &failure{"the count", errors.New("the answer is not one number for each key")}
	}
	return counts, nil
}

// Delete removes the subject's rows. Concurrent deletes of one tenant share the next statement. It leaves half of the
// caller's time for the recount: a statement that is still running then is *NotYet, and a retry finds it.
func (t *Table) Delete(ctx context.Context, s subject.Subject) (int64, error) {
	wait, cancel := halfOf(ctx)
	defer cancel()
	n, err := t.deletes.do(wait, s)
	return n, stillRunning(ctx, wait, err)
}

// DeleteAll removes every subject's rows in one statement.
func (t *Table) DeleteAll(ctx context.Context, subjects []subject.Subject) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, &failure{"the delete", err}
	}
	if len(subjects) == 0 {
		return 0, nil
	}
	wait, cancel := halfOf(ctx)
	defer cancel()
	n, err := t.erase(wait, subjects)
	return n, stillRunning(ctx, wait, err)
}

func halfOf(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, time.Until(deadline)/2)
}

// stillRunning makes *NotYet of a delete that was only not waited for any longer.
func stillRunning(ctx, wait context.Context, err error) error {
	var known *failure
	if errors.As(err, &known) && ctx.Err() == nil && errors.Is(wait.Err(), context.DeadlineExceeded) {
		return &subject.NotYet{Reason: subject.ReasonBackendBusy, Cause: err}
	}
	return err
}

// deleteNow deletes for the calls that share a statement. What went of each is told by a count just before, where there
// is more than one; it is information, so its failure is 0 and not an error.
func (t *Table) deleteNow(ctx context.Context, subjects []subject.Subject) ([]int64, error) {
	numbers := make([]int64, len(subjects))
	if len(subjects) > 1 {
		if counted, err := t.countNow(ctx, subjects); err == nil {
			numbers = counted
		}
	}
	n, err := t.erase(ctx, subjects)
	if len(subjects) == 1 {
		numbers[0] = n
	}
	return numbers, err
}

func (t *Table) erase(ctx context.Context, subjects []subject.Subject) (int64, error) {
	tenant, ids, err := unpack(subjects)
	if err != nil {
		return 0, err
	}
	s, err := t.current(ctx)
	if err != nil {
		return 0, t.refusal("the delete", err)
	}
	st := s.delete(tenant, ids)
	n, err := t.c.exec(ctx, st, t.jobID(st, tenant, ids))
	if err != nil {
		return 0, judge(err).dml(err)
	}
	return n, nil
}

// jobID names the jobs of one DELETE: the same in every instance, for the same keys in whatever order. The hash is
// keyed, because job ids stay in the project's history.
func (t *Table) jobID(st statement, tenant string, keys []string) func(n int) string {
	sorted := slices.Sorted(slices.Values(keys))
	bucket := t.c.now().UTC().Truncate(idBucket).Unix()
	parts := append([]string{"delete", st.sql, tenant, strconv.FormatInt(bucket, 10)}, sorted...)
	name := fmt.Sprintf("recount-delete-%x", t.c.digest(parts...)[:16])
	return func(n int) string {
		if n >= namedJobs {
			return name + "-" + randomID()
		}
		return name + "-" + strconv.Itoa(n)
	}
}

// unpack takes apart subjects, which MUST be of one tenant.
func unpack(subjects []subject.Subject) (tenant string, ids []string, err error) {
	tenant = subjects[0].Tenant()
	for _, s := range subjects {
		if s.IsZero() || s.Tenant() != tenant {
			return "", nil, &failure{"a statement for subjects of several tenants", errors.New("one tenant at a time")}
		}
		ids = append(ids, s.Identity())
	}
	return tenant, ids, nil
}

// Deferred says that what remains is only not deletable yet, if the table has a streaming buffer now. Its metadata counts
// rows without the buffer, so this is all that it is asked.
func (t *Table) Deferred(ctx context.Context, _ subject.Subject) (*subject.NotYet, error) {
	meta, err := ask(ctx, t.c, t.c.rest.Tables.Get(t.c.cfg.Project, t.c.cfg.Dataset, t.table.Name).Context)
	if err != nil {
		return nil, judge(err).read("reading the table", err)
	}
	if meta.StreamingBuffer == nil {
		return nil, nil //nolint:nilnil // the contract's "can't say so"
	}
	return &subject.NotYet{Reason: subject.ReasonStreamingBuffer}, nil
}

// RecoverableUntil is the end of the platform's fail-safe behind the dataset's time travel window.
func (t *Table) RecoverableUntil(ctx context.Context, deleted time.Time) (time.Time, error) {
	return t.c.recoverableUntil(ctx, deleted), nil
}
