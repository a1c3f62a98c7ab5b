package erasure

import (
	"context"
	"fmt"
	"time"

	"recount/internal/subject"
	"recount/internal/wire"
)

// limits are stated wherever completion is claimed.
var limits = []string{
	"The counts cover rows that the declared keys of each store match. A row whose key was mangled elsewhere escapes the recount as it escaped the delete.",
	"What a platform keeps after a clean delete is stated as recoverable until, store by store.",
	"Copies in archives and application databases outside the cells were not searched by this version.",
	"A store that is not sticky can take the data in again by its owner's own imports.",
}

// Report is the completion report as far as the request has come. Errors: ErrNotFound.
func (s *Service) Report(ctx context.Context, by wire.Principal, id string) (wire.Report, error) {
	r, err := s.load(ctx, id)
	if err != nil {
		return wire.Report{}, err
	}
	now := s.Now().UTC()
	out := wire.Report{
		RequestID: r.ID, GeneratedAt: now, Request: r.Request, Outcome: r.State, Reviews: []string{}, Waivers: []string{},
		Limits: limits, Surfaces: map[string]string{}, Recoverable: recoverable(r), LogAttestation: s.attest(r, now),
		Entries: []wire.ReportEntry{}, NotApplicable: []string{},
	}
	for _, e := range r.Entries {
		out.Entries = append(out.Entries, wire.ReportEntry{EntryID: e.ID, Index: e.Index, Phase: e.Phase, At: e.At.UTC().Format(time.RFC3339)})
	}
	for _, st := range r.Stages {
		out.Surfaces[st.Name] = st.Status
		if st.Status == stageNotApplicable {
			out.NotApplicable = append(out.NotApplicable, st.Name+": "+st.Detail)
		}
	}
	if r.Identifiers > 0 {
		out.NotApplicable = append(out.NotApplicable, fmt.Sprintf("pass 2 of the verification: nothing was searched for the %d identifier strings", r.Identifiers))
	}
	for i, o := range r.Stores {
		if i == 0 { // before anything is carried out nothing is measured, and no sum is 0
			out.RowsBefore, out.RowsRemaining = subject.Measured(0), subject.Measured(0)
		}
		out.RowsBefore, out.RowsRemaining = added(out.RowsBefore, o.Before), added(out.RowsRemaining, o.Remaining)
	}
	if r.State == Closed || r.State == Unverified {
		out.BackupHorizon = s.backupHorizon(*r.ClosedAt)
	}
	checkpoint, _, err := s.Ledger.Checkpoint(ctx)
	if err != nil {
		return out, fmt.Errorf("signing the ledger: %w", err)
	}
	out.Checkpoint = string(checkpoint)
	s.audit(r.Request, by, "request_report", nil)
	return out, nil
}

// attest is what is said of logs. What nobody has checked is not claimed: our own logs hold no identifier, and the platform's
// are bounded by the configured retention.
func (s *Service) attest(r *request, now time.Time) wire.LogAttestation {
	from := now
	if r.State == Closed || r.State == Unverified {
		from = *r.ClosedAt
	}
	return wire.LogAttestation{
		RetentionDays: s.Limits.LogRetentionDays, Targets: []string{"recount service logs: no identifier is written to them"},
		PerSubjectScrub: false, ManualErasure: s.Limits.LogRetentionDays > maxLogDays, AttestedBy: "the deployment's configuration (ERASURE_LOG_RETENTION_DAYS_MAX)",
		AttestedAt: now, NoLogBeforeAfter: from.AddDate(0, 0, s.Limits.LogRetentionDays),
	}
}

// maxLogDays is the bound on logs above which they have to be erased by hand.
const maxLogDays = 30
