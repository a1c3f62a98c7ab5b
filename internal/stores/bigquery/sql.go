package bigquery

import (
	"fmt"
	"strings"

	bq "cloud.google.com/go/bigquery"

	"recount/internal/stores"
)

// This file is the only place where SQL is made. Every value is a named parameter; what is put into the text is a quoted
// name of the live schema, or a number of ours. The table is always called t.

// statement is one statement and its parameters.
type statement struct {
	sql    string
	params []bq.QueryParameter
}

// shape is what the statements about one table are made of.
type shape struct {
	path       string // quoted project, dataset and table
	tenant     string
	identities []string
	fold       bool
	columns    []string // of a table that is ours
	source     string   // expressions; "" where the table has no source columns
	sourceRef  string
	derived    string // the column of parents, of a table that is ours
	partition  string // always true, and enough for a table that requires a partition filter; "" where none does
}

func quote(name string) string { return "`" + name + "`" }

func column(name string) string { return "t." + quote(name) }

func newShape(project, dataset string, t stores.Table, partition string) shape {
	s := shape{
		path: quote(project) + "." + quote(dataset) + "." + quote(t.Name), tenant: t.Tenant, identities: t.Identities,
		fold: t.Match == stores.MatchCasefold, partition: partition,
	}
	if t.Source != "" {
		s.source, s.sourceRef = column(t.Source), column(t.SourceRef)
		if t.Columns == nil { // an owner's may be of any type: it is compared as the text that it prints as
			s.source, s.sourceRef = "CAST("+s.source+" AS STRING)", "CAST("+s.sourceRef+" AS STRING)"
		}
	}
	if t.Columns != nil && t.DerivedFrom != "" {
		s.derived = column(t.DerivedFrom)
	}
	for _, c := range t.Columns {
		s.columns = append(s.columns, c.Name)
	}
	return s
}

// identity is an identity column as it is compared.
func (s shape) identity(name string) string { return s.folded(column(name)) }

func (s shape) folded(expr string) string {
	if s.fold {
		return "NORMALIZE_AND_CASEFOLD(" + expr + ")"
	}
	return expr
}

func (s shape) wanted() string {
	if s.fold {
		return "(SELECT NORMALIZE_AND_CASEFOLD(wanted) FROM UNNEST(@ids) AS wanted)"
	}
	return "UNNEST(@ids)"
}

// where joins conditions, and adds the partition filter.
func (s shape) where(conditions ...string) string {
	if s.partition != "" {
		conditions = append(conditions, s.partition)
	}
	return "\nWHERE " + strings.Join(conditions, "\n  AND ")
}

func (s shape) ofTenant() string { return column(s.tenant) + " = @tenant" }

// matches is the one predicate that says which rows belong to the subjects @ids of @tenant.
func (s shape) matches() string {
	var either []string
	for _, c := range s.identities {
		either = append(either, s.identity(c)+" IN "+s.wanted())
	}
	if len(either) == 1 {
		return either[0]
	}
	return "(" + strings.Join(either, " OR ") + ")"
}

func (s shape) from() string { return "\nFROM " + s.path + " AS t" }

func of(tenant string, ids []string) []bq.QueryParameter {
	return []bq.QueryParameter{{Name: "tenant", Value: tenant}, {Name: "ids", Value: ids}}
}

// count answers (pos, n) for every position of ids: a number for each, so that a short answer is no answer. It names no
// identity in its result, which the platform keeps for a day.
func (s shape) count(tenant string, ids []string) statement {
	var each []string
	for i, c := range s.identities {
		conditions := []string{s.ofTenant(), s.identity(c) + " IN " + s.wanted()}
		for _, earlier := range s.identities[:i] { // a row that names the subject twice counts once
			conditions = append(conditions, fmt.Sprintf("(%s IS NULL OR %s != %s)", column(earlier), s.identity(earlier), s.identity(c)))
		}
		each = append(each, "SELECT "+s.identity(c)+" AS id"+s.from()+s.where(conditions...))
	}
	return statement{
		sql: "SELECT pos, COUNT(held.id) AS n\nFROM UNNEST(@ids) AS wanted WITH OFFSET AS pos\nLEFT JOIN (\n" +
			strings.Join(each, "\nUNION ALL\n") + "\n) AS held ON held.id = " + s.folded("wanted") + "\nGROUP BY pos",
		params: of(tenant, ids),
	}
}

// delete removes the rows of every subject.
func (s shape) delete(tenant string, ids []string) statement {
	return statement{sql: "DELETE" + s.from() + s.where(s.ofTenant(), s.matches()), params: of(tenant, ids)}
}

// page answers a subject's rows after a row id, in the order of the row ids. It is for tables that are ours.
func (s shape) page(tenant, id, after string, limit int) statement {
	var columns []string
	for _, c := range s.columns {
		columns = append(columns, column(c))
	}
	rowID := column(stores.RowIDColumn)
	return statement{
		sql: "SELECT " + strings.Join(columns, ", ") + s.from() + s.where(s.ofTenant(), s.matches(), rowID+" > @after") +
			fmt.Sprintf("\nORDER BY %s\nLIMIT %d", rowID, limit),
		params: append(of(tenant, []string{id}), bq.QueryParameter{Name: "after", Value: after}),
	}
}

// pageAt answers a subject's rows from an offset. An owner's table has no key that we know of, so the order is that of
// the rows' whole content; equal rows are interchangeable.
func (s shape) pageAt(tenant, id string, offset, limit int) statement {
	return statement{
		sql: "SELECT t.*" + s.from() + s.where(s.ofTenant(), s.matches()) +
			fmt.Sprintf("\nORDER BY TO_JSON_STRING(t)\nLIMIT %d OFFSET %d", limit, offset),
		params: of(tenant, []string{id}),
	}
}

