package app

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"recount/internal/cell"
	"recount/internal/intake"
	"recount/internal/stores"
	"recount/internal/stores/sqlite"
)

// lockPatience is how long a start waits for a predecessor that is just stopping.
const lockPatience = 5 * time.Second

// embedded opens a cell's own tables in DATA_DIR.
func embedded(ctx context.Context, s *Service, name string) (*assembly, error) {
	a := &assembly{}
	dir := s.dataDir(name)
	lock, err := newDirLock(dir)
	if err != nil {
		return nil, err
	}
	if name != graphCell { // a second graph instance waits for the lock, not ready, as on GCP
		if err := lock.wait(ctx, lockPatience); err != nil {
			return nil, err
		}
	}
	a.close = append(a.close, lock.release)
	db, err := sqlite.Open(ctx, filepath.Join(dir, "recount.db"))
	if err != nil {
		return a, fmt.Errorf("opening the database: %w", err)
	}
	a.close = append(a.close, db.Close)
	kinds, err := kindsOf(name)
	if err != nil {
		return a, err
	}
	var covered []stores.Table
	open := func(k intake.Kind) (*sqlite.Table, error) {
		covered = append(covered, k.Table)
		return db.Table(ctx, k.Table)
	}
	add := func(t *sqlite.Table, k intake.Kind) error { return a.alone(t, k) }
	switch name {
	case coordinatorCell:
		add = func(t *sqlite.Table, k intake.Kind) error { return a.cached(t, k) }
	case graphCell:
		add = func(t *sqlite.Table, _ intake.Kind) error { return a.graph(t, "sqlite", lock) }
	}
	err = each(open, add, kinds)
	a.surveys = append(a.surveys, cell.Survey{Surveyor: db, Covered: covered})
	return a, err
}

// each opens the table of every kind and adds it.
func each[T any](open func(intake.Kind) (T, error), add func(T, intake.Kind) error, kinds []intake.Kind) error {
	for _, k := range kinds {
		table, err := open(k)
		if err != nil {
			return fmt.Errorf("opening %s: %w", k.Table.Name, err)
		}
		if err := add(table, k); err != nil {
			return err
		}
	}
	return nil
}
