package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"

	"recount/internal/stores"
	"recount/internal/subject"
)

// derivationsTable finds the rows of tables that are ours by what they were derived from. This package alone writes those
// tables, so it keeps the list in step itself, in the transactions in which rows come and go.
const derivationsTable = "main.recount_derivations"

const derivationsDDL = "CREATE TABLE IF NOT EXISTS " + derivationsTable + ` (
	tenant_id TEXT NOT NULL, parent_source TEXT NOT NULL, parent_ref TEXT NOT NULL,
	store TEXT NOT NULL, source TEXT NOT NULL, source_ref TEXT NOT NULL,
	PRIMARY KEY (tenant_id, parent_source, parent_ref, store, source, source_ref)) STRICT, WITHOUT ROWID`

// derivations is the DDL of the list, and what lists the rows of a table that an earlier version wrote: it does nothing
// for one whose rows are listed, which a row of its own says.
func derivations(spec stores.Table) []string {
	if spec.DerivedFrom == "" || spec.Source == "" {
		return nil
	}
	listed := "SELECT 1 FROM " + derivationsTable + " WHERE tenant_id = '' AND parent_source = '' AND parent_ref = '' AND store = " + literal(spec.Store)
	return []string{
		derivationsDDL,
		"INSERT OR IGNORE INTO " + derivationsTable + linked(spec, "main."+quote(spec.Name), "NOT EXISTS ("+listed+")"),
		"INSERT OR IGNORE INTO " + derivationsTable + " VALUES ('', '', '', " + literal(spec.Store) + ", '', '')", // no tenant is called that
	}
}

// parent is the two halves of an element of a DerivedFrom column. The list takes no null, so anything else is passed over.
const parent = "CASE e.type WHEN 'object' THEN e.value->>'source' END, CASE e.type WHEN 'object' THEN e.value->>'source_ref' END"

// linked selects what the list should hold about the rows that a condition finds.
func linked(spec stores.Table, from, where string) string {
	derived := quote(spec.DerivedFrom)
	return " SELECT t." + quote(spec.Tenant) + ", " + parent + ", " + literal(spec.Store) + ", t." + quote(spec.Source) + ", t." + quote(spec.SourceRef) +
		" FROM (SELECT * FROM " + from + " WHERE " + derived + " IS NOT NULL AND " + where + ") AS t, json_each(t." + derived + ") AS e"
}

const (
	derivesQuery  = "SELECT 1 FROM " + derivationsTable + " WHERE tenant_id > '' LIMIT 1"
	linkStatement = "INSERT OR IGNORE INTO " + derivationsTable +
		" SELECT ?1, " + parent + ", ?2, ?3, ?4 FROM json_each(?5) AS e"
	// childrenQuery answers what derives from a JSON list of pairs.
	childrenQuery = "SELECT d.parent_source, d.parent_ref, d.store, d.source, d.source_ref FROM json_each(?2) AS p CROSS JOIN " + derivationsTable +
		" AS d ON d.tenant_id = ?1 AND d.parent_source = p.value->>0 AND d.parent_ref = p.value->>1"
)

// unlink takes the rows that a condition finds off the list, before they go.
func unlink(spec stores.Table, from, where string) string {
	return "DELETE FROM " + derivationsTable + " WHERE (tenant_id, parent_source, parent_ref, store, source, source_ref) IN (" + linked(spec, from, where) + ")"
}

// literal is a store's name, which has no quote in it, as a text of SQL.
func literal(name string) string { return "'" + name + "'" }

// derives reports whether any row of the file was derived from another. Once one was, it is not asked again.
func (w *writer) derives() (bool, error) {
	if w.linked || !w.db.derivations {
		return w.linked, nil
	}
	found, err := w.any(derivesQuery)
	w.linked = found
	return found, err
}

// any reports whether a query answers a row.
func (w *writer) any(query string, args ...any) (found bool, err error) {
	err = w.each(query, args, func(*sql.Rows) error {
		found = true
		return nil
	})
	return found, err
}

// each calls visit with every row of a query.
func (w *writer) each(query string, args []any, visit func(*sql.Rows) error) error {
	s, err := w.prepared(query) //nolint:sqlclosecheck // it is kept, and closed with the connection
	if err != nil {
		return err
	}
	rows, err := s.QueryContext(context.Background(), args...)
	if err != nil {
		return named(err)
	}
	return visitAll(rows, visit)
}

func visitAll(rows *sql.Rows, visit func(*sql.Rows) error) error {
	defer rows.Close() //nolint:errcheck // Err below tells
	for rows.Next() {
		if err := visit(rows); err != nil {
			return named(err)
		}
	}
	return named(rows.Err())
}

// link puts the new rows of an append on the list.
func (w *writer) link(r *request) error {
	t := r.table
	derived := t.spec.Index(t.spec.DerivedFrom)
	if derived < 0 || !t.db.derivations {
		return nil
	}
	tenant, source, ref, width := t.spec.Index(t.spec.Tenant), t.spec.Index(t.spec.Source), t.spec.Index(t.spec.SourceRef), len(t.spec.Columns)
	for i, created := range r.created {
		row := r.values[i*width : (i+1)*width]
		if !created || row[derived] == nil {
			continue
		}
		if err := w.exec(linkStatement, row[tenant], t.spec.Store, row[source], row[ref], row[derived]); err != nil {
			return err
		}
		w.linked = true
	}
	return nil
}

// unlinked runs one of a table's unlink statements where there is anything to unlink.
func (w *writer) unlinked(statement, tenant, arg string) error {
	derives, err := w.derives()
	if err != nil || !derives || statement == "" {
		return err
	}
	return w.exec(statement, tenant, arg)
}

// pairsJSON is sources as one argument.
func pairsJSON(sources []subject.Source) string {
	pairs := make([][2]string, len(sources))
	for i, s := range sources {
		pairs[i] = [2]string{s.Origin(), s.Reference()}
	}
	text, err := json.Marshal(pairs)
	if err != nil {
		panic(err) // strings always marshal
	}
	return string(text)
}