// record names a record of a table that is ours.
type record struct {
	Pos       int64  `bigquery:"pos"`
	Tenant    string `bigquery:"tenant"`
	Source    string `bigquery:"source"`
	SourceRef string `bigquery:"source_ref"`
}

// known answers the positions of those records that the table holds.
func (s shape) known(records []record) statement {
	tenants := map[string]bool{}
	var names []string
	for _, r := range records {
		if !tenants[r.Tenant] {
			tenants[r.Tenant] = true
			names = append(names, r.Tenant)
		}
	}
	on := fmt.Sprintf("\nJOIN UNNEST(@records) AS r ON %s = r.tenant AND %s = r.source AND %s = r.source_ref",
		column(s.tenant), s.source, s.sourceRef)
	return statement{
		sql:    "SELECT DISTINCT r.pos AS pos" + s.from() + on + s.where(column(s.tenant)+" IN UNNEST(@tenants)"),
		params: []bq.QueryParameter{{Name: "records", Value: records}, {Name: "tenants", Value: names}},
	}
}

// pair names a source in an array parameter.
type pair struct {
	Pos       int64  `bigquery:"pos"`
	Source    string `bigquery:"source"`
	SourceRef string `bigquery:"source_ref"`
}

func ofPairs(tenant string, pairs []pair) []bq.QueryParameter {
	return []bq.QueryParameter{{Name: "tenant", Value: tenant}, {Name: "pairs", Value: pairs}}
}

// sources answers (pos, source, source_ref) for the rows of every position of ids, each once.
func (s shape) sources(tenant string, ids []string) statement {
	var each []string
	for _, c := range s.identities {
		each = append(each, "SELECT "+s.identity(c)+" AS id, "+s.source+" AS s, "+s.sourceRef+" AS f"+s.from()+
			s.where(s.ofTenant(), s.identity(c)+" IN "+s.wanted()))
	}
	return statement{
		sql: "SELECT DISTINCT pos, held.s AS source, held.f AS source_ref\nFROM UNNEST(@ids) AS wanted WITH OFFSET AS pos\nJOIN (\n" +
			strings.Join(each, "\nUNION ALL\n") + "\n) AS held ON held.id = " + s.folded("wanted"),
		params: of(tenant, ids),
	}
}

// children answers (source, source_ref, derived_from) of the rows that name any of the pairs as a parent.
func (s shape) children(tenant string, pairs []pair) statement {
	named := "EXISTS (SELECT 1 FROM UNNEST(JSON_QUERY_ARRAY(" + s.derived + ")) AS e JOIN UNNEST(@pairs) AS p" +
		" ON JSON_VALUE(e, '$.source') = p.source AND JSON_VALUE(e, '$.source_ref') = p.source_ref)"
	return statement{
		sql: "SELECT " + s.source + " AS source, " + s.sourceRef + " AS source_ref, " + s.derived + " AS derived_from" + s.from() +
			s.where(s.ofTenant(), s.derived+" IS NOT NULL", named),
		params: ofPairs(tenant, pairs),
	}
}

// countPairs answers (pos, n) for every pair: a number for each, so that a short answer is no answer.
func (s shape) countPairs(tenant string, pairs []pair) statement {
	return statement{
		sql: "SELECT p.pos AS pos, COUNT(held.s) AS n\nFROM UNNEST(@pairs) AS p\nLEFT JOIN (\nSELECT " + s.source + " AS s, " + s.sourceRef + " AS f" +
			s.from() + s.where(s.ofTenant()) + "\n) AS held ON held.s = p.source AND held.f = p.source_ref\nGROUP BY pos",
		params: ofPairs(tenant, pairs),
	}
}

// deletePairs removes the rows that bear any of the pairs.
func (s shape) deletePairs(tenant string, pairs []pair) statement {
	bears := "EXISTS (SELECT 1 FROM UNNEST(@pairs) AS p WHERE p.source = " + s.source + " AND p.source_ref = " + s.sourceRef + ")"
	return statement{sql: "DELETE" + s.from() + s.where(s.ofTenant(), bears), params: ofPairs(tenant, pairs)}
}

// skeletons answers (tenant, source, source_ref, erased_at, reason) of the rows that say when they were erased.
func (s shape) skeletons(from stores.Skeletons, limit, offset int) statement {
	as := func(name, alias string) string {
		if name == "" {
			return "NULL AS " + alias
		}
		return column(name) + " AS " + alias
	}
	return statement{sql: "SELECT " + strings.Join([]string{
		as(from.Tenant, "tenant"), as(from.Source, "source"), as(from.Ref, "source_ref"), as(from.ErasedAt, "erased_at"), as(from.Reason, "reason"),
	}, ", ") + s.from() + s.where(column(from.ErasedAt)+" IS NOT NULL") + fmt.Sprintf("\nORDER BY TO_JSON_STRING(t)\nLIMIT %d OFFSET %d", limit, offset)}
}

// always is a condition on a partitioning column that every row meets, those without a value included, and that the
// platform accepts where a table requires a partition filter.
func always(name, kind string) string {
	c := column(name)
	switch kind {
	case "INTEGER", "INT64":
		return fmt.Sprintf("(%s IS NULL OR %s < 0 OR %s >= 0)", c, c, c)
	case "DATE":
		return fmt.Sprintf("(%s IS NULL OR %s >= DATE '0001-01-01')", c, c)
	case "DATETIME":
		return fmt.Sprintf("(%s IS NULL OR %s >= DATETIME '0001-01-01 00:00:00')", c, c)
	default:
		return fmt.Sprintf("(%s IS NULL OR %s >= TIMESTAMP '0001-01-01 00:00:00+00')", c, c)
	}
}
