package sqlite

import (
	"cmp"
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

	sourced sourcedStatements // none where the table has no source columns
}

// sourcedStatements are those about the sources of rows. ?2 is a key, a JSON list of keys, or a JSON list of pairs.
type sourcedStatements struct {
	ofOne, ofSet string // answer keys, each with the source of one of its rows
	tally        string // answers pairs, each with its count
	drop         string
	// What the derivations table says of rows that go: see derivations.go. None where the table has no such column.
	unlinkOne, unlinkSet, unlinkPairs string
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
	sourced := composeSourced(spec, from, rowid, one, many, where)
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
		sourced:   sourced,
	}
}

// composeSourced writes the statements about sources. In an owner's table a source column may hold anything, and is
// compared as the text that it prints as.
func composeSourced(spec stores.Table, from, rowid string, one, many []match, where func([]match) string) sourcedStatements {
	if spec.Source == "" {
		return sourcedStatements{}
	}
	source, ref := quote(spec.Source), quote(spec.SourceRef)
	if spec.Columns == nil {
		source, ref = "CAST("+source+" AS TEXT) COLLATE BINARY", "CAST("+ref+" AS TEXT) COLLATE BINARY"
	}
	keyed := func(matches []match, key string) string {
		selects := make([]string, len(matches))
		for i, m := range matches {
			selects[i] = "SELECT " + cmp.Or(key, m.key) + " AS k, " + source + " AS s, " + ref + " AS f, " + rowid + " AS r FROM " + from + " WHERE " + m.where
		}
		return "SELECT k, s, f FROM (" + strings.Join(selects, " UNION ") + ")" // a row that names one subject twice is one
	}
	pairs := quote(spec.Tenant) + " = ?1 AND (" + source + ", " + ref + ") IN (SELECT value->>0, value->>1 FROM json_each(?2))"
	s := sourcedStatements{
		ofOne: keyed(one, "?2"), ofSet: keyed(many, ""),
		tally: "SELECT " + source + " AS s, " + ref + " AS f, count(*) FROM " + from + " WHERE " + pairs + " GROUP BY s, f",
		drop:  "DELETE FROM " + from + " WHERE " + pairs,
	}
	if spec.DerivedFrom != "" {
		s.unlinkOne, s.unlinkSet, s.unlinkPairs = unlink(spec, from, where(one)), unlink(spec, from, where(many)), unlink(spec, from, pairs)
	}
	return s
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
