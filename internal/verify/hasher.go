package verify

import "crypto/sha256"

const (
	batchSize = 256 << 10 // bytes of a full batch, about
	batches   = 4
)

// batch holds leaves one behind the other: each is 0x00 and a line.
type batch struct {
	leaves []byte
	ends   []int
}

// hasher makes the tree of the lines it is given, and holds it against a signed one as soon as it is as large.
type hasher struct {
	signed   head
	tree     compactRange
	filling  *batch
	work     chan *batch
	free     chan *batch
	done     chan struct{} // closed when the goroutine ends
	tampered bool          // to be read when done is closed
}

func startHasher(signed head) *hasher {
	h := &hasher{signed: signed, filling: &batch{}, work: make(chan *batch, batches), free: make(chan *batch, batches), done: make(chan struct{})}
	for range batches - 1 {
		h.free <- &batch{}
	}
	go h.run()
	return h
}

// add takes in a copy of a line. It answers false when the tree is known to be another than the signed one.
func (h *hasher) add(line []byte) bool {
	b := h.filling
	b.leaves = append(append(b.leaves, 0), line...)
	b.ends = append(b.ends, len(b.leaves))
	if len(b.leaves) < batchSize {
		return true
	}
	h.work <- b // has room for every batch there is
	select {
	case h.filling = <-h.free:
		return true
	case <-h.done:
		h.filling = &batch{}
		return false
	}
}

// finish hashes what is left, and reports whether the signed tree was met or is larger than what came.
func (h *hasher) finish() bool {
	h.work <- h.filling
	close(h.work)
	<-h.done
	return !h.tampered
}

func (h *hasher) run() {
	defer close(h.done)
	for b := range h.work {
		from := 0
		for _, end := range b.ends {
			h.tree.add(sha256.Sum256(b.leaves[from:end]))
			if h.tree.size == h.signed.size && h.tree.root() != h.signed.root {
				h.tampered = true
				return
			}
			from = end
		}
		b.leaves, b.ends = b.leaves[:0], b.ends[:0]
		h.free <- b
	}
}
