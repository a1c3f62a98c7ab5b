package storetest

import (
	"crypto/rand"
	"encoding/hex"
	"slices"
	"time"

	"recount/internal/stores"
	"recount/internal/subject"
)

// Bystander is who NewRow names in the identity columns that its caller leaves open.
const Bystander = "bystander"

// EventsTable is a table that is ours with one identity column and every kind of column.
func EventsTable() stores.Table { return ours("events", "identity_id") }

// EdgesTable is EventsTable with a second identity column.
func EdgesTable() stores.Table { return ours("edges", "identity_id", "related_id") }

func ours(name string, identities ...string) stores.Table {
	columns := []stores.Column{{Name: stores.RowIDColumn, Kind: stores.Text}, {Name: "tenant_id", Kind: stores.Text}}
	for _, c := range identities {
		columns = append(columns, stores.Column{Name: c, Kind: stores.Text})
	}
	columns = append(columns,
		stores.Column{Name: "source", Kind: stores.Text},
		stores.Column{Name: "source_ref", Kind: stores.Text},
		stores.Column{Name: "consent_basis", Kind: stores.Text},
		stores.Column{Name: "derived_from", Kind: stores.JSON, Nullable: true},
		stores.Column{Name: "ingested_at", Kind: stores.Instant},
		stores.Column{Name: "payload", Kind: stores.JSON, Nullable: true},
		stores.Column{Name: "score", Kind: stores.Real, Nullable: true},
	)
	return stores.Table{
		Store: name, Name: name, Tenant: "tenant_id", Identities: identities, Source: "source", SourceRef: "source_ref", DerivedFrom: "derived_from",
		Columns: columns,
		Card: subject.Card{
			Purposes: []string{"testing"}, Categories: []string{name}, Recipients: []string{"nobody"},
			Retention: "until the test ends", Source: "the suite", Transfers: "none", AutomatedDecisions: "none",
		},
	}
}

// NewRow is a row of a table that is ours: a fresh row id, the given key and identities, and values of the right kind
// elsewhere; what may be null is null. Identity columns that are left open name Bystander.
func NewRow(table stores.Table, tenant, source, ref string, identities ...string) stores.Row {
	row := make(stores.Row, len(table.Columns))
	for i, c := range table.Columns {
		row[i] = sample(c)
	}
	set := func(column string, value any) { row[columnIndex(table, column)] = value }
	set(stores.RowIDColumn, newRowID())
	set(table.Tenant, tenant)
	set(table.Source, source)
	set(table.SourceRef, ref)
	for i, c := range table.Identities {
		if i < len(identities) {
			set(c, identities[i])
		} else {
			set(c, Bystander)
		}
	}
	return row
}

func sample(c stores.Column) any {
	if c.Nullable {
		return nil
	}
	switch c.Kind {
	case stores.Real:
		return 0.5
	case stores.Instant:
		return time.Date(2026, 3, 4, 5, 6, 7, 891011000, time.UTC)
	case stores.JSON:
		return `{}`
	default:
		return "text of " + c.Name
	}
}

func columnIndex(table stores.Table, name string) int {
	return slices.IndexFunc(table.Columns, func(c stores.Column) bool { return c.Name == name })
}

func newRowID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	return hex.EncodeToString(b[:])
}
