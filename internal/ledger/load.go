package ledger

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// load reads the ledger from its beginning.
func (f *File) load(known Head) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.loadLocked(known)
}

// loadLocked reads the ledger, and verifies it against its checkpoint and against what this process has acknowledged.
func (f *File) loadLocked(acknowledged Head) error {
	return f.locked(func() error {
		checkpoint, err := f.readCheckpoint()
		fresh := errors.Is(err, fs.ErrNotExist)
		if err != nil && !fresh {
			return err
		}
		path := filepath.Join(f.dir, linesFile)
		if info, err := os.Stat(path); fresh && err == nil && info.Size() > 0 {
			return ErrNoCheckpoint
		}
		if f.lines, err = f.open(path); err != nil {
			return fmt.Errorf("opening the ledger: %w", err)
		}
		if f.index, err = newSidecar(f.dir); err != nil {
			return err
		}
		if fresh {
			signed, err := f.keys.Checkpoint(Head{})
			if err != nil {
				return err
			}
			if err := replaceFile(filepath.Join(f.dir, checkpointFile), signed); err != nil {
				return err
			}
		}
		f.offset, f.edge, f.signed = 0, Edge{}, checkpoint
		return f.read(checkpoint, acknowledged)
	})
}

func (f *File) readCheckpoint() (Head, error) {
	signed, err := os.ReadFile(filepath.Join(f.dir, checkpointFile))
	if err != nil {
		return Head{}, fmt.Errorf("reading the checkpoint: %w", err)
	}
	return f.keys.Open(signed)
}

// read takes in every line of the file, and compares the tree at each of the heads.
func (f *File) read(heads ...Head) error {
	if err := f.takeLines(func(h Head) error {
		for _, known := range heads {
			if h.Size == known.Size && h.Root != known.Root {
				return ErrTampered
			}
		}
		return nil
	}, heads); err != nil {
		return err
	}
	for _, known := range heads {
		if f.edge.Size < known.Size {
			return ErrTruncated
		}
	}
	return nil
}

// takeLines takes in the lines behind the last one that is known. A last line without its end is set aside.
func (f *File) takeLines(at func(Head) error, heads []Head) error {
	info, err := f.lines.Stat()
	if err != nil {
		return fmt.Errorf("reading the ledger: %w", err)
	}
	in := bufio.NewReaderSize(io.NewSectionReader(f.lines, f.offset, info.Size()-f.offset), 256<<10)
	for {
		line, err := readLine(in)
		switch {
		case errors.Is(err, io.EOF) && len(line) == 0:
			return nil
		case errors.Is(err, io.EOF):
			return f.setAside(line)
		case err != nil:
			return err
		}
		if !plausible(line) {
			return ErrMalformed
		}
		f.take(line)
		for _, known := range heads {
			if known.Size == f.edge.Size {
				if err := at(f.edge.Head()); err != nil {
					return err
				}
			}
		}
	}
}

// readLine answers one line without its end, or, with io.EOF, what is behind the last end.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case err == nil:
			return line[:len(line)-1], nil
		case len(line) > MaxLine:
			return nil, ErrMalformed
		case !errors.Is(err, bufio.ErrBufferFull):
			return line, err //nolint:wrapcheck // io.EOF, or the file's own
		}
	}
}

// plausible reports whether a line can be a record: a signed checkpoint decides about its bytes, and Decode, when it is
// read, about its sense.
func plausible(line []byte) bool {
	return len(line) > 2 && line[0] == '{' && line[len(line)-1] == '}' && !bytes.ContainsRune(line, 0)
}

// setAside keeps a torn last line in a file of its own and cuts it off.
func (f *File) setAside(torn []byte) error {
	name := filepath.Join(f.dir, fmt.Sprintf("erasure-ledger.torn-%d", time.Now().UnixNano()))
	if err := replaceFile(name, torn); err != nil {
		return err
	}
	if err := f.lines.Truncate(f.offset); err != nil {
		return fmt.Errorf("cutting off a torn line: %w", err)
	}
	if err := f.lines.Sync(); err != nil {
		return fmt.Errorf("cutting off a torn line: %w", err)
	}
	return nil
}

// catchUp takes in what other processes appended. It MUST run under the lock.
func (f *File) catchUp() error {
	info, err := f.lines.Stat()
	switch {
	case err != nil:
		return fmt.Errorf("reading the ledger: %w", err)
	case info.Size() == f.offset:
		return nil
	case info.Size() < f.offset:
		f.poisoned = true
		return fmt.Errorf("%w: it was cut off while it was open", ErrPoisoned)
	}
	if err := f.takeLines(func(Head) error { return nil }, nil); err != nil {
		f.poisoned = true
		return err
	}
	return nil
}
