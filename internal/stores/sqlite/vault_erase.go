package sqlite

import (
	"database/sql"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"recount/internal/subject"
	"recount/internal/suppression"
)

// sourceSet is a set of sources.
type sourceSet map[subject.Source]bool

// haul is one target on its way through a transaction.
type haul struct {
	target   subject.Target
	asked    sourceSet                 // the target, where it is sources
	reasons  map[subject.Source]string // everything that was found, with the reason to record it
	recorded sourceSet                 // those that an earlier erasure under the same reference recorded
	fresh    []subject.Source          // found, and what derives from them is not known yet
	derived  sourceSet                 // to be erased by source, beside the target itself
	own      map[*Table]sourceSet      // of the person's rows in the table
	found    map[*Table]sourceSet      // in the table, what derives included
	before   map[*Table]int64
}

func newHaul(target subject.Target) *haul {
	h := &haul{
		target: target, asked: sourceSet{}, reasons: map[subject.Source]string{}, recorded: sourceSet{}, derived: sourceSet{},
		own: map[*Table]sourceSet{}, found: map[*Table]sourceSet{}, before: map[*Table]int64{},
	}
	for _, s := range target.Sources {
		h.asked[s] = true
		h.add(s, suppression.ReasonSource)
	}
	return h
}

func (h *haul) add(s subject.Source, reason string) {
	if _, known := h.reasons[s]; !known {
		h.reasons[s] = reason
		h.fresh = append(h.fresh, s)
	}
}

func note(in map[*Table]sourceSet, t *Table, s subject.Source) {
	if in[t] == nil {
		in[t] = sourceSet{}
	}
	in[t][s] = true
}

// trawl is the hauls of one tenant in one vault, which share every statement.
type trawl struct {
	*writer
	vault   *Vault
	tables  []*Table // that are erased from: the others are left alone
	tenant  string
	hauls   []*haul
	people  map[string][]*haul // by identity
	keys    set
	dropped []subject.Source // everything that is erased by source
	held    map[*Table]map[subject.Source]int64
	left    map[*Table]map[subject.Source]int64
	after   map[*Table]map[string]int64
}

// eraseVaults erases from each vault what the requests name.
func (w *writer) eraseVaults(requests []*request) error {
	type place struct {
		vault        *Vault
		tenant, keep string
	}
	trawls := map[place]*trawl{}
	hauls := map[*request][]*haul{}
	for _, r := range requests {
		for _, target := range r.targets {
			at := place{r.vault, target.Tenant, strings.Join(target.Keep, " ")}
			if trawls[at] == nil {
				trawls[at] = &trawl{
					writer: w, vault: r.vault, tenant: target.Tenant, tables: r.vault.erased(target), people: map[string][]*haul{}, keys: set{known: map[string]bool{}},
					held: map[*Table]map[subject.Source]int64{}, left: map[*Table]map[subject.Source]int64{}, after: map[*Table]map[string]int64{},
				}
			}
			h := newHaul(target)
			trawls[at].take(h)
			hauls[r] = append(hauls[r], h)
		}
	}
	for _, t := range trawls {
		if err := t.erase(); err != nil {
			return err
		}
	}
	for r, mine := range hauls {
		r.vaulted, r.derived = make([]subject.Vaulted, len(mine)), make([][]subject.Source, len(mine))
		for i, h := range mine {
			r.vaulted[i] = trawls[place{r.vault, h.target.Tenant, strings.Join(h.target.Keep, " ")}].measured(h)
			r.derived[i] = slices.Collect(maps.Keys(h.derived))
		}
	}
	return nil
}

// erased are the tables that a target is erased from.
func (v *Vault) erased(t subject.Target) []*Table {
	if len(t.Keep) == 0 {
		return v.tables
	}
	return slices.DeleteFunc(slices.Clone(v.tables), func(table *Table) bool { return t.Keeps(v.cell, table.spec.Store) })
}

