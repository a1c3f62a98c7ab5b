// Package intake takes in the records of a cell: it judges each line by itself, turns it into a row, and appends rows
// in batches, so that a body of any size is read in bounded memory.
package intake

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/sync/semaphore"

	"recount/internal/stores"
	"recount/internal/subject"
	"recount/internal/suppression"
	"recount/internal/wire"
)

const (
	// MaxLineBytes is the longest record. A longer line rejects itself alone.
	MaxLineBytes = 1 << 20
	batchRows    = 1000
	batchBytes   = 1 << 20
	bufferBytes  = 256 << 10
)

// ErrNotJSON says that the body of a single record is not JSON.
var ErrNotJSON = errors.New("the body is not one JSON value")

// ErrTooLarge says that the body of a single record is longer than MaxLineBytes.
var ErrTooLarge = errors.New("the record is longer than 1 MiB: send records as application/x-ndjson, one a line")

// Guard is asked before anything is written, and is told of every write that is under way: suppression.Guard.
type Guard interface {
	// Ahead decides about a batch while the one before it is still being written; nil where that is not safe.
	Ahead(ctx context.Context, records []subject.Record) *suppression.Decision
	Write(ctx context.Context, records []subject.Record, ahead *suppression.Decision, write func(context.Context, suppression.Decision) error) (suppression.Decision, error)
	// Recheck is the decision as it is now, for records that were admitted and not taken.
	Recheck(ctx context.Context, records []subject.Record, d suppression.Decision) suppression.Decision
}

// Appender takes in rows: all or none, durable when it answers, duplicates changing nothing.
type Appender interface {
	Append(ctx context.Context, rows []stores.Row, seen suppression.Generation) (created []bool, err error)
}

// Budget is what all bodies together may hold in memory, however many callers there are, and however slowly they send.
// Whoever waits, for a caller or for the budget itself, holds no rows: they are being appended, and that ends.
type Budget struct {
	rows  *semaphore.Weighted // bytes of lines that were read and are not appended yet
	lines *semaphore.Weighted // lines that outgrew their buffer, and have not ended yet
}

// NewBudget allows 64 MiB of rows, and 64 long lines of up to MaxLineBytes each.
func NewBudget() *Budget {
	return &Budget{rows: semaphore.NewWeighted(64 << 20), lines: semaphore.NewWeighted(64)}
}

// Intake is the write endpoint of one kind of record.
type Intake struct {
	Kind   Kind
	Guard  Guard
	Store  Appender
	Budget *Budget // shared by all that a process takes in
	// Count, where set, is told how many records ended in each outcome, for the metrics.
	Count func(endpoint, outcome string, n int)
}

// Take reads a body to its end and answers what became of each record. mayWrite says whether the caller may write for
// a tenant. Blank lines are passed over. Errors: ErrNotJSON and ErrTooLarge for a single record, the reader's own, or
// the store's: what was appended before it stays, and sending the body again makes those records duplicates.
func (in *Intake) Take(ctx context.Context, mayWrite func(tenant string) bool, body io.Reader, ndjson bool) (wire.IntakeResponse, error) {
	t := &taking{Intake: in, mayWrite: mayWrite, now: time.Now().UTC(), record: in.Kind.Table.Records()}
	t.out.Rejected = []wire.Rejected{}
	defer func() { t.Budget.rows.Release(t.bytes) }() // what an error left
	var err error
	if ndjson {
		err = t.lines(ctx, body)
	} else {
		err = t.single(ctx, body)
	}
	if in.Count != nil {
		in.Count(in.Kind.Name, "accepted", t.out.Accepted)
		in.Count(in.Kind.Name, "duplicate", t.out.Duplicates)
		in.Count(in.Kind.Name, "rejected", t.out.RejectedTotal)
		in.Count(in.Kind.Name, "skipped_suppressed", t.out.SkippedSuppressed)
		in.Count(in.Kind.Name, "skipped_unreadable", t.out.SkippedUnreadable)
	}
	return t.out, err
}

