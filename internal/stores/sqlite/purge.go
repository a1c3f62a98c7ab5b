package sqlite

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"recount/internal/subject"
)

const logSuffix = "-wal"

// purge leaves none of the deleted bytes in the files: it clears the gaps of the pages in the log, checkpoints it into
// the database and truncates it. An empty log has nothing to purge; any other is purged whoever wrote it, because an
// erasure may have died between its commit and here.
//
// The truncation itself is not synced. After a power loss the whole old log may be back, which is the state of the
// database once more, until Open purges it; never a part of it, because SQLite syncs the header of a new log first.
func (w *writer) purge() error {
	if err := w.db.origin.check(); err != nil {
		return err
	}
	size, err := w.logSize()
	if err != nil || size == 0 {
		return err
	}
	if err := w.synchronous(false); err != nil { // the checkpoint syncs
		return err
	}
	if err := w.scrub(); err != nil {
		return err
	}
	return patiently(w.truncate)
}

// checkpointImport keeps the log short while rows are only added. It is purged then, too: splitting a page leaves
// copies of rows in its gap, and once the page has left the log nothing would find them again. A log that could not be
// purged is left to the next erasure, which fails if it can't be purged then.
func (w *writer) checkpointImport() {
	size, err := w.logSize()
	if err == nil && size < w.checkpoint {
		return
	}
	w.checkpoint = importLimit
	if err != nil || w.purge() != nil {
		w.checkpoint = size + importLimit
	}
}

// logSize fails where there is no log, or another: SQLite keeps one for as long as the file is open, if only an empty
// one. What it writes to a log that lost its path is in no file that anybody else sees.
func (w *writer) logSize() (int64, error) {
	info, err := os.Stat(w.log)
	if err == nil && !os.SameFile(info, w.logInfo) {
		err = errors.New("the log was replaced")
	}
	if err != nil {
		return 0, residue(err)
	}
	return info.Size(), nil
}

func residue(cause error) error { return &subject.Fault{Reason: subject.ReasonResidue, Cause: cause} }

// scrub zeroes the gap of every b-tree page that has been in the log since it was last truncated. In a file that only
// this package writes, a log without residue needs no transaction.
func (w *writer) scrub() error {
	if !w.db.owners {
		if _, suspects, err := w.look(); err != nil || len(suspects) == 0 {
			return err
		}
	}
	if err := w.begin(); err != nil { // no other writer may move what is looked at
		return err
	}
	err := w.scrubGaps()
	if err == nil {
		err = w.exec("COMMIT")
	}
	if err != nil {
		return errors.Join(err, w.rollback())
	}
	return nil
}

// look answers the file's layout, and the pages to look at in it.
func (w *writer) look() (layout, []uint32, error) {
	page1, err := w.page(1)
	if err != nil {
		return layout{}, nil, err
	}
	l, ok := layoutOf(page1)
	if !ok {
		return layout{}, nil, residue(errors.New("page 1 has no sound file header"))
	}
	if binary.BigEndian.Uint32(page1[pageCountAt:]) >= maxPages {
		return layout{}, nil, residue(fmt.Errorf("a file of %d pages or more can't be scrubbed safely", maxPages))
	}
	suspects, err := w.suspects(l)
	return l, suspects, err
}

func (w *writer) scrubGaps() error {
	l, suspects, err := w.look()
	if err != nil {
		return err
	}
	for _, pgno := range suspects {
		page, err := w.page(pgno)
		if err != nil {
			return err
		}
		from, to, ok := l.gap(pgno, page)
		if !ok || !l.holdsResidue(page[from:to]) {
			continue
		}
		clear(page[from:to])
		if err := w.exec("UPDATE sqlite_dbpage SET data=?1 WHERE pgno=?2", page, pgno); err != nil {
			return err
		}
	}
	return nil
}

// suspects are the pages that had something in their gap at any time in this log.
func (w *writer) suspects(l layout) ([]uint32, error) {
	file, err := os.Open(w.log)
	if err != nil {
		return nil, residue(err)
	}
	seen := map[uint32]bool{}
	w.reader.Reset(file)
	err = readLog(w.reader, func(pgno uint32, page []byte) {
		if from, to, ok := l.gap(pgno, page); ok && l.holdsResidue(page[from:to]) {
			seen[pgno] = true
		}
	})
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, residue(err)
	}
	return slices.Sorted(maps.Keys(seen)), nil
}

// page answers a copy of a page as this transaction sees it; none for a page that the file has lost since.
func (w *writer) page(pgno uint32) ([]byte, error) {
	s, err := w.prepared("SELECT data FROM sqlite_dbpage WHERE pgno=?1") //nolint:sqlclosecheck // it is kept, and closed with the connection
	if err != nil {
		return nil, err
	}
	rows, err := s.QueryContext(context.Background(), pgno)
	if err != nil {
		return nil, named(err)
	}
	defer rows.Close() //nolint:errcheck // Err below tells
	var page []byte
	for rows.Next() {
		if err := rows.Scan(&page); err != nil {
			return nil, named(err)
		}
	}
	return page, named(rows.Err())
}

// truncate moves the log into the database and empties it. The pragma reports a log that a reader keeps in a column,
// and no error. Our own readers are let through between two tries.
func (w *writer) truncate() error {
	s, err := w.prepared("PRAGMA wal_checkpoint(TRUNCATE)") //nolint:sqlclosecheck // it is kept, and closed with the connection
	if err != nil {
		return err
	}
	w.db.gate.Lock()
	defer w.db.gate.Unlock()
	if err := w.db.origin.check(); err != nil { // by now the log's path may be another file's
		return err
	}
	var busy, inLog, moved int64
	if err := s.QueryRowContext(context.Background()).Scan(&busy, &inLog, &moved); err != nil {
		return named(err)
	}
	switch {
	case busy != 0:
		return &subject.Fault{Reason: subject.ReasonCheckpointBusy}
	case inLog != 0 || moved != 0:
		return residue(errors.New("the checkpoint did not empty the log"))
	}
	return nil
}
