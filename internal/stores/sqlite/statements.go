package sqlite

import (
	"strings"

	"recount/internal/stores"
)

// statements are a table's SQL texts. ?1 is the tenant, ?2 a key or a JSON list of keys.
type statements struct {
	probe string // whether the table can be read

	countOne, deleteOne string
	tallyOne, tallySet  string // answer keys, each with its count
	deleteSet           string
	first, next         string // a page: the rowid and every column; ?3 is the limit, ?4 the rowid to go on after
	scan                string // a page of the whole table: ?1 is the rowid to go on after, ?2 the limit
	insert              string // up to VALUES
	blobOne, blobSet    string // see blobs; none where no column takes a BLOB
}

// compose writes the statements of a table with these columns, whose rows are ordered by the given rowid.
func compose(spec stores.Table, columns []string, rowid string) statements {
	from := "main." + quote(spec.Name)
	one, many := matching(spec, "= ?2"), matching(spec, "IN (SELECT value FROM json_each(?2))")
	where := func(matches []match) string {
		if len(matches) == 1 {
			return matches[0].where
		}
		selects := make([]string, len(matches))
		for i, m := range matches {
			selects[i] = "SELECT " + rowid + " FROM " + from + " WHERE " + m.where
		}
		return rowid + " IN (" + strings.Join(selects, " UNION ") + ")"
	}
	// A row that names one subject in two columns is one row of the union, so it counts once.
	keys := make([]string, len(many))
	for i, m := range many {
		keys[i] = "SELECT " + m.key + " AS k, " + rowid + " AS r FROM " + from + " WHERE " + m.where
	}
	quoted := make([]string, len(columns))
	shown := rowid
	for i, c := range columns {
		quoted[i] = quote(c)
		shown += ", +" + quoted[i] // an expression has no declared type, by which the driver would convert it
	}
	page := "SELECT " + shown + " FROM " + from + " WHERE "
	order := " ORDER BY " + rowid + " LIMIT "
	return statements{
		probe:     "SELECT 1 FROM " + from + " LIMIT 1",
		countOne:  "SELECT count(*) FROM " + from + " WHERE " + where(one),
		deleteOne: "DELETE FROM " + from + " WHERE " + where(one),
		tallyOne:  "SELECT ?2, count(*) FROM " + from + " WHERE " + where(one),
		tallySet:  "SELECT k, count(*) FROM (" + strings.Join(keys, " UNION ") + ") GROUP BY k",
		deleteSet: "DELETE FROM " + from + " WHERE " + where(many),
		first:     page + where(one) + order + "?3",
		next:      page + where(one) + " AND " + rowid + " > ?4" + order + "?3",
		scan:      page + rowid + " > ?1" + order + "?2",
		insert:    "INSERT INTO " + from + " (" + strings.Join(quoted, ", ") + ") VALUES ",
	}
}

// match is the rows that name the subject in one column.
type match struct {
	key, where string
}

// matching has one match for each identity column: "a=? OR b=?" would walk the tenant.
func matching(spec stores.Table, comparison string) []match {
	matches := make([]match, len(spec.Identities))
	for i, column := range spec.Identities {
		key := quote(column)
		if spec.Match == stores.MatchCasefold {
			key = foldFunction + "(" + key + ")"
		}
		matches[i] = match{key: key, where: quote(spec.Tenant) + " = ?1 AND " + key + " " + comparison}
	}
	return matches
}

// quote makes any name an identifier.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
