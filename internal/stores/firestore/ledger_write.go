package firestore

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	fs "cloud.google.com/go/firestore"

	"recount/internal/subject"
	"recount/internal/suppression"
)

// transact runs a change in a transaction that has read the state. The change answers whether anything new suppresses:
// then the generation moves on in the same commit.
func (l *Ledger) transact(ctx context.Context, change func(tx *fs.Transaction, next int64) (suppresses bool, err error)) error {
	err := attempt(ctx, func() error {
		return l.client.docs.RunTransaction(ctx, func(_ context.Context, tx *fs.Transaction) error {
			state, err := readState(tx.Get(l.state))
			if err != nil {
				return err
			}
			if err := l.keys.CheckIDs(state.Keys); err != nil {
				return err
			}
			suppresses, err := change(tx, state.Generation+1)
			if err != nil || !suppresses {
				return err
			}
			state.Generation++
			if !slices.Contains(state.Keys, l.keys.Current()) {
				state.Keys = append(state.Keys, l.keys.Current())
			}
			return tx.Set(l.state, state)
		})
	})
	return unreadable(ctx, err)
}

// Record keeps suppression.Ledger: 200 entries are one transaction.
func (l *Ledger) Record(ctx context.Context, entries []suppression.Entry) (inserted int, err error) {
	for chunk := range slices.Chunk(distinctEntries(entries), entriesAtOnce) {
		n := 0
		err := l.transact(ctx, func(tx *fs.Transaction, next int64) (bool, error) {
			n = 0
			known, err := l.recorded(tx, sourcesOf(chunk))
			if err != nil {
				return false, err
			}
			for _, e := range chunk {
				if _, there := known[e.Source]; there {
					continue
				}
				tag := hex.EncodeToString(l.keys.Erasure(e.Source.Tenant(), e.Erasure)[0])
				if err := l.create(tx, e, tag, next); err != nil {
					return false, err
				}
				n++
			}
			return n > 0, nil
		})
		inserted += n
		if err != nil {
			return inserted, err
		}
	}
	return inserted, nil
}

func distinctEntries(entries []suppression.Entry) []suppression.Entry {
	seen := map[subject.Source]bool{}
	var out []suppression.Entry
	for _, e := range entries {
		if !seen[e.Source] {
			seen[e.Source] = true
			out = append(out, e)
		}
	}
	return out
}

func sourcesOf(entries []suppression.Entry) []subject.Source {
	sources := make([]subject.Source, len(entries))
	for i, e := range entries {
		sources[i] = e.Source
	}
	return sources
}

// recorded reads, in a transaction, the entries that are there under any of the keys.
func (l *Ledger) recorded(tx *fs.Transaction, sources []subject.Source) (map[subject.Source]*fs.DocumentSnapshot, error) {
	var refs []*fs.DocumentRef
	for _, s := range sources {
		for _, m := range l.keys.AppendMACs(nil, s) {
			refs = append(refs, l.entry(m))
		}
	}
	docs, err := tx.GetAll(refs)
	if err != nil {
		return nil, err
	}
	known := map[subject.Source]*fs.DocumentSnapshot{}
	for i, doc := range docs {
		if doc.Exists() {
			known[sources[i/l.keys.Width()]] = doc
		}
	}
	return known, nil
}

func (l *Ledger) create(tx *fs.Transaction, e suppression.Entry, erasure string, generation int64) error {
	mac := l.keys.MAC(e.Source)
	return tx.Create(l.entry(mac), entry{
		Tenant: e.Source.Tenant(), Key: l.keys.Current(), Sealed: l.keys.Seal(e.Source, e.Reason, mac), Erasure: erasure,
		Attempt: string(e.Attempt), ErasedAt: e.ErasedAt.UTC(), Generation: generation,
	})
}

// RecordDerived keeps suppression.Ledger.
func (l *Ledger) RecordDerived(ctx context.Context, children map[subject.Source]subject.Source) error {
	for child, parent := range children {
		err := l.transact(ctx, func(tx *fs.Transaction, next int64) (bool, error) {
			known, err := l.recorded(tx, []subject.Source{child, parent})
			if err != nil || known[child] != nil || known[parent] == nil {
				return false, err
			}
			var stored entry
			if err := known[parent].DataTo(&stored); err != nil {
				return false, suppression.ErrSealed
			}
			e := suppression.Entry{Source: child, Reason: suppression.ReasonDerived, ErasedAt: time.Now().Truncate(time.Microsecond)}
			return true, l.create(tx, e, stored.Erasure, next)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Fence keeps suppression.Ledger.
func (l *Ledger) Fence(ctx context.Context, attempt suppression.AttemptID, subjects []subject.Subject, until time.Time) error {
	n := 0
	for chunk := range slices.Chunk(subjects, entriesAtOnce) {
		first := n
		err := l.transact(ctx, func(tx *fs.Transaction, _ int64) (bool, error) {
			for i, s := range chunk {
				tag := hex.EncodeToString(l.keys.Fence(s.Tenant(), s.Identity())[0])
				ref := l.fenced().Doc(fmt.Sprintf("%s-%d", attempt, first+i))
				if err := tx.Set(ref, fence{Attempt: string(attempt), Tag: tag, Until: until.UTC()}); err != nil {
					return false, err
				}
			}
			return true, nil
		})
		if err != nil {
			return err
		}
		n += len(chunk)
	}
	return nil
}

// Lower keeps suppression.Ledger.
func (l *Ledger) Lower(ctx context.Context, attempt suppression.AttemptID) error {
	return l.drop(ctx, l.fenced().Where("attempt", "==", string(attempt)))
}

// Withdraw keeps suppression.Ledger.
func (l *Ledger) Withdraw(ctx context.Context, tenant string, attempt suppression.AttemptID) error {
	if attempt == "" {
		return nil
	}
	return l.drop(ctx, l.entries().Where("attempt", "==", string(attempt)).Where("tenant", "==", tenant))
}

// drop deletes every document of a query.
func (l *Ledger) drop(ctx context.Context, q fs.Query) error {
	for {
		docs, err := l.client.all(ctx, q.Select().Limit(namePage))
		if err != nil || len(docs) == 0 {
			return unreadable(ctx, err)
		}
		refs := make([]*fs.DocumentRef, len(docs))
		for i, doc := range docs {
			refs[i] = doc.Ref
		}
		if _, err := l.client.bulkDelete(ctx, refs); err != nil {
			return unreadable(ctx, err)
		}
	}
}

// Allow keeps suppression.Ledger. An answer that was lost on its way may make a repeated call say that nothing was there.
func (l *Ledger) Allow(ctx context.Context, s subject.Source) (removed bool, err error) {
	err = l.transact(ctx, func(tx *fs.Transaction, _ int64) (bool, error) {
		removed = false
		known, err := l.recorded(tx, []subject.Source{s})
		if err != nil || known[s] == nil {
			return false, err
		}
		removed = true
		return false, tx.Delete(known[s].Ref)
	})
	return removed, err
}
