package sqlite

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The layout of a write-ahead log: https://www.sqlite.org/fileformat2.html#walformat
const (
	walHeaderSize   = 32
	frameHeaderSize = 24
	walMagic        = 0x377f0682 // its lowest bit tells the byte order of checksums
	walVersion      = 3007000
	minPageSize     = 512
	maxPageSize     = 65536
)

// readLog calls visit with every page of a write-ahead log, in the order of the log, up to the first frame whose salts
// are not the log's: what lies behind it is of an earlier log. It may visit pages of a transaction that never
// committed, but it misses none that did. A log without a valid header has no frames: SQLite ignores it, too. The
// bytes are only valid during the call.
func readLog(log *bufio.Reader, visit func(pgno uint32, page []byte)) error {
	head := make([]byte, walHeaderSize)
	if whole, err := fill(log, head); !whole {
		return err
	}
	size := int(binary.BigEndian.Uint32(head[8:]))
	if binary.BigEndian.Uint32(head)&^1 != walMagic || binary.BigEndian.Uint32(head[4:]) != walVersion || !isPageSize(size) {
		return nil
	}
	salts := string(head[16:24])
	frame := make([]byte, frameHeaderSize+size)
	for {
		if whole, err := fill(log, frame); !whole {
			return err
		}
		if string(frame[8:16]) != salts {
			return nil
		}
		visit(binary.BigEndian.Uint32(frame), frame[frameHeaderSize:])
	}
}

func isPageSize(n int) bool { return n >= minPageSize && n <= maxPageSize && n&(n-1) == 0 }

// fill reports whether the buffer was filled; the end of the log is no error.
func fill(r io.Reader, buffer []byte) (bool, error) {
	_, err := io.ReadFull(r, buffer)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return false, nil
	default:
		return false, fmt.Errorf("reading the write-ahead log: %w", err)
	}
}
