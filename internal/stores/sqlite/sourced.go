package sqlite

import (
	"context"
	"database/sql"
	"slices"

	"recount/internal/subject"
)

// pairsPerQuery is how many sources one statement takes as its argument.
const pairsPerQuery = 5000

// NamesSources reports whether the table has source columns.
func (t *Table) NamesSources() bool { return t.spec.Source != "" }

// Sources answers the sources of each subject's rows.
func (t *Table) Sources(ctx context.Context, subjects []subject.Subject) ([][]subject.Source, error) {
	sets := map[string]*set{}
	for _, s := range subjects {
		t.join(sets, s)
	}
	found := map[string]map[string][]subject.Source{}
	for tenant, g := range sets {
		err := t.read(ctx, func(q querier, live *shape) error {
			found[tenant] = map[string][]subject.Source{}
			rows, err := q.QueryContext(ctx, live.sql.sourced.ofSet, tenant, g.json())
			if err != nil {
				return err //nolint:wrapcheck // read names it
			}
			return eachKeyed(rows, tenant, func(key string, s subject.Source) {
				found[tenant][key] = append(found[tenant][key], s)
			})
		})
		if err != nil {
			return nil, err
		}
	}
	out := make([][]subject.Source, len(subjects))
	for i, s := range subjects {
		out[i] = distinct(found[s.Tenant()][t.key(s)])
	}
	return out, nil
}

// distinct is each source once; an owner's table may have several rows of one.
func distinct(sources []subject.Source) []subject.Source {
	seen := make(map[subject.Source]bool, len(sources))
	out := make([]subject.Source, 0, len(sources))
	for _, s := range sources {
		if !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out
}

// eachKeyed reads rows of a key, a source and a reference. A row without a source is left out.
func eachKeyed(rows *sql.Rows, tenant string, visit func(key string, s subject.Source)) error {
	return visitAll(rows, func(rows *sql.Rows) error {
		var key string
		var source, ref sql.NullString
		if err := rows.Scan(&key, &source, &ref); err != nil {
			return err //nolint:wrapcheck // visitAll names it
		}
		if source.String == "" || ref.String == "" {
			return nil
		}
		s, err := subject.NewSource(tenant, source.String, ref.String)
		if err != nil {
			return &subject.Fault{Reason: subject.ReasonSourceInvalid, Cause: err}
		}
		visit(key, s)
		return nil
	})
}

// DerivedFrom answers what derives from the parents; in an owner's table, nothing is known to.
func (t *Table) DerivedFrom(ctx context.Context, parents []subject.Source) ([]subject.Derivation, error) {
	var out []subject.Derivation
	if t.spec.DerivedFrom == "" || t.foreign() {
		return nil, nil
	}
	for chunk := range slices.Chunk(parents, pairsPerQuery) {
		err := t.db.read(ctx, func(q querier) error {
			rows, err := q.QueryContext(ctx, childrenQuery, chunk[0].Tenant(), pairsJSON(chunk))
			if err != nil {
				return err //nolint:wrapcheck // read names it
			}
			return eachChild(rows, chunk[0].Tenant(), func(store string, d subject.Derivation) {
				if store == t.spec.Store {
					out = append(out, d)
				}
			})
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// eachChild reads rows of childrenQuery.
func eachChild(rows *sql.Rows, tenant string, visit func(store string, d subject.Derivation)) error {
	return visitAll(rows, func(rows *sql.Rows) error {
		var store string
		var parent, child [2]string
		if err := rows.Scan(&parent[0], &parent[1], &store, &child[0], &child[1]); err != nil {
			return err //nolint:wrapcheck // visitAll names it
		}
		p, err := subject.NewSource(tenant, parent[0], parent[1])
		if err != nil {
			return &subject.Fault{Reason: subject.ReasonSourceInvalid, Cause: err}
		}
		c, err := subject.NewSource(tenant, child[0], child[1])
		if err != nil {
			return &subject.Fault{Reason: subject.ReasonSourceInvalid, Cause: err}
		}
		visit(store, subject.Derivation{Parent: p, Child: c})
		return nil
	})
}

// CountSources answers how many rows bear each source.
func (t *Table) CountSources(ctx context.Context, sources []subject.Source) ([]int64, error) {
	tallied := map[subject.Source]int64{}
	for chunk := range slices.Chunk(sources, pairsPerQuery) {
		err := t.read(ctx, func(q querier, live *shape) error {
			rows, err := q.QueryContext(ctx, live.sql.sourced.tally, chunk[0].Tenant(), pairsJSON(chunk))
			if err != nil {
				return err //nolint:wrapcheck // read names it
			}
			return tallyPairs(rows, chunk[0].Tenant(), tallied)
		})
		if err != nil {
			return nil, err
		}
	}
	counts := make([]int64, len(sources))
	for i, s := range sources {
		counts[i] = tallied[s]
	}
	return counts, nil
}

// tallyPairs reads rows of a pair and its count.
func tallyPairs(rows *sql.Rows, tenant string, into map[subject.Source]int64) error {
	return visitAll(rows, func(rows *sql.Rows) error {
		var source, ref string
		var n int64
		if err := rows.Scan(&source, &ref, &n); err != nil {
			return err //nolint:wrapcheck // visitAll names it
		}
		s, err := subject.NewSource(tenant, source, ref)
		if err != nil {
			return &subject.Fault{Reason: subject.ReasonSourceInvalid, Cause: err}
		}
		into[s] = n
		return nil
	})
}

// DeleteSources erases the rows that bear any of the sources, and their bytes from the files.
func (t *Table) DeleteSources(ctx context.Context, sources []subject.Source) (int64, error) {
	if len(sources) == 0 {
		return 0, nil
	}
	var deleted int64
	r := &request{purges: true, work: func(w *writer) error {
		deleted = 0
		live, err := t.current(ctx, w.conn)
		if err != nil {
			return err
		}
		w.seen[t] = live
		for chunk := range slices.Chunk(sources, pairsPerQuery) {
			n, err := w.dropPairs(live, chunk)
			if err != nil {
				return err
			}
			deleted += n
		}
		return nil
	}}
	if err := t.db.submit(ctx, r); err != nil {
		return 0, err
	}
	return deleted, r.purgeErr
}

// dropPairs deletes the rows that bear any of the sources, which are of one tenant.
func (w *writer) dropPairs(live *shape, sources []subject.Source) (int64, error) {
	tenant, arg := sources[0].Tenant(), pairsJSON(sources)
	if err := w.unlinked(live.sql.sourced.unlinkPairs, tenant, arg); err != nil {
		return 0, err
	}
	return w.execRows(live.sql.sourced.drop, tenant, arg)
}
