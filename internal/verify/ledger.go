package verify

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

const (
	maxLine  = 64 << 10
	maxKinds = 256 // methods or phases that are counted apart
	other    = "other"
)

// Report says what a good ledger holds, in lines.
type Report struct {
	Entries  int64            // complete lines
	Covered  int64            // of these, the first ones that the checkpoint covers
	Torn     bool             // there is a last line without its end, which was never acknowledged
	ByMethod map[string]int64 // complete lines by method; what is behind the first 256 methods counts as "other"
	ByPhase  map[string]int64 // the same by phase
}

// Ledger reads a ledger of any size and judges it against a signed checkpoint. It keeps a bounded part of it in memory, and
// hashes in a goroutine of its own, which has ended when it returns. The error is a *Refusal, or that of the reader, wrapped.
func Ledger(lines io.Reader, checkpoint []byte, keys Keys) (Report, error) {
	signed, err := keys.checkpoint(checkpoint)
	if err != nil {
		return Report{}, err
	}
	h, methods, phases := startHasher(signed), tally{}, tally{}
	entries, torn, fault := readRecords(lines, func(line []byte, r *record) bool {
		methods.add(r.method)
		phases.add(r.phase)
		return h.add(line)
	})
	// What is wrong with an earlier line comes first: the hasher has seen none behind the faulty one.
	switch held := h.finish(); {
	case !held:
		return Report{}, refuse(ReasonTampered, "The lines don't have the root that the checkpoint signs: one was changed, or the checkpoint is of another ledger.")
	case fault != nil:
		return Report{}, fault
	case entries < signed.size:
		return Report{}, refuse(ReasonTruncated, fmt.Sprintf("There are %d lines, and the checkpoint covers %d: some were cut off.", entries, signed.size))
	}
	return Report{Entries: entries, Covered: signed.size, Torn: torn, ByMethod: methods.counts(), ByPhase: phases.counts()}, nil
}

// readRecords yields every complete line and what it holds, without its end, until yield answers false. It answers how many
// these were, and whether something without an end follows.
func readRecords(lines io.Reader, yield func(line []byte, r *record) bool) (entries int64, torn bool, err error) {
	in, scan := bufio.NewReaderSize(lines, 1<<20), &scanner{}
	for {
		line, err := in.ReadSlice('\n')
		switch {
		case len(line) > maxLine+1:
			return entries, false, refuse(ReasonMalformed, fmt.Sprintf("Line %d is longer than a line can be.", entries+1))
		case errors.Is(err, io.EOF):
			return entries, len(line) > 0, nil
		case err != nil:
			return entries, false, fmt.Errorf("reading line %d of the ledger: %w", entries+1, err)
		}
		line = line[:len(line)-1]
		r, ok := scan.record(line)
		if !ok {
			return entries, false, refuse(ReasonMalformed, fmt.Sprintf("Line %d is no record.", entries+1))
		}
		entries++
		if !yield(line, r) {
			return entries, false, nil
		}
	}
}

// tally counts words without making one anew each time.
type tally map[string]*int64

func (t tally) add(word []byte) {
	n, there := t[string(word)]
	if !there {
		name := string(word)
		if len(t) >= maxKinds {
			name = other
		}
		if n, there = t[name]; !there {
			n = new(int64)
			t[name] = n
		}
	}
	*n++
}

func (t tally) counts() map[string]int64 {
	counts := make(map[string]int64, len(t))
	for word, n := range t {
		counts[word] = *n
	}
	return counts
}
