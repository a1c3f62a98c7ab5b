package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

const programsFolder = "erasure-programs"

// FilePrograms keeps programs in a folder beside the ledger: erasure-programs/{entry_id}.jsonl.
type FilePrograms struct{ dir string }

var _ Programs = (*FilePrograms)(nil)

// OpenPrograms makes the folder when it is missing.
func OpenPrograms(dir string) (*FilePrograms, error) {
	dir = filepath.Join(dir, programsFolder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of programs: %w", err)
	}
	return &FilePrograms{dir: dir}, syncFolder(filepath.Dir(dir))
}

func (p *FilePrograms) path(entryID string) (string, error) {
	if textFault(entryID, true) != "" || filepath.Base(entryID) != entryID {
		return "", &RecordError{"entry_id", "is none that a program can have"}
	}
	return filepath.Join(p.dir, entryID+".jsonl"), nil
}

// Write keeps a program.
func (p *FilePrograms) Write(ctx context.Context, entryID string, body []byte) error {
	path, err := p.path(entryID)
	if err != nil {
		return err
	}
	switch there, err := p.Read(ctx, entryID); {
	case errors.Is(err, ErrNoEntry):
		return replaceFile(path, body)
	case err != nil:
		return err
	case !bytes.Equal(there, body):
		return fmt.Errorf("there is another program for the entry: %w", fs.ErrExist)
	}
	return nil
}

// Read answers a program.
func (p *FilePrograms) Read(_ context.Context, entryID string) ([]byte, error) {
	path, err := p.path(entryID)
	if err != nil {
		return nil, err
	}
	body, err := os.ReadFile(path) //nolint:gosec // a checked name in the folder of programs
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoEntry
	}
	if err != nil {
		return nil, fmt.Errorf("reading a program: %w", err)
	}
	return body, nil
}
