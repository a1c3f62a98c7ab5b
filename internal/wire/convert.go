package wire

import (
	"net/http"
	"strings"
	"time"

	"recount/internal/subject"
)

// FromReceipt writes a receipt in the words of the contract.
func FromReceipt(r subject.Receipt) Receipt {
	counts, times := r.Counts(), r.Times()
	out := Receipt{
		Cell: r.Cell(), Store: r.Store(), Backend: r.Backend(), Status: r.Status().String(),
		Before: counts.Before, Deleted: counts.Deleted, Remaining: counts.Remaining,
		Suppressed: counts.Suppressed, Derived: counts.Derived, Sticky: r.Sticky(),
		Detail: string(r.Reason()), StartedAt: times.Started.UTC(), FinishedAt: times.Finished.UTC(),
	}
	if !times.RecoverableUntil.IsZero() {
		until := times.RecoverableUntil.UTC()
		out.RecoverableUntil = &until
	}
	return out
}

// OperationOf is the word for the erasure of a target.
func OperationOf(t subject.Target) string {
	if t.AboutPerson() {
		return OpErase
	}
	return OpEraseSource
}

// FromSources writes sources for a caller that asked for them: never nil, which would say that nobody looked.
func FromSources(sources []subject.Source) []Source {
	out := make([]Source, len(sources))
	for i, s := range sources {
		out[i] = Source{Source: s.Origin(), SourceRef: s.Reference()}
	}
	return out
}

// FromReceipts is the erase response for one target: the fold decides its status, and the slowest pending store its
// retry_after_s.
func FromReceipts(requestID string, target subject.Target, receipts []subject.Receipt, now time.Time) EraseResponse {
	status := subject.Fold(receipts)
	out := EraseResponse{
		RequestID: requestID, TenantID: target.Tenant, SubjectRef: string(target.Ref), Operation: OperationOf(target), Status: status.String(),
		Receipts: make([]Receipt, len(receipts)), GeneratedAt: now.UTC(),
	}
	for _, place := range target.Keep {
		_, store, _ := strings.Cut(place, "/")
		out.Kept = append(out.Kept, store)
	}
	var after time.Duration
	for i, r := range receipts {
		out.Receipts[i] = FromReceipt(r)
		after = max(after, r.RetryAfter())
	}
	switch {
	case len(receipts) == 0:
		out.Detail = string(subject.ReasonNothingVerified)
	case status == subject.Pending:
		seconds := int64((after + time.Second - 1) / time.Second)
		out.RetryAfterS = &seconds
	}
	return out
}

// HTTPStatus is the code that an erase response of this status is sent with.
func HTTPStatus(s subject.Status) int {
	switch s {
	case subject.Erased:
		return http.StatusOK
	case subject.Pending:
		return http.StatusConflict
	default:
		return http.StatusBadGateway
	}
}

// ReasonWord is the word of the vocabulary in front of a detail's hint ("word: hint").
func ReasonWord(detail string) subject.Reason {
	word, _, _ := strings.Cut(detail, ":")
	return subject.Reason(strings.TrimSpace(word))
}
