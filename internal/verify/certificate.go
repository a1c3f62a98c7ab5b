package verify

import (
	"errors"
	"strings"
)

const (
	certificateOrigin = "recount certificate v1"
	maxCertificate    = 1 << 20
	closingPhase      = "close:outcome"
)

// evidence is how a statement hangs in a ledger.
type evidence struct {
	entry      string
	index      int64
	checkpoint string
	proof      []hash
}

// Certificate judges a certificate, of at most 1 MiB, and answers what it states. Every error is a *Refusal.
func Certificate(raw []byte, keys Keys) (Statement, error) {
	if len(raw) > maxCertificate {
		return Statement{}, refuse(ReasonForm, "It is longer than a certificate can be, 1 MiB.")
	}
	text, err := keys.open(raw)
	switch {
	case errors.Is(err, errNoNote):
		return Statement{}, refuse(ReasonForm, "It is no signed note, or a part of it is missing.")
	case err != nil:
		return Statement{}, refuse(ReasonSignature, "The certificate does not hold: "+err.Error()+".")
	}
	line, rest, ok := threeLines(text, certificateOrigin)
	if !ok {
		return Statement{}, refuse(ReasonForm, "What is signed is no certificate of version 1.")
	}
	statement, err := parseStatement(line)
	if err != nil {
		return Statement{}, err
	}
	e, err := parseEvidence(rest)
	if err != nil {
		return Statement{}, err
	}
	if err := e.check(line, statement, keys); err != nil {
		return Statement{}, err
	}
	return statement, nil
}

func parseEvidence(line []byte) (evidence, error) {
	f := parseExactly(line, "entry", "index", "checkpoint", "proof")
	e := evidence{entry: f.text("entry"), index: f.count("index"), checkpoint: f.text("checkpoint")}
	list := f.texts("proof")
	f.check(len(list) < 64) // a path in the largest tree there can be
	for _, text := range list {
		h, ok := parseHash(text)
		f.check(ok)
		e.proof = append(e.proof, h)
	}
	if f.bad {
		return evidence{}, refuse(ReasonEvidence, "The evidence is not in the specified form.")
	}
	return e, nil
}

// check judges the evidence for a statement and its line. Errors: *Refusal.
func (e evidence) check(line []byte, s Statement, keys Keys) error {
	tree, err := keys.checkpoint([]byte(e.checkpoint))
	if err != nil {
		return err
	}
	if !included(leafHash([]byte(e.entry)), e.index, e.proof, tree) {
		return refuse(ReasonProof, "The proof does not lead from the entry to the checkpoint's root.")
	}
	f := parseObject([]byte(e.entry))
	f.check(len(e.entry) <= maxLine && !strings.Contains(e.entry, "\n"))
	request, tenant, phase, programHash := f.text("request_ref"), f.text("tenant_id"), f.text("phase"), f.text("program_hash")
	switch {
	case f.bad:
		return refuse(ReasonEntry, "The entry is not in the specified form.")
	case request != s.RequestRef || tenant != s.TenantID:
		return refuse(ReasonEntry, "The entry is of another request.")
	case phase != closingPhase:
		return refuse(ReasonEntry, "The entry is not the closing of the request.")
	case !Program(line, programHash):
		return refuse(ReasonProgramHash, "The entry names another statement than this one.")
	}
	return nil
}
