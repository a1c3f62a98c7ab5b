package firestore

import (
	"bytes"
	"context"
	"fmt"
	"math/bits"
	"slices"

	fs "cloud.google.com/go/firestore"
	"golang.org/x/mod/sumdb/tlog"

	"recount/internal/ledger"
)

// hashReader reads the tree's hashes from the entries that they are stored with.
func (l *ErasureLedger) hashReader(get func([]*fs.DocumentRef) ([]*fs.DocumentSnapshot, error)) tlog.HashReader {
	return tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		var at []int64 // the entries, each once and in order: a hash is often stored with another
		for _, index := range indexes {
			entry, _ := ledger.StoredWith(index)
			at = append(at, entry)
		}
		slices.Sort(at)
		at = slices.Compact(at)
		if len(at) == 0 {
			return nil, nil
		}
		refs := make([]*fs.DocumentRef, len(at))
		for i, entry := range at {
			refs[i] = l.entry(entry)
		}
		docs, err := get(refs)
		if err != nil {
			return nil, err
		}
		entries, err := entriesOf(docs)
		if err != nil {
			return nil, err
		}
		out := make([]tlog.Hash, len(indexes))
		for i, index := range indexes {
			entry, level := ledger.StoredWith(index)
			place, _ := slices.BinarySearch(at, entry)
			stored := entries[place].Hashes
			if len(stored) < (level+1)*tlog.HashSize {
				return nil, ledger.ErrTampered
			}
			out[i] = tlog.Hash(stored[level*tlog.HashSize:][:tlog.HashSize])
		}
		return out, nil
	})
}

func (l *ErasureLedger) hashes(ctx context.Context) tlog.HashReader {
	return l.hashReader(func(refs []*fs.DocumentRef) ([]*fs.DocumentSnapshot, error) { return l.client.get(ctx, refs) })
}

// verifyTree reports ledger.ErrTampered unless the stored hashes make both heads, and the tree that was signed grew into
// the other. It reads as many hashes as the trees are deep.
func verifyTree(hashes tlog.HashReader, head, signed ledger.Head) error {
	for _, h := range []ledger.Head{head, signed} {
		if h.Size == 0 {
			continue
		}
		root, err := tlog.TreeHash(h.Size, hashes)
		if err != nil {
			return fmt.Errorf("reading the tree: %w", err)
		}
		if root != h.Root {
			return ledger.ErrTampered
		}
	}
	if signed.Size == 0 {
		return nil
	}
	proof, err := tlog.ProveTree(head.Size, signed.Size, hashes)
	if err != nil {
		return fmt.Errorf("reading the tree: %w", err)
	}
	if tlog.CheckTree(proof, head.Size, head.Root, signed.Size, signed.Root) != nil {
		return ledger.ErrTampered
	}
	return nil
}

// Prove keeps ledger.Log. Errors: ledger.ErrNoEntry, ledger.ErrTruncated, ledger.ErrTampered, *subject.Fault.
func (l *ErasureLedger) Prove(ctx context.Context, size, index int64) (tlog.RecordProof, error) {
	if index < 0 || index >= size {
		return nil, ledger.ErrNoEntry
	}
	if err := l.within(ctx, size); err != nil {
		return nil, err
	}
	proof, err := tlog.ProveRecord(size, index, l.hashes(ctx))
	return proof, unrecorded(ctx, err)
}

// Scan keeps ledger.Log. It yields the entries that were there when it was called, and compares each with the hashes that
// are stored with it, and the whole at its end with the head. Errors: yield's, ledger.ErrTampered, ledger.ErrTruncated,
// *subject.Fault.
func (l *ErasureLedger) Scan(ctx context.Context, from int64, yield func(ledger.Entry) error) error {
	head, err := l.Head(ctx)
	from = max(from, 0)
	if err != nil || from >= head.Size {
		return err
	}
	edge, err := l.edgeAt(ctx, from)
	if err != nil {
		return unrecorded(ctx, err)
	}
	for from < head.Size {
		to := min(from+erasuresAtATime, head.Size)
		entries, err := l.entries(ctx, from, to)
		if err != nil {
			return unrecorded(ctx, err)
		}
		for i, e := range entries {
			if !bytes.Equal(joinHashes(edge.Add(e.Line)), e.Hashes) {
				return ledger.ErrTampered
			}
			if err := yield(ledger.Entry{Index: from + int64(i), Line: e.Line}); err != nil {
				return err
			}
		}
		from = to
	}
	if edge.Head() != head {
		return ledger.ErrTampered
	}
	return nil
}

// edgeAt is the edge of the first size entries.
func (l *ErasureLedger) edgeAt(ctx context.Context, size int64) (ledger.Edge, error) {
	var indexes []int64
	for at, rest := int64(0), size; rest > 0; {
		level := bits.Len64(uint64(rest)) - 1
		indexes = append(indexes, tlog.StoredHashIndex(level, at>>level))
		at, rest = at+1<<level, rest-1<<level
	}
	if len(indexes) == 0 {
		return ledger.Edge{}, nil
	}
	roots, err := l.hashes(ctx).ReadHashes(indexes)
	return ledger.Edge{Size: size, Roots: roots}, err
}

// Checkpoint keeps ledger.Log. Errors: ledger.ErrTampered, ledger.ErrTruncated, *subject.Fault.
func (l *ErasureLedger) Checkpoint(ctx context.Context) (note []byte, head ledger.Head, err error) {
	err = l.transact(ctx, nil, func(tx *fs.Transaction, edge ledger.Edge, _ []*fs.DocumentSnapshot) (err error) {
		head = edge.Head()
		if note, err = l.keys.Checkpoint(head); err != nil {
			return err
		}
		return tx.Set(l.signed, erasureCheckpoint{Note: note})
	})
	if err != nil {
		return nil, ledger.Head{}, err
	}
	l.learn(head)
	return note, head, nil
}

// transact runs a change in a transaction that has read the edge, has seen that it is the one that was signed, and has
// read more documents.
func (l *ErasureLedger) transact(ctx context.Context, more func() []*fs.DocumentRef,
	change func(tx *fs.Transaction, edge ledger.Edge, docs []*fs.DocumentSnapshot) error,
) error {
	err := attempt(ctx, func() error {
		return l.client.docs.RunTransaction(ctx, func(_ context.Context, tx *fs.Transaction) error {
			refs := []*fs.DocumentRef{l.head, l.signed}
			if more != nil {
				refs = append(refs, more()...)
			}
			docs, err := tx.GetAll(refs)
			if err != nil {
				return err
			}
			l.mu.Lock()
			known := l.known
			l.mu.Unlock()
			state, err := l.stateOf(docs[0], docs[1], known)
			switch {
			case err != nil:
				return err
			case state.fresh:
				return ledger.ErrTruncated // it was there when it was opened
			case state.signed.Size < state.edge.Size: // an older checkpoint was put back
				if err := verifyTree(l.hashReader(tx.GetAll), state.edge.Head(), state.signed); err != nil {
					return err
				}
			}
			return change(tx, state.edge, docs[2:])
		})
	})
	return unrecorded(ctx, err)
}
