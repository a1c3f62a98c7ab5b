package bigquery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	rest "google.golang.org/api/bigquery/v2"

	"recount/internal/stores"
)

// RefusedError says why a table can't be a store, and how to mend it. It holds names of the schema only.
type RefusedError struct {
	Store, Table string
	Column       string // "" where it is about the whole table
	Problem      string
	Mend         string
	missing      bool
}

// Error names the place, the problem and the way out.
func (e *RefusedError) Error() string {
	place := "table " + e.Table
	if e.Column != "" {
		place += ", column " + e.Column
	}
	return fmt.Sprintf("store %s: %s %s: %s", e.Store, place, e.Problem, e.Mend)
}

// inspection collects what is wrong with one live table.
type inspection struct {
	table  stores.Table
	faults []error
}

func (i *inspection) refuse(column, problem, mend string) {
	i.faults = append(i.faults, &RefusedError{Store: i.table.Store, Table: i.table.Name, Column: column, Problem: problem, Mend: mend})
}

// inspect checks the live table against what the store needs, and answers its shape.
func (c *Client) inspect(ctx context.Context, t stores.Table) (shape, error) {
	in := &inspection{table: t}
	if t.Name == "" || strings.ContainsAny(t.Name, "`\\.") || t.Tenant == "" || len(t.Identities) == 0 {
		in.refuse("", "is not declared well", "give a plain table name of the dataset, a tenant column, and at least one identity column")
		return shape{}, errors.Join(in.faults...)
	}
	meta, err := ask(ctx, c, c.rest.Tables.Get(c.cfg.Project, c.cfg.Dataset, t.Name).Context)
	if code, reason, _, _ := parts(err); err != nil && (code == 404 || reason == "notFound") {
		return shape{}, &RefusedError{
			Store: t.Store, Table: t.Name, missing: true, Problem: "does not exist in dataset " + c.cfg.Project + "." + c.cfg.Dataset,
			Mend: "correct the name, or create it (our own tables: deploy/bigquery)",
		}
	}
	if err != nil {
		return shape{}, fmt.Errorf("store %s: table %s can't be read, this account needs bigquery.tables.get on it: %w", t.Store, t.Name, judge(err).read("reading the table", err))
	}
	in.kind(meta)
	if meta.Schema != nil {
		in.columns(meta.Schema.Fields)
	}
	if err := c.rowPolicies(ctx, in); err != nil {
		return shape{}, err
	}
	if len(in.faults) > 0 {
		return shape{}, errors.Join(in.faults...)
	}
	return newShape(c.cfg.Project, c.cfg.Dataset, t, partitionFilter(meta)), nil
}

// kind refuses everything that is not a plain table whose rows are counted as they are.
func (i *inspection) kind(meta *rest.Table) {
	if meta.Type != "TABLE" {
		i.refuse("", "is a "+strings.ToLower(strings.ReplaceAll(meta.Type, "_", " "))+", which rows can't be deleted from",
			"name the table behind it")
	}
	if meta.MaxStaleness != "" {
		i.refuse("", "may answer with data that is "+meta.MaxStaleness+" old, so that a recount proves nothing", "set its max_staleness to NULL")
	}
	if meta.Schema == nil || len(meta.Schema.Fields) == 0 {
		i.refuse("", "has no columns", "name the table that holds the rows")
	}
}

func (i *inspection) columns(fields []*rest.TableFieldSchema) {
	find := func(name string) *rest.TableFieldSchema {
		at := slices.IndexFunc(fields, func(f *rest.TableFieldSchema) bool { return strings.EqualFold(f.Name, name) })
		if at < 0 {
			i.refuse(name, "does not exist", "correct the name; the columns are "+names(fields))
			return nil
		}
		return fields[at]
	}
	for _, name := range append([]string{i.table.Tenant}, i.table.Identities...) {
		if f := find(name); f != nil {
			i.key(f)
		}
	}
	for _, name := range []string{i.table.Source, i.table.SourceRef} {
		if name != "" {
			find(name)
		}
	}
	for _, c := range i.table.Columns {
		if f := find(c.Name); f != nil && (!slices.Contains(kinds[c.Kind], f.Type) || f.Mode == "REPEATED") {
			i.refuse(c.Name, "is a "+typeOf(f)+", not a "+kinds[c.Kind][0], "create the table as deploy/bigquery does")
		}
	}
	if i.table.Columns == nil {
		return
	}
	for _, f := range fields {
		ours := slices.ContainsFunc(i.table.Columns, func(c stores.Column) bool { return strings.EqualFold(c.Name, f.Name) })
		if f.Mode == "REQUIRED" && !ours {
			i.refuse(f.Name, "is required and nothing writes it", "drop it or make it nullable")
		}
	}
}

