package intake

import (
	"bytes"
	"errors"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"recount/internal/subject"
)

// Reasons for which a line is rejected, beside "<field>_invalid", "<field>_missing" and "<field>_not_object". They are
// fixed words: a rejected line may be about a person, and none of it is quoted.
const (
	ReasonNotJSON          = "not_json"
	ReasonNotObject        = "not_an_object"
	ReasonUnknownField     = "unknown_field"
	ReasonDuplicateField   = "duplicate_field"
	ReasonWrongType        = "wrong_type"
	ReasonLineTooLong      = "line_too_long"
	ReasonConsentMissing   = "consent_basis_missing"
	ReasonTenantNotAllowed = "tenant_not_allowed"
	ReasonProbabilistic    = "probabilistic_identity_refused"
)

const (
	maxShortBytes   = 256
	maxSourceBytes  = 512
	maxRefBytes     = 1024
	maxDerivedPairs = 100
)

func decodeReason(err error) string {
	var semantic *json.SemanticError
	switch {
	case errors.Is(err, json.ErrUnknownName):
		return ReasonUnknownField
	case errors.Is(err, jsontext.ErrDuplicateName):
		return ReasonDuplicateField
	case errors.As(err, &semantic) && semantic.JSONPointer == "":
		return ReasonNotObject
	case errors.As(err, &semantic):
		return ReasonWrongType
	default:
		return ReasonNotJSON
	}
}

func (h *head) check() string {
	switch {
	case subject.CheckTenant(h.TenantID) != nil:
		return "tenant_id_invalid"
	case subject.CheckIdentity(h.IdentityID) != nil:
		return "identity_id_invalid"
	case !isText(h.Source, maxSourceBytes):
		return "source_invalid"
	case !isText(h.SourceRef, maxRefBytes):
		return "source_ref_invalid"
	case h.ConsentBasis == "":
		return ReasonConsentMissing
	case !isShort(h.ConsentBasis):
		return "consent_basis_invalid"
	case len(h.DerivedFrom) > maxDerivedPairs:
		return "derived_from_invalid"
	}
	for _, pair := range h.DerivedFrom {
		if !isText(pair.Source, maxSourceBytes) || !isText(pair.SourceRef, maxRefBytes) {
			return "derived_from_invalid"
		}
	}
	return ""
}

// derivedFrom is the column's JSON text, or nil.
func (h *head) derivedFrom() any {
	if len(h.DerivedFrom) == 0 {
		return nil
	}
	encoded, err := json.Marshal(h.DerivedFrom)
	if err != nil {
		panic(err) // two valid strings always encode
	}
	return string(encoded)
}

// isShort reports a text of up to 256 bytes.
func isShort(s string) bool { return isText(s, maxShortBytes) }

// isText reports 1 to limit bytes of valid UTF-8 without control characters.
func isText(s string, limit int) bool {
	if s == "" || len(s) > limit || !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if r < 0x20 || r >= 0x7f && r < 0xa0 {
			return false
		}
	}
	return true
}

// objectText is the JSON text of an optional object: nil where the field is absent or null. It reports false for any
// other value.
func objectText(v jsontext.Value) (any, bool) {
	v = bytes.TrimSpace(v)
	if len(v) == 0 || v.Kind() == 'n' {
		return nil, true
	}
	if v.Kind() != '{' {
		return nil, false
	}
	return string(v), true
}
