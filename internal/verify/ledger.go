package verify

import (
	"bufio"
	"crypto/sha256"
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

// Ledger reads a ledger of any size and judges it against a signed checkpoint. It keeps a bounded part of it in memory. The
// error is a *Refusal, or that of the reader, wrapped.
func Ledger(lines io.Reader, checkpoint []byte, keys Keys) (Report, error) {
	signed, err := keys.checkpoint(checkpoint)
	if err != nil {
		return Report{}, err
	}
	tree, methods, phases := &compactRange{}, tally{}, tally{}
	leaf := make([]byte, 1, 1+maxLine) // 0x00 and the line
	in := bufio.NewReaderSize(lines, 1<<20)
	torn := false
	for {
		line, err := in.ReadSlice('\n')
		if len(line) > maxLine+1 {
			return Report{}, refuse(ReasonMalformed, fmt.Sprintf("Line %d is longer than a line can be.", tree.size+1))
		}
		if errors.Is(err, io.EOF) {
			torn = len(line) > 0
			break
		}
		if err != nil {
			return Report{}, fmt.Errorf("reading line %d of the ledger: %w", tree.size+1, err)
		}
		line = line[:len(line)-1]
		entry, ok := parseRecord(line)
		if !ok {
			return Report{}, refuse(ReasonMalformed, fmt.Sprintf("Line %d is no record.", tree.size+1))
		}
		leaf = append(leaf[:1], line...)
		tree.add(sha256.Sum256(leaf))
		if tree.size == signed.size && tree.root() != signed.root {
			return Report{}, refuse(ReasonTampered, "The lines don't have the root that the checkpoint signs: one was changed, or the checkpoint is of another ledger.")
		}
		methods.add(entry.method)
		phases.add(entry.phase)
	}
	if tree.size < signed.size {
		return Report{}, refuse(ReasonTruncated, fmt.Sprintf("There are %d lines, and the checkpoint covers %d: some were cut off.", tree.size, signed.size))
	}
	return Report{Entries: tree.size, Covered: signed.size, Torn: torn, ByMethod: methods.counts(), ByPhase: phases.counts()}, nil
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
