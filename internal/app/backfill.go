package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"recount/internal/httpapi/suppressionapi"
	"recount/internal/stores"
	"recount/internal/subject"
	"recount/internal/suppression"
	"recount/internal/wire"
)

const (
	skeletonsAtOnce = 500
	maxReasonBytes  = 256
	backfilled      = "backfilled" // the reason of a skeleton that gives none
)

// archive is a database that a cell reaches, with the stores that are in it.
type archive struct {
	stores []string
	reader stores.Archive
}

func archiveOf(reader stores.Archive, tables []stores.Table) archive {
	a := archive{reader: reader}
	for _, t := range tables {
		a.stores = append(a.stores, t.Store)
	}
	return a
}

// backfilling takes erasures of the past into the ledger, from rows that they left.
type backfilling struct {
	archives []archive
	ledger   suppression.Ledger
}

// Backfill records one page. Rows that are recorded already keep what is recorded of them, so any page can be done again.
func (b *backfilling) Backfill(ctx context.Context, asked wire.BackfillRequest) (out wire.BackfillResponse, err error) {
	reader, err := b.find(asked.Store)
	if err != nil {
		return out, err
	}
	from := stores.Skeletons{
		Table: asked.Table, Tenant: asked.TenantColumn, Source: asked.SourceColumn, Ref: asked.RefColumn, ErasedAt: asked.ErasedAtColumn, Reason: asked.ReasonColumn,
	}
	for _, name := range []string{from.Table, from.Source, from.Ref, from.ErasedAt} {
		if name == "" || len(name) > 128 || strings.ContainsAny(name, "`\\\x00") {
			return out, &suppressionapi.BackfillError{Problem: "table, source_column, ref_column and erased_at_column are required, each a plain name"}
		}
	}
	rows, next, err := reader.ReadSkeletons(ctx, from, asked.Cursor, skeletonsAtOnce)
	var fault *subject.Fault
	if errors.As(err, &fault) && fault.Reason == subject.ReasonNotFound {
		return out, &suppressionapi.BackfillError{Problem: "the database has no such table, or the table no such column: check the names"}
	}
	if err != nil {
		return out, err
	}
	out.Seen, out.NextCursor = len(rows), next
	byTenant := map[string][]suppression.Entry{}
	for _, row := range rows {
		e, ok := b.entry(row, asked.TenantID)
		if !ok {
			out.Rejected++
			continue
		}
		byTenant[e.Source.Tenant()] = append(byTenant[e.Source.Tenant()], e)
	}
	for _, entries := range byTenant {
		n, err := b.ledger.Record(ctx, entries)
		if err != nil {
			return out, err
		}
		out.Recorded += n
	}
	return out, nil
}

func (b *backfilling) find(store string) (stores.Archive, error) {
	for _, d := range b.archives {
		for _, name := range d.stores {
			if store == "" || store == name {
				return d.reader, nil
			}
		}
	}
	return nil, &suppressionapi.BackfillError{Problem: "this cell has no such store in a database that can be read for skeletons (sqlite, bigquery)"}
}

// entry is what a skeleton suppresses, if it names a tenant, a source and a date.
func (b *backfilling) entry(row stores.Skeleton, tenant string) (suppression.Entry, bool) {
	if tenant == "" {
		tenant = row.Tenant
	}
	s, err := subject.NewSource(tenant, row.Source, row.Ref)
	if err != nil || row.ErasedAt.IsZero() || len(row.Reason) > maxReasonBytes {
		return suppression.Entry{}, false
	}
	reason := row.Reason
	if reason == "" {
		reason = backfilled
	}
	return suppression.Entry{Source: s, Reason: reason, ErasedAt: row.ErasedAt.Truncate(time.Microsecond)}, true
}

// parseBackfill reads SUPPRESSION_BACKFILL: table=…,source=…,ref=…,erased_at=…[,reason=…][,store=…],tenant=… or
// tenant_column=….
func parseBackfill(text string) (asked wire.BackfillRequest, err error) {
	fields := map[string]*string{
		"table": &asked.Table, "source": &asked.SourceColumn, "ref": &asked.RefColumn, "erased_at": &asked.ErasedAtColumn,
		"reason": &asked.ReasonColumn, "store": &asked.Store, "tenant": &asked.TenantID, "tenant_column": &asked.TenantColumn,
	}
	for _, part := range strings.Split(text, ",") {
		name, value, found := strings.Cut(strings.TrimSpace(part), "=")
		into, known := fields[name]
		if !found || !known || value == "" || *into != "" {
			return asked, fmt.Errorf("%q is none of table, source, ref, erased_at, reason, store, tenant, tenant_column, each name=value and given once", name)
		}
		*into = value
	}
	if asked.Table == "" || asked.SourceColumn == "" || asked.RefColumn == "" || asked.ErasedAtColumn == "" || (asked.TenantID == "") == (asked.TenantColumn == "") {
		return asked, errors.New("give table, source, ref, erased_at, and one of tenant and tenant_column")
	}
	if asked.TenantID != "" {
		return asked, subject.CheckTenant(asked.TenantID) //nolint:wrapcheck // it says all
	}
	return asked, nil
}

// backfillAtStart takes up the configured table before anything is served: no import may come before it.
func (b *backfilling) backfillAtStart(ctx context.Context, asked wire.BackfillRequest) (seen, recorded, rejected int, err error) {
	for {
		out, err := b.Backfill(ctx, asked)
		if err != nil {
			return seen, recorded, rejected, fmt.Errorf("SUPPRESSION_BACKFILL: %w", err)
		}
		seen, recorded, rejected = seen+out.Seen, recorded+out.Recorded, rejected+out.Rejected
		if asked.Cursor = out.NextCursor; asked.Cursor == "" {
			return seen, recorded, rejected, nil
		}
	}
}
