package sqlite

import (
	"context"

	"recount/internal/stores"
)

// Survey looks at every column of every table of the file, virtual ones included.
func (db *DB) Survey(ctx context.Context, covered []stores.Table) ([]stores.Suspect, error) {
	var suspects []stores.Suspect
	err := db.read(ctx, func(q querier) error {
		suspects = nil
		return eachText(ctx, q, `SELECT m.name, c.name FROM pragma_table_list m JOIN pragma_table_xinfo(m.name) c
			WHERE m.schema='main' AND m.type IN ('table', 'virtual') AND m.name NOT LIKE 'sqlite\_%' ESCAPE '\'
			ORDER BY m.name, c.cid`, nil, func(table, column string) error {
			if stores.LooksLikeKey(column) && !isCovered(covered, table, column) {
				suspects = append(suspects, stores.Suspect{Table: table, Column: column})
			}
			return nil
		})
	})
	return suspects, err
}

func isCovered(covered []stores.Table, table, column string) bool {
	for _, t := range covered {
		if t.Covers(table, column) {
			return true
		}
	}
	return false
}