// kinds are the platform's names of the types of our columns.
var kinds = map[stores.Kind][]string{
	stores.Text: {"STRING"}, stores.JSON: {"STRING"}, stores.Real: {"FLOAT64", "FLOAT"}, stores.Instant: {"TIMESTAMP"},
}

// key checks a column that the predicate compares: it must compare byte for byte, and show this account what it holds.
func (i *inspection) key(f *rest.TableFieldSchema) {
	if strings.ContainsAny(f.Name, "`\\") {
		i.refuse(f.Name, "has a name that can't be quoted", "rename it")
	}
	if f.Type != "STRING" || f.Mode == "REPEATED" {
		i.refuse(f.Name, "is a "+typeOf(f)+", not a STRING, so that identities can't be compared byte for byte",
			"add a STRING column that holds the identity as it is sent, and name that")
	}
	if f.Collation != "" {
		i.refuse(f.Name, "has the collation "+f.Collation+", which takes different identities for the same", "remove the collation")
	}
	masked := f.PolicyTags != nil && len(f.PolicyTags.Names) > 0 || len(f.DataPolicies) > 0
	if masked || f.DataPolicyList != nil && len(f.DataPolicyList.DataPolicies) > 0 {
		i.refuse(f.Name, "has a policy tag or data policy, which may mask it from this account: a masked column counts 0",
			"take the policy off this column, or name another")
	}
}

// rowPolicies refuses a table with row access policies. A policy's list of members can't be read back, so whether they
// hide rows from this account can't be known, and hidden rows would be counted as none. An account that may not even
// list them is refused for the same reason.
func (c *Client) rowPolicies(ctx context.Context, in *inspection) error {
	policies, err := ask(ctx, c, c.rest.RowAccessPolicies.List(c.cfg.Project, c.cfg.Dataset, in.table.Name).Context)
	if err == nil {
		if len(policies.RowAccessPolicies) > 0 || policies.NextPageToken != "" {
			in.refuse("", "has row access policies, which may hide rows from this account: hidden rows count 0",
				"drop the policies, or put the cell in front of a table without them")
		}
		return nil
	}
	if code, _, _, _ := parts(err); code == 403 {
		in.refuse("", "may have row access policies, and this account may not list them", "grant it bigquery.rowAccessPolicies.list")
		return nil
	}
	return fmt.Errorf("store %s: the row access policies of table %s can't be read: %w", in.table.Store, in.table.Name, judge(err).read("listing row access policies", err))
}

// partitionFilter is the always-true condition that the table requires, or "".
func partitionFilter(meta *rest.Table) string {
	byTime, byRange := meta.TimePartitioning, meta.RangePartitioning
	if !meta.RequirePartitionFilter && (byTime == nil || !byTime.RequirePartitionFilter) {
		return ""
	}
	name := "_PARTITIONTIME"
	if byTime != nil && byTime.Field != "" {
		name = byTime.Field
	} else if byRange != nil {
		name = byRange.Field
	}
	kind := ""
	for _, f := range meta.Schema.Fields {
		if strings.EqualFold(f.Name, name) {
			kind = f.Type
		}
	}
	return always(name, kind)
}

func typeOf(f *rest.TableFieldSchema) string {
	if f.Mode == "REPEATED" {
		return "repeated " + f.Type
	}
	return f.Type
}

func names(fields []*rest.TableFieldSchema) string {
	var out []string
	for _, f := range fields {
		out = append(out, f.Name)
	}
	return strings.Join(out, ", ")
}
