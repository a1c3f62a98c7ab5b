package erasure

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"recount/internal/ledger"
	"recount/internal/wire"
)

// statement is what a certificate says: docs/certificate.md.
type statement struct {
	V             int              `json:"v"`
	CertificateID string           `json:"certificate_id"`
	RequestRef    string           `json:"request_ref"`
	TenantID      string           `json:"tenant_id"`
	Commitment    string           `json:"commitment"`
	LegalRef      string           `json:"legal_ref"`
	Policy        string           `json:"policy"`
	ReceivedAt    time.Time        `json:"received_at"`
	ClosedAt      time.Time        `json:"closed_at"`
	Outcome       string           `json:"outcome"`
	Stores        []statementStore `json:"stores"`
	Stages        []statementStage `json:"stages"`
	BackupHorizon *time.Time       `json:"backup_horizon_until"` // null: nobody has said how long backups are kept
	Recoverable   *time.Time       `json:"recoverable_until"`
}

type statementStore struct {
	Cell        string     `json:"cell"`
	Store       string     `json:"store"`
	Backend     string     `json:"backend"`
	Status      string     `json:"status"`
	Before      any        `json:"before"` // an integer, or null
	Remaining   int64      `json:"remaining"`
	MeasuredAt  time.Time  `json:"measured_at"`
	Recoverable *time.Time `json:"recoverable_until"`
	Sticky      bool       `json:"sticky"`
	Basis       string     `json:"basis"`
}

type statementStage struct {
	Stage  string `json:"stage"`
	Status string `json:"status"`
}

// evidence leads from a statement to the ledger.
type evidence struct {
	Entry      string   `json:"entry"`
	Index      int64    `json:"index"`
	Checkpoint string   `json:"checkpoint"`
	Proof      []string `json:"proof"`
}

// close is the last stage. Its order: the statement is kept first, because the ledger's entry holds its hash, and an
// entry can't be taken back.
func (d *drive) close(ctx context.Context, r *request) (result, error) {
	if r.Statement == "" {
		text, at, err := d.state(ctx, r)
		if err != nil {
			return result{}, err
		}
		if r, err = d.save(ctx, func(r *request) error {
			if r.Statement == "" && r.runs() {
				r.Statement, r.ClosedAt = text, &at
			}
			return nil
		}); err != nil {
			return result{}, err
		}
		if r.Statement == "" { // somebody took the approvals back: from the statement on nobody can
			return result{status: stageWaiting}, nil
		}
	}
	var said struct {
		Commitment string `json:"commitment"`
	}
	if err := json.Unmarshal([]byte(r.Statement), &said); err != nil {
		return result{}, fmt.Errorf("reading a statement: %w", err)
	}
	entries, err := d.record(ctx, r, stageClose, "outcome", 0, func(rec *ledger.Record) {
		rec.SubjectID, rec.RequestDigest = said.Commitment, "" // the entry goes out with the certificate, which does not say who
		rec.ProgramRef, rec.ProgramHash, rec.Note = "certificates/"+r.ID, ledger.Hash([]byte(r.Statement)), outcome(r)
		rec.RowsDeleted = map[string]int64{}
		for _, o := range r.Stores {
			if n, measured := o.Deleted.Value(); measured {
				rec.RowsDeleted[o.Cell+"/"+o.Store] = n
			}
		}
	})
	if err != nil {
		return result{}, err
	}
	certificate, err := d.certify(ctx, r, entries[0].Index)
	if err != nil {
		return result{}, err
	}
	return result{status: stageDone, entries: entries, after: func(r *request) {
		now := d.Now().UTC()
		r.Certificate, r.State, r.StateDetail, r.NextTryAt = certificate, outcome(r), "", nil
		keyUntil := d.keyUntil(r)
		r.KeyDestroyAt = &keyUntil
		r.note(now, "recount", r.State, "")
		d.tellRecipients(r, now)
	}}, nil
}

// outcome is the state that a request closes in. With identifier strings that nothing was searched for, it is not complete.
func outcome(r *request) string {
	if r.Identifiers > 0 {
		return Unverified
	}
	return Closed
}

// state writes the statement of what was measured. What is not erased or retained has no place in one.
func (d *drive) state(ctx context.Context, r *request) (string, time.Time, error) {
	part, err := d.opened(ctx, r)
	if err != nil {
		return "", time.Time{}, err
	}
	at := d.Now().UTC().Truncate(time.Second)
	st := statement{
		V: 1, CertificateID: entryID(r.ID, "certificate", "", 0), RequestRef: r.ID, TenantID: r.TenantID, LegalRef: r.LegalRef, Policy: r.Policy,
		ReceivedAt: r.ReceivedAt.UTC(), ClosedAt: at, Outcome: outcome(r), BackupHorizon: d.backupHorizon(at), Recoverable: recoverable(r),
	}
	if st.Commitment, err = commitment(part.Nonce, r.TenantID, part.Descriptor); err != nil {
		return "", at, err
	}
	for _, o := range r.Stores {
		remaining, measured := o.Remaining.Value()
		if !measured || o.MeasuredAt == nil || o.Status == "erased" && remaining != 0 || o.Status != "erased" && o.Status != retained {
			return "", at, fmt.Errorf("the store %s of %s is neither erased nor retained", o.Store, o.Cell)
		}
		store := statementStore{
			Cell: o.Cell, Store: o.Store, Backend: o.Backend, Status: o.Status, Remaining: remaining, MeasuredAt: o.MeasuredAt.UTC(),
			Recoverable: o.RecoverableUntil, Sticky: o.Sticky, Basis: o.Basis,
		}
		if before, measured := o.Before.Value(); measured {
			store.Before = before
		}
		st.Stores = append(st.Stores, store)
	}
	for _, stage := range r.Stages {
		if stage.Name != stageClose {
			st.Stages = append(st.Stages, statementStage{Stage: stage.Name, Status: stage.Status})
		}
	}
	text, err := json.Marshal(st, json.Deterministic(true))
	if err != nil {
		return "", at, fmt.Errorf("writing a statement: %w", err)
	}
	return string(text), at, nil
}

