package bqemu

import (
	"strings"

	bq "google.golang.org/api/bigquery/v2"
)

// createTable reads CREATE TABLE [IF NOT EXISTS] path (columns) [PARTITION BY …] [CLUSTER BY …] [OPTIONS (…)], and
// answers the path and the metadata.
func createTable(text string) (path []string, ifNotExists bool, meta *bq.Table, err error) {
	all, err := tokens(strings.TrimRight(strings.TrimSpace(text), ";"))
	if err != nil {
		return nil, false, nil, err
	}
	if len(all) < 6 || !all[0].is("CREATE") || !all[1].is("TABLE") {
		return nil, false, nil, invalid("only CREATE TABLE is emulated")
	}
	i := 2
	if all[2].is("IF") {
		i, ifNotExists = 5, true
	}
	path, i = pathAt(all, i)
	if i >= len(all) || all[i].kind != '(' {
		return nil, false, nil, invalid("Syntax error: expected the columns")
	}
	end := closing(all, i)
	meta = &bq.Table{TableReference: &bq.TableReference{TableId: path[len(path)-1]}, Schema: &bq.TableSchema{}}
	for _, column := range split(all[i+1 : end]) {
		meta.Schema.Fields = append(meta.Schema.Fields, columnOf(column))
	}
	tableClauses(all[end+1:], meta)
	return path, ifNotExists, meta, nil
}

// closing answers where the bracket at i closes.
func closing(all []token, i int) int {
	depth := 0
	for ; i < len(all); i++ {
		switch all[i].kind {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return len(all) - 1
}

// split takes a list to pieces at its own commas.
func split(all []token) [][]token {
	var out [][]token
	start, depth := 0, 0
	for i, t := range all {
		switch t.kind {
		case '(', '<':
			depth++
		case ')', '>':
			depth--
		case ',':
			if depth == 0 {
				out, start = append(out, all[start:i]), i+1
			}
		}
	}
	return append(out, all[start:])
}

var typeNames = map[string]string{"INT64": "INTEGER", "FLOAT64": "FLOAT", "BOOL": "BOOLEAN"}

func columnOf(column []token) *bq.TableFieldSchema {
	f := &bq.TableFieldSchema{Name: column[0].text, Type: strings.ToUpper(column[1].text), Mode: "NULLABLE"}
	if column[1].is("ARRAY") {
		f.Mode, f.Type = "REPEATED", strings.ToUpper(column[3].text)
	}
	if name, ok := typeNames[f.Type]; ok {
		f.Type = name
	}
	for i := 2; i+1 < len(column); i++ {
		if column[i].is("NOT") && column[i+1].is("NULL") {
			f.Mode = "REQUIRED"
		}
	}
	return f
}

func tableClauses(rest []token, meta *bq.Table) {
	for i := range rest {
		switch {
		case rest[i].is("PARTITION"):
			// PARTITION BY column, or FUNCTION(column, …): the column is the first word that the schema knows.
			for _, t := range rest[i:] {
				if f := (&table{meta: meta}).field(t.text); f != nil {
					meta.TimePartitioning = &bq.TimePartitioning{Type: "MONTH", Field: f.Name}
					break
				}
			}
		case rest[i].is("CLUSTER"):
			meta.Clustering = &bq.Clustering{}
			for _, t := range rest[i+2:] {
				if t.is("OPTIONS") {
					break
				}
				if t.kind != ',' {
					meta.Clustering.Fields = append(meta.Clustering.Fields, t.text)
				}
			}
		case rest[i].is("require_partition_filter") && i+2 < len(rest):
			meta.RequirePartitionFilter = rest[i+2].is("TRUE")
		}
	}
}
