package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"recount/internal/stores"
	"recount/internal/subject"
)

// querier is a connection, a transaction or a pool.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// refusal is why a table can't be counted truly, and how to mend it. It names tables and columns only.
type refusal struct {
	reason subject.Reason // once it was counted truly
	text   string
}

func (r *refusal) Error() string { return r.text }

func refuse(format string, args ...any) error {
	return &refusal{reason: subject.ReasonUnsupported, text: fmt.Sprintf(format, args...)}
}

func missing(format string, args ...any) error {
	return &refusal{reason: subject.ReasonNotFound, text: fmt.Sprintf(format, args...)}
}

// checkOurs reports what a table that is ours lacks.
func checkOurs(spec stores.Table) error {
	for _, name := range append([]string{stores.RowIDColumn, spec.Tenant, spec.Source, spec.SourceRef}, spec.Identities...) {
		at := slices.IndexFunc(spec.Columns, func(c stores.Column) bool { return c.Name == name })
		if at < 0 || spec.Columns[at].Kind != stores.Text || spec.Columns[at].Nullable {
			return fmt.Errorf("a table that is ours needs a text column %q that is not nullable", name)
		}
	}
	return nil
}

// creation is the DDL of a table that is ours: one index finds a record again, one per identity column its subjects.
func creation(spec stores.Table) []string {
	columns := make([]string, len(spec.Columns))
	for i, c := range spec.Columns {
		columns[i] = quote(c.Name) + " TEXT"
		if c.Kind == stores.Real {
			columns[i] = quote(c.Name) + " REAL"
		}
		if !c.Nullable {
			columns[i] += " NOT NULL"
		}
	}
	table := quote(spec.Name)
	ddl := []string{
		"CREATE TABLE IF NOT EXISTS main." + table + " (" + strings.Join(columns, ", ") + ") STRICT",
		"CREATE UNIQUE INDEX IF NOT EXISTS main." + quote(spec.Name+"_record") + " ON " + table +
			" (" + quote(spec.Tenant) + ", " + quote(spec.Source) + ", " + quote(spec.SourceRef) + ")",
	}
	for _, identity := range spec.Identities {
		ddl = append(ddl, "CREATE INDEX IF NOT EXISTS main."+quote(spec.Name+"_by_"+identity)+" ON "+table+
			" ("+quote(spec.Tenant)+", "+quote(identity)+")")
	}
	return append(ddl, derivations(spec)...)
}

// liveTable is what the schema says of a table.
type liveTable struct {
	columns map[string]string // lower-case name to declared type
	order   []string
	strict  bool
	rowid   string
}

// inspect looks at a table in the live schema, and refuses one that can't be counted truly or deleted from for good.
func inspect(ctx context.Context, q querier, spec stores.Table) (*liveTable, error) {
	live := &liveTable{columns: map[string]string{}}
	if err := live.findTable(ctx, q, spec.Name); err != nil {
		return nil, err
	}
	if err := live.findColumns(ctx, q, spec.Name); err != nil {
		return nil, err
	}
	if err := live.checkColumns(spec); err != nil {
		return nil, err
	}
	for _, column := range append([]string{spec.Tenant}, spec.Identities...) {
		if err := checkCollation(ctx, q, spec.Name, column); err != nil {
			return nil, err
		}
		if live.strict {
			continue
		}
		if err := checkStored(ctx, q, spec.Name, column); err != nil {
			return nil, err
		}
	}
	return live, checkDeletes(ctx, q, spec.Name, map[string]bool{})
}

func (l *liveTable) findTable(ctx context.Context, q querier, table string) error {
	var kind string
	var withoutRowid bool
	err := q.QueryRowContext(ctx, "SELECT type, wr, strict FROM pragma_table_list WHERE schema='main' AND name=?1 COLLATE NOCASE", table).
		Scan(&kind, &withoutRowid, &l.strict)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return missing("the file has no such table: check the name")
	case err != nil:
		return err //nolint:wrapcheck // read names it
	case kind != "table":
		return refuse("it is a %s: name the table that holds the rows", kind)
	case withoutRowid:
		return refuse("it is a WITHOUT ROWID table, which can't be paged: create it anew without that clause")
	}
	return nil
}

func (l *liveTable) findColumns(ctx context.Context, q querier, table string) error {
	err := eachText(ctx, q, "SELECT name, type FROM pragma_table_xinfo(?1)", []any{table}, func(name, declared string) error {
		l.columns[strings.ToLower(name)] = declared
		l.order = append(l.order, name)
		return nil
	})
	if err != nil {
		return err
	}
	for _, alias := range []string{"rowid", "_rowid_", "oid"} {
		if _, taken := l.columns[alias]; !taken {
			l.rowid = alias
			return nil
		}
	}
	return refuse("its columns hide the rowid, by which it is paged: rename one of rowid, _rowid_, oid")
}

