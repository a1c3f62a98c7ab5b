package verify

import (
	"crypto/sha256"
)

// hash is a node of the tree of RFC 6962 over SHA-256.
type hash [sha256.Size]byte

func parseHash(text string) (hash, bool) {
	raw, ok := decodeBase64(text)
	if !ok || len(raw) != sha256.Size {
		return hash{}, false
	}
	return hash(raw), true
}

func leafHash(line []byte) hash {
	return sha256.Sum256(append(make([]byte, 1, 1+len(line)), line...))
}

func nodeHash(left, right *hash) hash {
	var both [1 + 2*sha256.Size]byte
	both[0] = 1
	copy(both[1:], left[:])
	copy(both[1+sha256.Size:], right[:])
	return sha256.Sum256(both[:])
}

// compactRange is the right edge of a growing tree: the roots of its complete subtrees, the largest first: one for
// each 1 in size's binary form. The zero value is the empty tree.
type compactRange struct {
	size  int64
	roots [64]hash
	held  int // of roots
}

// add takes in the hash of the next leaf.
func (c *compactRange) add(leaf hash) {
	for n := c.size; n&1 == 1; n >>= 1 {
		c.held--
		leaf = nodeHash(&c.roots[c.held], &leaf)
	}
	c.roots[c.held] = leaf
	c.held++
	c.size++
}

// root is that of the whole tree; of no leaves, 32 zero bytes.
func (c *compactRange) root() hash {
	if c.held == 0 {
		return hash{}
	}
	root := c.roots[c.held-1]
	for i := c.held - 2; i >= 0; i-- {
		root = nodeHash(&c.roots[i], &root)
	}
	return root
}

// included reports whether an audit path leads from a leaf to the root of a tree, as RFC 9162, 2.1.3.2 says it.
func included(leaf hash, index int64, proof []hash, tree head) bool {
	if index < 0 || index >= tree.size {
		return false
	}
	at, last, root := index, tree.size-1, leaf
	for i := range proof {
		if last == 0 {
			return false // the path is too long
		}
		if at&1 == 1 || at == last {
			root = nodeHash(&proof[i], &root)
			for at&1 == 0 && at != 0 {
				at, last = at>>1, last>>1
			}
		} else {
			root = nodeHash(&root, &proof[i])
		}
		at, last = at>>1, last>>1
	}
	return last == 0 && root == tree.root
}
