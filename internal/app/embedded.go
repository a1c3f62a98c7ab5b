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
	"recount/internal/subject"
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
	ledger, err := db.Ledger(ctx, s.suppression)
	if err != nil {
		return a, fmt.Errorf("opening the suppression ledger: %w", err)
	}
	a.keep(ledger, nil, 0) // rows and ledger share a transaction: nobody has to be waited for
	kinds, err := kindsOf(name)
	if err != nil {
		return a, err
	}
	vault := &vaulting{assembly: a, lock: lock}
	open := func(k intake.Kind) (*sqlite.Table, error) { return db.Table(ctx, k.Table) }
	if err := each(open, vault.add, kinds); err != nil {
		return a, err
	}
	a.groups = append(a.groups, subject.Group{Stores: vault.stores, Vault: ledger.Vault(name, vault.tables...)})
	a.surveys = append(a.surveys, cell.Survey{Surveyor: db, Covered: vault.covered})
	a.archives = append(a.archives, archiveOf(db, vault.covered))
	return a, nil
}

// vaulting collects the tables of one file, each with the memory that is filled from it.
type vaulting struct {
	*assembly
	lock    *dirLock
	tables  []*sqlite.Table
	stores  []subject.Store
	covered []stores.Table
}

func (v *vaulting) add(t *sqlite.Table, k intake.Kind) error {
	v.tables, v.stores, v.covered = append(v.tables, t), append(v.stores, t), append(v.covered, k.Table)
	v.takeIn(t, k)
	switch k.Name {
	case intake.Scores().Name:
		cache, err := newScoreCache()
		if err != nil {
			return err
		}
		t.Mirrored(cache)
		v.stores = append(v.stores, cache)
	case intake.Edges().Name:
		served, err := v.graph(t, "sqlite", v.lock)
		if err != nil {
			return err
		}
		t.Mirrored(served)
		v.stores = append(v.stores, served)
	}
	return nil
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
