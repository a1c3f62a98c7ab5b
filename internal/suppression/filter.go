package suppression

import (
	"encoding/binary"
	"math/bits"
)

const (
	bitsPerEntry  = 16      // with 6 probes, about 1 of 3,000 sources that are not recorded is looked up in vain
	probes        = 6       // a MAC is random already: it needs no further hash
	minFilterBits = 1 << 16 // 8 KiB
	maxFilterBits = 1 << 29 // 64 MiB: a larger ledger is looked up more often, and never wrongly
)

// Filter is a Bloom filter over the keys of a ledger. What was added to it it always MayHold, so that a no needs no look at
// the ledger: for the generation up to which every entry was added, and for no later one. It is not safe for concurrent
// use.
type Filter struct {
	words []uint64
	shift int
	left  int // entries until it is as full as it was made for
}

// NewFilter makes an empty filter for about so many entries.
func NewFilter(entries int) *Filter {
	size := min(max(minFilterBits, 1<<bits.Len(uint(max(entries, 1)*bitsPerEntry-1))), maxFilterBits)
	return &Filter{words: make([]uint64, size/64), shift: 64 - bits.Len(uint(size-1)), left: size / bitsPerEntry}
}

// Add puts a key in.
func (f *Filter) Add(m MAC) {
	f.left--
	a, b := binary.BigEndian.Uint64(m[:]), binary.BigEndian.Uint64(m[8:])|1
	for range probes {
		at := a >> f.shift
		f.words[at/64] |= 1 << (at % 64)
		a += b
	}
}

// MayHold is false only for a key that was never added.
func (f *Filter) MayHold(m MAC) bool {
	a, b := binary.BigEndian.Uint64(m[:]), binary.BigEndian.Uint64(m[8:])|1
	for range probes {
		at := a >> f.shift
		if f.words[at/64]&(1<<(at%64)) == 0 {
			return false
		}
		a += b
	}
	return true
}

// Full reports whether a larger one should be made.
func (f *Filter) Full() bool { return f.left < 0 && len(f.words)*64 < maxFilterBits }
