package ledger

import (
	"golang.org/x/mod/sumdb/tlog"
)

// Edge is the right edge of a growing tree: the roots of its complete subtrees, largest first. It is all that appending and
// hashing the whole need. The zero value is the empty tree.
type Edge struct {
	Size  int64
	Roots []tlog.Hash
}

// Add takes in one line, and answers the hashes to store with it: its own, and the root of every subtree that it is the last
// of, by level. They are those of tlog.StoredHashes, in their order.
func (e *Edge) Add(line []byte) []tlog.Hash {
	stored := []tlog.Hash{tlog.RecordHash(line)}
	last := stored[0]
	for n := e.Size; n&1 == 1; n >>= 1 {
		top := len(e.Roots) - 1
		last = tlog.NodeHash(e.Roots[top], last)
		e.Roots = e.Roots[:top]
		stored = append(stored, last)
	}
	e.Roots = append(e.Roots, last)
	e.Size++
	return stored
}

// Head is the tree over what was added. The root of no entries is all zero.
func (e *Edge) Head() Head {
	if e.Size == 0 {
		return Head{}
	}
	root := e.Roots[len(e.Roots)-1]
	for i := len(e.Roots) - 2; i >= 0; i-- {
		root = tlog.NodeHash(e.Roots[i], root)
	}
	return Head{Size: e.Size, Root: root}
}

// Clone is an edge that grows apart from this one.
func (e *Edge) Clone() Edge { return Edge{Size: e.Size, Roots: append([]tlog.Hash(nil), e.Roots...)} }

// StoredWith says with which entry the hash of tlog's index is stored, and at which place of its list.
func StoredWith(index int64) (entry int64, level int) {
	level, n := tlog.SplitStoredHashIndex(index)
	return (n+1)<<level - 1, level
}
