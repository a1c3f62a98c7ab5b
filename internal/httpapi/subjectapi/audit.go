package subjectapi

import (
	"time"

	"recount/internal/audit"
	"recount/internal/httpapi"
	"recount/internal/subject"
	"recount/internal/wire"
)

// Auditor writes rows down later: it MUST NOT keep an answer waiting.
type Auditor interface {
	Record(rows ...audit.Row)
}

func (s Surface) auditErase(c *httpapi.Call, t subject.Target, receipts []subject.Receipt) {
	s.Audit.Record(audit.FromReceipts(s.event(c, t, wire.OperationOf(t)), s.Cell.Name(), receipts)...)
}

func (s Surface) auditAccess(c *httpapi.Call, person subject.Subject, receipts []subject.AccessReceipt) {
	s.Audit.Record(audit.FromAccess(s.event(c, subject.TargetOf(person, s.Cell.Salt()), wire.OpAccess), s.Cell.Name(), receipts)...)
}

func (s Surface) event(c *httpapi.Call, t subject.Target, operation string) audit.Event {
	return audit.Event{
		RequestID: c.RequestID(), TenantID: t.Tenant, Ref: t.Ref, Operation: operation,
		Actor: c.Caller.Actor(), At: time.Now(),
	}
}
