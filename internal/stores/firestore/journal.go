package firestore

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	fs "cloud.google.com/go/firestore"
	"google.golang.org/api/iterator"

	"recount/internal/stores"
	"recount/internal/subject"
	"recount/internal/suppression"
)

const (
	appendField = "append_id" // which call of Append wrote the document
	appendRows  = 400         // rows in one transaction at most
	appendBytes = 4 << 20     // and about how large: Firestore takes 10 MiB
	purgeRounds = 5
)

// Journal is a collection of our own: rows come in once, are counted, read and erased like any store's, and are replayed
// as a whole. A document's id is a hash of (tenant, source, source_ref).
type Journal struct {
	*Collection

	record func(stores.Row) (subject.Record, error)
	ledger *Ledger // nil where nothing is suppressed
}

// Journal opens a collection that is ours. The table MUST have its columns set. With a ledger, which MUST be of the same
// database, an append that commits after a source was recorded leaves the source's rows out: it reads the ledger's
// generation in its own transaction.
func (c *Client) Journal(ctx context.Context, table stores.Table, ledger *Ledger) (*Journal, error) {
	col, err := c.Collection(ctx, table)
	if err != nil {
		return nil, err
	}
	j := &Journal{Collection: col, record: table.Records(), ledger: ledger}
	for _, name := range append([]string{table.Tenant, table.Source, table.SourceRef}, table.Identities...) {
		i := table.Index(name)
		if i < 0 || table.Columns[i].Kind != stores.Text || table.Columns[i].Nullable {
			return nil, fmt.Errorf("store %s: key column %q must be one of its text columns and not nullable", table.Store, name)
		}
	}
	for _, own := range []string{appendField, parentsField} {
		if table.Index(own) >= 0 {
			return nil, fmt.Errorf("store %s: a column can't be called %s", table.Store, own)
		}
	}
	if ledger != nil {
		if err := j.listParents(ctx); err != nil {
			return nil, fmt.Errorf("store %s: %w", table.Store, err)
		}
	}
	return j, nil
}

// Append keeps the contract of stores.Appender. A row that doesn't fit the table refuses the whole call before anything
// is written.
//
// Up to 400 rows or 4 MiB are one transaction: all or none. A larger call is several, in order, and a transaction that
// Firestore finds too big is cut in halves: where one of them fails, the rows before it are durable and those after it are
// not written, and the error is all that the caller gets. To send the whole call again is safe: what is there is a
// duplicate, and the rest is written. An answer that was lost on its way is no failure: a repeated transaction
// recognises its own rows, and they are new.
func (j *Journal) Append(ctx context.Context, rows []stores.Row, seen suppression.Generation) ([]bool, error) {
	items := make([]item, len(rows))
	for i, row := range rows {
		var err error
		if items[i], err = j.item(row); err != nil {
			return nil, err
		}
	}
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails: crypto/rand ends the program instead
	call := hex.EncodeToString(id[:])
	created := make([]bool, 0, len(rows))
	for rest := items; len(rest) > 0; {
		n := batchOf(rest)
		batch, err := j.appendGuarded(ctx, call, rest[:n], &seen)
		if err != nil {
			return nil, failed(ctx, err, subject.ReasonBackendBusy)
		}
		created = append(created, batch...)
		rest = rest[n:]
	}
	first := make(map[string]bool, len(items))
	for i, it := range items { // a record that is twice in this call is new once
		created[i] = created[i] && !first[it.name]
		first[it.name] = true
	}
	return created, nil
}

