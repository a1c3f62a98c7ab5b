package wire

import "recount/internal/subject"

// Ready is the answer of /ready once every store can answer; until then it is a problem document.
type Ready struct {
	Status string `json:"status"` // "ready"
}

// CoverageResponse is the answer of /v1/intent/coverage: columns of the live schema that look like a person's key and
// that no store of the cell counts by.
type CoverageResponse struct {
	Cell     string    `json:"cell"`
	Suspects []Suspect `json:"suspects"`
}

// Suspect is one such column.
type Suspect struct {
	Table  string `json:"table"`
	Column string `json:"column"`
}

// PurgeRequest is the body of graph/journal:purge: the project whose journal is no longer configured.
type PurgeRequest struct {
	Project string `json:"project"`
}

// PurgeResponse is the answer of graph/journal:purge, once the journal was counted empty.
type PurgeResponse struct {
	Cell      string        `json:"cell"`
	Deleted   subject.Count `json:"deleted"`
	Remaining subject.Count `json:"remaining"` // counted after the delete: 0
}
