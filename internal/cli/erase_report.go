package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"recount/internal/subject"
)

// scope is said wherever an erasure is claimed.
const scope = "This is about the rows that match each store's declared keys."

// maxListed is how many people that are not erased are listed one by one.
const maxListed = 20

// reportOne prints the receipts of one person, the verdict, and what may help.
func (e *eraser) reportOne(o outcome) {
	rows := make([][]string, len(o.receipts))
	for i, r := range o.receipts {
		c := r.Counts()
		rows[i] = []string{
			r.Cell(), r.Store(), e.statusWord(r.Status()), number(c.Before), number(c.Deleted), number(c.Remaining), unlessZero(c.Suppressed), unlessZero(c.Derived),
			moment(r.Times().RecoverableUntil), string(r.Reason()), r.Backend(),
		}
	}
	e.table([]column{
		{title: "CELL"},
		{title: "STORE"},
		{title: "STATUS"},
		{title: "BEFORE", number: true},
		{title: "DELETED", number: true},
		{title: "REMAINING", number: true},
		{title: "SUPPRESSED", number: true, spare: true},
		{title: "DERIVED", number: true},
		{title: "RECOVERABLE UNTIL", spare: true},
		{title: "DETAIL"},
		{title: "BACKEND", spare: true},
	}, rows)
	e.say("")
	e.say("%s %s", e.mark(o.status()), e.verdict(o))
	if o.status() == subject.Erased {
		e.say("  %s", scope)
		e.stickiness(o)
	}
	if until := recoverableUntil(o.receipts); !until.IsZero() {
		e.say("  What was deleted can still be brought back by a platform until %s.", moment(until))
	}
	e.advise(o)
	e.say("")
	e.field("subject_ref", string(o.ref))
	e.field("request_id", o.requestID)
}

// verdict is one line. The word erased stands in it only when every receipt folds to it.
func (e *eraser) verdict(o outcome) string {
	byStatus, cells, deleted := map[subject.Status]int{}, map[string]bool{}, int64(0)
	before := int64(0)
	for _, r := range o.receipts {
		byStatus[r.Status()]++
		cells[r.Cell()] = true
		n, _ := r.Counts().Deleted.Value()
		deleted += n
		n, _ = r.Counts().Before.Value()
		before += n
	}
	all := plural(len(o.receipts), "store")
	switch o.status() {
	case subject.Erased:
		if before == 0 {
			return fmt.Sprintf("%s: %s in %s counted again, 0 rows left. Nothing was there before either: if you expected data, check the tenant and\n"+
				"  the spelling of the id, which is compared byte for byte.", e.paint(bold, "erased"), all, plural(len(cells), "cell"))
		}
		return fmt.Sprintf("%s: %s in %s counted again after the delete, 0 rows left (%d deleted).",
			e.paint(bold, "erased"), all, plural(len(cells), "cell"), deleted)
	case subject.Pending:
		return fmt.Sprintf("%s: %d of %s %s rows that the platform won't delete yet. Run it again in %s, or use --wait.",
			e.paint(bold, "pending"), byStatus[subject.Pending], all, holds(byStatus[subject.Pending]), o.retryAfter())
	default:
		return fmt.Sprintf("%s: %d of %s could not be erased, or not be counted again. The person is not erased.",
			e.paint(bold, "failed"), byStatus[subject.Failed], all)
	}
}

// unlessZero is a number that is worth a column, or nothing.
func unlessZero(c subject.Count) string {
	if n, _ := c.Value(); n > 0 {
		return strconv.FormatInt(n, 10)
	}
	return ""
}

// stickiness says what keeps the erased from coming back, and where nothing does.
func (e *eraser) stickiness(o outcome) {
	suppressed := int64(0)
	var open []string
	for _, r := range o.receipts {
		n, _ := r.Counts().Suppressed.Value()
		suppressed += n
		if !r.Sticky() {
			open = append(open, r.Cell()+"/"+r.Store())
		}
	}
	if suppressed > 0 {
		e.say("  What was erased stays away from the next import: recount suppression list shows it, and allow lets it come back.")
	}
	if len(open) > 0 {
		e.say("  Nothing keeps it from coming back into %s.", strings.Join(open, ", "))
	}
}

func holds(n int) string {
	if n == 1 {
		return "holds"
	}
	return "hold"
}

// advise explains each reason once: by what the call itself met, or else in general.
func (e *eraser) advise(outcomes ...outcome) {
	said := map[string]bool{}
	for _, o := range outcomes {
		for _, r := range o.receipts {
			words := o.hint
			if words == "" {
				words = advice[r.Reason()]
			}
			line := fmt.Sprintf("  %s: %s", e.paint(bold, string(r.Reason())), words)
			if r.Reason() != subject.ReasonNone && !said[line] {
				said[line] = true
				e.say("%s", line)
			}
		}
	}
}

