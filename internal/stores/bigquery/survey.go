package bigquery

import (
	"context"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	rest "google.golang.org/api/bigquery/v2"

	"recount/internal/stores"
)

// surveyWidth is how many tables are looked at at a time.
const surveyWidth = 8

// Survey looks at every table of the dataset, nested columns included, under their dotted names. Views hold no rows of
// their own and are left out.
func (c *Client) Survey(ctx context.Context, covered []stores.Table) ([]stores.Suspect, error) {
	tables, err := c.list(ctx)
	if err != nil {
		return nil, judge(err).read("listing the tables", err)
	}
	found := make([][]stores.Suspect, len(tables))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(surveyWidth)
	for i, name := range tables {
		group.Go(func() error {
			meta, err := ask(ctx, c, c.rest.Tables.Get(c.cfg.Project, c.cfg.Dataset, name).Context)
			if err != nil {
				return judge(err).read("reading a table", err)
			}
			if meta.Schema != nil {
				found[i] = suspects(name, "", meta.Schema.Fields, covered)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err //nolint:wrapcheck // made above
	}
	return slices.Concat(found...), nil
}

// list answers the names of the dataset's tables, in order.
func (c *Client) list(ctx context.Context) ([]string, error) {
	var out []string
	for token := ""; ; {
		page, err := ask(ctx, c, c.rest.Tables.List(c.cfg.Project, c.cfg.Dataset).PageToken(token).Context)
		if err != nil {
			return nil, err
		}
		for _, t := range page.Tables {
			if !strings.Contains(t.Type, "VIEW") {
				out = append(out, t.TableReference.TableId)
			}
		}
		if token = page.NextPageToken; token == "" {
			slices.Sort(out)
			return out, nil
		}
	}
}

func suspects(table, prefix string, fields []*rest.TableFieldSchema, covered []stores.Table) []stores.Suspect {
	var out []stores.Suspect
	for _, f := range fields {
		name := prefix + f.Name
		isCovered := slices.ContainsFunc(covered, func(t stores.Table) bool { return t.Covers(table, name) })
		if stores.LooksLikeKey(f.Name) && !isCovered {
			out = append(out, stores.Suspect{Table: table, Column: name})
		}
		out = append(out, suspects(table, name+".", f.Fields, covered)...)
	}
	return out
}
