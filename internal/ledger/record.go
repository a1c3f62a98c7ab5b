package ledger

import (
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"lukechampine.com/blake3"
)

// Version is the form of records that this package writes.
const Version = 1

// MaxLine is the longest entry, in bytes.
const MaxLine = 64 << 10

// The methods: what an entry is about. This version writes the first; the others are reserved for stages that are to come.
const (
	MethodSubject          = "gdpr_subject"
	MethodTenant           = "gdpr_tenant"
	MethodSubjectPG        = "gdpr_subject_pg"
	MethodBlocklistRelease = "gdpr_blocklist_release"
	MethodWaiver           = "gdpr_waiver"
	MethodResidualReview   = "gdpr_residual_review"
)

// Record is one entry. Every text in it is a code, an id or a keyed reference: [A-Za-z0-9._:/+=-], at most 256 bytes, and so
// no e-mail address.
type Record struct {
	V                   int               `json:"v"`
	EntryID             string            `json:"entry_id"`
	AtUS                int64             `json:"at_us"` // microseconds since 1970, UTC
	TenantID            string            `json:"tenant_id"`
	OrganizationID      string            `json:"organization_id,omitzero"`
	Method              string            `json:"method"`
	Phase               string            `json:"phase"` // stage:step, such as "execute:intent"
	SubjectKind         string            `json:"subject_kind"`
	SubjectID           string            `json:"subject_id"` // the reference, never the identity
	PolicyRef           string            `json:"policy_ref,omitzero"`
	HoldRef             string            `json:"hold_ref,omitzero"`
	ArchiveRef          string            `json:"archive_ref,omitzero"`
	RowsDeleted         map[string]int64  `json:"rows_deleted,omitempty"` // by cell/store
	Note                string            `json:"note,omitzero"`          // a code
	RequestRef          string            `json:"request_ref"`
	RequestDigest       string            `json:"request_digest,omitzero"` // keyed
	ProgramRef          string            `json:"program_ref,omitzero"`
	ProgramHash         string            `json:"program_hash,omitzero"` // BLAKE3-256 of what ProgramRef names, in hex
	RetiredDigests      []string          `json:"retired_digests,omitempty"`
	SupersededManifests []string          `json:"superseded_manifests,omitempty"`
	PGCounts            map[string]Counts `json:"pg_counts,omitempty"` // by table
}

// Counts are a table's rows before and after.
type Counts struct {
	Before int64 `json:"before"`
	After  int64 `json:"after"`
}

// RecordError says which field of a record can't be written. It holds nothing of the field's value.
type RecordError struct{ Field, Problem string }

// Error names the field.
func (e *RecordError) Error() string { return "ledger record: " + e.Field + " " + e.Problem }

const maxText = 256

var methods = map[string]bool{
	MethodSubject: true, MethodTenant: true, MethodSubjectPG: true, MethodBlocklistRelease: true, MethodWaiver: true, MethodResidualReview: true,
}

// Encode checks a record and writes it as one line without its end. The order of fields and of map keys is fixed. Errors:
// *RecordError.
func (r Record) Encode() ([]byte, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	line, err := json.Marshal(r, json.Deterministic(true))
	if err != nil {
		return nil, &RecordError{"", "is not valid UTF-8"}
	}
	if len(line) > MaxLine {
		return nil, &RecordError{"", fmt.Sprintf("is longer than %d bytes", MaxLine)}
	}
	return line, nil
}

// Decode reads a line. It refuses unknown and repeated fields.
func Decode(line []byte) (Record, error) {
	var r Record
	if err := json.Unmarshal(line, &r, json.RejectUnknownMembers(true)); err != nil {
		return r, &RecordError{"", "is not a record"}
	}
	return r, r.check()
}

func (r Record) check() error {
	for _, f := range []struct {
		name, value string
		required    bool
	}{
		{"entry_id", r.EntryID, true},
		{"tenant_id", r.TenantID, true},
		{"organization_id", r.OrganizationID, false},
		{"method", r.Method, true},
		{"phase", r.Phase, true},
		{"subject_kind", r.SubjectKind, true},
		{"subject_id", r.SubjectID, true},
		{"policy_ref", r.PolicyRef, false},
		{"hold_ref", r.HoldRef, false},
		{"archive_ref", r.ArchiveRef, false},
		{"note", r.Note, false},
		{"request_ref", r.RequestRef, true},
		{"request_digest", r.RequestDigest, false},
		{"program_ref", r.ProgramRef, false},
		{"program_hash", r.ProgramHash, false},
	} {
		if problem := textFault(f.value, f.required); problem != "" {
			return &RecordError{f.name, problem}
		}
	}
	switch {
	case r.V != Version:
		return &RecordError{"v", "is not a version that is known"}
	case r.AtUS <= 0:
		return &RecordError{"at_us", "must be positive"}
	case !methods[r.Method]:
		return &RecordError{"method", "is not one that is known"}
	}
	return r.checkLists()
}

func (r Record) checkLists() error {
	for store, n := range r.RowsDeleted {
		if problem := textFault(store, true); problem != "" || n < 0 {
			return &RecordError{"rows_deleted", "needs names of stores and numbers that are not negative"}
		}
	}
	for table, c := range r.PGCounts {
		if problem := textFault(table, true); problem != "" || c.Before < 0 || c.After < 0 {
			return &RecordError{"pg_counts", "needs names of tables and numbers that are not negative"}
		}
	}
	for _, list := range [][]string{r.RetiredDigests, r.SupersededManifests} {
		for _, digest := range list {
			if problem := textFault(digest, true); problem != "" {
				return &RecordError{"retired_digests or superseded_manifests", problem}
			}
		}
	}
	return nil
}

// textFault says what keeps a text out of a ledger. No free text is let in: that is where a name would hide.
func textFault(text string, required bool) string {
	switch {
	case text == "" && required:
		return "is required"
	case len(text) > maxText:
		return "is longer than 256 bytes"
	case strings.ContainsFunc(text, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._:/+=-", r)
	}):
		return "must be a code: letters, digits and . _ : / + = - only"
	default:
		return ""
	}
}

// Hash is the BLAKE3-256 of a program, in hex.
func Hash(body []byte) string {
	sum := blake3.Sum256(body)
	return hex.EncodeToString(sum[:])
}
