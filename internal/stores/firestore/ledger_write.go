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

// Record keeps suppression.Ledger: 200 entries are one change.
func (l *Ledger) Record(ctx context.Context, entries []suppression.Entry) (inserted int, err error) {
	for chunk := range slices.Chunk(distinctEntries(entries), entriesAtOnce) {
		n := 0
		err := l.change(ctx, change{reads: l.macs(sourcesOf(chunk)...), writes: len(chunk), apply: func(t *turn) {
			n = 0
			for _, e := range chunk {
				if there := t.held(e.Source); there != nil {
					there.share(e.Attempt)
					continue
				}
				t.create(e, hex.EncodeToString(l.keys.Erasure(e.Source.Tenant(), e.Erasure)[0]))
				n++
			}
		}})
		if err != nil {
			return inserted, err
		}
		inserted += n
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

// RecordDerived keeps suppression.Ledger.
func (l *Ledger) RecordDerived(ctx context.Context, children map[subject.Source]subject.Source) error {
	for child, parent := range children {
		err := l.change(ctx, change{reads: l.macs(child, parent), writes: 1, apply: func(t *turn) {
			if of := t.held(parent); of != nil && t.held(child) == nil {
				e := suppression.Entry{Source: child, Reason: suppression.ReasonDerived, ErasedAt: time.Now().Truncate(time.Microsecond)}
				t.create(e, of.stored.Erasure)
			}
		}})
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
		err := l.change(ctx, change{writes: len(chunk), apply: func(t *turn) {
			for i, s := range chunk {
				tag := hex.EncodeToString(l.keys.Fence(s.Tenant(), s.Identity())[0])
				t.fences[fmt.Sprintf("%s-%d", attempt, first+i)] = fence{Attempt: string(attempt), Tag: tag, Until: until.UTC()}
			}
		}})
		if err != nil {
			return err
		}
		n += len(chunk)
	}
	return nil
}

// Lower keeps suppression.Ledger. No document but the fences has to change with them.
func (l *Ledger) Lower(ctx context.Context, attempt suppression.AttemptID) error {
	for {
		docs, err := l.client.all(ctx, l.fenced().Where("attempt", "==", string(attempt)).Select().Limit(namePage))
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

// Withdraw keeps suppression.Ledger: an entry that another attempt came to share meanwhile is left.
func (l *Ledger) Withdraw(ctx context.Context, tenant string, attempt suppression.AttemptID) error {
	if attempt == "" {
		return nil
	}
	for {
		q := l.entries().Where("attempt", "==", string(attempt)).Where("tenant", "==", tenant)
		docs, err := l.client.all(ctx, q.Select().Limit(entriesAtOnce))
		if err != nil || len(docs) == 0 {
			return unreadable(ctx, err)
		}
		macs := make([]suppression.MAC, len(docs))
		for i, doc := range docs {
			if macs[i], err = macOf(doc.Ref.ID); err != nil {
				return unreadable(ctx, err)
			}
		}
		err = l.change(ctx, change{reads: macs, writes: len(macs), apply: func(t *turn) {
			for _, m := range macs {
				if e := t.entries[m]; e.now && e.stored.Attempt == string(attempt) {
					e.now = false
				}
			}
		}})
		if err != nil {
			return err
		}
	}
}

// Allow keeps suppression.Ledger. An answer that was lost on its way may make a repeated call say that nothing was there.
func (l *Ledger) Allow(ctx context.Context, s subject.Source) (removed bool, err error) {
	var there bool
	err = l.change(ctx, change{reads: l.macs(s), writes: l.keys.Width(), apply: func(t *turn) {
		there = false
		for e := t.held(s); e != nil; e = t.held(s) {
			e.now, there = false, true
		}
	}})
	if err != nil {
		return false, err
	}
	return there, nil
}

func (l *Ledger) macs(sources ...subject.Source) (macs []suppression.MAC) {
	for _, s := range sources {
		macs = l.keys.AppendMACs(macs, s)
	}
	return macs
}
