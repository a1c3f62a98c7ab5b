package wire

import (
	"errors"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"recount/internal/subject"
)

// FileRequest is the body of POST /admin/erasure.
type FileRequest struct {
	Kind       string      `json:"kind"` // "subject"; "tenant" is refused for now
	TenantID   string      `json:"tenant_id"`
	Descriptor Descriptor  `json:"descriptor"`
	LegalRef   string      `json:"legal_ref"`   // the ground of Art. 17(1): "17(1)(a)" to "17(1)(f)"
	ReceivedAt time.Time   `json:"received_at"` // when the person asked: the clock of Art. 12(3) starts there
	Policy     string      `json:"policy"`      // "redact" or "delete"
	Recipients []Recipient `json:"recipients,omitzero"`
	Callback   string      `json:"callback_url,omitzero"` // told of every change of state, with a thin payload
}

// Descriptor says who is meant. It is sealed at rest, and destroyed in the end.
type Descriptor struct {
	PersonIDs         []string     `json:"person_ids,omitzero"` // identity ids, aliases included
	IdentifierStrings []Identifier `json:"identifier_strings,omitzero"`
	WholeSources      []Source     `json:"whole_sources,omitzero"`
}

// Identifier is a text that names the person.
type Identifier struct {
	Value    string `json:"value"`
	Strength string `json:"strength"` // "strong" or "weak"
}

// Recipient is somebody to whom the data was disclosed (Art. 19). Name is a code or a company, never a person.
type Recipient struct {
	Name     string     `json:"name"`
	Callback string     `json:"callback_url,omitzero"`
	Status   string     `json:"status,omitzero"` // "notified", "impossible", "disproportionate"; "due" until then
	Reason   string     `json:"reason,omitzero"` // for impossible and disproportionate
	At       *time.Time `json:"at,omitzero"`
}

// Principal is somebody who may act on requests.
type Principal struct {
	Sub   string `json:"sub"`
	Email string `json:"email"`
}

// Verification says how the person's identity was verified: never a copy of an identity document (Art. 12(6)).
type Verification struct {
	Method string    `json:"method"`
	By     Principal `json:"by"`
	At     time.Time `json:"at"`
}

// Request is an erasure request as its readers see it: nothing in it names the person.
type Request struct {
	ID             string         `json:"id"`
	Kind           string         `json:"kind"`
	TenantID       string         `json:"tenant_id"`
	State          string         `json:"state"`
	StateDetail    string         `json:"state_detail,omitzero"`
	SubjectRef     string         `json:"subject_ref"`
	LegalRef       string         `json:"legal_ref"`
	Policy         string         `json:"policy"`
	Persons        int            `json:"persons"`
	Identifiers    int            `json:"identifier_strings"`
	WholeSources   int            `json:"whole_sources"`
	ReceivedAt     time.Time      `json:"received_at"`
	FiledAt        time.Time      `json:"filed_at"`
	FiledBy        Principal      `json:"filed_by"`
	DueAt          time.Time      `json:"due_at"`
	Extension      *Extension     `json:"extension,omitzero"`
	Verification   *Verification  `json:"verification,omitzero"`
	Preview        *Preview       `json:"preview,omitzero"`
	Approvals      []Approval     `json:"approvals"`
	Refusal        *Refusal       `json:"refusal,omitzero"`
	Hold           *Hold          `json:"hold,omitzero"`
	Exclusions     []Exclusion    `json:"exclusions"`
	Stages         []Stage        `json:"stages"`
	Stores         []StoreOutcome `json:"stores"`
	Attempts       int            `json:"attempts"`
	Deadline       *time.Time     `json:"deadline,omitzero"` // until then what is pending is driven again
	NextTryAt      *time.Time     `json:"next_try_at,omitzero"`
	Epoch          int64          `json:"epoch"`
	ClosedAt       *time.Time     `json:"closed_at,omitzero"`
	Recipients     []Recipient    `json:"recipients"`
	KeyDestroyedAt *time.Time     `json:"descriptor_destroyed_at,omitzero"`
	KeyDestroyAt   *time.Time     `json:"descriptor_destroy_at,omitzero"`
	History        []Event        `json:"history"`
}

// Event is one thing that happened to a request.
type Event struct {
	At     time.Time `json:"at"`
	By     string    `json:"by"` // the principal's e-mail, or "recount"
	Action string    `json:"action"`
	Detail string    `json:"detail,omitzero"`
}

// Extension is the one extension of Art. 12(3).
type Extension struct {
	Until  time.Time `json:"until"`
	Reason string    `json:"reason"`
	By     Principal `json:"by"`
	At     time.Time `json:"at"`
}

