package bigquery

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	bq "cloud.google.com/go/bigquery"

	"recount/internal/stores"
	"recount/internal/suppression"
)

const (
	recordsPerQuery  = 1000
	rowsPerRequest   = 500
	bytesPerRequest  = 4 << 20
	overheadPerValue = 32
)

// Append writes the rows that are new. How "all or none" is kept:
//
// Every row is checked against the table before the first is sent, and the platform takes a request whole or not at all
// when a row in it is invalid. Only a request that fails in passing, half-way through several or half-way through its
// rows, can leave some written: it is sent again, under the same insert ids, until it went through or the time is over.
// Then the answer is an error and nothing was acknowledged; the caller's retry finds what was written as duplicates and
// writes the rest. So an acknowledged Append is whole, and an unacknowledged one is made whole by a retry.
//
// Records are compared with what the table holds, within this process under a lock per record. Two processes that write
// the same record at the same moment are kept apart by the insert id alone, for about a minute, which the platform calls
// best effort.
func (t *Table) Append(ctx context.Context, rows []stores.Row, seen suppression.Generation) ([]bool, error) {
	if err := ctx.Err(); err != nil {
		return nil, &failure{"the append", err}
	}
	if t.table.Columns == nil {
		return nil, &failure{"the append", errors.New("an owner's table is not written to")}
	}
	if len(rows) == 0 {
		return nil, nil
	}
	pending, firsts, err := t.prepare(rows)
	if err != nil {
		return nil, err
	}
	unlock, err := t.writing.lock(ctx, firsts)
	if err != nil {
		return nil, &failure{"the append", err}
	}
	defer unlock()
	created := make([]bool, len(rows))
	if err := t.unknown(ctx, pending, created); err != nil {
		return nil, t.refusal("looking for records", err)
	}
	if err := t.admit(ctx, rows, seen, created); err != nil {
		return nil, err
	}
	var fresh []*pendingRow
	for _, p := range pending {
		if created[p.record.Pos] {
			fresh = append(fresh, p)
		}
	}
	if err := t.c.insert(ctx, t.table.Name, fresh); err != nil {
		return nil, err
	}
	return created, nil
}

// admit looks at the ledger once more, as late as can be, and takes out of the new rows what it does not admit.
func (t *Table) admit(ctx context.Context, rows []stores.Row, seen suppression.Generation, created []bool) error {
	if t.backstop == nil || !slices.Contains(created, true) {
		return nil
	}
	admitted, err := t.backstop(ctx, rows, seen)
	if err != nil {
		return err
	}
	for i := range created {
		created[i] = created[i] && admitted[i]
	}
	return nil
}

// pendingRow is a row on its way into a table.
type pendingRow struct {
	record record
	values map[string]bq.Value
	id     string // insert id
	size   int
}

// Save is the client's interface for a row.
func (p *pendingRow) Save() (map[string]bq.Value, string, error) { return p.values, p.id, nil }

// prepare checks every row, and answers the first of each record and the records' insert ids.
func (t *Table) prepare(rows []stores.Row) (pending []*pendingRow, ids []string, err error) {
	seen := map[string]bool{}
	for i, row := range rows {
		p, err := t.prepareRow(row)
		if err != nil {
			return nil, nil, &failure{fmt.Sprintf("row %d of the append", i), err}
		}
		if seen[p.id] {
			continue
		}
		seen[p.id] = true
		p.record.Pos = int64(i)
		pending, ids = append(pending, p), append(ids, p.id)
	}
	return pending, ids, nil
}

func (t *Table) prepareRow(row stores.Row) (*pendingRow, error) {
	if len(row) != len(t.table.Columns) {
		return nil, fmt.Errorf("%d values for %d columns", len(row), len(t.table.Columns))
	}
	p := &pendingRow{values: make(map[string]bq.Value, len(row))}
	for i, c := range t.table.Columns {
		v, n, err := stored(c, row[i])
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", c.Name, err)
		}
		p.values[c.Name] = v
		p.size += n + len(c.Name) + overheadPerValue
	}
	p.record.Tenant, _ = p.values[t.table.Tenant].(string)
	p.record.Source, _ = p.values[t.table.Source].(string)
	p.record.SourceRef, _ = p.values[t.table.SourceRef].(string)
	p.id = hex.EncodeToString(t.c.digest("insert", t.table.Name, p.record.Tenant, p.record.Source, p.record.SourceRef)[:16])
	return p, nil
}