// appendGuarded appends what the ledger admits. Whenever the ledger has moved on from the generation that the rows were
// checked under, nothing is written and they are checked again.
func (j *Journal) appendGuarded(ctx context.Context, call string, items []item, seen *suppression.Generation) ([]bool, error) {
	admitted, places := items, []int(nil)
	for range purgeRounds {
		created, err := j.appendBatch(ctx, call, admitted, *seen)
		if err == nil {
			return spread(created, places, len(items)), nil
		}
		if !errors.Is(err, errMoved) {
			return nil, err
		}
		records := make([]subject.Record, len(items))
		for i, it := range items {
			records[i] = it.record
		}
		answer, err := j.ledger.Check(ctx, records)
		if err != nil {
			return nil, err
		}
		*seen, admitted, places = answer.Generation, nil, []int{}
		for i, v := range answer.Verdicts {
			switch v {
			case suppression.Fenced:
				return nil, &subject.Fault{Reason: subject.ReasonFenced}
			case suppression.Admitted:
				admitted, places = append(admitted, items[i]), append(places, i)
			}
		}
		if len(admitted) == 0 {
			return make([]bool, len(items)), nil
		}
	}
	return nil, &subject.Fault{Reason: subject.ReasonConcurrentUpdate}
}

// spread puts what was created back in the places of the items that were admitted; nil places are all.
func spread(created []bool, places []int, n int) []bool {
	if places == nil {
		return created
	}
	out := make([]bool, n)
	for i, at := range places {
		out[at] = created[i]
	}
	return out
}

// item is a row on its way in.
type item struct {
	name   string
	fields map[string]any
	size   int
	record subject.Record
}

func batchOf(items []item) int {
	size := 0
	for i, it := range items {
		if size += it.size; i > 0 && (i == appendRows || size > appendBytes) {
			return i
		}
	}
	return len(items)
}

func (j *Journal) appendBatch(ctx context.Context, call string, items []item, seen suppression.Generation) (created []bool, err error) {
	err = attempt(ctx, func() error {
		return j.client.docs.RunTransaction(ctx, func(_ context.Context, tx *fs.Transaction) error {
			created, err = j.create(tx, call, items, seen)
			return err
		})
	})
	if err == nil || !isRefused(err) || len(items) == 1 {
		return created, err
	}
	half := len(items) / 2
	if created, err = j.appendBatch(ctx, call, items[:half], seen); err != nil {
		return nil, err
	}
	second, err := j.appendBatch(ctx, call, items[half:], seen)
	return append(created, second...), err
}

// create writes the documents that are missing, and answers which are this call's own.
func (j *Journal) create(tx *fs.Transaction, call string, items []item, seen suppression.Generation) ([]bool, error) {
	if j.ledger != nil {
		state, err := readState(tx.Get(j.ledger.state))
		if err != nil {
			return nil, err
		}
		if suppression.Generation(state.Generation) != seen {
			return nil, errMoved
		}
	}
	index, refs := map[string]int{}, []*fs.DocumentRef(nil)
	for _, it := range items {
		if _, known := index[it.name]; !known {
			index[it.name] = len(refs)
			refs = append(refs, j.Collection.ref.Doc(it.name))
		}
	}
	docs, err := tx.GetAll(refs)
	if err != nil {
		return nil, err
	}
	created, pending := make([]bool, len(items)), make([]bool, len(refs))
	for i, it := range items {
		at := index[it.name]
		if docs[at].Exists() {
			writer, err := docs[at].DataAt(appendField)
			created[i] = err == nil && writer == call
			continue
		}
		created[i] = true
		if pending[at] {
			continue
		}
		pending[at] = true
		it.fields[appendField] = call
		if err := tx.Create(refs[at], it.fields); err != nil {
			return nil, err
		}
	}
	return created, nil
}

var errRow = errors.New("a row does not fit its table")

func (j *Journal) item(row stores.Row) (item, error) {
	if len(row) != len(j.table.Columns) {
		return item{}, errRow
	}
	it := item{fields: make(map[string]any, len(row)+1)}
	for i, column := range j.table.Columns {
		value, ok := fits(column, row[i])
		if !ok {
			return item{}, errRow
		}
		it.fields[column.Name] = value
		if text, ok := value.(string); ok {
			it.size += len(text)
		}
		it.size += len(column.Name) + smallValue
	}
	var err error
	if it.record, err = j.record(row); err != nil {
		return item{}, errRow
	}
	it.name = documentID(it.record.Source)
	if len(it.record.Parents) > 0 {
		it.fields[parentsField] = parentKeys(it.record.Parents)
	}
	return it, nil
}

