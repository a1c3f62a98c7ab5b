package verify

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

const statusErased = "erased"

// Statement is what a certificate states. Times are in UTC.
type Statement struct {
	V                  int64 // 1
	CertificateID      string
	RequestRef         string
	TenantID           string
	Commitment         string // 64 hex digits in lower case; see Opens
	LegalRef           string // may be empty
	Policy             string // "redact" or "delete"
	ReceivedAt         time.Time
	ClosedAt           time.Time
	Outcome            string  // "closed" or "closed_unverified_strings"
	Stores             []Store // at least one; no two with the same cell and store
	Stages             []Stage
	BackupHorizonUntil *time.Time // nil where nobody has said how long backups are kept
	RecoverableUntil   *time.Time // nil when the certificate names none
}

// Store is what a certificate states about one store.
type Store struct {
	Cell             string
	Store            string
	Backend          string // may be empty
	Status           string // "erased" or "retained_article_17_3"
	Before           *int64 // rows; nil when they were not counted
	Remaining        int64  // rows; 0 with "erased"
	MeasuredAt       time.Time
	RecoverableUntil *time.Time // nil when the certificate names none
	Sticky           bool
	Basis            string // "17(3)(a)" to "17(3)(e)"; empty with "erased"
}

// Stage is a step of the closing. Status is "done" or "not_applicable".
type Stage struct{ Stage, Status string }

// Opens reports whether the commitment is to these people of this tenant: nonceHex is what comes with the certificate, and
// identities are the person ids in any order.
func (s Statement) Opens(nonceHex, tenant string, identities []string) bool {
	if raw, err := hex.DecodeString(nonceHex); err != nil || len(raw) != sha256.Size {
		return false
	}
	list := append([]string{tenant}, identities...)
	slices.Sort(list[1:])
	for _, text := range list {
		if !utf8.ValidString(text) { // encoding/json would write several such texts alike
			return false
		}
	}
	var b bytes.Buffer
	b.WriteString("recount commitment v1\n" + nonceHex + "\n")
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(list); err != nil {
		return false
	}
	sum := sha256.Sum256(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
	return subtle.ConstantTimeCompare([]byte(hex.EncodeToString(sum[:])), []byte(s.Commitment)) == 1
}

// parseStatement reads a statement's line. Errors: *Refusal.
func parseStatement(line []byte) (Statement, error) {
	f := parseExactly(line, "v", "certificate_id", "request_ref", "tenant_id", "commitment", "legal_ref", "policy", "received_at",
		"closed_at", "outcome", "stores", "stages", "backup_horizon_until", "recoverable_until")
	s := Statement{
		V: f.count("v"), CertificateID: f.id("certificate_id"), RequestRef: f.id("request_ref"), TenantID: f.id("tenant_id"),
		Commitment: f.text("commitment"), LegalRef: f.text("legal_ref"), Policy: f.oneOf("policy", "redact", "delete"),
		ReceivedAt: f.time("received_at"), ClosedAt: f.time("closed_at"),
		Outcome:            f.oneOf("outcome", "closed", "closed_unverified_strings"),
		BackupHorizonUntil: f.timeOrNull("backup_horizon_until"), RecoverableUntil: f.timeOrNull("recoverable_until"),
	}
	f.check(s.V == 1 && lowerHex(s.Commitment, 2*sha256.Size))
	for _, raw := range f.list("stages") {
		g := parseExactly(raw, "stage", "status")
		s.Stages = append(s.Stages, Stage{Stage: g.id("stage"), Status: g.oneOf("status", "done", "not_applicable")})
		f.check(!g.bad)
	}
	seen := map[[2]string]bool{}
	falseErased := false
	for _, raw := range f.list("stores") {
		store, ok := parseStore(raw)
		id := [2]string{store.Cell, store.Store}
		f.check(ok && !seen[id])
		seen[id] = true
		falseErased = falseErased || (store.Status == statusErased && store.Remaining != 0)
		s.Stores = append(s.Stores, store)
	}
	f.check(len(s.Stores) > 0)
	switch {
	case f.bad:
		return Statement{}, refuse(ReasonStatement, "The statement is not in the specified form.")
	case falseErased:
		return Statement{}, refuse(ReasonFalseErased, "A store is called erased although something remained in it.")
	}
	return s, nil
}

func parseStore(raw []byte) (Store, bool) {
	f := parseExactly(raw, "cell", "store", "backend", "status", "before", "remaining", "measured_at", "recoverable_until", "sticky", "basis")
	s := Store{
		Cell: f.id("cell"), Store: f.id("store"), Backend: f.text("backend"), Status: f.oneOf("status", statusErased, "retained_article_17_3"),
		Before: f.countOrNull("before"), Remaining: f.count("remaining"), MeasuredAt: f.time("measured_at"),
		RecoverableUntil: f.timeOrNull("recoverable_until"), Sticky: f.truth("sticky"), Basis: f.text("basis"),
	}
	if s.Status == statusErased {
		f.check(s.Basis == "")
	} else {
		point, of := strings.CutPrefix(s.Basis, "17(3)")
		f.check(of && len(point) == 3 && point[0] == '(' && point[1] >= 'a' && point[1] <= 'e' && point[2] == ')')
	}
	return s, !f.bad
}