// backupHorizon is when the last backup with the data is gone; nil where nobody has said how long they are kept.
func (s *Service) backupHorizon(closed time.Time) *time.Time {
	if s.Limits.BackupHorizonDays == nil {
		return nil
	}
	until := closed.AddDate(0, 0, *s.Limits.BackupHorizonDays)
	return &until
}

// recoverable is until when any store's platform could bring a row back; nil where none can.
func recoverable(r *request) *time.Time {
	var latest *time.Time
	for _, o := range r.Stores {
		if o.RecoverableUntil != nil && (latest == nil || o.RecoverableUntil.After(*latest)) {
			latest = o.RecoverableUntil
		}
	}
	return latest
}

// keyUntil is how long the descriptor is kept: until nothing can be restored that would have to be erased again.
func (s *Service) keyUntil(r *request) time.Time {
	until := r.ClosedAt.AddDate(0, 0, s.Limits.LogRetentionDays)
	for _, at := range []*time.Time{s.backupHorizon(*r.ClosedAt), recoverable(r)} {
		if at != nil && at.After(until) {
			until = *at
		}
	}
	return until
}

// certify signs the statement, with what leads from it to the ledger.
func (d *drive) certify(ctx context.Context, r *request, index int64) (string, error) {
	written, err := d.Ledger.Line(ctx, index)
	if err != nil {
		return "", fmt.Errorf("reading the ledger: %w", err)
	}
	checkpoint, head, err := d.Ledger.Checkpoint(ctx)
	if err != nil {
		return "", fmt.Errorf("signing the ledger: %w", err)
	}
	proof, err := d.Ledger.Prove(ctx, head.Size, index)
	if err != nil {
		return "", fmt.Errorf("proving an entry: %w", err)
	}
	e := evidence{Entry: string(written.Line), Index: index, Checkpoint: string(checkpoint), Proof: []string{}}
	for _, h := range proof {
		e.Proof = append(e.Proof, base64.StdEncoding.EncodeToString(h[:]))
	}
	text, err := json.Marshal(e)
	if err != nil {
		return "", fmt.Errorf("writing evidence: %w", err)
	}
	signed, err := d.Signer.Sign("recount certificate v1\n" + r.Statement + "\n" + string(text) + "\n")
	if err != nil {
		return "", fmt.Errorf("signing a certificate: %w", err)
	}
	return string(signed), nil
}

// destroyKey destroys the descriptor's key when its time has come, and writes that down before and after.
func (d *drive) destroyKey(ctx context.Context) error {
	r, err := d.load(ctx, d.id)
	if err != nil {
		return err
	}
	now := d.Now().UTC()
	if !r.over() || r.KeyDestroyedAt != nil || r.KeyDestroyAt == nil || r.KeyDestroyAt.After(now) {
		return nil
	}
	if r.State == Cancelled || r.State == Rejected {
		d.thaw(ctx, r) // it may have been frozen already; where this fails it runs out by itself
	}
	before, err := d.record(ctx, r, "descriptor", "intent", 0, nil)
	if err != nil {
		return err
	}
	if err := d.Sealer.Destroy(ctx, r.ID); err != nil {
		return fmt.Errorf("destroying a descriptor's key: %w", err)
	}
	after, err := d.record(ctx, r, "descriptor", "outcome", 0, func(rec *ledger.Record) { rec.Note = "key_destroyed" })
	if err != nil {
		return err
	}
	_, err = d.save(context.WithoutCancel(ctx), func(r *request) error {
		r.Sealed, r.KeyDestroyedAt = nil, &now
		r.Callback, r.Outbox = "", nil // a URL may say more than it should
		for i := range r.Recipients {
			r.Recipients[i].Callback = ""
		}
		r.Entries = append(append(r.Entries, before...), after...)
		r.note(now, "recount", "descriptor_destroyed", "")
		return nil
	})
	return err
}

// Certificate is the certificate of a closed request. Errors: ErrNotFound, *RefusedError.
func (s *Service) Certificate(ctx context.Context, by wire.Principal, id string) (wire.CertificateResponse, error) {
	r, err := s.load(ctx, id)
	if err != nil {
		return wire.CertificateResponse{}, err
	}
	if r.Certificate == "" {
		err = refuse("not_closed", "a certificate is made when the request is closed")
	}
	s.audit(r.Request, by, "request_certificate", err)
	if err != nil {
		return wire.CertificateResponse{}, err
	}
	out := wire.CertificateResponse{Certificate: r.Certificate, Keys: s.Verifiers()}
	if part, err := s.opened(ctx, r); err == nil {
		out.Opening = part.Nonce
	}
	return out, nil
}

// Verifiers are the public keys that certificates and checkpoints verify with, the newest first.
func (s *Service) Verifiers() []string { return slices.Clone(s.Signer.Verifiers()) }
