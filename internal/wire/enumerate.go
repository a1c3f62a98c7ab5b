package wire

import (
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"recount/internal/subject"
)

// The operations of an erasure request on a cell.
const (
	OpEnumerate = "enumerate"
	OpFreeze    = "freeze"
	OpThaw      = "thaw"
	OpFollow    = "follow"
)

// EnumerateRequest is the body of subject:enumerate: where the rows of people, or of sources, are. At most MaxBatch of both
// together.
type EnumerateRequest struct {
	TenantID    string   `json:"tenant_id"`
	IdentityIDs []string `json:"identity_ids,omitzero"`
	Sources     []Source `json:"sources,omitzero"`
	List        bool     `json:"list,omitzero"` // list row ids and keyed sources too
}

// EnumerateResponse answers for each identity, and then for each source, in order.
type EnumerateResponse struct {
	RequestID   string       `json:"request_id"`
	TenantID    string       `json:"tenant_id"`
	Cell        string       `json:"cell"`
	Operation   string       `json:"operation"`
	Status      string       `json:"status"` // "counted", or "failed" when any store could not be counted
	Results     []Enumerated `json:"results"`
	GeneratedAt time.Time    `json:"generated_at"`
}

// Enumerated is where one target's rows are.
type Enumerated struct {
	SubjectRef string        `json:"subject_ref"`
	Suppressed subject.Count `json:"suppressed"` // sources that earlier erasures of it recorded; null where the ledger can't be read
	Receipts   []Coordinates `json:"receipts"`
}

// Coordinates are where a target's rows are in one store, and nothing of what they hold.
type Coordinates struct {
	Cell             string        `json:"cell"`
	Store            string        `json:"store"`
	Backend          string        `json:"backend"`
	Status           string        `json:"status"` // "counted" or "failed"
	Count            subject.Count `json:"count"`
	Sticky           bool          `json:"sticky"`
	RecoverableUntil *time.Time    `json:"recoverable_until"`
	RowIDs           []string      `json:"row_ids,omitzero"`
	Sources          []KeyedSource `json:"sources,omitzero"`
	Detail           string        `json:"detail"`
}

// KeyedSource is a source as a ledger keeps it: a keyed digest, and which key made it.
type KeyedSource struct {
	KeyID  string `json:"key_id"`
	Digest string `json:"digest"` // hex
}

// IsRowID reports whether a text is an opaque row id of ours: a UUID, lower case.
func IsRowID(text string) bool {
	return len(text) == 36 && strings.Trim(text, "0123456789abcdef-") == ""
}

// isKeyed reports whether a source is nothing but a key's id and a digest, both in hex.
func (s KeyedSource) isKeyed() bool {
	const hex = "0123456789abcdef"
	return s.KeyID != "" && len(s.KeyID) <= 64 && strings.Trim(s.KeyID, hex) == "" && s.Digest != "" && len(s.Digest) <= 128 && strings.Trim(s.Digest, hex) == ""
}

// Opaque reports whether what a peer listed is opaque: what goes into a program MUST say nothing of anybody.
func (c PeerCoordinates) Opaque() bool {
	return !slices.ContainsFunc(c.RowIDs, func(id PeerText) bool { return !IsRowID(string(id)) }) &&
		!slices.ContainsFunc(c.Sources, func(s KeyedSource) bool { return !s.isKeyed() })
}

// FreezeRequest is the body of subject:freeze: nobody may write for these people until then, or until they are thawed.
type FreezeRequest struct {
	TenantID    string    `json:"tenant_id"`
	IdentityIDs []string  `json:"identity_ids"` // 1 to MaxBatch
	FreezeID    string    `json:"freeze_id"`    // 32 hex digits; freezing again under the same one prolongs it
	Until       time.Time `json:"until"`        // at most 24 h away
}

// ThawRequest is the body of subject:thaw.
type ThawRequest struct {
	TenantID string `json:"tenant_id"`
	FreezeID string `json:"freeze_id"`
}

// FreezeResponse is the answer to both.
type FreezeResponse struct {
	RequestID string `json:"request_id"`
	TenantID  string `json:"tenant_id"`
	Cell      string `json:"cell"`
	Operation string `json:"operation"`
	Status    string `json:"status"` // "frozen" or "thawed"
}

// PeerEnumeration is what a peer said about where rows are: read, and not yet believed.
type PeerEnumeration struct {
	RequestID PeerText        `json:"request_id"`
	TenantID  PeerText        `json:"tenant_id"`
	Cell      PeerText        `json:"cell"`
	Operation PeerText        `json:"operation"`
	Status    PeerText        `json:"status"`
	Results   PeerEnumerateds `json:"results"`
	Others    jsontext.Value  `json:",embed"`
}

// PeerEnumerated is what a peer said of one target.
type PeerEnumerated struct {
	SubjectRef PeerText       `json:"subject_ref"`
	Suppressed PeerCount      `json:"suppressed"`
	Receipts   PeerPlaces     `json:"receipts"`
	Others     jsontext.Value `json:",embed"`
}

