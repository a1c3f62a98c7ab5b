package ledger

import (
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/mod/sumdb/tlog"
)

// sidecar holds where each line ends and the tree's hashes, in two files without a name: they are this process's own, and
// made anew from the lines at every start.
type sidecar struct {
	ends, hashes column
}

// column is a growing array on disk, the last part of it still in memory.
type column struct {
	file  *os.File
	saved int64
	tail  []byte
}

const columnBuffer = 64 << 10

func newSidecar(dir string) (*sidecar, error) {
	s := &sidecar{}
	for _, c := range []*column{&s.ends, &s.hashes} {
		file, err := os.CreateTemp(dir, ".erasure-ledger-index-*")
		if err != nil {
			return nil, fmt.Errorf("making the ledger's index: %w", err)
		}
		if err := os.Remove(file.Name()); err != nil {
			return nil, fmt.Errorf("making the ledger's index: %w", err)
		}
		c.file = file
	}
	return s, nil
}

func (s *sidecar) close() error {
	if err := s.ends.file.Close(); err != nil {
		return fmt.Errorf("closing the ledger's index: %w", err)
	}
	if err := s.hashes.file.Close(); err != nil {
		return fmt.Errorf("closing the ledger's index: %w", err)
	}
	return nil
}

// add notes a line. It can't fail: what can't be written stays in memory until it can.
func (s *sidecar) add(end int64, stored []tlog.Hash) {
	s.ends.add(binary.BigEndian.AppendUint64(nil, uint64(end))) //nolint:gosec // an offset is not negative
	for _, h := range stored {
		s.hashes.add(h[:])
	}
}

func (c *column) add(b []byte) {
	c.tail = append(c.tail, b...)
	if len(c.tail) < columnBuffer {
		return
	}
	if _, err := c.file.WriteAt(c.tail, c.saved); err == nil {
		c.saved, c.tail = c.saved+int64(len(c.tail)), c.tail[:0]
	}
}

func (c *column) read(at int64, into []byte) error {
	if at >= c.saved {
		copy(into, c.tail[at-c.saved:])
		return nil
	}
	if _, err := c.file.ReadAt(into, at); err != nil {
		return fmt.Errorf("reading the ledger's index: %w", err)
	}
	return nil
}

// span is where a line begins, and where the next one does.
func (s *sidecar) span(index int64) (from, to int64, err error) {
	end := func(i int64) (int64, error) {
		if i < 0 {
			return 0, nil
		}
		var b [8]byte
		err := s.ends.read(i*8, b[:])
		return int64(binary.BigEndian.Uint64(b[:])), err //nolint:gosec // an offset as it was written
	}
	if from, err = end(index - 1); err == nil {
		to, err = end(index)
	}
	return from, to, err
}

// ReadHashes keeps tlog.HashReader.
func (s *sidecar) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		if err := s.hashes.read(index*tlog.HashSize, out[i][:]); err != nil {
			return nil, err
		}
	}
	return out, nil
}
