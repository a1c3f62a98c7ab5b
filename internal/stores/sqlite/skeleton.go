package sqlite

import (
	"context"
	"database/sql"
	"strconv"
	"strings"

	"recount/internal/stores"
	"recount/internal/suppression"
)

var _ stores.Archive = (*DB)(nil)

const skeletonCursor = "k1."

// ReadSkeletons keeps stores.Archive, in the order of the rowids.
func (db *DB) ReadSkeletons(ctx context.Context, from stores.Skeletons, cursor string, limit int) (rows []stores.Skeleton, next string, err error) {
	after := int64(-1 << 63)
	if cursor != "" {
		text, marked := strings.CutPrefix(cursor, skeletonCursor)
		if after, err = strconv.ParseInt(text, 10, 64); err != nil || !marked {
			return nil, "", suppression.ErrCursor
		}
	}
	text := func(column string) string {
		if column == "" {
			return "NULL"
		}
		return "CAST(" + quote(column) + " AS TEXT)"
	}
	query := "SELECT rowid, " + text(from.Tenant) + ", " + text(from.Source) + ", " + text(from.Ref) + ", " + text(from.ErasedAt) + ", " + text(from.Reason) +
		" FROM main." + quote(from.Table) + " WHERE " + quote(from.ErasedAt) + " IS NOT NULL AND rowid > ?1 ORDER BY rowid LIMIT ?2"
	err = db.read(ctx, func(q querier) error {
		rows, next = nil, ""
		found, err := q.QueryContext(ctx, query, after, limit+1)
		if err != nil {
			return err //nolint:wrapcheck // read names it
		}
		last := after
		return visitAll(found, func(found *sql.Rows) error {
			var rowid int64
			var tenant, source, ref, at, reason sql.NullString
			if err := found.Scan(&rowid, &tenant, &source, &ref, &at, &reason); err != nil {
				return err //nolint:wrapcheck // visitAll names it
			}
			if len(rows) == limit {
				next = skeletonCursor + strconv.FormatInt(last, 10)
				return nil
			}
			s := stores.Skeleton{Tenant: tenant.String, Source: source.String, Ref: ref.String, Reason: reason.String}
			s.ErasedAt, _ = stores.ParseInstant(at.String)
			rows, last = append(rows, s), rowid
			return nil
		})
	})
	return rows, next, err
}