// stored checks one value, and answers it as it is sent, and about how many bytes it has.
func stored(c stores.Column, v any) (bq.Value, int, error) {
	if v == nil {
		if !c.Nullable {
			return nil, 0, errors.New("no value")
		}
		return nil, 0, nil
	}
	switch c.Kind {
	case stores.Text, stores.JSON:
		if text, ok := v.(string); ok && utf8.ValidString(text) {
			return text, len(text), nil
		}
	case stores.Real:
		if f, ok := v.(float64); ok && !math.IsNaN(f) && !math.IsInf(f, 0) {
			return f, 8, nil
		}
	case stores.Instant:
		if at, ok := v.(time.Time); ok {
			return at.UTC().Truncate(time.Microsecond), 32, nil
		}
	}
	return nil, 0, errors.New("a value of the wrong type")
}

// unknown asks which records the table holds, and marks the others as new.
func (t *Table) unknown(ctx context.Context, pending []*pendingRow, created []bool) error {
	s, err := t.current(ctx)
	if err != nil {
		return err
	}
	for chunk := range slices.Chunk(pending, recordsPerQuery) {
		records := make([]record, len(chunk))
		for i, p := range chunk {
			records[i] = p.record
			created[p.record.Pos] = true
		}
		malformed := false
		err := t.c.query(ctx, s.known(records), func(row map[string]bq.Value) bool {
			pos, ok := row["pos"].(int64)
			if malformed = !ok || pos < 0 || pos >= int64(len(created)); malformed {
				return false
			}
			created[pos] = false
			return true
		})
		if malformed {
			return errors.New("the answer is not a list of positions")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// insert streams rows into a table, in requests that the platform takes.
func (c *Client) insert(ctx context.Context, table string, rows []*pendingRow) error {
	for len(rows) > 0 {
		n, size := 0, 0
		for n < len(rows) && n < rowsPerRequest && (n == 0 || size+rows[n].size <= bytesPerRequest) {
			size += rows[n].size
			n++
		}
		if err := c.put(ctx, table, rows[:n]); err != nil {
			return judge(err).read("the append", err)
		}
		rows = rows[n:]
	}
	return nil
}

// put sends one request, and again what failed in passing: the insert ids keep a row from being written twice.
func (c *Client) put(ctx context.Context, table string, rows []*pendingRow) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.JobTimeout)
	defer cancel()
	inserter := c.bq.Dataset(c.cfg.Dataset).Table(table).Inserter()
	for pauses := c.pauses(); ; {
		callCtx, cancel := context.WithTimeout(ctx, c.patience())
		err := inserter.Put(callCtx, rows)
		cancel()
		if err == nil {
			return nil
		}
		var byRow bq.PutMultiError
		if errors.As(err, &byRow) {
			left := inPassing(byRow, rows)
			if left == nil {
				return &failure{"a row of the append", err}
			}
			rows = left
		} else if !isPassing(err) {
			return err //nolint:wrapcheck // judged by the caller
		}
		if !pause(ctx, pauses.NextBackOff()) {
			return err //nolint:wrapcheck // judged by the caller
		}
	}
}

// passingRow are the reasons of a row that another try may not meet.
var passingRow = []string{"backendError", "internalError", "timeout", "rateLimitExceeded", "stopped"}

// inPassing answers the rows to send again, or nil where a row was refused for good: then none of them was taken.
func inPassing(failed bq.PutMultiError, rows []*pendingRow) []*pendingRow {
	var left []*pendingRow
	passing := false // "stopped" alone only says that another row is to blame
	for _, row := range failed {
		for _, err := range row.Errors {
			_, reason, _, _ := parts(err)
			if !slices.Contains(passingRow, reason) {
				return nil
			}
			passing = passing || reason != "stopped"
		}
		left = append(left, rows[row.RowIndex])
	}
	if !passing {
		return nil
	}
	return left
}

// keyLocks are locks on records: a call holds all of its own or none.
type keyLocks struct {
	mu   sync.Mutex
	held map[string]chan struct{} // closed when the holder is done
}

func (k *keyLocks) lock(ctx context.Context, keys []string) (unlock func(), err error) {
	for {
		taken := k.try(keys)
		if taken == nil {
			return func() { k.unlock(keys) }, nil
		}
		select {
		case <-taken:
		case <-ctx.Done():
			return nil, ctx.Err() //nolint:wrapcheck // a context's own error says it all
		}
	}
}

// try takes every key, or answers what to wait for.
func (k *keyLocks) try(keys []string) <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range keys {
		if done, ok := k.held[key]; ok {
			return done
		}
	}
	if k.held == nil {
		k.held = map[string]chan struct{}{}
	}
	done := make(chan struct{})
	for _, key := range keys {
		k.held[key] = done
	}
	return nil
}

func (k *keyLocks) unlock(keys []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	close(k.held[keys[0]]) // one channel stands for all of a call's keys
	for _, key := range keys {
		delete(k.held, key)
	}
}
