package firestore

import (
	"context"
	"maps"
	"slices"

	fs "cloud.google.com/go/firestore"

	"recount/internal/subject"
	"recount/internal/suppression"
)

// changesAtOnce bounds the documents that one transaction writes, which takes 500.
const changesAtOnce = 450

// change is one call's part of a transaction.
type change struct {
	reads  []suppression.MAC // the entries that it looks at
	writes int               // documents that it writes at most
	apply  func(t *turn)     // may be called again, when the transaction is tried again
	err    error             // of this change alone, which was not applied
}

// turn is one transaction of the ledger, whatever calls share it: each sees what those before it did.
type turn struct {
	ledger  *Ledger
	next    int64 // the generation of what it writes
	entries map[suppression.MAC]*turnEntry
	fences  map[string]fence // to be raised, by document id
}

// turnEntry is an entry as a turn has found it, and as it leaves it.
type turnEntry struct {
	stored  entry
	fault   error // it can't be read
	there   bool  // before the turn
	now     bool  // after it
	changed bool
}

// share makes an entry nobody's where another attempt relies on it too.
func (e *turnEntry) share(with suppression.AttemptID) {
	if e.stored.Attempt != "" && e.stored.Attempt != string(with) {
		e.stored.Attempt, e.changed = "", true
	}
}

// change is made with those of other calls that wait, in one transaction: every one of them changes the state. Errors:
// suppression.ErrKeyMissing, suppression.ErrSealed, *subject.Fault.
func (l *Ledger) change(ctx context.Context, c change) error {
	err := l.changes.do(ctx, &c)
	if err == nil {
		err = c.err
	}
	return unreadable(ctx, err)
}

// commit makes changes in one transaction that has read the state. Where anything new suppresses, the generation moves on
// in it.
func (l *Ledger) commit(ctx context.Context, changes []*change) error {
	return attempt(ctx, func() error {
		return l.client.docs.RunTransaction(ctx, func(_ context.Context, tx *fs.Transaction) error {
			state, err := readState(tx.Get(l.state))
			if err != nil {
				return err
			}
			if err := l.keys.CheckIDs(state.Keys); err != nil {
				return err
			}
			t := &turn{ledger: l, next: state.Generation + 1, entries: map[suppression.MAC]*turnEntry{}, fences: map[string]fence{}}
			if err := t.read(tx, changes); err != nil {
				return err
			}
			for _, c := range changes {
				if c.err = t.readable(c); c.err == nil {
					c.apply(t)
				}
			}
			suppresses, err := t.write(tx)
			if err != nil || !suppresses {
				return err
			}
			state.Generation = t.next
			if !slices.Contains(state.Keys, l.keys.Current()) {
				state.Keys = append(state.Keys, l.keys.Current())
			}
			return tx.Set(l.state, state)
		})
	})
}

// read reads what the changes look at: a transaction reads before it writes.
func (t *turn) read(tx *fs.Transaction, changes []*change) error {
	for _, c := range changes {
		for _, m := range c.reads {
			t.entries[m] = &turnEntry{}
		}
	}
	macs := slices.Collect(maps.Keys(t.entries))
	refs := make([]*fs.DocumentRef, len(macs))
	for i, m := range macs {
		refs[i] = t.ledger.entry(m)
	}
	if len(refs) == 0 {
		return nil
	}
	docs, err := tx.GetAll(refs)
	if err != nil {
		return err
	}
	for i, doc := range docs {
		e := t.entries[macs[i]]
		if e.there, e.now = doc.Exists(), doc.Exists(); e.there && doc.DataTo(&e.stored) != nil {
			e.fault = suppression.ErrSealed
		}
	}
	return nil
}

func (t *turn) readable(c *change) error {
	for _, m := range c.reads {
		if err := t.entries[m].fault; err != nil {
			return err
		}
	}
	return nil
}

// held is the entry of a source under any of the keys, nil where there is none.
func (t *turn) held(s subject.Source) *turnEntry {
	for _, m := range t.ledger.macs(s) {
		if e := t.entries[m]; e.now {
			return e
		}
	}
	return nil
}

// create adds an entry, made under the current key. erasure is its keyed hash.
func (t *turn) create(e suppression.Entry, erasure string) {
	keys := t.ledger.keys
	mac := keys.MAC(e.Source)
	at := t.entries[mac]
	at.now, at.changed = true, true
	at.stored = entry{
		Tenant: e.Source.Tenant(), Key: keys.Current(), Sealed: keys.Seal(e.Source, e.Reason, mac), Erasure: erasure,
		Attempt: string(e.Attempt), ErasedAt: e.ErasedAt.UTC(), Generation: t.next,
	}
}

// write leaves the documents as the changes left the entries, and reports whether anything suppresses that did not.
func (t *turn) write(tx *fs.Transaction) (suppresses bool, err error) {
	for m, e := range t.entries {
		ref := t.ledger.entry(m)
		switch {
		case e.now && !e.there:
			suppresses, err = true, tx.Create(ref, e.stored)
		case e.now && e.changed:
			suppresses, err = suppresses || e.stored.Generation == t.next, tx.Set(ref, e.stored)
		case e.there && !e.now:
			err = tx.Delete(ref)
		}
		if err != nil {
			return false, err
		}
	}
	for id, f := range t.fences {
		if err := tx.Set(t.ledger.fenced().Doc(id), f); err != nil {
			return false, err
		}
		suppresses = true
	}
	return suppresses, nil
}
