package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/go-json-experiment/json/jsontext"

	"recount/internal/wire"
)

// incompleteSuffix is on the name of a file until it holds everything.
const incompleteSuffix = ".incomplete"

// accessFile is the file of one person while it is written, piece by piece: what is in memory is one page of one cell.
// The first error is kept and answered by finish.
type accessFile struct {
	path string   // "" is standard output
	file *os.File // nil for standard output
	out  *bufio.Writer
	enc  *jsontext.Encoder
	err  error
}

// newAccessFile opens the file for its owner alone, under a name that says that it isn't complete yet.
func newAccessFile(path string, stdout io.Writer) (*accessFile, error) {
	a := &accessFile{}
	if path != "-" {
		a.path = path
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return nil, usagef("--output: the file is there already; it is not overwritten")
		}
		file, err := os.OpenFile(path+incompleteSuffix, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) //nolint:gosec // the caller names the file that is theirs
		if errors.Is(err, fs.ErrExist) {
			return nil, usagef("--output: an incomplete file of an earlier run is there; look at it and remove it (%s%s)", path, incompleteSuffix)
		}
		if err != nil {
			return nil, usagef("--output can't be written: %s", bare(err))
		}
		a.file, stdout = file, file
	}
	a.out = bufio.NewWriterSize(stdout, 64<<10)
	// Raw strings are kept, or what escapeControls has escaped would be written as it was.
	a.enc = jsontext.NewEncoder(a.out, jsontext.WithIndent("  "), jsontext.PreserveRawStrings(true))
	return a, nil
}

// name writes an object's next name.
func (a *accessFile) name(name string) { a.token(jsontext.String(name)) }

func (a *accessFile) token(t jsontext.Token) {
	if a.err == nil {
		a.err = a.enc.WriteToken(t)
	}
}

// raw writes a value that a cell answered.
func (a *accessFile) raw(v jsontext.Value) {
	if a.err == nil {
		a.err = a.enc.WriteValue(escapeControls(v))
	}
}

// field writes a name and a value of our own.
func (a *accessFile) field(name string, v any) {
	a.name(name)
	data, err := wire.Marshal(v)
	if a.err == nil {
		a.err = err
	}
	a.raw(data)
}

// finish closes the file. When the document is complete, it gets the name that was asked for; else it keeps the other,
// and finish answers that.
func (a *accessFile) finish(complete bool) (path string, err error) {
	err = a.err
	if err == nil {
		err = a.out.Flush()
	}
	if a.file == nil {
		return "", broke(err)
	}
	if err == nil {
		err = a.file.Sync()
	}
	if closeErr := a.file.Close(); err == nil {
		err = closeErr
	}
	if err == nil && complete {
		err = os.Link(a.path+incompleteSuffix, a.path) // unlike a rename, it replaces nothing
		if err == nil {
			err = os.Remove(a.path + incompleteSuffix)
		}
		return a.path, broke(err)
	}
	return a.path + incompleteSuffix, broke(err)
}

func broke(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("the file could not be written: %w", bare(err))
}

// bare takes the path out of a file's error.
func bare(err error) error {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		return path.Err
	case errors.As(err, &link):
		return link.Err
	}
	return err
}
