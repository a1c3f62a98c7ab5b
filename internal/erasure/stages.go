package erasure

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"recount/internal/ledger"
	"recount/internal/subject"
	"recount/internal/wire"
)

// freezeFor is how long a freeze lasts without being prolonged: longer than the longest pause between two tries.
const freezeFor = 2 * time.Hour

// freezeLongest is the longest freeze that a cell takes, with a while for its clock.
const freezeLongest = 24*time.Hour - 5*time.Minute

// entryID names an entry by what it is about, so that the same one is never written twice.
func entryID(id, stage, step string, n int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s|%s|%s|%d", id, stage, step, n))
	return hex.EncodeToString(sum[:16])
}

// whom is everybody and everything that the request names.
func (d *drive) whom(ctx context.Context, r *request) (people, sources []subject.Target, err error) {
	part, err := d.opened(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	return targets(r.TenantID, part.Descriptor, d.Salt)
}

// freeze holds back whoever writes for the people, in every cell that can be reached. A cell that can't be is no reason to
// leave the others' rows where they are: it is frozen at the next try, before anything is deleted from it.
func (d *drive) freeze(ctx context.Context, r *request) (result, error) {
	people, _, err := d.whom(ctx, r)
	if err != nil {
		return result{}, err
	}
	if len(people) == 0 {
		e, err := d.record(ctx, r, stageFreeze, stageNotApplicable, 0, nil)
		return result{status: stageNotApplicable, detail: "no person is named, and a source is suppressed at once", entries: e}, err
	}
	before, err := d.record(ctx, r, stageFreeze, "intent", 0, nil)
	if err != nil {
		return result{}, err
	}
	open := d.hold(ctx, r, people, freezeFor)
	after, err := d.record(ctx, r, stageFreeze, "outcome", 0, func(rec *ledger.Record) { rec.Note = frozenNote(open) })
	return result{status: stageDone, detail: strings.Join(d.reasons(open), ", "), entries: append(before, after...)}, err
}

func frozenNote(open map[string]subject.Reason) string {
	if len(open) == 0 {
		return "frozen"
	}
	return "frozen_in_part"
}

// hold raises the freeze, or prolongs it, and answers the cells where that failed.
func (d *drive) hold(ctx context.Context, r *request, people []subject.Target, long time.Duration) map[string]subject.Reason {
	if len(people) == 0 {
		return nil
	}
	persons := make([]subject.Subject, len(people))
	for i, t := range people {
		persons[i] = t.Subject
	}
	return d.everywhere(func(cell Cell) error {
		return cell.Freeze(ctx, uuid.NewString(), r.FreezeID, persons, d.Now().UTC().Add(min(long, freezeLongest)))
	})
}

// thaw ends the freeze, and answers the cells where that failed: there it runs out by itself.
func (d *drive) thaw(ctx context.Context, r *request) map[string]subject.Reason {
	return d.everywhere(func(cell Cell) error { return cell.Thaw(ctx, uuid.NewString(), r.FreezeID, r.TenantID) })
}

// everywhere asks every cell at once, and answers those that failed, with the reason.
func (d *drive) everywhere(ask func(Cell) error) map[string]subject.Reason {
	faults := make([]error, len(d.Cells))
	var wg sync.WaitGroup
	for i, cell := range d.Cells {
		wg.Go(func() { faults[i] = ask(cell) })
	}
	wg.Wait()
	failed := map[string]subject.Reason{}
	for i, err := range faults {
		if err != nil {
			failed[d.Cells[i].Name()] = subject.ReasonOf(err)
		}
	}
	return failed
}

// reasons are those of cells where something failed, in the cells' order.
func (d *drive) reasons(failed map[string]subject.Reason) (list []string) {
	for _, cell := range d.Cells {
		if reason := failed[cell.Name()]; reason != "" {
			list = append(list, cell.Name()+": "+string(reason))
		}
	}
	return list
}

// enumerate writes the program of this attempt: where the rows are that are about to be deleted. It covers the cells that
// answered for all their stores; from the others nothing is deleted in this attempt.
func (d *drive) enumerate(ctx context.Context, r *request) (result, error) {
	people, sources, err := d.whom(ctx, r)
	if err != nil {
		return result{}, err
	}
	open := d.hold(ctx, r, people, freezeFor) // tried again with the next attempt
	frozen := strings.Join(d.reasons(open), ", ")
	all := append(people, sources...)
	found := d.survey(ctx, all, true)
	d.follow(ctx, all, &found)
	if why := d.moved(r, found); why != "" {
		if r.stage(stageExecute).StartedAt == nil {
			d.thaw(ctx, r)
		}
		return result{status: stageWaiting, undo: true, after: func(r *request) { d.reconsider(r, why, d.Now().UTC()) }}, nil
	}
	covered := slices.DeleteFunc(found.covered(r, d.Cells), func(cell string) bool { return open[cell] != "" })
	found.explain(open)
	body, err := program(r, found, covered)
	if err != nil {
		return result{}, err
	}
	id := entryID(r.ID, stageEnumerate, "outcome", r.Attempts*maxEpochs+int(d.epoch))
	if err := d.Programs.Write(ctx, id, body); err != nil {
		return result{}, fmt.Errorf("keeping a program: %w", err)
	}
	e, err := d.record(ctx, r, stageEnumerate, "outcome", r.Attempts*maxEpochs+int(d.epoch), func(rec *ledger.Record) {
		rec.ProgramRef, rec.ProgramHash = "erasure-programs/"+id+".jsonl", ledger.Hash(body)
	})
	var missing []string
	for _, cell := range d.Cells {
		if !slices.Contains(covered, cell.Name()) {
			missing = append(missing, cell.Name())
		}
	}
	detail := ""
	if len(missing) > 0 {
		detail = "not enumerated, and left alone in this attempt: " + strings.Join(missing, ", ")
	}
	return result{status: stageDone, detail: detail, entries: e, after: func(r *request) {
		r.Enumerated, r.Program = covered, id
		if st := r.stage(stageFreeze); st.Detail != frozen && st.Status == stageDone {
			if frozen == "" {
				r.note(d.Now().UTC(), "recount", "frozen", "in every cell; before that not in "+st.Detail)
			}
			st.Detail = frozen
		}
		d.counted(r, found)
	}}, err
}

// moved says why what was approved is not what there is: no more than that is deleted.
func (d *drive) moved(r *request, found survey) string {
	switch {
	case r.Preview == nil:
		return "no preview"
	case d.drifted(r.Preview, found, r.Covered):
		return "drift"
	case overCap(r, found):
		return "cap"
	default:
		return ""
	}
}

// explain says of the stores of a cell that could not be frozen why they are left alone.
func (v *survey) explain(open map[string]subject.Reason) {
	for _, p := range v.places {
		if reason := open[p.Cell]; reason != "" && p.Detail == "" {
			p.Detail = string(reason)
		}
	}
}

// maxEpochs keeps the numbers of attempts apart under any epoch.
const maxEpochs = 1 << 20

// covered are the cells that answered for every store that is not excluded.
func (v survey) covered(r *request, cells []Cell) (names []string) {
	for _, cell := range cells {
		whole := false
		for _, p := range v.places {
			if p.Cell != cell.Name() || isExcluded(r, p.name()) {
				continue
			}
			if _, counted := p.Count.Value(); !counted {
				whole = false
				break
			}
			whole = true
		}
		if whole {
			names = append(names, cell.Name())
		}
	}
	return names
}

// execute deletes what the program covers, by the cascade, and keeps what every store measured.
func (d *drive) execute(ctx context.Context, r *request) (result, error) {
	people, sources, err := d.whom(ctx, r)
	if err != nil {
		return result{}, err
	}
	n := r.Attempts*maxEpochs + int(d.epoch)
	refer := func(rec *ledger.Record) { rec.ProgramRef = "erasure-programs/" + r.Program + ".jsonl" }
	before, err := d.record(ctx, r, stageExecute, "intent", n, refer)
	if err != nil {
		return result{}, err
	}
	keep := d.keep(r)
	requestID := r.ID // the cascade's, and of every audit row that it leaves
	var receipts []subject.Receipt
	for _, batch := range [][]subject.Target{people, sources} {
		if len(batch) == 0 || len(r.Enumerated) == 0 {
			continue
		}
		for i := range batch {
			batch[i].Keep = keep
		}
		for i, erasure := range d.Eraser.EraseBatch(ctx, requestID, batch) {
			receipts = append(receipts, erasure.Receipts...)
			d.auditErase(r, requestID, batch[i], erasure.Receipts)
		}
	}
	measured := outcomes(receipts, d.Now().UTC())
	after, err := d.record(ctx, r, stageExecute, "outcome", n, func(rec *ledger.Record) {
		refer(rec)
		rec.RowsDeleted = map[string]int64{}
		for _, o := range measured {
			if deleted, ok := o.Deleted.Value(); ok {
				rec.RowsDeleted[o.Cell+"/"+o.Store] = deleted
			}
		}
	})
	if err != nil {
		return result{}, err
	}
	out := result{status: stageDone, entries: append(before, after...), after: func(r *request) {
		r.Covered = union(r.Covered, r.Enumerated)
		merge(r, measured)
	}}
	merge(r, measured) // this copy, to judge
	var open []string
	for _, o := range r.Stores {
		if o.Status != "erased" && o.Status != retained {
			open = append(open, o.Cell+"/"+o.Store+" "+o.Status+" "+o.Detail)
		}
	}
	// What one cell resolved, every other is asked for: nothing is over before one attempt had them all.
	for _, name := range d.leftAlone(r) {
		if !slices.ContainsFunc(open, func(o string) bool { return strings.HasPrefix(o, name+"/") }) {
			open = append(open, name+"/"+subject.AnyStore+" left alone in this attempt, and what derives from the others' rows may be there")
		}
	}
	if len(open) > 0 {
		out.status, out.detail, out.wait = stagePending, strings.Join(open, "; "), waitFor(receipts)
		if out.wait > 0 {
			d.hold(ctx, r, people, out.wait+freezeFor)
		}
	}
	return out, nil
}

// leftAlone are the cells that this attempt does not cover, although they hold something that is to go.
func (d *drive) leftAlone(r *request) (names []string) {
	for _, cell := range d.Cells {
		if name := cell.Name(); !slices.Contains(r.Enumerated, name) && !d.allExcluded(r, name) {
			names = append(names, name)
		}
	}
	return names
}

func union(a, b []string) []string {
	out := slices.Clone(a)
	for _, s := range b {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// waitFor is how long the platform asks to be left alone, if all that is open is that.
func waitFor(receipts []subject.Receipt) (wait time.Duration) {
	for _, receipt := range receipts {
		switch receipt.Status() {
		case subject.Failed:
			return 0
		case subject.Pending:
			wait = max(wait, receipt.RetryAfter())
		}
	}
	return wait
}

// keep are the stores that this attempt leaves alone: those that are excluded, and every store of a cell that is not in
// the program.
func (d *drive) keep(r *request) []string {
	var keep []string
	for _, cell := range d.Cells {
		name := cell.Name()
		if !slices.Contains(r.Enumerated, name) || d.allExcluded(r, name) {
			keep = append(keep, name+"/"+subject.AnyStore)
			continue
		}
		for _, e := range r.Exclusions {
			if strings.HasPrefix(e.Store, name+"/") {
				keep = append(keep, e.Store)
			}
		}
	}
	return keep
}

func (d *drive) allExcluded(r *request, cell string) bool {
	some := false
	for _, o := range r.Stores {
		if o.Cell == cell {
			if some = true; o.Status != retained {
				return false
			}
		}
	}
	return some
}

// verify counts everything once more, in every cell. What is found goes round again.
func (d *drive) verify(ctx context.Context, r *request) (result, error) {
	people, sources, err := d.whom(ctx, r)
	if err != nil {
		return result{}, err
	}
	d.hold(ctx, r, people, freezeFor) // it may be a while since it was raised
	found := d.survey(ctx, append(people, sources...), false)
	now := d.Now().UTC()
	out := result{status: stageDone, after: func(r *request) { recounted(r, found, now) }}
	var hits, unknown []string
	for _, p := range found.places {
		n, counted := p.Count.Value()
		switch {
		case !counted: // of what is excluded too: a certificate says how much was retained
			unknown = append(unknown, p.name()+" "+p.Detail)
		case isExcluded(r, p.name()):
		case n > 0 || !known(r, p):
			hits = append(hits, p.name())
		}
	}
	if len(hits) > 0 || len(unknown) > 0 {
		out.status, out.back = stagePending, len(hits) > 0
		out.detail = strings.Join(append(hits, unknown...), "; ")
		return out, nil
	}
	note := "pass1_zero"
	out.detail = "pass 1 counted 0 in every store"
	if n := len(r.Exclusions); n > 0 {
		note = "pass1_zero_but_retained"
		out.detail = fmt.Sprintf("pass 1 counted 0 in every store that was to be erased; %d retained under Art. 17(3)", n)
	}
	if out.detail += "; pass 2, the byte scan, is not_applicable"; r.Identifiers > 0 {
		note += "_pass2_not_applicable"
	}
	out.entries, err = d.record(ctx, r, stageVerify, "outcome", r.Attempts*maxEpochs+int(d.epoch), func(rec *ledger.Record) { rec.Note = note })
	if err != nil {
		return result{}, err
	}
	if failed := d.thaw(ctx, r); len(failed) > 0 {
		out.detail += "; the freeze runs out by itself in " + strings.Join(d.reasons(failed), ", ")
	}
	return out, nil
}

// known reports whether the request has an outcome of the store: one that appeared since the program was written has not.
func known(r *request, p *place) bool {
	return slices.ContainsFunc(r.Stores, func(o wire.StoreOutcome) bool { return o.Cell == p.Cell && o.Store == p.Store })
}

func isExcluded(r *request, store string) bool {
	return slices.ContainsFunc(r.Exclusions, func(e wire.Exclusion) bool { return e.Store == store })
}