// taking is one body on its way in. While one batch is being appended, the next is being read.
type taking struct {
	*Intake
	mayWrite func(string) bool
	record   func(stores.Row) (subject.Record, error)
	now      time.Time
	out      wire.IntakeResponse
	rows     []stores.Row
	bytes    int64 // of the budget, held for rows
	pending  chan appended
}

func (t *taking) single(ctx context.Context, body io.Reader) error {
	record, err := io.ReadAll(io.LimitReader(body, MaxLineBytes+1))
	switch {
	case err != nil:
		return fmt.Errorf("reading the body: %w", err)
	case len(record) > MaxLineBytes:
		return ErrTooLarge
	case !jsontext.Value(record).IsValid(jsontext.AllowDuplicateNames(true)):
		return ErrNotJSON
	}
	if err := t.line(ctx, 1, record); err != nil {
		return err
	}
	return t.finish(ctx)
}

func (t *taking) lines(ctx context.Context, body io.Reader) error {
	r := lineReader{Reader: bufio.NewReaderSize(body, bufferBytes), long: t.Budget.lines, wait: func() error { return t.flush(ctx) }}
	defer r.close()
	for number := 1; ; number++ {
		line, tooLong, err := r.next(ctx)
		switch {
		case err != nil && !errors.Is(err, io.EOF):
			return t.stop(ctx, err)
		case tooLong:
			t.reject(number, ReasonLineTooLong)
		case len(line) > 0:
			if err := t.line(ctx, number, line); err != nil {
				return err
			}
		}
		if len(t.rows) >= batchRows || t.bytes >= batchBytes || r.Buffered() == 0 {
			if err := t.flush(ctx); err != nil {
				return err
			}
		}
		if err != nil {
			return t.finish(ctx)
		}
	}
}

// stop keeps what was read before the body broke, and answers the break.
func (t *taking) stop(ctx context.Context, err error) error {
	if storeErr := t.finish(ctx); storeErr != nil {
		return storeErr
	}
	return fmt.Errorf("reading the body: %w", err)
}

// line judges one line. The error is the store's, or ctx's, when there is no room for the row.
func (t *taking) line(ctx context.Context, number int, line []byte) error {
	row, tenant, reason := t.Kind.parse(line, t.now)
	if reason == "" && !t.mayWrite(tenant) {
		reason = ReasonTenantNotAllowed
	}
	if reason != "" {
		t.reject(number, reason)
		return nil
	}
	if size := int64(len(line)); !t.Budget.rows.TryAcquire(size) {
		if err := t.flush(ctx); err != nil {
			return err
		}
		if err := t.Budget.rows.Acquire(ctx, size); err != nil {
			return fmt.Errorf("waiting for room: %w", err)
		}
	}
	t.rows, t.bytes = append(t.rows, row), t.bytes+int64(len(line))
	return nil
}

func (t *taking) reject(number int, reason string) {
	t.out.RejectedTotal++
	if len(t.out.Rejected) < wire.MaxRejected {
		t.out.Rejected = append(t.out.Rejected, wire.Rejected{Line: number, Reason: reason})
	}
}

// flush waits for the batch that is being appended, and starts to append the one that was read meanwhile.
func (t *taking) flush(ctx context.Context) error {
	if len(t.rows) == 0 {
		return nil
	}
	rows, size, done := t.rows, t.bytes, make(chan appended, 1)
	b, err := t.batch(ctx, rows)
	if err != nil {
		return err
	}
	if err := t.settle(); err != nil {
		return err
	}
	t.rows, t.bytes, t.pending = make([]stores.Row, 0, len(rows)), 0, done
	go func() {
		result := t.append(ctx, b)
		t.Budget.rows.Release(size)
		done <- result
	}()
	return nil
}

func (t *taking) settle() error {
	if t.pending == nil {
		return nil
	}
	result := <-t.pending
	t.pending = nil
	if result.err != nil {
		return fmt.Errorf("appending records: %w", result.err)
	}
	t.out.Accepted += result.accepted
	t.out.Duplicates += result.duplicates
	t.out.SkippedSuppressed += result.suppressed
	t.out.SkippedUnreadable += result.unreadable
	return nil
}

func (t *taking) finish(ctx context.Context) error {
	if err := t.flush(ctx); err != nil {
		return err
	}
	return t.settle()
}
