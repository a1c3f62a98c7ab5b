// Package wire is the JSON of the contract between callers, cells and the coordinator: one set of
// types for the server, the cascade and the CLI, one strict decoder for what callers send, and one for what peers say.
package wire

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"recount/internal/subject"
)

// MaxBatch is how many subjects one batch may name.
const MaxBatch = 1000

// The operations that a response can be about.
const (
	OpErase       = "erase"
	OpEraseSource = "erase_source"
	OpAccess      = "access"
	OpCount       = "count"
)

// SubjectRequest is the body of subject:access, subject:delete, subject:count and subject:erase.
type SubjectRequest struct {
	TenantID   string `json:"tenant_id"`
	IdentityID string `json:"identity_id"`
	PageToken  string `json:"page_token,omitzero"` // access only
}

// BatchRequest is the body of subject:batchDelete and subject:batchErase: 1 to MaxBatch identities of one tenant.
type BatchRequest struct {
	TenantID    string   `json:"tenant_id"`
	IdentityIDs []string `json:"identity_ids"`
	Keep        []string `json:"keep,omitzero"` // batchDelete only: stores that are left alone, retained under Art. 17(3)
}

// SourceRequest is the body of source:delete and source:erase.
type SourceRequest struct {
	TenantID  string `json:"tenant_id"`
	Source    string `json:"source"`
	SourceRef string `json:"source_ref"`
}

// SourceBatchRequest is the body of source:batchDelete, by which a coordinator asks a cell for what other cells resolved:
// at most MaxBatch sources of one tenant in all.
type SourceBatchRequest struct {
	TenantID string          `json:"tenant_id"`
	Erasures []SourceErasure `json:"erasures"`
	Keep     []string        `json:"keep,omitzero"` // as in BatchRequest
}

// SourceErasure is a part of somebody's erasure that is named by sources.
type SourceErasure struct {
	SubjectRef string   `json:"subject_ref"` // the pseudonym that the erasure is written down under: 64 hex digits
	Sources    []Source `json:"sources"`
}

// Source names a record of a tenant.
type Source struct {
	Source    string `json:"source"`
	SourceRef string `json:"source_ref"`
}

// PreferSources is the value of the Prefer header by which a coordinator asks for the sources that an erasure resolved.
const PreferSources = "sources"

// EraseResponse is the answer of every erasure, from one cell or from the cascade. It never holds the identity.
type EraseResponse struct {
	RequestID   string    `json:"request_id"`
	TenantID    string    `json:"tenant_id"`
	SubjectRef  string    `json:"subject_ref"`
	Operation   string    `json:"operation"`
	Status      string    `json:"status"`
	Detail      string    `json:"detail"`
	RetryAfterS *int64    `json:"retry_after_s,omitempty"` // with status pending only
	Receipts    []Receipt `json:"receipts"`
	Kept        []string  `json:"kept,omitempty"`   // stores that were left alone as asked: they were not erased, and have no receipt
	Sources     []Source  `json:"sources,omitzero"` // only for a caller that asked for them
	GeneratedAt time.Time `json:"generated_at"`
}

// Receipt is what one store measured.
type Receipt struct {
	Cell             string        `json:"cell"`
	Store            string        `json:"store"`
	Backend          string        `json:"backend"`
	Status           string        `json:"status"`
	Before           subject.Count `json:"before"`
	Deleted          subject.Count `json:"deleted"`
	Remaining        subject.Count `json:"remaining"`
	Suppressed       subject.Count `json:"suppressed"`
	Derived          subject.Count `json:"derived"`
	Sticky           bool          `json:"sticky"`
	RecoverableUntil *time.Time    `json:"recoverable_until"`
	Detail           string        `json:"detail"`
	StartedAt        time.Time     `json:"started_at"`
	FinishedAt       time.Time     `json:"finished_at"`
}

// BatchResponse is the answer of batchErase and batchDelete: the worst status, and each subject's own response in the
// order asked.
type BatchResponse struct {
	Status  string          `json:"status"`
	Results []EraseResponse `json:"results"`
}

// CountResponse is the answer of subject:count: status is "counted", or "failed" when any store could not be counted.
type CountResponse struct {
	RequestID   string         `json:"request_id"`
	TenantID    string         `json:"tenant_id"`
	SubjectRef  string         `json:"subject_ref"`
	Operation   string         `json:"operation"`
	Status      string         `json:"status"`
	Receipts    []CountReceipt `json:"receipts"`
	GeneratedAt time.Time      `json:"generated_at"`
}

// CountReceipt is one store's count.
type CountReceipt struct {
	Cell    string        `json:"cell"`
	Store   string        `json:"store"`
	Backend string        `json:"backend"`
	Status  string        `json:"status"` // "counted" or "failed"
	Count   subject.Count `json:"count"`
	Detail  string        `json:"detail"`
}

// AccessResponse is the answer of an access: status is "read", or "failed" when any store could not be read.
type AccessResponse struct {
	RequestID   string          `json:"request_id"`
	TenantID    string          `json:"tenant_id"`
	SubjectRef  string          `json:"subject_ref"`
	Operation   string          `json:"operation"`
	Status      string          `json:"status"`
	Receipts    []AccessReceipt `json:"receipts"`
	GeneratedAt time.Time       `json:"generated_at"`
}

// AccessReceipt is what one store holds about a subject: the whole count, a page of rows, and the Art. 15(1) card.
type AccessReceipt struct {
	Cell          string           `json:"cell"`
	Store         string           `json:"store"`
	Backend       string           `json:"backend"`
	Status        string           `json:"status"` // "read" or "failed"
	Count         subject.Count    `json:"count"`
	Rows          []jsontext.Value `json:"rows"`
	Scrubbed      []string         `json:"scrubbed"`
	About         subject.Card     `json:"about"`
	NextPageToken string           `json:"next_page_token"`
	Detail        string           `json:"detail"`
}

// IntakeResponse is the answer of every write endpoint.
type IntakeResponse struct {
	Accepted          int        `json:"accepted"`
	Duplicates        int        `json:"duplicates"`
	SkippedSuppressed int        `json:"skipped_suppressed"`
	SkippedUnreadable int        `json:"skipped_unreadable"`
	Rejected          []Rejected `json:"rejected"` // at most MaxRejected
	RejectedTotal     int        `json:"rejected_total"`
}

// MaxRejected is how many rejected lines a response lists.
const MaxRejected = 100

// Rejected says why one line was not taken. Line counts from 1; a single record is line 1.
type Rejected struct {
	Line   int    `json:"line"`
	Reason string `json:"reason"`
}

// Health is the answer of /health.
type Health struct {
	Status                 string          `json:"status"`
	Cell                   string          `json:"cell"`
	Version                string          `json:"version"`
	Stores                 []HealthStore   `json:"stores"`
	GraphJournal           string          `json:"graph_journal,omitempty"` // graph cell: "sqlite", "firestore", "off"
	GraphNote              string          `json:"graph_note,omitempty"`
	CascadePeersConfigured *bool           `json:"cascade_peers_configured,omitempty"` // coordinator only
	CascadePeers           map[string]bool `json:"cascade_peers,omitempty"`
}

// HealthStore names one store that a cell opened.
type HealthStore struct {
	Store   string `json:"store"`
	Backend string `json:"backend"`
}

// Problem is an RFC 9457 problem document.
type Problem struct {
	Type      string `json:"type"`
	Title     string `json:"title"`
	Status    int    `json:"status"`
	Detail    string `json:"detail,omitempty"`
	RequestID string `json:"request_id,omitempty"`
}
