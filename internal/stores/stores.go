// Package stores is the contract that every storage adapter keeps, beyond the one that subject declares: how a table
// names its subjects, and how rows come in. The adapters below it never import each other.
package stores

import (
	"context"
	"slices"

	"recount/internal/subject"
	"recount/internal/suppression"
)

// Match is how an identity is compared with a column.
type Match string

// The two ways to match. Casefold widens the predicate only: the subject's reference stays that of the bytes as sent.
const (
	MatchExact    Match = "exact"    // byte for byte
	MatchCasefold Match = "casefold" // Unicode case folding of both sides; docs/decisions/009 says how backends differ
)

// Kind is the type of a column of a table that is ours.
type Kind uint8

// The kinds, with the Go type that a Row holds for each. Every kind may hold nil when the column is Nullable.
const (
	Text    Kind = iota // string
	Real                // float64
	Instant             // time.Time, UTC, microseconds
	JSON                // string holding a JSON text
)

// Column is one column of a table that is ours.
type Column struct {
	Name     string
	Kind     Kind
	Nullable bool
}

// Table says which rows of one physical table belong to which subject.
type Table struct {
	Store      string   // logical name, on receipts: [a-z][a-z0-9_]{0,62}
	Name       string   // physical table or collection
	Tenant     string   // tenant column
	Identities []string // identity columns; a row belongs to every subject that any of them names
	Source     string   // source column, "" where the table has none
	SourceRef  string   // source reference column, "" where the table has none
	// DerivedFrom is the JSON column of a table that is ours which lists what a row was derived from, as Parents writes
	// it; "" where the table has none.
	DerivedFrom string
	Match       Match // "" is exact
	// Columns is set for a table that is ours: the adapter creates it (SQLite) or finds it made by the DDL, appends to
	// it, and pages it by RowIDColumn. For an owner's table it is nil, and the adapter only counts, deletes and reads.
	Columns []Column
	Card    subject.Card
}

// Index is the position in a Row of the column of that name, or -1.
func (t Table) Index(column string) int {
	return slices.IndexFunc(t.Columns, func(c Column) bool { return c.Name == column })
}

// RowIDColumn is the opaque row id of every table that is ours.
const RowIDColumn = "row_id"

// Row is one row of a table that is ours: a value for each of Table.Columns, in order.
type Row []any

// Appender takes in rows of a table that is ours.
type Appender interface {
	// Append writes the rows, all or none, and answers for each whether it was new. (tenant, source, source_ref) names
	// a record: writing it again, in this call or an earlier one, is a duplicate and changes nothing. When Append
	// answers no error, every new row is durable and the next Count sees it. Rows of several tenants may be mixed.
	//
	// seen is the generation of the suppression ledger under which a guard admitted the rows, 0 where nobody asked. A
	// store that has a ledger behind it MUST look once more, unless the ledger's generation is still that one, and MUST
	// leave out what is suppressed (created: false) and refuse all, to be sent again, where the ledger can't be read.
	Append(ctx context.Context, rows []Row, seen suppression.Generation) (created []bool, err error)
}

// Backstop is how a store looks at the ledger once more, just before it writes: it answers which rows may still be
// written. The error is *subject.Fault.
type Backstop func(ctx context.Context, rows []Row, seen suppression.Generation) (admitted []bool, err error)

// Suspect is a column of the live schema that looks like a subject's key and belongs to no store.
type Suspect struct {
	Table  string `json:"table"`
	Column string `json:"column"`
}

// Surveyor is a backend that can list the columns that `recount coverage` asks for.
type Surveyor interface {
	// Survey looks at every table that the backend reaches and answers the columns whose name looks like a subject's
	// key (LooksLikeKey) and which none of the given tables covers.
	Survey(ctx context.Context, covered []Table) ([]Suspect, error)
}