// Refusal is why a request is not carried out (Art. 12(4)).
type Refusal struct {
	Reason string    `json:"reason"`
	By     Principal `json:"by"`
	At     time.Time `json:"at"`
}

// Hold is a legal hold. An approved erasure outranks it; who approves sees it.
type Hold struct {
	Ref string    `json:"hold_ref"`
	By  Principal `json:"by"`
	At  time.Time `json:"at"`
}

// Exclusion is a store whose rows are retained under Art. 17(3).
type Exclusion struct {
	Store      string    `json:"store"`       // "cell/store"
	Article    string    `json:"article"`     // "17(3)(a)" to "17(3)(e)"
	CounselRef string    `json:"counsel_ref"` // a code
	ReviewAt   time.Time `json:"review_at"`
	By         Principal `json:"by"`
	At         time.Time `json:"at"`
}

// Approval is one of two. It is to the digest of the preview that its principal saw.
type Approval struct {
	By        Principal `json:"by"`
	At        time.Time `json:"at"`
	ExpiresAt time.Time `json:"expires_at"`
	Digest    string    `json:"preview_digest"`
}

// Preview is what a request would hit, before anything is touched.
type Preview struct {
	Digest        string          `json:"digest"` // what approvals bind to: 64 hex
	At            time.Time       `json:"at"`
	ExpiresAt     time.Time       `json:"expires_at"`
	By            Principal       `json:"by"`
	Targets       []PreviewTarget `json:"targets"`
	Stores        []PreviewStore  `json:"stores"`
	Total         int64           `json:"total"`   // rows that would be erased, as far as they could be counted, derived ones included
	Derived       int64           `json:"derived"` // of them, rows that derive from the targets' own, whoever they belong to
	Unfollowed    []string        `json:"-"`
	Unreachable   []string        `json:"unreachable"`
	NotSearchable []string        `json:"not_searchable"` // what this version can't search yet
	BlastCap      int64           `json:"blast_cap"`
	CapOverride   *CapOverride    `json:"cap_override,omitzero"`
	HoldRef       string          `json:"hold_ref,omitzero"`
	Exclusions    []Exclusion     `json:"exclusions"`
}

// CapOverride lets a request pass the cap. It is a part of the preview, so both approvers see it.
type CapOverride struct {
	Cap    int64     `json:"cap"`
	Reason string    `json:"reason"`
	By     Principal `json:"by"`
}

// PreviewTarget is one person id or one source, by its reference.
type PreviewTarget struct {
	Kind       string        `json:"kind"` // "person" or "source"
	Ref        string        `json:"ref"`
	Total      int64         `json:"total"`
	Suppressed subject.Count `json:"already_suppressed"`
}

// PreviewStore is one store of one cell.
type PreviewStore struct {
	Cell             string        `json:"cell"`
	Store            string        `json:"store"`
	Backend          string        `json:"backend"`
	Count            subject.Count `json:"count"` // null where it could not be counted
	Derived          subject.Count `json:"derived"`
	Sticky           bool          `json:"sticky"`
	Excluded         bool          `json:"excluded"`
	RecoverableUntil *time.Time    `json:"recoverable_until"`
	Detail           string        `json:"detail"`
}

// Stage is one of the stages of an approved request.
type Stage struct {
	Name       string     `json:"name"`
	Status     string     `json:"status"` // "waiting", "running", "pending", "done", "not_applicable", "failed"
	Detail     string     `json:"detail,omitzero"`
	StartedAt  *time.Time `json:"started_at,omitzero"`
	FinishedAt *time.Time `json:"finished_at,omitzero"`
	Entries    []string   `json:"entries"` // of the ledger
}

// StoreOutcome is what became of one store.
type StoreOutcome struct {
	Cell             string        `json:"cell"`
	Store            string        `json:"store"`
	Backend          string        `json:"backend"`
	Status           string        `json:"status"` // "erased", "pending", "failed", "retained_article_17_3"
	Before           subject.Count `json:"before"` // when it was first counted
	Deleted          subject.Count `json:"deleted"`
	Derived          subject.Count `json:"derived"`
	Remaining        subject.Count `json:"remaining"` // when it was last counted
	Sticky           bool          `json:"sticky"`
	RecoverableUntil *time.Time    `json:"recoverable_until"`
	MeasuredAt       *time.Time    `json:"measured_at,omitzero"`
	Basis            string        `json:"basis,omitzero"` // the point of Art. 17(3) of what is retained
	Detail           string        `json:"detail"`
}

// RequestList is the answer of GET /admin/erasure.
type RequestList struct {
	Requests      []Request `json:"requests"`
	NextPageToken string    `json:"next_page_token"`
}