// fits is the value as it is stored, if it has the column's kind.
func fits(column stores.Column, value any) (any, bool) {
	switch v := value.(type) {
	case nil:
		return nil, column.Nullable
	case string:
		return v, column.Kind == stores.Text || column.Kind == stores.JSON
	case float64:
		return v, column.Kind == stores.Real
	case time.Time:
		return v.UTC().Truncate(time.Microsecond), column.Kind == stores.Instant
	default:
		return nil, false
	}
}

// Scan hands every row to fn, once, in no order that means anything, and holds few of them at a time. A stream that breaks
// is taken up again behind the last row. The error of fn ends the scan and is answered as it is.
func (j *Journal) Scan(ctx context.Context, fn func(stores.Row) error) error {
	last, failures := "", 0
	for {
		n, err := j.scanPage(ctx, &last, fn)
		var stop *stopError
		switch {
		case errors.As(err, &stop):
			return stop.error
		case err == nil && n < scanPage:
			return nil
		case n > 0:
			failures = 0
		}
		if err == nil {
			continue
		}
		if failures++; failures == attempts || !isPassing(err) || !pause(ctx, failures) {
			return failed(ctx, err, subject.ReasonReadFailed)
		}
	}
}

const scanPage = 1000

// stopError is the consumer's own.
type stopError struct{ error }

func (j *Journal) scanPage(ctx context.Context, last *string, fn func(stores.Row) error) (n int, err error) {
	q := j.Collection.ref.OrderBy(fs.DocumentID, fs.Asc).Limit(scanPage)
	if *last != "" {
		q = q.StartAfter(*last)
	}
	docs := q.Documents(ctx)
	defer docs.Stop()
	for {
		doc, err := docs.Next()
		if errors.Is(err, iterator.Done) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		row, err := j.row(doc)
		if err != nil {
			return n, err
		}
		if err := fn(row); err != nil {
			return n, &stopError{err}
		}
		*last = doc.Ref.ID
		n++
	}
}

// row is the document as it came in. A document that is no row of this table is an error: to skip it would leave it out
// of the memory that the journal is replayed into.
func (j *Journal) row(doc *fs.DocumentSnapshot) (stores.Row, error) {
	fields := doc.Data()
	row := make(stores.Row, len(j.table.Columns))
	for i, column := range j.table.Columns {
		value, ok := fits(column, fields[column.Name])
		if !ok {
			return nil, &subject.Fault{Reason: subject.ReasonReadFailed, Cause: errRow}
		}
		row[i] = value
	}
	return row, nil
}

// Purge deletes every document of the journal, whoever it belongs to, and answers no error only when a count afterwards
// was 0. Errors: *subject.Fault with rows_remain when others keep writing.
func (j *Journal) Purge(ctx context.Context) (deleted int64, err error) {
	for range purgeRounds {
		for {
			docs, err := j.client.all(ctx, j.Collection.ref.Select().Limit(namePage))
			if err != nil {
				return deleted, failed(ctx, err, subject.ReasonDeleteFailed)
			}
			if len(docs) == 0 {
				break
			}
			refs := make([]*fs.DocumentRef, len(docs))
			for i, doc := range docs {
				refs[i] = doc.Ref
			}
			n, err := j.client.bulkDelete(ctx, refs)
			deleted += n
			if err != nil {
				return deleted, err
			}
		}
		left, err := aggregate(ctx, j.Collection.ref.Query)
		if err != nil {
			return deleted, failed(ctx, err, subject.ReasonRecountFailed)
		}
		if left == 0 {
			return deleted, nil
		}
	}
	return deleted, &subject.Fault{Reason: subject.ReasonRowsRemain}
}
