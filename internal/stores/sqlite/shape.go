package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"recount/internal/stores"
	"recount/internal/subject"
)

// shape is a table as it was when it was inspected.
type shape struct {
	version int64 // of the schema: SQLite raises it with every change
	columns []string
	sql     statements
}

// examine inspects the table. The version is read first, so that a change meanwhile is seen the next time.
func (t *Table) examine(ctx context.Context, q querier) (*shape, error) {
	s := &shape{}
	if err := q.QueryRowContext(ctx, "PRAGMA schema_version").Scan(&s.version); err != nil {
		return nil, named(err)
	}
	live, err := inspect(ctx, q, t.spec)
	if err != nil {
		return nil, named(err)
	}
	s.columns = live.order
	if t.spec.Columns != nil {
		s.columns = nil
		for _, c := range t.spec.Columns {
			s.columns = append(s.columns, c.Name)
		}
	}
	s.sql = compose(t.spec, s.columns, live.rowid)
	if !live.strict {
		s.sql.blobOne, s.sql.blobSet = blobs(t.spec, false), blobs(t.spec, true)
	}
	return s, nil
}

// current is the table's shape in the schema that the transaction sees: one that changed is inspected anew, and may be
// refused now. Nobody else changes a table that is ours.
func (t *Table) current(ctx context.Context, q querier) (*shape, error) {
	known := t.shape.Load()
	if !t.foreign() {
		return known, nil
	}
	var version int64
	if err := q.QueryRowContext(ctx, "PRAGMA schema_version").Scan(&version); err != nil {
		return nil, named(err)
	}
	if version == known.version {
		return known, nil
	}
	changed, err := t.examine(ctx, q)
	var refused *refusal
	if errors.As(err, &refused) {
		return nil, &subject.Fault{Reason: refused.reason, Cause: err}
	}
	return changed, err
}

// foreign reports whether somebody else may change the table's schema or rows.
func (t *Table) foreign() bool { return t.db.owners || t.spec.Columns == nil }

// read runs one short query while no checkpoint is running: for a table that others change in a transaction, in which
// its shape is the current one.
func (t *Table) read(ctx context.Context, query func(querier, *shape) error) error {
	return t.db.read(ctx, func(pool querier) error {
		if !t.foreign() {
			return query(pool, t.shape.Load())
		}
		tx, err := t.db.reads.BeginTx(ctx, nil)
		if err != nil {
			return err //nolint:wrapcheck // read names it
		}
		defer tx.Rollback() //nolint:errcheck // it only read
		s, err := t.current(ctx, tx)
		if err != nil {
			return err
		}
		t.shape.Store(s)
		return query(tx, s)
	})
}

// refuseBlobs fails when a row holds one of the keys, or the tenant, as a BLOB: no text equals it, and it is not to be
// told from another's row by a count. A TEXT column turns everything else that is put into it into text.
func refuseBlobs(ctx context.Context, q querier, query, tenant, arg string) error {
	if query == "" {
		return nil
	}
	var found int
	switch err := q.QueryRowContext(ctx, query, tenant, arg).Scan(&found); {
	case err == nil:
		return &subject.Fault{Reason: subject.ReasonUnsupported, Cause: errBlob}
	case errors.Is(err, sql.ErrNoRows):
		return nil
	default:
		return named(err)
	}
}

var errBlob = refuse("a key column holds a blob, which no text equals: UPDATE it with CAST(... AS TEXT)")

// blobs is the query for a row that would be one of the key's, or of a key in a JSON list, were it not for a BLOB.
func blobs(spec stores.Table, many bool) string {
	tenant := quote(spec.Tenant)
	query := ""
	for _, identity := range spec.Identities {
		key := quote(identity)
		exact, folded := " IN (?2, CAST(?2 AS BLOB))", " = ?2"
		if many {
			exact = " IN (SELECT value FROM json_each(?2) UNION ALL SELECT CAST(value AS BLOB) FROM json_each(?2))"
			folded = " IN (SELECT value FROM json_each(?2))"
		}
		same := key + exact
		if spec.Match == stores.MatchCasefold {
			same = foldFunction + "(CAST(" + key + " AS TEXT))" + folded
		}
		if query != "" {
			query += " UNION ALL "
		}
		query += "SELECT 1 FROM main." + quote(spec.Name) + " WHERE " + tenant + " IN (?1, CAST(?1 AS BLOB))" +
			" AND (typeof(" + tenant + ") = 'blob' OR typeof(" + key + ") = 'blob') AND " + same
	}
	return query + " LIMIT 1"
}