// ActionRequest is the body of the actions on a request; each takes the fields that it knows.
type ActionRequest struct {
	Method      string     `json:"method,omitzero"`         // verify
	Digest      string     `json:"preview_digest,omitzero"` // approve
	Reason      string     `json:"reason,omitzero"`         // reject, extend, preview with a cap, cancel
	BlastCap    int64      `json:"blast_cap,omitzero"`      // preview
	Until       *time.Time `json:"until,omitzero"`          // extend
	HoldRef     string     `json:"hold_ref,omitzero"`       // hold
	Release     bool       `json:"release,omitzero"`        // hold
	Store       string     `json:"store,omitzero"`          // exclude
	Article     string     `json:"article,omitzero"`        // exclude
	CounselRef  string     `json:"counsel_ref,omitzero"`    // exclude
	ReviewAt    *time.Time `json:"review_at,omitzero"`      // exclude
	RemoveStore bool       `json:"remove,omitzero"`         // exclude: take the exclusion back
}

// DescriptorAnswer shows whom a request means, to those who decide about it.
type DescriptorAnswer struct {
	ID         string     `json:"id"`
	Descriptor Descriptor `json:"descriptor"`
}

// ResumeResponse is the answer of POST /admin/erasure:resume.
type ResumeResponse struct {
	Driven int `json:"driven"` // how many were looked at
	Left   int `json:"left"`   // not 0: more are due, call again
}

// CertificateResponse is the answer of GET /admin/erasure/{id}/certificate.
type CertificateResponse struct {
	Certificate string   `json:"certificate"`
	Opening     string   `json:"opening,omitzero"` // the nonce of its commitment, until the descriptor is destroyed
	Keys        []string `json:"keys"`             // that verify it
}

// KeysResponse is the answer of GET /admin/erasure/keys: what certificates and checkpoints verify with, the newest first.
type KeysResponse struct {
	Keys []string `json:"keys"`
}

// Report is the completion report.
type Report struct {
	RequestID      string            `json:"request_id"`
	GeneratedAt    time.Time         `json:"generated_at"`
	Request        Request           `json:"request"`
	Outcome        string            `json:"outcome"` // the state
	Entries        []ReportEntry     `json:"ledger_entries"`
	Checkpoint     string            `json:"ledger_checkpoint"`
	Reviews        []string          `json:"residual_reviews"`
	Waivers        []string          `json:"waivers"`
	NotApplicable  []string          `json:"not_applicable"`
	BackupHorizon  *time.Time        `json:"backup_horizon_until"`
	Recoverable    *time.Time        `json:"recoverable_until"`
	LogAttestation LogAttestation    `json:"log_attestation"`
	Limits         []string          `json:"limits"`
	RowsBefore     subject.Count     `json:"rows_before"` // over the stores that were counted; null before anything was carried out
	RowsRemaining  subject.Count     `json:"rows_remaining"`
	Surfaces       map[string]string `json:"surfaces"` // what every stage came to
}

// ReportEntry is one entry of the ledger.
type ReportEntry struct {
	EntryID string `json:"entry_id"`
	Index   int64  `json:"index"`
	Phase   string `json:"phase"`
	At      string `json:"at"`
}

// LogAttestation says what happens to logs.
type LogAttestation struct {
	RetentionDays    int       `json:"operational_log_retention_days"`
	Targets          []string  `json:"log_targets_checked"`
	PerSubjectScrub  bool      `json:"per_subject_log_scrub_supported"`
	ManualErasure    bool      `json:"manual_log_erasure_required"`
	AttestedBy       string    `json:"attested_by"`
	AttestedAt       time.Time `json:"attested_at"`
	NoLogBeforeAfter time.Time `json:"no_earlier_log_after"`
}

// Callback is the thin payload of a callback: what changed, and where to ask.
type Callback struct {
	Type      string       `json:"type"` // "erasure.state"
	Timestamp time.Time    `json:"timestamp"`
	Data      CallbackData `json:"data"`
}

// CallbackData names the request and its state.
type CallbackData struct {
	RequestID string `json:"request_id"`
	State     string `json:"state"`
}

// CountReader reads counts of documents that we wrote ourselves: an integer that is not negative, or null.
func CountReader() *json.Unmarshalers {
	return json.UnmarshalFromFunc(func(dec *jsontext.Decoder, c *subject.Count) error {
		value, err := dec.ReadValue()
		if err != nil {
			return err //nolint:wrapcheck // the decoder's own error
		}
		if value.Kind() == 'n' {
			*c = subject.Unmeasured()
			return nil
		}
		n, ok := integer(value)
		if !ok {
			return errNotACount
		}
		*c = subject.Measured(n)
		return nil
	})
}

var errNotACount = errors.New("not a count")
