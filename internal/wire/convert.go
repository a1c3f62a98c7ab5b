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
		Detail: string(r.Reason()), StartedAt: times.Started.UTC(), FinishedAt: times.Finished.UTC(),
	}
	if !times.RecoverableUntil.IsZero() {
		until := times.RecoverableUntil.UTC()
		out.RecoverableUntil = &until
	}
	return out
}

// FromReceipts is the erase response for one subject: the fold decides its status, and the slowest pending store its
// retry_after_s.
func FromReceipts(requestID string, tenant string, ref subject.Ref, receipts []subject.Receipt, now time.Time) EraseResponse {
	status := subject.Fold(receipts)
	out := EraseResponse{
		RequestID: requestID, TenantID: tenant, SubjectRef: string(ref), Operation: OpErase, Status: status.String(),
		Receipts: make([]Receipt, len(receipts)), GeneratedAt: now.UTC(),
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
