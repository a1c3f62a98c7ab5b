package firestore

import (
	"context"

	fs "cloud.google.com/go/firestore"
	"github.com/google/uuid"

	"recount/internal/ledger"
)

// erasureAppend is one record on its way in.
type erasureAppend struct {
	line    []byte
	entryID string
	entry   ledger.Entry // where it was put
}

// Append keeps ledger.Log: what waits at the same time shares a transaction. Errors: *ledger.RecordError,
// ledger.ErrTampered, ledger.ErrTruncated, *subject.Fault.
func (l *ErasureLedger) Append(ctx context.Context, r ledger.Record) (ledger.Entry, error) {
	line, err := r.Encode()
	if err != nil {
		return ledger.Entry{}, err
	}
	a := &erasureAppend{line: line, entryID: r.EntryID}
	if err := l.appends.do(ctx, a); err != nil {
		return ledger.Entry{}, unrecorded(ctx, err)
	}
	return a.entry, nil
}

// commit appends a batch in one transaction. A try whose answer was lost may have taken: the next one looks for the batch
// where that would have put it, which is the only place that it can be at.
func (l *ErasureLedger) commit(ctx context.Context, batch []*erasureAppend) error {
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
