package wire

import "time"

// The operations on a suppression ledger, as answers and audit rows name them.
const (
	OpSuppressionList     = "suppression_list"
	OpSuppressionAllow    = "suppression_allow"
	OpSuppressionCheck    = "suppression_check"
	OpSuppressionBackfill = "suppression_backfill"
)

// SuppressionList is the answer of GET /v1/suppression: a page of what a cell suppresses for a tenant.
type SuppressionList struct {
	RequestID     string             `json:"request_id"`
	TenantID      string             `json:"tenant_id"`
	Cell          string             `json:"cell"`
	Operation     string             `json:"operation"`
	Entries       []SuppressionEntry `json:"entries"`
	NextPageToken string             `json:"next_page_token"`
	GeneratedAt   time.Time          `json:"generated_at"`
}

// SuppressionEntry is one suppressed source.
type SuppressionEntry struct {
	Source    string    `json:"source"`
	SourceRef string    `json:"source_ref"`
	Reason    string    `json:"reason"`
	ErasedAt  time.Time `json:"erased_at"`
}

// AllowRequest is the body of POST /v1/suppression:allow. Every field is required.
type AllowRequest struct {
	TenantID   string `json:"tenant_id"`
	Source     string `json:"source"`
	SourceRef  string `json:"source_ref"`
	Reason     string `json:"reason"`
	ConsentRef string `json:"consent_ref"`
}

// AllowResponse is the answer of an allow. On the coordinator it has a line for each cell, and Removed says that any of
// them had suppressed the source; Status is then "failed" when any of them could not be asked.
type AllowResponse struct {
	RequestID string        `json:"request_id"`
	TenantID  string        `json:"tenant_id"`
	Operation string        `json:"operation"`
	Status    string        `json:"status"` // "allowed" or "failed"
	Removed   bool          `json:"removed"`
	Cells     []CellAllowed `json:"cells"`
}

// CellAllowed is what became of an allow in one cell.
type CellAllowed struct {
	Cell    string `json:"cell"`
	Status  string `json:"status"` // "allowed" or "failed"
	Removed bool   `json:"removed"`
	Detail  string `json:"detail"`
}

// CheckRequest is the body of POST /v1/suppression:check: 1 to MaxBatch records that an owner's importer is about to write.
type CheckRequest struct {
	TenantID string        `json:"tenant_id"`
	Items    []CheckedItem `json:"items"`
}

// CheckedItem names one record, what it derives from, and, where it is known, whose it is.
type CheckedItem struct {
	Source      string   `json:"source"`
	SourceRef   string   `json:"source_ref"`
	DerivedFrom []Source `json:"derived_from,omitzero"`
}

// CheckResponse answers each item in order: "admitted", "suppressed", or "unreadable" where the ledger could not be asked;
// only what is admitted may be written.
type CheckResponse struct {
	RequestID string   `json:"request_id"`
	TenantID  string   `json:"tenant_id"`
	Cell      string   `json:"cell"`
	Operation string   `json:"operation"`
	Verdicts  []string `json:"verdicts"`
}

// BackfillRequest is the body of POST /v1/suppression:backfill: a page of a table in which skeletons of past erasures are.
// Exactly one of TenantID and TenantColumn is given.
type BackfillRequest struct {
	TenantID       string `json:"tenant_id,omitzero"`
	TenantColumn   string `json:"tenant_column,omitzero"`
	Store          string `json:"store,omitzero"` // a store of the database that has the table; the cell's first by default
	Table          string `json:"table"`
	SourceColumn   string `json:"source_column"`
	RefColumn      string `json:"ref_column"`
	ErasedAtColumn string `json:"erased_at_column"`
	ReasonColumn   string `json:"reason_column,omitzero"`
	Cursor         string `json:"cursor,omitzero"`
}

// BackfillResponse says what became of the page. Rejected rows name no usable source, tenant or date.
type BackfillResponse struct {
	RequestID  string `json:"request_id"`
	Cell       string `json:"cell"`
	Operation  string `json:"operation"`
	Seen       int    `json:"seen"`
	Recorded   int    `json:"recorded"`
	Rejected   int    `json:"rejected"`
	NextCursor string `json:"next_cursor"` // "" at the end
}