func (l *liveTable) checkColumns(spec stores.Table) error {
	keys := append([]string{spec.Tenant}, spec.Identities...)
	for _, column := range keys {
		declared, ok := l.columns[strings.ToLower(column)]
		if !ok {
			return missing("it has no column %s: check the name", column)
		}
		if !isText(declared) {
			return refuse("column %s is declared %q, which compares other things than text (a number column matches 7 with 007): declare it TEXT", column, declared)
		}
	}
	others := []string{spec.Source, spec.SourceRef}
	for _, c := range spec.Columns {
		others = append(others, c.Name)
	}
	for _, column := range others {
		if _, ok := l.columns[strings.ToLower(column)]; !ok && column != "" {
			return missing("it has no column %s: check the name", column)
		}
	}
	return nil
}

// isText reports whether a declared type has TEXT affinity: https://www.sqlite.org/datatype3.html#determination_of_column_affinity
func isText(declared string) bool {
	declared = strings.ToUpper(declared)
	if strings.Contains(declared, "INT") {
		return false
	}
	return strings.Contains(declared, "CHAR") || strings.Contains(declared, "CLOB") || strings.Contains(declared, "TEXT")
}

// checkCollation asks the query planner, which alone knows how a column is compared: the comparison's collation is an
// operand of its instruction. The unary plus keeps an index from taking its place.
func checkCollation(ctx context.Context, q querier, table, column string) error {
	found := false
	err := explain(ctx, q, "SELECT 1 FROM main."+quote(table)+" WHERE +"+quote(column)+" = 'x'", func(opcode, operand string) {
		found = found || (opcode == "Eq" || opcode == "Ne") && strings.HasPrefix(operand, "BINARY")
	})
	if err == nil && !found {
		return refuse("column %s is not compared byte for byte (NOCASE matches ALICE with alice): declare it COLLATE BINARY", column)
	}
	return err
}

// checkStored looks for values that no text equals.
func checkStored(ctx context.Context, q querier, table, column string) error {
	var kind string
	query := "SELECT typeof(" + quote(column) + ") FROM main." + quote(table) +
		" WHERE typeof(" + quote(column) + ") NOT IN ('text', 'null') LIMIT 1"
	err := q.QueryRowContext(ctx, query).Scan(&kind)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err == nil {
		return refuse("column %s holds a %s, which no text equals: UPDATE it with CAST(%s AS TEXT)", column, kind, quote(column))
	}
	return err //nolint:wrapcheck // read names it
}

// checkDeletes refuses a table whose deleted rows may live on: a trigger can copy them, and a foreign key can cut
// another table's rows loose from them. Rows that a cascade deletes are looked at in the same way.
func checkDeletes(ctx context.Context, q querier, table string, seen map[string]bool) error {
	if seen[strings.ToLower(table)] {
		return nil
	}
	seen[strings.ToLower(table)] = true
	triggered := false
	err := explain(ctx, q, "DELETE FROM main."+quote(table)+" WHERE 1", func(opcode, _ string) {
		triggered = triggered || opcode == "Program"
	})
	if err != nil {
		return err
	}
	if triggered {
		return refuse("a trigger runs when a row of %s is deleted, and may keep a copy of it: drop the trigger", table)
	}
	var children []string
	err = eachText(ctx, q, `SELECT m.name, f.on_delete FROM pragma_table_list m JOIN pragma_foreign_key_list(m.name) f
		WHERE m.schema='main' AND f."table"=?1 COLLATE NOCASE`, []any{table}, func(child, action string) error {
		switch action {
		case "CASCADE":
			children = append(children, child)
		case "SET NULL", "SET DEFAULT":
			return refuse("table %s keeps its rows when those of %s are deleted, and loses who they belong to (ON DELETE %s): declare ON DELETE CASCADE", child, table, action)
		}
		return nil
	})
	for _, child := range children {
		err = errors.Join(err, checkDeletes(ctx, q, child, seen))
	}
	return err
}

// explain calls visit with each instruction of a statement's program, and its fourth operand.
func explain(ctx context.Context, q querier, query string, visit func(opcode, operand string)) error {
	rows, err := q.QueryContext(ctx, "EXPLAIN "+query)
	if err != nil {
		return err //nolint:wrapcheck // read names it
	}
	defer rows.Close() //nolint:errcheck // Err below tells
	for rows.Next() {
		var at, p1, p2, p3, p5 any
		var opcode string
		var operand, comment sql.NullString
		if err := rows.Scan(&at, &opcode, &p1, &p2, &p3, &operand, &p5, &comment); err != nil {
			return err //nolint:wrapcheck // read names it
		}
		visit(opcode, operand.String)
	}
	return rows.Err() //nolint:wrapcheck // read names it
}

// eachText calls visit with two columns of text.
func eachText(ctx context.Context, q querier, query string, args []any, visit func(a, b string) error) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err //nolint:wrapcheck // read names it
	}
	defer rows.Close() //nolint:errcheck // Err below tells
	for rows.Next() {
		var a, b string
		if err := rows.Scan(&a, &b); err != nil {
			return err //nolint:wrapcheck // read names it
		}
		if err := visit(a, b); err != nil {
			return err
		}
	}
	return rows.Err() //nolint:wrapcheck // read names it
}