func (t *trawl) take(h *haul) {
	t.hauls = append(t.hauls, h)
	if !h.target.AboutPerson() {
		return
	}
	identity := h.target.Subject.Identity()
	t.people[identity] = append(t.people[identity], h)
	if !t.keys.known[identity] {
		t.keys.known[identity] = true
		t.keys.keys = append(t.keys.keys, identity)
	}
}

// erase is the algorithm for a ledger that shares the transaction: resolve, record, delete, recount.
func (t *trawl) erase() error {
	for _, step := range []func() error{t.resolve, t.recall, t.follow, t.recordAll, t.drop, t.recount} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// one picks the statement for a single key, or that for a list of them.
func (t *trawl) one(single, many string) (statement, arg string) {
	if len(t.keys.keys) == 1 {
		return single, t.keys.keys[0]
	}
	return many, t.keys.json()
}

// resolve counts the people's rows, and reads where each comes from.
func (t *trawl) resolve() error {
	if len(t.keys.keys) == 0 {
		return nil
	}
	for _, table := range t.tables {
		q := table.shape.Load().sql.sourced
		statement, arg := t.one(q.ofOne, q.ofSet)
		err := t.each(statement, []any{t.tenant, arg}, func(rows *sql.Rows) error {
			var key, source, ref string
			if err := rows.Scan(&key, &source, &ref); err != nil {
				return err //nolint:wrapcheck // each names it
			}
			s, err := subject.NewSource(t.tenant, source, ref)
			if err != nil {
				return &subject.Fault{Reason: subject.ReasonSourceInvalid, Cause: err}
			}
			for _, h := range t.people[key] {
				h.before[table]++
				h.add(s, suppression.ReasonSubject)
				note(h.own, table, s)
				note(h.found, table, s)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// recall takes up what an earlier erasure under the same reference recorded: the rows that told are gone since.
func (t *trawl) recall() error {
	refs := make([]subject.Ref, len(t.hauls))
	for i, h := range t.hauls {
		refs[i] = h.target.Ref
	}
	recorded, err := t.vault.ledger.recorded(t.tenant, refs, t.query)
	if err != nil {
		return unreadable(err)
	}
	for i, h := range t.hauls {
		for _, e := range recorded[i] {
			h.add(e.Source, e.Reason)
			h.recorded[e.Source] = true
			if e.Reason != suppression.ReasonSubject && !h.asked[e.Source] {
				h.derived[e.Source] = true
			}
		}
	}
	return nil
}

// follow finds what derives from anything that was found, until nothing new does.
func (t *trawl) follow() error {
	derives, err := t.derives()
	if err != nil || !derives {
		return err
	}
	tables := map[string]*Table{}
	for _, table := range t.tables {
		tables[table.spec.Store] = table
	}
	for {
		frontier := sourceSet{}
		for _, h := range t.hauls {
			for _, s := range h.fresh {
				frontier[s] = true
			}
			h.fresh = nil
		}
		if len(frontier) == 0 {
			return nil
		}
		for chunk := range slices.Chunk(slices.Collect(maps.Keys(frontier)), pairsPerQuery) {
			rows, err := t.query(childrenQuery, []any{t.tenant, pairsJSON(chunk)})
			if err != nil {
				return err
			}
			err = eachChild(rows, t.tenant, func(store string, d subject.Derivation) {
				if table := tables[store]; table != nil {
					t.derived(table, d)
				}
			})
			if err != nil {
				return err
			}
		}
	}
}

// derived gives a derivation to every haul that has the parent.
func (t *trawl) derived(table *Table, d subject.Derivation) {
	for _, h := range t.hauls {
		if _, mine := h.reasons[d.Parent]; !mine {
			continue
		}
		h.add(d.Child, suppression.ReasonDerived)
		note(h.found, table, d.Child)
		if !h.asked[d.Child] {
			h.derived[d.Child] = true
		}
	}
}

// recordAll writes down what was found, before any of it is deleted.
func (t *trawl) recordAll() error {
	var entries []suppression.Entry
	seen := sourceSet{}
	now := time.Now().UTC()
	for _, h := range t.hauls {
		for s, reason := range h.reasons {
			if !seen[s] && !h.recorded[s] {
				seen[s] = true
				entries = append(entries, suppression.Entry{Source: s, Reason: reason, ErasedAt: now, Erasure: h.target.Ref})
			}
		}
	}
	_, err := t.record(t.vault.ledger, entries)
	return err
}

// drop deletes the people's rows, and those that are erased by their source.
func (t *trawl) drop() error {
	all := sourceSet{}
	for _, h := range t.hauls {
		maps.Copy(all, h.asked)
		maps.Copy(all, h.derived)
	}
	t.dropped = slices.Collect(maps.Keys(all))
	if err := t.tallyDropped(t.held); err != nil {
		return err
	}
	for _, table := range t.tables {
		live := table.shape.Load()
		if len(t.keys.keys) > 0 {
			off, arg := t.one(live.sql.sourced.unlinkOne, live.sql.sourced.unlinkSet)
			drop, _ := t.one(live.sql.deleteOne, live.sql.deleteSet)
			if err := errors.Join(t.unlinked(off, t.tenant, arg), t.exec(drop, t.tenant, arg)); err != nil {
				return err
			}
		}
		for chunk := range slices.Chunk(t.dropped, pairsPerQuery) {
			if _, err := t.dropPairs(live, chunk); err != nil {
				return err
			}
		}
	}
	return nil
}

// tallyDropped counts, in every table, the rows that bear what is erased by source.
func (t *trawl) tallyDropped(into map[*Table]map[subject.Source]int64) error {
	for _, table := range t.tables {
		into[table] = map[subject.Source]int64{}
		for chunk := range slices.Chunk(t.dropped, pairsPerQuery) {
			rows, err := t.query(table.shape.Load().sql.sourced.tally, []any{t.tenant, pairsJSON(chunk)})
			if err != nil {
				return err
			}
			if err := tallyPairs(rows, t.tenant, into[table]); err != nil {
				return err
			}
		}
	}
	return nil
}

// recount counts again, in the same transaction: a row that returns after the commit is no residue.
func (t *trawl) recount() error {
	for _, table := range t.tables {
		if len(t.keys.keys) == 0 {
			continue
		}
		live := table.shape.Load()
		count, arg := t.one(live.sql.tallyOne, live.sql.tallySet)
		var err error
		if t.after[table], err = t.tally(count, t.tenant, arg); err != nil {
			return err
		}
	}
	return t.tallyDropped(t.left)
}

// measured is what came of one haul in every table; the place behind a table with a mirror is left to that.
func (t *trawl) measured(h *haul) subject.Vaulted {
	out := subject.Vaulted{Sources: slices.Collect(maps.Keys(h.reasons))}
	for _, table := range t.vault.tables {
		before, after := h.before[table], int64(0)
		if h.target.AboutPerson() {
			after = t.after[table][h.target.Subject.Identity()]
		}
		for s := range h.asked {
			before, after = before+t.held[table][s], after+t.left[table][s]
		}
		had, left := int64(0), int64(0)
		for s := range h.derived {
			if !h.own[table][s] { // a person's own rows are counted as such
				had += t.held[table][s]
			}
			left += t.left[table][s]
		}
		suppressed := int64(len(h.asked))
		for s := range h.found[table] {
			if !h.asked[s] {
				suppressed++
			}
		}
		m := subject.Measurement{}
		if !slices.Contains(t.tables, table) {
			m.DeleteErr = &subject.Fault{Reason: subject.ReasonNoReason} // left alone, and not measured
		}
		m.Before, m.Deleted, m.Remaining = subject.Measured(before), subject.Measured(before-after), subject.Measured(after+left)
		m.Suppressed, m.Derived = subject.Measured(suppressed), subject.Measured(max(0, had-left))
		out.Measured = append(out.Measured, m)
		if table.mirror != nil {
			out.Measured = append(out.Measured, subject.Measurement{DeleteErr: &subject.Fault{Reason: subject.ReasonUnknown}})
		}
	}
	return out
}
