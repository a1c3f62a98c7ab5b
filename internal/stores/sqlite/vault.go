package sqlite

import (
	"context"

	"recount/internal/stores"
	"recount/internal/subject"
)

// Mirror is a memory that is filled from a table. It is called by the one goroutine that writes the file, after each
// commit and in the order of the work, so that it always holds what the table holds: no import in flight can bring back
// what an erasure took. It MUST return at once.
type Mirror interface {
	// Name is the memory's name as a store.
	Name() string
	// Fill takes in rows that the table took, and hears which were new.
	Fill(rows []stores.Row, created []bool)
	// EraseTargets counts, deletes and recounts every target, and what derives from it.
	EraseTargets(targets []subject.Target, derived [][]subject.Source) []subject.Measurement
}

// Vault is tables of one file that are ours, erased in one transaction with the file's ledger; each may have a memory
// that is filled from it. It keeps subject.Vault, and is safe for concurrent use.
type Vault struct {
	cell   string
	ledger *Ledger
	tables []*Table
}

var _ subject.Vault = (*Vault)(nil)

// Vault binds the tables to the ledger. Its measurements are those of the tables, in order, and behind each table that
// of its mirror. The cell's name tells which stores a target leaves alone.
func (l *Ledger) Vault(cell string, tables ...*Table) *Vault {
	return &Vault{cell: cell, ledger: l, tables: tables}
}

// Mirrored makes a memory follow the table. It MUST be called before the table is used.
func (t *Table) Mirrored(m Mirror) { t.mirror = m }

// EraseTogether keeps subject.Vault: it resolves what the targets' rows are and what derives from them, records that,
// deletes, recounts, and commits; and answers when the files hold nothing of it any more.
func (v *Vault) EraseTogether(ctx context.Context, targets []subject.Target) []subject.Vaulted {
	if len(targets) == 0 {
		return nil
	}
	r := &request{vault: v, targets: targets}
	failure := v.ledger.db.submit(ctx, r)
	if failure == nil {
		return r.vaulted
	}
	out := make([]subject.Vaulted, len(targets))
	for i, target := range targets {
		out[i] = v.untouched(ctx, target, failure)
	}
	return out
}

// untouched is what there is after a failure, when nothing was deleted.
func (v *Vault) untouched(ctx context.Context, target subject.Target, failure error) (out subject.Vaulted) {
	for _, t := range v.tables {
		m := subject.Measurement{DeleteErr: failure}
		m.Deleted = subject.Measured(0)
		left, err := t.countTarget(ctx, target)
		if m.RecountErr = err; err == nil {
			m.Remaining = subject.Measured(left)
		}
		out.Measured = append(out.Measured, m)
		if t.mirror != nil {
			out.Measured = append(out.Measured, subject.Measurement{DeleteErr: failure, RecountErr: failure})
		}
	}
	return out
}

func (t *Table) countTarget(ctx context.Context, target subject.Target) (n int64, err error) {
	if target.AboutPerson() {
		return t.Count(ctx, target.Subject)
	}
	counts, err := t.CountSources(ctx, target.Sources)
	for _, c := range counts {
		n += c
	}
	return n, err
}

// mirror passes a request that was committed on to the memories that are filled from its tables.
func (r *request) mirror() {
	switch {
	case r.given != nil:
		r.table.mirror.Fill(r.given, r.created)
	case r.vault != nil:
		r.vault.mirror(r)
	}
}

func (v *Vault) mirror(r *request) {
	at := 0
	for _, t := range v.tables {
		at++
		if t.mirror == nil {
			continue
		}
		var targets []subject.Target
		var derived [][]subject.Source
		var places []int
		for i, target := range r.targets {
			if !target.Keeps(v.cell, t.mirror.Name()) {
				targets, derived, places = append(targets, target), append(derived, r.derived[i]), append(places, i)
			}
		}
		for n, m := range t.mirror.EraseTargets(targets, derived) {
			m.Suppressed = r.vaulted[places[n]].Measured[at-1].Suppressed
			r.vaulted[places[n]].Measured[at] = m
		}
		at++
	}
}
