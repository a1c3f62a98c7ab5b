package cli

import (
	"context"
	"fmt"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	"recount/internal/subject"
	"recount/internal/wire"
)

const statusRead = "read"

// pageSaid is what a cell answers to an access: read, and not yet believed.
type pageSaid struct {
	RequestID  wire.PeerText `json:"request_id"`
	TenantID   wire.PeerText `json:"tenant_id"`
	SubjectRef wire.PeerText `json:"subject_ref"`
	Operation  wire.PeerText `json:"operation"`
	Status     wire.PeerText `json:"status"`
	Receipts   []storeSaid   `json:"receipts"`
}

// storeSaid is what a cell answers about one store.
type storeSaid struct {
	Cell          wire.PeerText     `json:"cell"`
	Store         wire.PeerText     `json:"store"`
	Backend       wire.PeerText     `json:"backend"`
	Status        wire.PeerText     `json:"status"`
	Count         wire.PeerCount    `json:"count"`
	Rows          *[]jsontext.Value `json:"rows"` // nil when missing, which is no empty list
	Scrubbed      []string          `json:"scrubbed"`
	About         jsontext.Value    `json:"about"`
	NextPageToken wire.PeerText     `json:"next_page_token"`
	Detail        wire.PeerText     `json:"detail"`
}

// page asks one cell for a page and refuses an answer that is another's, or to something else. ref is what the cells
// before it called the person, "" for the first.
func (s *session) page(ctx context.Context, t target, who subject.Subject, token string, ref subject.Ref) (pageSaid, error) {
	body := wire.SubjectRequest{TenantID: who.Tenant(), IdentityID: who.Identity(), PageToken: token}
	got, err := s.call.post(ctx, t, "/v1/intent/subject:access", body, maxPage)
	if err != nil {
		return pageSaid{}, err
	}
	if got.code != http.StatusOK && got.code != http.StatusBadGateway {
		return pageSaid{}, got.refusal()
	}
	var said pageSaid
	if decodeLoosely(got.body, &said) != nil {
		return pageSaid{}, refused(subject.ReasonPeerNotJSON)
	}
	if reason := said.doubt(got, t.name, who.Tenant(), ref); reason != subject.ReasonNone {
		return pageSaid{}, refused(reason)
	}
	return said, nil
}

func refused(reason subject.Reason) error { return &callError{reason: reason, hint: advice[reason]} }

// doubt looks for a fault in the envelope of a page.
func (p pageSaid) doubt(got answer, cell, tenant string, ref subject.Ref) subject.Reason {
	whole, seen := len(p.Receipts) > 0, map[wire.PeerText]bool{}
	for _, r := range p.Receipts {
		switch {
		case string(r.Cell) != cell:
			return subject.ReasonPeerWrongCell
		case r.Store.Name() == "":
			return subject.ReasonPeerStoreNameless
		case seen[r.Store]:
			return subject.ReasonPeerStoreRepeated
		}
		seen[r.Store] = true
		whole = whole && r.Status == statusRead
	}
	switch {
	case len(p.Receipts) == 0:
		return subject.ReasonPeerNoReceipts
	case string(p.RequestID) != got.requestID:
		return subject.ReasonPeerWrongRequest
	case string(p.TenantID) != tenant:
		return subject.ReasonPeerWrongTenant
	case !isRef(string(p.SubjectRef)) || ref != "" && string(p.SubjectRef) != string(ref):
		return subject.ReasonPeerWrongSubject
	case p.Operation != wire.OpAccess:
		return subject.ReasonPeerWrongOp
	case whole != (p.Status == statusRead) || whole != (got.code == http.StatusOK):
		return subject.ReasonPeerMismatch
	}
	return subject.ReasonNone
}

// find is the receipt of one store.
func (p pageSaid) find(store string) (storeSaid, bool) {
	for _, r := range p.Receipts {
		if string(r.Store) == store {
			return r, true
		}
	}
	return storeSaid{}, false
}

// sound reports why the receipt can't stand for a page of the store, nil when it can.
func (r storeSaid) sound() error {
	if r.Status != statusRead {
		reason := wire.ReasonWord(string(r.Detail))
		if !reason.Known() {
			reason = subject.ReasonReadFailed
		}
		return refused(reason)
	}
	if count, ok := r.Count.Count(); !ok {
		return refused(subject.ReasonPeerBadCount)
	} else if _, measured := count.Value(); !measured {
		return refused(subject.ReasonPeerBadCount)
	}
	if r.Rows == nil {
		return fmt.Errorf("the answer has a count and no list of rows")
	}
	for _, row := range *r.Rows {
		if row.Kind() != '{' {
			return fmt.Errorf("the answer has a row that is no object")
		}
	}
	return nil
}
