package main

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"recount/internal/subject"
	"recount/internal/wire"
)

// suppression is a ledger without a store: it lists, allows, takes skeletons and keeps sources out.
func (s *service) suppression(w http.ResponseWriter, r *http.Request, path, id string, body []byte) {
	decode := func(v any) bool {
		if err := wire.DecodeRequest(strings.NewReader(string(body)), v); err != nil {
			problem(w, http.StatusBadRequest)
			return false
		}
		return true
	}
	switch path {
	case "/v1/suppression":
		s.list(w, r, id)
	case "/v1/suppression:allow":
		var asked wire.AllowRequest
		if decode(&asked) {
			answer(w, http.StatusOK, s.allow(id, asked))
		}
	case "/v1/suppression:backfill":
		var asked wire.BackfillRequest
		if decode(&asked) {
			out := wire.BackfillResponse{RequestID: id, Cell: s.name, Operation: wire.OpSuppressionBackfill, Seen: 2, Recorded: 1, NextCursor: "next"}
			if asked.Cursor == "next" {
				out.Seen, out.Recorded, out.Rejected, out.NextCursor = 3, 1, 1, ""
			}
			answer(w, http.StatusOK, out)
		}
	default:
		var asked wire.SourceRequest
		if decode(&asked) {
			s.eraseSource(w, id, asked)
		}
	}
}

func (s *service) list(w http.ResponseWriter, r *http.Request, id string) {
	out := wire.SuppressionList{
		RequestID: id, TenantID: r.URL.Query().Get("tenant_id"), Cell: s.name, Operation: wire.OpSuppressionList, Entries: s.ledger, GeneratedAt: time.Now(),
	}
	if n := len(s.ledger); n > 1 && r.URL.Query().Get("page_token") == "" { // the last one on a page of its own
		out.Entries, out.NextPageToken = s.ledger[:n-1], "more"
	} else if n > 1 {
		out.Entries = s.ledger[n-1:]
	}
	answer(w, http.StatusOK, out)
}

func (s *service) allow(id string, asked wire.AllowRequest) wire.AllowResponse {
	out := wire.AllowResponse{RequestID: id, TenantID: asked.TenantID, Operation: wire.OpSuppressionAllow, Status: "allowed"}
	for _, cell := range append([]*service{s}, s.peers...) {
		had := len(cell.ledger)
		cell.ledger = slices.DeleteFunc(cell.ledger, func(e wire.SuppressionEntry) bool {
			return e.Source == asked.Source && e.SourceRef == asked.SourceRef
		})
		removed := len(cell.ledger) < had
		out.Removed = out.Removed || removed
		out.Cells = append(out.Cells, wire.CellAllowed{Cell: cell.name, Status: "allowed", Removed: removed})
	}
	return out
}

func (s *service) eraseSource(w http.ResponseWriter, id string, asked wire.SourceRequest) {
	source, err := subject.NewSource(asked.TenantID, asked.Source, asked.SourceRef)
	if err != nil {
		problem(w, http.StatusUnprocessableEntity)
		return
	}
	var receipts []subject.Receipt
	for _, cell := range append([]*service{s}, s.peers...) {
		cell.ledger = append(cell.ledger, wire.SuppressionEntry{Source: asked.Source, SourceRef: asked.SourceRef, Reason: "source_erased", ErasedAt: time.Date(2026, 3, 4, 0, 0, 0, 0, time.UTC)})
		for _, t := range cell.tables {
			receipts = append(receipts, subject.Attest(subject.Statement{
				Label:  subject.Label{Cell: cell.name, Store: t.name, Backend: t.Backend(), Sticky: true},
				Counts: subject.Counts{Before: subject.Measured(1), Deleted: subject.Measured(1), Remaining: subject.Measured(0), Suppressed: subject.Measured(1), Derived: subject.Measured(2)},
				Status: subject.Erased,
			}))
		}
	}
	answer(w, http.StatusOK, wire.FromReceipts(id, subject.TargetOfSource(source, s.salt), receipts, time.Now()))
}
