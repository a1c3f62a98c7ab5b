package intake

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sync/semaphore"
)

// lineReader reads lines of up to MaxLineBytes. A line that outgrows the buffer takes one of the long lines that all
// readers share, until it ends.
type lineReader struct {
	*bufio.Reader
	long *semaphore.Weighted
	wait func() error // is called before a wait for a long line: nothing may be held over it
	line []byte       // a long line so far
	held bool
}

// next answers the next line without the space around it, valid until the call after it, or that it was too long and was
// passed over. io.EOF comes with the last line. Other errors: the reader's own, ctx's.
func (r *lineReader) next(ctx context.Context) (line []byte, tooLong bool, err error) {
	r.close()
	for {
		part, err := r.ReadSlice('\n')
		full := errors.Is(err, bufio.ErrBufferFull)
		switch {
		case !full && len(r.line) == 0 && !tooLong:
			return bytes.TrimSpace(part), false, err //nolint:wrapcheck // the caller tells io.EOF from the rest
		case !tooLong && len(r.line)+len(part) <= MaxLineBytes:
			if err := r.hold(ctx); err != nil {
				return nil, false, err
			}
			r.line = append(r.line, part...)
		default:
			tooLong = true
			r.line = nil
		}
		if !full {
			if errors.Is(err, io.EOF) || err == nil {
				return bytes.TrimSpace(r.line), tooLong, err //nolint:wrapcheck // as above
			}
			return nil, false, err //nolint:wrapcheck // as above
		}
	}
}

func (r *lineReader) hold(ctx context.Context) error {
	if r.held {
		return nil
	}
	if !r.long.TryAcquire(1) {
		if err := r.wait(); err != nil {
			return err
		}
		if err := r.long.Acquire(ctx, 1); err != nil {
			return fmt.Errorf("waiting for room: %w", err)
		}
	}
	r.held = true
	return nil
}

// close gives a long line back.
func (r *lineReader) close() {
	if r.held {
		r.long.Release(1)
	}
	r.line, r.held = nil, false
}
