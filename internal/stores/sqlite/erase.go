package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"

	"recount/internal/subject"
)

// set is the distinct keys of one table and tenant that are counted or deleted by one statement.
type set struct {
	keys   []string
	known  map[string]bool
	before map[string]int64
	after  map[string]int64
}

// join puts the subject into the set of its tenant.
func (t *Table) join(sets map[string]*set, s subject.Subject) {
	g := sets[s.Tenant()]
	if g == nil {
		g = &set{known: map[string]bool{}}
		sets[s.Tenant()] = g
	}
	if key := t.key(s); !g.known[key] {
		g.known[key] = true
		g.keys = append(g.keys, key)
	}
}

// json is the set as one argument: a statement has a limit of variables, a text has none that matters.
func (g *set) json() string {
	text, err := json.Marshal(g.keys)
	if err != nil {
		panic(err) // strings always marshal
	}
	return string(text)
}

// erase counts, deletes and recounts everything that the requests name: one statement per step for each table and
// tenant, whoever asked. Two that erase the same subject are both told what there was.
func (w *writer) erase(requests []*request) error {
	sets := map[*Table]map[string]*set{}
	for _, r := range requests {
		if sets[r.table] == nil {
			sets[r.table] = map[string]*set{}
		}
		for _, s := range r.subjects {
			r.table.join(sets[r.table], s)
		}
	}
	for table, tenants := range sets {
		live, err := table.current(context.Background(), w.conn)
		if err != nil {
			return err
		}
		w.seen[table] = live
		for tenant, g := range tenants {
			if err := w.eraseSet(&live.sql, tenant, g); err != nil {
				return err
			}
		}
	}
	for _, r := range requests {
		r.measured = make([]subject.Measurement, len(r.subjects))
		for i, s := range r.subjects {
			g, key := sets[r.table][s.Tenant()], r.table.key(s)
			r.measured[i].Before = subject.Measured(g.before[key])
			r.measured[i].Deleted = subject.Measured(g.before[key] - g.after[key])
			r.measured[i].Remaining = subject.Measured(g.after[key])
		}
	}
	return nil
}

func (w *writer) eraseSet(q *statements, tenant string, g *set) (err error) {
	count, drop, blob, off, arg := q.tallySet, q.deleteSet, q.blobSet, q.sourced.unlinkSet, ""
	if len(g.keys) == 1 {
		count, drop, blob, off, arg = q.tallyOne, q.deleteOne, q.blobOne, q.sourced.unlinkOne, g.keys[0]
	} else {
		arg = g.json()
	}
	if err = refuseBlobs(context.Background(), w.conn, blob, tenant, arg); err != nil {
		return err
	}
	if g.before, err = w.tally(count, tenant, arg); err != nil {
		return err
	}
	if err = w.unlinked(off, tenant, arg); err != nil {
		return err
	}
	if err = w.exec(drop, tenant, arg); err != nil {
		return err
	}
	g.after, err = w.tally(count, tenant, arg)
	return err
}

func (w *writer) tally(query, tenant, arg string) (map[string]int64, error) {
	s, err := w.prepared(query) //nolint:sqlclosecheck // it is kept, and closed with the connection
	if err != nil {
		return nil, err
	}
	rows, err := s.QueryContext(context.Background(), tenant, arg)
	if err != nil {
		return nil, named(err)
	}
	counts, err := tally(rows)
	return counts, named(err)
}

// tally reads rows of a key and its count. A key without rows is not among them.
func tally(rows *sql.Rows) (map[string]int64, error) {
	defer rows.Close() //nolint:errcheck // Err below tells
	counts := map[string]int64{}
	for rows.Next() {
		var key string
		var n int64
		if err := rows.Scan(&key, &n); err != nil {
			return nil, err //nolint:wrapcheck // the callers name it
		}
		counts[key] = n
	}
	return counts, rows.Err() //nolint:wrapcheck // the callers name it
}
