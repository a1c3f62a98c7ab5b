package bigquery

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	bq "cloud.google.com/go/bigquery"
	"cloud.google.com/go/civil"

	"recount/internal/stores"
	"recount/internal/subject"
	"recount/internal/suppression"
)

var _ stores.Archive = (*Client)(nil)

const skeletonCursor = "b1."

// ReadSkeletons keeps stores.Archive, in the order of the rows' whole content: equal rows are interchangeable.
func (c *Client) ReadSkeletons(ctx context.Context, from stores.Skeletons, cursor string, limit int) (rows []stores.Skeleton, next string, err error) {
	offset := 0
	if cursor != "" {
		text, marked := strings.CutPrefix(cursor, skeletonCursor)
		if offset, err = strconv.Atoi(text); err != nil || !marked || offset < 0 {
			return nil, "", suppression.ErrCursor
		}
	}
	meta, err := ask(ctx, c, c.rest.Tables.Get(c.cfg.Project, c.cfg.Dataset, from.Table).Context)
	if code, reason, _, _ := parts(err); err != nil && (code == 404 || reason == "notFound") {
		return nil, "", &subject.Fault{Reason: subject.ReasonNotFound, Cause: err}
	}
	if err != nil {
		return nil, "", judge(err).read("reading the table", err)
	}
	have := map[string]bool{"": true}
	if meta.Schema != nil {
		for _, f := range meta.Schema.Fields {
			have[f.Name] = true
		}
	}
	for _, name := range []string{from.Tenant, from.Source, from.Ref, from.ErasedAt, from.Reason} {
		if !have[name] {
			return nil, "", &subject.Fault{Reason: subject.ReasonNotFound}
		}
	}
	s := newShape(c.cfg.Project, c.cfg.Dataset, stores.Table{Name: from.Table}, partitionFilter(meta))
	err = c.query(ctx, s.skeletons(from, limit+1, offset), func(row map[string]bq.Value) bool {
		if len(rows) == limit {
			next = skeletonCursor + strconv.Itoa(offset+limit)
			return false
		}
		text := func(name string) string {
			if row[name] == nil {
				return ""
			}
			return fmt.Sprint(row[name])
		}
		rows = append(rows, stores.Skeleton{
			Tenant: text("tenant"), Source: text("source"), Ref: text("source_ref"), Reason: text("reason"), ErasedAt: instantOf(row["erased_at"]),
		})
		return true
	})
	if err != nil {
		return nil, "", judge(err).read("reading the rows", err)
	}
	return rows, next, nil
}

func instantOf(v bq.Value) time.Time {
	switch at := v.(type) {
	case time.Time:
		return at.UTC()
	case civil.DateTime:
		return at.In(time.UTC)
	case civil.Date:
		return at.In(time.UTC)
	case string:
		parsed, _ := stores.ParseInstant(at)
		return parsed
	default:
		return time.Time{}
	}
}
