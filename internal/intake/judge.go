package intake

import (
	"bytes"
	"errors"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"recount/internal/subject"
)

// Reasons for which a line is rejected, beside "<field>_invalid", "_missing", "_not_object" and "_too_deep". They are
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
	maxDepth        = 100 // of a payload, features or properties
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

// objectText is the JSON text of an optional object: nil where the field is absent or null. The reason is that of another
// value, or of one that is nested deeper than an answer could show it.
func objectText(field string, v jsontext.Value) (text any, reason string) {
	v = bytes.TrimSpace(v)
	switch {
	case len(v) == 0 || v.Kind() == 'n':
		return nil, ""
	case v.Kind() != '{':
		return nil, field + "_not_object"
	case depth(v) > maxDepth:
		return nil, field + "_too_deep"
	}
	return string(v), ""
}

// depth is how deep a valid JSON text is nested.
func depth(v []byte) int {
	deepest, now, quoted := 0, 0, false
	for i := 0; i < len(v); i++ {
		switch c := v[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			now++
			deepest = max(deepest, now)
		case c == '}' || c == ']':
			now--
		}
	}
	return deepest
}
