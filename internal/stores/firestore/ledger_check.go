package firestore

import (
	"context"
	"encoding/hex"
	"slices"
	"time"

	fs "cloud.google.com/go/firestore"

	"recount/internal/subject"
	"recount/internal/suppression"
)

// Check asks the filter about every source, and the ledger about what may be there.
func (l *Ledger) Check(ctx context.Context, records []subject.Record) (suppression.Answer, error) {
	g, err := l.known(ctx)
	if err != nil {
		return suppression.Answer{}, err
	}
	a := suppression.Answer{Verdicts: slices.Repeat([]suppression.Verdict{suppression.Admitted}, len(records)), Generation: g, Parents: map[int]subject.Source{}}
	doubts, held := l.doubts(records)
	if behind := l.behind(records, held); len(behind) > 0 { // a fence that was lowered moves nothing: look again
		fences, err := l.refence(ctx)
		if err != nil {
			return suppression.Answer{}, err
		}
		for _, i := range behind {
			if l.isFenced(records[i], fences) {
				a.Verdicts[i] = suppression.Fenced
			}
		}
	}
	gone, err := l.look(ctx, doubts)
	if err != nil {
		return suppression.Answer{}, err
	}
	for i, r := range records {
		if gone[r.Source] {
			a.Verdicts[i] = suppression.Suppressed
			continue
		}
		for _, p := range r.Parents {
			if gone[p] {
				a.Verdicts[i], a.Parents[i] = suppression.Suppressed, p
				break
			}
		}
	}
	return a, nil
}

// doubts are the sources that the filter may hold, with their keys, and the fences.
func (l *Ledger) doubts(records []subject.Record) (map[subject.Source][]suppression.MAC, []fence) {
	doubts := map[subject.Source][]suppression.MAC{}
	macs := make([]suppression.MAC, 0, 8)
	l.mu.RLock()
	defer l.mu.RUnlock()
	ask := func(s subject.Source) {
		macs = l.keys.AppendMACs(macs[:0], s)
		if slices.ContainsFunc(macs, l.filter.MayHold) {
			doubts[s] = slices.Clone(macs)
		}
	}
	for _, r := range records {
		ask(r.Source)
		for _, p := range r.Parents {
			ask(p)
		}
	}
	return doubts, l.fences
}

// behind are the records that one of the fences holds back.
func (l *Ledger) behind(records []subject.Record, fences []fence) (places []int) {
	if len(fences) == 0 {
		return nil
	}
	for i, r := range records {
		if l.isFenced(r, fences) {
			places = append(places, i)
		}
	}
	return places
}

func (l *Ledger) isFenced(r subject.Record, fences []fence) bool {
	now := time.Now()
	for _, identity := range r.Identities {
		for _, tag := range l.keys.Fence(r.Source.Tenant(), identity) {
			text := hex.EncodeToString(tag)
			if slices.ContainsFunc(fences, func(f fence) bool { return f.Tag == text && now.Before(f.Until) }) {
				return true
			}
		}
	}
	return false
}

// refence reads the fences as they are now.
func (l *Ledger) refence(ctx context.Context) (fences []fence, err error) {
	err = attempt(ctx, func() (err error) {
		fences, err = readFences(l.fenced().Documents(ctx).GetAll())
		return err
	})
	return fences, unreadable(ctx, err)
}

// look finds which of the doubts are in the ledger.
func (l *Ledger) look(ctx context.Context, doubts map[subject.Source][]suppression.MAC) (map[subject.Source]bool, error) {
	held := map[subject.Source]bool{}
	var refs []*fs.DocumentRef
	var of []subject.Source
	for s, macs := range doubts {
		for _, m := range macs {
			refs, of = append(refs, l.entry(m)), append(of, s)
		}
	}
	for from := 0; from < len(refs); from += namePage {
		to := min(from+namePage, len(refs))
		docs, err := l.client.get(ctx, refs[from:to])
		if err != nil {
			return nil, unreadable(ctx, err)
		}
		for i, doc := range docs {
			if doc.Exists() {
				held[of[from+i]] = true
			}
		}
	}
	return held, nil
}