// PeerCoordinates is what a peer said of one store.
type PeerCoordinates struct {
	Cell             PeerText       `json:"cell"`
	Store            PeerText       `json:"store"`
	Backend          PeerText       `json:"backend"`
	Status           PeerText       `json:"status"`
	Count            PeerCount      `json:"count"`
	Sticky           PeerBool       `json:"sticky"`
	RecoverableUntil PeerTime       `json:"recoverable_until"`
	RowIDs           []PeerText     `json:"row_ids"`
	Sources          []KeyedSource  `json:"sources"`
	Detail           PeerText       `json:"detail"`
	Others           jsontext.Value `json:",embed"`
}

// PeerEnumerateds is a list of them; anything but a JSON array reads as none.
type PeerEnumerateds []PeerEnumerated

// UnmarshalJSONFrom reads any JSON value.
func (r *PeerEnumerateds) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return readList((*[]PeerEnumerated)(r), dec, MaxBatch)
}

// PeerPlaces is a list of stores; anything but a JSON array reads as none.
type PeerPlaces []PeerCoordinates

// UnmarshalJSONFrom reads any JSON value.
func (r *PeerPlaces) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return readList((*[]PeerCoordinates)(r), dec, maxPeerReceipts)
}

// DecodePeerEnumeration reads the one JSON object that a peer answered, as DecodePeer does.
func DecodePeerEnumeration(data []byte) (PeerEnumeration, error) {
	var said PeerEnumeration
	if err := decodeObject(data, &said); err != nil {
		return PeerEnumeration{}, err
	}
	variant := hasCaseVariant(said.Others, enumerationFields)
	for _, result := range said.Results {
		variant = variant || hasCaseVariant(result.Others, enumeratedFields)
		for _, r := range result.Receipts {
			variant = variant || hasCaseVariant(r.Others, coordinateFields)
		}
	}
	if variant {
		return PeerEnumeration{}, malformed(errCaseVariant)
	}
	return said, nil
}

// PeerFrozen is what a peer said about a freeze or a thaw.
type PeerFrozen struct {
	RequestID PeerText       `json:"request_id"`
	TenantID  PeerText       `json:"tenant_id"`
	Cell      PeerText       `json:"cell"`
	Operation PeerText       `json:"operation"`
	Status    PeerText       `json:"status"`
	Others    jsontext.Value `json:",embed"`
}

// DecodePeerFrozen reads the one JSON object that a peer answered, as DecodePeer does.
func DecodePeerFrozen(data []byte) (PeerFrozen, error) {
	var said PeerFrozen
	if err := decodeObject(data, &said); err != nil {
		return PeerFrozen{}, err
	}
	if hasCaseVariant(said.Others, frozenFields) {
		return PeerFrozen{}, malformed(errCaseVariant)
	}
	return said, nil
}

var (
	enumerationFields = fieldsOf[PeerEnumeration]("generated_at")
	enumeratedFields  = fieldsOf[PeerEnumerated]()
	coordinateFields  = fieldsOf[PeerCoordinates]()
	frozenFields      = fieldsOf[PeerFrozen]()
)

// FollowRequest is the body of source:follow: at most MaxBatch identities and sources together.
type FollowRequest struct {
	TenantID    string   `json:"tenant_id"`
	IdentityIDs []string `json:"identity_ids,omitzero"`
	Sources     []Source `json:"sources,omitzero"`
}

// FollowResponse answers for each identity the sources of its rows, and then for each source those that derive from it.
type FollowResponse struct {
	RequestID string     `json:"request_id"`
	TenantID  string     `json:"tenant_id"`
	Cell      string     `json:"cell"`
	Operation string     `json:"operation"`
	Results   []Followed `json:"results"`
}

// Followed is what one identity or source leads to.
type Followed struct {
	Sources []Source `json:"sources"`
}

// PeerFollow is what a peer said about what leads where: read, and not yet believed.
type PeerFollow struct {
	RequestID PeerText        `json:"request_id"`
	TenantID  PeerText        `json:"tenant_id"`
	Cell      PeerText        `json:"cell"`
	Operation PeerText        `json:"operation"`
	Results   PeerFollowedAll `json:"results"`
	Others    jsontext.Value  `json:",embed"`
}

// PeerFollowed is what a peer said of one identity or source.
type PeerFollowed struct {
	Sources PeerSources    `json:"sources"`
	Others  jsontext.Value `json:",embed"`
}

// PeerFollowedAll is a list of them; anything but a JSON array reads as none.
type PeerFollowedAll []PeerFollowed

// UnmarshalJSONFrom reads any JSON value.
func (r *PeerFollowedAll) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return readList((*[]PeerFollowed)(r), dec, MaxBatch)
}

// DecodePeerFollow reads the one JSON object that a peer answered, as DecodePeer does.
func DecodePeerFollow(data []byte) (PeerFollow, error) {
	var said PeerFollow
	if err := decodeObject(data, &said); err != nil {
		return PeerFollow{}, err
	}
	variant := hasCaseVariant(said.Others, followFields)
	for _, result := range said.Results {
		variant = variant || hasCaseVariant(result.Others, followedFields)
	}
	if variant {
		return PeerFollow{}, malformed(errCaseVariant)
	}
	return said, nil
}

var (
	followFields   = fieldsOf[PeerFollow]()
	followedFields = fieldsOf[PeerFollowed]()
)
