package opendsrapi

import (
	"bytes"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"recount/internal/httpapi"
	"recount/internal/wire"
)

const (
	version       = "2.0"
	typeErasure   = "erasure"
	formatRaw     = "raw"
	ownExtension  = "recount"
	defaultGround = "17(1)(b)" // consent withdrawn
	maxIdentities = 100
	maxCallbacks  = 10
	minQuoted     = 6 // bytes
)

var (
	uuidV4 = regexp.MustCompile(`^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-4[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}$`)
	code   = regexp.MustCompile(`^[A-Za-z0-9._:/=@-]{0,254}$`)
)

// createRequest is the body of a request of OpenDSR 2.0.
type createRequest struct {
	Regulation       string                    `json:"regulation"`
	SubjectRequestID string                    `json:"subject_request_id"`
	Type             string                    `json:"subject_request_type"`
	Submitted        string                    `json:"submitted_time"`
	Identities       []sentIdentity            `json:"subject_identities"`
	APIVersion       string                    `json:"api_version"`
	Callbacks        []string                  `json:"status_callback_urls"`
	PropertyID       string                    `json:"property_id"`
	ControllerID     string                    `json:"controller_id"`
	Extensions       map[string]jsontext.Value `json:"extensions"`
}

type sentIdentity struct {
	Type   string `json:"identity_type"`
	Value  string `json:"identity_value"`
	Format string `json:"identity_format"`
}

// extension is what we take from extensions.recount; what is there for others is theirs.
type extension struct {
	LegalRef string `json:"legal_ref"`
}

// filing is a request that was understood.
type filing struct {
	subjectRequestID string
	controllerID     string // "" where none was given
	callbacks        []string
	asked            wire.FileRequest // but for its tenant
}

// decode reads a body. Its errors, *wire.MalformedError and *httpapi.Refusal, name every fault at once and quote nothing.
func decode(raw []byte, known Identities) (filing, error) {
	var sent createRequest
	if err := wire.DecodeRequest(bytes.NewReader(raw), &sent); err != nil {
		return filing{}, err //nolint:wrapcheck // the kernel's
	}
	own, faults := sent.extension()
	faults = append(sent.checkHead(), faults...)
	faults = append(faults, sent.checkIdentities(known)...)
	faults = append(faults, sent.checkKept()...)
	submitted, err := time.Parse(time.RFC3339, sent.Submitted)
	if err != nil {
		faults = append(faults, "submitted_time: a time of RFC 3339, such as 2026-05-04T03:02:01Z")
	}
	if len(faults) > 0 {
		return filing{}, httpapi.Unprocessable(strings.Join(faults, "; "))
	}
	f := filing{
		subjectRequestID: sent.SubjectRequestID, controllerID: sent.ControllerID, callbacks: sent.Callbacks,
		asked: wire.FileRequest{Kind: "subject", LegalRef: own.LegalRef, Policy: "delete", ReceivedAt: submitted.UTC()},
	}
	for _, identity := range sent.Identities {
		person := known.person(identity.Type, identity.Value)
		if !slices.Contains(f.asked.Descriptor.PersonIDs, person) {
			f.asked.Descriptor.PersonIDs = append(f.asked.Descriptor.PersonIDs, person)
		}
	}
	return f, nil
}

// extension reads extensions.recount.
func (r createRequest) extension() (own extension, faults []string) {
	if text, given := r.Extensions[ownExtension]; given {
		if err := wire.DecodeRequest(bytes.NewReader(text), &own); err != nil {
			faults = append(faults, "extensions.recount: an object with legal_ref, a text, and nothing else")
		}
	}
	if own.LegalRef == "" {
		own.LegalRef = defaultGround
	}
	return own, faults
}

func (r createRequest) checkHead() (faults []string) {
	if r.Regulation != "gdpr" {
		faults = append(faults, "regulation: gdpr is the only one that is carried out here")
	}
	if !uuidV4.MatchString(r.SubjectRequestID) {
		faults = append(faults, "subject_request_id: a UUID of version 4")
	}
	if r.Type != typeErasure {
		faults = append(faults, "subject_request_type: erasure is the only one that is carried out here")
	}
	if r.APIVersion != "" && r.APIVersion != version {
		faults = append(faults, "api_version: 2.0 is the only one that is spoken here")
	}
	return faults
}

func (r createRequest) checkIdentities(known Identities) (faults []string) {
	if n := len(r.Identities); n == 0 || n > maxIdentities {
		return []string{fmt.Sprintf("subject_identities: give 1 to %d", maxIdentities)}
	}
	for i, identity := range r.Identities {
		fault := func(problem string) { faults = append(faults, fmt.Sprintf("subject_identities[%d].%s", i, problem)) }
		if known.template(identity.Type) == "" {
			fault("identity_type: supported are " + known.types())
		}
		if identity.Value == "" {
			fault("identity_value: must not be empty")
		}
		if identity.Format != formatRaw {
			fault("identity_format: raw is the only one that is supported")
		}
	}
	return faults
}

// checkKept judges what outlives the person's data: it must not name the person.
func (r createRequest) checkKept() (faults []string) {
	if !code.MatchString(r.ControllerID) || r.names(r.ControllerID) {
		faults = append(faults, "controller_id: at most 254 letters, digits and . _ : / = @ -, and never the person's")
	}
	if len(r.Callbacks) > maxCallbacks {
		faults = append(faults, fmt.Sprintf("status_callback_urls: at most %d", maxCallbacks))
	}
	for i, raw := range r.Callbacks {
		switch {
		case slices.Contains(r.Callbacks[:i], raw):
			faults = append(faults, fmt.Sprintf("status_callback_urls[%d]: is there twice", i))
		case r.names(raw):
			faults = append(faults, fmt.Sprintf("status_callback_urls[%d]: outlives the person's data and must not name the person", i))
		}
	}
	return faults
}

// names reports whether a text, as it is or unescaped, quotes an identity. A short one is no ground to refuse an erasure for: it
// is in such texts by chance, as a number is in a port, and the tool that sends them can't change them for one person.
func (r createRequest) names(text string) bool {
	text = strings.ToLower(text)
	plain, err := url.QueryUnescape(text)
	if err != nil {
		plain = text
	}
	return slices.ContainsFunc(r.Identities, func(identity sentIdentity) bool {
		value := strings.ToLower(identity.Value)
		return len(value) >= minQuoted && (strings.Contains(text, value) || strings.Contains(plain, value))
	})
}