// tally is what one store came to over many people.
type tally struct {
	label                    subject.Label
	erased, pending, failed  int
	before, deleted, remains int64
}

// reportMany prints a table per store over everybody, then who is not erased, by line and reference.
func (e *eraser) reportMany() {
	rows := [][]string{}
	for _, t := range tallies(e.outcomes) {
		rows = append(rows, []string{
			t.label.Cell, t.label.Store, e.paint(green, some(t.erased)), e.paint(yellow, some(t.pending)), e.paint(red, some(t.failed)),
			strconv.FormatInt(t.before, 10), strconv.FormatInt(t.deleted, 10), strconv.FormatInt(t.remains, 10), t.label.Backend,
		})
	}
	e.table([]column{
		{title: "CELL"},
		{title: "STORE"},
		{title: "ERASED", number: true},
		{title: "PENDING", number: true},
		{title: "FAILED", number: true},
		{title: "BEFORE", number: true},
		{title: "DELETED", number: true},
		{title: "REMAINING", number: true},
		{title: "BACKEND", spare: true},
	}, rows)
	e.say("")
	count := map[subject.Status]int{}
	var open []int
	var until time.Time
	for i, o := range e.outcomes {
		count[o.status()]++
		if o.status() != subject.Erased {
			open = append(open, i)
		}
		if at := recoverableUntil(o.receipts); at.After(until) {
			until = at
		}
	}
	e.say("%s %s people: %d erased, %d pending, %d failed.", e.mark(e.worst()), e.paint(bold, strconv.Itoa(len(e.people))),
		count[subject.Erased], count[subject.Pending], count[subject.Failed])
	if count[subject.Erased] > 0 {
		e.say("  %s", scope)
	}
	if !until.IsZero() {
		e.say("  What was deleted can still be brought back by a platform until %s.", moment(until))
	}
	if len(open) > 0 {
		e.listOpen(open)
	}
}

func (e *eraser) listOpen(open []int) {
	e.say("")
	rows := [][]string{}
	listed := make([]outcome, 0, len(open))
	for _, i := range open {
		o := e.outcomes[i]
		listed = append(listed, o)
		if len(rows) < maxListed {
			rows = append(rows, []string{strconv.Itoa(e.people[i].line), e.statusWord(o.status()), reasonsOf(o), string(o.ref)})
		}
	}
	e.table([]column{{title: "LINE", number: true}, {title: "STATUS"}, {title: "WHY"}, {title: "SUBJECT_REF"}}, rows)
	if more := len(open) - len(rows); more > 0 {
		e.say("  … and %d more; --json lists them all.", more)
	}
	e.say("")
	e.advise(listed...)
}

// reasonsOf lists the stores that are not erased, with their reasons.
func reasonsOf(o outcome) string {
	var out []string
	for _, r := range o.receipts {
		if r.Status() != subject.Erased {
			out = append(out, fmt.Sprintf("%s/%s %s", r.Cell(), r.Store(), r.Reason()))
		}
	}
	if len(out) > 3 {
		out = append(out[:3], fmt.Sprintf("%d more", len(out)-3))
	}
	return strings.Join(out, ", ")
}

// tallies adds up receipts per store, in the order of their first sight.
func tallies(outcomes []outcome) []*tally {
	type place struct{ cell, store string }
	var out []*tally
	at := map[place]*tally{}
	for _, o := range outcomes {
		for _, r := range o.receipts {
			key := place{r.Cell(), r.Store()}
			t := at[key]
			if t == nil {
				t = &tally{label: subject.Label{Cell: r.Cell(), Store: r.Store(), Backend: r.Backend()}}
				at[key], out = t, append(out, t)
			}
			t.add(r)
		}
	}
	slices.SortStableFunc(out, func(a, b *tally) int { return strings.Compare(a.label.Cell, b.label.Cell) })
	return out
}

func (t *tally) add(r subject.Receipt) {
	switch r.Status() {
	case subject.Erased:
		t.erased++
	case subject.Pending:
		t.pending++
	default:
		t.failed++
	}
	before, _ := r.Counts().Before.Value()
	deleted, _ := r.Counts().Deleted.Value()
	remaining, _ := r.Counts().Remaining.Value()
	t.before, t.deleted, t.remains = t.before+before, t.deleted+deleted, t.remains+remaining
}

func recoverableUntil(receipts []subject.Receipt) time.Time {
	var until time.Time
	for _, r := range receipts {
		if at := r.Times().RecoverableUntil; at.After(until) {
			until = at
		}
	}
	return until
}

// number is a count, or a dash for what was not measured.
func number(c subject.Count) string {
	if _, measured := c.Value(); !measured {
		return "–"
	}
	return c.String()
}

// some is a number, or nothing for none.
func some(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04 UTC")
}
