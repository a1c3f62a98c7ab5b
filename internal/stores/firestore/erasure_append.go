package firestore

import (
	"context"
	"time"

	fs "cloud.google.com/go/firestore"
	"github.com/google/uuid"

	"recount/internal/ledger"
	"recount/internal/subject"
)

// appendLimit is how long a transaction may take, its retries included. It is nobody's own: others' entries are in it.
const appendLimit = time.Minute

// erasureAppend is one record on its way in.
type erasureAppend struct {
	line    []byte
	entryID string
	entry   ledger.Entry
	err     error
	done    chan struct{}
}

// Append keeps ledger.Log: what waits at the same time shares a transaction. Errors: *ledger.RecordError,
// ledger.ErrTampered, ledger.ErrTruncated, *subject.Fault.
func (l *ErasureLedger) Append(ctx context.Context, r ledger.Record) (ledger.Entry, error) {
	line, err := r.Encode()
	if err != nil {
		return ledger.Entry{}, err
	}
	if err := ctx.Err(); err != nil {
		return ledger.Entry{}, failed(ctx, err, subject.ReasonBackendBusy)
	}
	a := &erasureAppend{line: line, entryID: r.EntryID, done: make(chan struct{})}
	l.queue.Lock()
	l.waiting = append(l.waiting, a)
	if !l.leading {
		l.leading = true
		go l.lead(context.WithoutCancel(ctx))
	}
	l.queue.Unlock()
	select {
	case <-a.done:
		return a.entry, a.err
	case <-ctx.Done():
		return ledger.Entry{}, failed(ctx, ctx.Err(), subject.ReasonBackendBusy)
	}
}

// lead commits what waits until nothing does.
func (l *ErasureLedger) lead(ctx context.Context) {
	for {
		l.queue.Lock()
		n := min(len(l.waiting), erasuresAtATime)
		batch := l.waiting[:n:n]
		l.waiting = l.waiting[n:]
		l.leading = n > 0
		l.queue.Unlock()
		if n == 0 {
			return
		}
		err := l.commit(ctx, batch)
		for _, a := range batch {
			a.err = err
			close(a.done)
		}
	}
}

// commit appends a batch in one transaction. A try whose answer was lost may have taken: the next one looks for the batch
// where that would have put it, which is the only place that it can be at.
func (l *ErasureLedger) commit(ctx context.Context, batch []*erasureAppend) error {
	ctx, cancel := context.WithTimeout(ctx, appendLimit)
	defer cancel()
	name := uuid.NewString()
	var tried []int64 // where earlier tries began
	var first int64
	var head ledger.Head
	err := l.transact(ctx, func() []*fs.DocumentRef {
		refs := make([]*fs.DocumentRef, len(tried))
		for i, at := range tried {
			refs[i] = l.entry(at)
		}
		return refs
	}, func(tx *fs.Transaction, edge ledger.Edge, docs []*fs.DocumentSnapshot) error {
		for i, doc := range docs {
			var e erasureEntry
			if doc.Exists() && doc.DataTo(&e) == nil && e.Batch == name {
				first, head = tried[i], edge.Head()
				return nil
			}
		}
		first = edge.Size
		if len(tried) == 0 || tried[len(tried)-1] != first {
			tried = append(tried, first)
		}
		grown, err := l.write(tx, edge.Clone(), name, batch)
		head = grown
		return err
	})
	if err != nil {
		return err
	}
	l.learn(head)
	for i, a := range batch {
		a.entry = ledger.Entry{Index: first + int64(i), Line: a.line}
	}
	return nil
}

// write puts a batch behind the edge, and moves the edge and the checkpoint on.
func (l *ErasureLedger) write(tx *fs.Transaction, edge ledger.Edge, name string, batch []*erasureAppend) (ledger.Head, error) {
	for _, a := range batch {
		ref := l.entry(edge.Size)
		hashes := joinHashes(edge.Add(a.line))
		if err := tx.Create(ref, erasureEntry{EntryID: a.entryID, Line: a.line, Hashes: hashes, Batch: name}); err != nil {
			return ledger.Head{}, err
		}
	}
	head := edge.Head()
	note, err := l.keys.Checkpoint(head)
	if err != nil {
		return head, err
	}
	if err := tx.Set(l.head, erasureHead{Size: edge.Size, Roots: joinHashes(edge.Roots)}); err != nil {
		return head, err
	}
	return head, tx.Set(l.signed, erasureCheckpoint{Note: note})
}
