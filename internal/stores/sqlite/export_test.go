package sqlite

// EraseStatements are the statements of an erasure that must find their rows by an index.
func EraseStatements(t *Table) map[string]string {
	s := t.shape.Load().sql
	return map[string]string{
		"sources of one": s.sourced.ofOne, "sources of many": s.sourced.ofSet, "tally by source": s.sourced.tally, "drop by source": s.sourced.drop,
		"children": childrenQuery, "recorded": "SELECT mac FROM " + ledgerTable + " WHERE erasure IN (?1, ?2)",
		"held": "SELECT mac FROM " + ledgerTable + " WHERE mac IN (?1, ?2)", "unlink": s.sourced.unlinkSet,
	}
}

// DocumentStatements are the statements about documents that must find their rows by an index.
func DocumentStatements(d *Documents) map[string]string {
	return map[string]string{
		"get": d.sql.get, "exists": d.sql.exists, "update": d.sql.update, "delete": d.sql.remove, "list": d.sql.list, "awake": d.sql.awake,
		"due": d.sql.countDue,
	}
}
