// Package verify checks certificates and ledgers as docs/certificate.md specifies them. It shares no code with what writes
// them: a fault of the writer is not repeated here.
package verify

import (
	"crypto/subtle"
	"encoding/hex"

	"lukechampine.com/blake3"
)

// Why something is refused. The codes are fixed.
const (
	ReasonForm        = "form"         // the input is no signed note of three lines, or too big
	ReasonSignature   = "signature"    // no known key signed it, or one did wrongly
	ReasonStatement   = "statement"    // the statement is not as specified
	ReasonFalseErased = "false_erased" // a store is called erased, and something remained
	ReasonEvidence    = "evidence"     // the evidence is not as specified
	ReasonCheckpoint  = "checkpoint"   // no known key signed the checkpoint, or it is none
	ReasonProof       = "proof"        // the proof does not lead from the entry to the checkpoint's root
	ReasonEntry       = "entry"        // the entry is not the closing of this request
	ReasonProgramHash = "program_hash" // the entry names another statement
	ReasonMalformed   = "malformed"    // a line of the ledger is no record
	ReasonTampered    = "tampered"     // the ledger's lines don't have the checkpoint's root
	ReasonTruncated   = "truncated"    // the ledger has fewer lines than its checkpoint
)

// Refusal says why something is not good. Reason is one of the codes above; Problem is a sentence for a person and quotes
// nothing of what was checked.
type Refusal struct{ Reason, Problem string }

// Error is the code and the sentence.
func (r *Refusal) Error() string { return r.Reason + ": " + r.Problem }

func refuse(reason, problem string) *Refusal { return &Refusal{Reason: reason, Problem: problem} }

// Program reports whether a body has that hash: BLAKE3-256, in lower-case hex.
func Program(body []byte, wantHash string) bool {
	sum := blake3.Sum256(body)
	return subtle.ConstantTimeCompare([]byte(hex.EncodeToString(sum[:])), []byte(wantHash)) == 1
}
