package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"

	"recount/internal/stores"
	"recount/internal/subject"
)

// Table is one table of an open file. It is safe for concurrent use.
type Table struct {
	db     *DB
	spec   stores.Table
	record func(values []any) (subject.Record, error) // of a row of a table that is ours
	mirror Mirror                                     // what is filled from the table; nil for most
	shape  atomic.Pointer[shape]
	mixed  bool // the writer's: the last append held new rows and others
}

var (
	_ subject.Store     = (*Table)(nil)
	_ subject.Atomic    = (*Table)(nil)
	_ subject.Batch     = (*Table)(nil)
	_ subject.Reader    = (*Table)(nil)
	_ subject.Sourced   = (*Table)(nil)
	_ subject.Described = (*Table)(nil)
	_ subject.Prober    = (*Table)(nil)
	_ stores.Appender   = (*Table)(nil)
	_ stores.Surveyor   = (*DB)(nil)
)

// Table opens one table of the file: one that is ours (Columns is set) is created when missing, an owner's must be one
// that can be counted truly. The error names the table, what is wrong with it, and how to mend it.
func (db *DB) Table(ctx context.Context, spec stores.Table) (*Table, error) {
	t, err := db.table(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("store %s, table %s: %w", spec.Store, spec.Name, err)
	}
	return t, nil
}

func (db *DB) table(ctx context.Context, spec stores.Table) (*Table, error) {
	if spec.Columns != nil {
		if err := checkOurs(spec); err != nil {
			return nil, err
		}
		if err := db.submit(ctx, &request{setup: creation(spec), work: func(*writer) error {
			db.derivations = db.derivations || spec.DerivedFrom != ""
			return nil
		}}); err != nil {
			return nil, err
		}
	}
	records := spec.Records()
	t := &Table{db: db, spec: spec, record: func(values []any) (subject.Record, error) { return records(values) }}
	err := db.read(ctx, func(q querier) error {
		live, err := t.examine(ctx, q)
		t.shape.Store(live)
		return err
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// Name is the logical name of the store.
func (t *Table) Name() string { return t.spec.Store }

// Backend is "sqlite".
func (t *Table) Backend() string { return Backend }

// About is the store's card.
func (t *Table) About() subject.Card { return t.spec.Card }

// IdentityFields are the columns that name a row's subjects.
func (t *Table) IdentityFields() []string { return t.spec.Identities }

// Ready reports whether the table can be read and, where it is an owner's, counted truly.
func (t *Table) Ready(ctx context.Context) error {
	return t.read(ctx, func(q querier, live *shape) error {
		var one int
		err := q.QueryRowContext(ctx, live.sql.probe).Scan(&one)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return err //nolint:wrapcheck // read names it
	})
}

// Count is the number of the subject's rows.
func (t *Table) Count(ctx context.Context, s subject.Subject) (int64, error) {
	var n int64
	err := t.read(ctx, func(q querier, live *shape) error {
		if err := refuseBlobs(ctx, q, live.sql.blobOne, s.Tenant(), t.key(s)); err != nil {
			return err
		}
		return q.QueryRowContext(ctx, live.sql.countOne, s.Tenant(), t.key(s)).Scan(&n) //nolint:wrapcheck // read names it
	})
	return n, err
}

// Counts is Count for many subjects.
func (t *Table) Counts(ctx context.Context, subjects []subject.Subject) ([]int64, error) {
	sets := map[string]*set{}
	for _, s := range subjects {
		t.join(sets, s)
	}
	counted := map[string]map[string]int64{}
	for tenant, set := range sets {
		err := t.read(ctx, func(q querier, live *shape) error {
			if err := refuseBlobs(ctx, q, live.sql.blobSet, tenant, set.json()); err != nil {
				return err
			}
			rows, err := q.QueryContext(ctx, live.sql.tallySet, tenant, set.json())
			if err != nil {
				return err //nolint:wrapcheck // read names it
			}
			counted[tenant], err = tally(rows)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	counts := make([]int64, len(subjects))
	for i, s := range subjects {
		counts[i] = counted[s.Tenant()][t.key(s)]
	}
	return counts, nil
}

// Delete erases one subject's rows, and their bytes from the files.
func (t *Table) Delete(ctx context.Context, s subject.Subject) (int64, error) {
	return t.DeleteAll(ctx, []subject.Subject{s})
}

// DeleteAll is Delete for many subjects, in one transaction.
func (t *Table) DeleteAll(ctx context.Context, subjects []subject.Subject) (deleted int64, err error) {
	if len(subjects) == 0 {
		return 0, nil
	}
	r := &request{table: t, subjects: subjects}
	if err := t.db.submit(ctx, r); err != nil {
		return 0, err
	}
	for _, m := range r.measured {
		n, _ := m.Deleted.Value()
		deleted += n
		err = errors.Join(err, m.PurgeErr)
	}
	return deleted, err
}

// Erase counts, deletes and recounts in one transaction, and answers when the files hold nothing of it any more. When
// it failed before the commit, nothing was deleted, and the recount is of what is there still.
func (t *Table) Erase(ctx context.Context, subjects []subject.Subject) []subject.Measurement {
	if len(subjects) == 0 {
		return nil
	}
	r := &request{table: t, subjects: subjects}
	failure := t.db.submit(ctx, r)
	if failure == nil {
		return r.measured
	}
	out := make([]subject.Measurement, len(subjects))
	left, err := t.Counts(ctx, subjects)
	for i := range out {
		out[i] = subject.Measurement{DeleteErr: failure, RecountErr: err}
		out[i].Deleted = subject.Measured(0)
		if err == nil {
			out[i].Remaining = subject.Measured(left[i])
		}
	}
	return out
}

// key is what the subject's identity is compared with.
func (t *Table) key(s subject.Subject) string {
	if t.spec.Match == stores.MatchCasefold {
		return fold(s.Identity())
	}
	return s.Identity()
}
