package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"recount/internal/cell"
	"recount/internal/stores"
	"recount/internal/stores/sqlite"
	"recount/internal/subject"
	"recount/internal/suppression"
)

// owners opens an owner's own tables, each checked against the live schema. The error names every store that is refused.
func owners(ctx context.Context, s *Service, file cell.OwnerConfig) (*assembly, error) {
	a := &assembly{}
	if s.StoreBackend == "embedded" { // the audit table is in DATA_DIR then
		dir, err := newDirLock(s.dataDir(file.Cell))
		if err != nil {
			return a, err
		}
		if err := dir.wait(ctx, lockPatience); err != nil {
			return a, err
		}
		a.close = append(a.close, dir.release)
		db, err := sqlite.Open(ctx, filepath.Join(s.dataDir(file.Cell), "suppression.db"))
		if err != nil {
			return a, fmt.Errorf("opening the suppression ledger: %w", err)
		}
		a.close = append(a.close, db.Close)
		ledger, err := db.Ledger(ctx, s.suppression)
		if err != nil {
			return a, fmt.Errorf("opening the suppression ledger: %w", err)
		}
		a.keep(ledger, nil, 0)
	} else if err := a.firestoreLedger(ctx, s, file.Cell, 0); err != nil {
		return a, err
	}
	a.guard.Writers, a.capture.Writers = nil, nil // an owner's importers ask, and write on their own
	o := &opening{Service: s, assembly: a, databases: map[string]*database{}}
	var faults []error
	for _, spec := range file.Stores {
		if err := o.open(ctx, spec); err != nil {
			faults = append(faults, fmt.Errorf("store %s: %w", spec.Store, err))
		}
	}
	for _, key := range o.order {
		db := o.databases[key]
		a.surveys = append(a.surveys, cell.Survey{Surveyor: db.surveyor, Covered: db.covered})
		if reader, ok := db.surveyor.(stores.Archive); ok {
			a.archives = append(a.archives, archiveOf(reader, db.covered))
		}
	}
	return a, errors.Join(faults...)
}

// opening is an owner's file on its way to open stores: one client for each database that it names.
type opening struct {
	*Service
	*assembly
	databases map[string]*database
	order     []string
}

type database struct {
	surveyor stores.Surveyor
	table    func(ctx context.Context, t stores.Table) (subject.Store, error)
	covered  []stores.Table
}

func (o *opening) open(ctx context.Context, spec cell.OwnerStore) error {
	key := fmt.Sprintf("%s|%s|%s|%s|%s|%s", spec.Backend, spec.Path, spec.Project, spec.Dataset, spec.Location, spec.Database)
	db, known := o.databases[key]
	if !known {
		var err error
		if db, err = o.connect(ctx, spec); err != nil {
			return err
		}
		o.databases[key], o.order = db, append(o.order, key)
	}
	table := spec.AsTable()
	store, err := db.table(ctx, table)
	if err != nil {
		return err
	}
	db.covered = append(db.covered, table)
	o.groups = append(o.groups, subject.Group{Stores: []subject.Store{store}})
	if sourced, ok := store.(suppression.Store); ok && sourced.NamesSources() {
		o.capture.Stores = append(o.capture.Stores, sourced)
	}
	return nil
}

func (o *opening) connect(ctx context.Context, spec cell.OwnerStore) (*database, error) {
	project := cmp.Or(spec.Project, o.GCPProject)
	if project == "" && spec.Backend != "sqlite" {
		return nil, errors.New("project: give one, or set GCP_PROJECT")
	}
	switch spec.Backend {
	case "sqlite":
		db, err := sqlite.Open(ctx, spec.Path, sqlite.Owners())
		if err != nil {
			return nil, fmt.Errorf("path: %w", err)
		}
		o.close = append(o.close, db.Close)
		return &database{surveyor: db, table: func(ctx context.Context, t stores.Table) (subject.Store, error) { return db.Table(ctx, t) }}, nil
	case "bigquery":
		client, err := openBigQuery(ctx, o.Service, project, cmp.Or(spec.Dataset, o.BigQueryDataset), cmp.Or(spec.Location, o.BigQueryLocation))
		if err != nil {
			return nil, err
		}
		o.close = append(o.close, client.Close)
		return &database{surveyor: client, table: func(ctx context.Context, t stores.Table) (subject.Store, error) { return client.Table(ctx, t) }}, nil
	default:
		client, err := openFirestore(ctx, o.Service, project, cmp.Or(spec.Database, o.FirestoreDatabase))
		if err != nil {
			return nil, err
		}
		o.close = append(o.close, client.Close)
		return &database{surveyor: client, table: func(ctx context.Context, t stores.Table) (subject.Store, error) { return client.Collection(ctx, t) }}, nil
	}
}
