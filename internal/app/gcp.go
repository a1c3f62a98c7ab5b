package app

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"time"

	"recount/internal/audit"
	"recount/internal/cell"
	"recount/internal/intake"
	"recount/internal/stores"
	"recount/internal/stores/bigquery"
	"recount/internal/stores/firestore"
	"recount/internal/subject"
	"recount/internal/suppression"
)

const (
	// leaseTTL is for how long the graph's lease is granted at a time.
	leaseTTL = 15 * time.Second
	// writeLimit is how long a write may be under way after it has asked the ledger, and elsewhere how long an erasure
	// waits for those of other instances: a little longer, because a clock may run slow and a request outlive its sender.
	writeLimit = 5 * time.Second
	elsewhere  = writeLimit + time.Second
)

// derivedKey is a key of its own for what outlives the rows (job ids, insert ids, cursors), from the deployment's salt.
func derivedKey(salt subject.Salt, label string) []byte {
	mac := hmac.New(sha256.New, salt.Bytes())
	mac.Write([]byte("recount " + label))
	return mac.Sum(nil)
}

func openBigQuery(ctx context.Context, s *Service, project, dataset, location string) (*bigquery.Client, error) {
	client, err := bigquery.Open(ctx, bigquery.Config{
		Project: project, Dataset: dataset, Location: location, EmulatorHost: s.BigQueryEmulatorHost,
		Key: derivedKey(s.salt, "bigquery keys 1"), JobTimeout: s.StoreTimeout,
	})
	if err != nil {
		return nil, fmt.Errorf("opening BigQuery: %w", err)
	}
	return client, nil
}

func openFirestore(ctx context.Context, s *Service, project, database string) (*firestore.Client, error) {
	client, err := firestore.Open(ctx, firestore.Config{
		Project: project, Database: database, EmulatorHost: s.FirestoreEmulatorHost,
		CursorSecret: derivedKey(s.salt, "firestore cursors 1"),
	})
	if err != nil {
		return nil, fmt.Errorf("opening Firestore: %w", err)
	}
	return client, nil
}

// onGCP opens a cell's own tables in BigQuery, and the graph's journal in Firestore where one is configured.
func onGCP(ctx context.Context, s *Service, name, graphProject string) (*assembly, error) {
	if name == graphCell {
		return graphOnGCP(ctx, s, graphProject)
	}
	a := &assembly{}
	if err := a.firestoreLedger(ctx, s, name, elsewhere); err != nil {
		return a, err
	}
	client, err := openBigQuery(ctx, s, s.GCPProject, s.BigQueryDataset, s.BigQueryLocation)
	if err != nil {
		return a, err
	}
	a.close = append(a.close, client.Close)
	a.bigquery = client
	kinds, err := kindsOf(name)
	if err != nil {
		return a, err
	}
	var covered []stores.Table
	err = each(
		func(k intake.Kind) (*bigquery.Table, error) {
			covered = append(covered, k.Table)
			return client.Table(ctx, k.Table, bigquery.WithBackstop(cell.Backstop(a.ledger, k.Table)))
		},
		func(t *bigquery.Table, k intake.Kind) error { return a.alone(t, k) }, kinds)
	a.surveys = append(a.surveys, cell.Survey{Surveyor: client, Covered: append(covered, audit.Table())})
	a.archives = append(a.archives, archiveOf(client, covered))
	return a, err
}

// firestoreLedger opens the cell's suppression ledger, which all its instances share.
func (a *assembly) firestoreLedger(ctx context.Context, s *Service, name string, elsewhere time.Duration) error {
	client, err := openFirestore(ctx, s, s.GCPProject, s.FirestoreDatabase)
	if err != nil {
		return err
	}
	a.close = append(a.close, client.Close)
	ledger, err := client.Ledger(ctx, name, s.suppression)
	if err != nil {
		return fmt.Errorf("opening the suppression ledger: %w", err)
	}
	a.keep(ledger, suppression.NewWriters(writeLimit), elsewhere)
	return nil
}

func graphOnGCP(ctx context.Context, s *Service, project string) (*assembly, error) {
	a := &assembly{}
	// One instance serves the graph at a time, by its lease or by the manifest: nobody elsewhere is writing.
	if project == "" {
		if err := a.firestoreLedger(ctx, s, graphCell, 0); err != nil {
			return a, err
		}
		a.purge = func(ctx context.Context, project string) (int64, error) { return purgeJournal(ctx, s, project) }
		return a, a.graphAlone()
	}
	client, err := openFirestore(ctx, s, project, s.FirestoreDatabase)
	if err != nil {
		return a, err
	}
	a.close = append(a.close, client.Close)
	kind := intake.Edges()
	ledger, err := client.Ledger(ctx, graphCell, s.suppression)
	if err != nil {
		return a, fmt.Errorf("opening the suppression ledger: %w", err)
	}
	a.keep(ledger, suppression.NewWriters(writeLimit), 0)
	durable, err := client.Journal(ctx, kind.Table, ledger)
	if err != nil {
		return a, fmt.Errorf("opening the graph's journal: %w", err)
	}
	holder, err := os.Hostname()
	if err != nil {
		holder = "unknown"
	}
	keep, err := firestore.NewLease(client, "graph", holder, leaseTTL, time.Now)
	if err != nil {
		return a, fmt.Errorf("making the graph's lease: %w", err)
	}
	a.surveys = append(a.surveys, cell.Survey{Surveyor: client, Covered: []stores.Table{kind.Table}})
	return a, a.journalled(durable, "firestore", keep)
}

// purgeJournal empties a journal that is switched off and still holds rows.
func purgeJournal(ctx context.Context, s *Service, project string) (deleted int64, err error) {
	client, err := openFirestore(ctx, s, project, s.FirestoreDatabase)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	durable, err := client.Journal(ctx, intake.Edges().Table, nil)
	if err != nil {
		return 0, fmt.Errorf("opening the graph's journal: %w", err)
	}
	return durable.Purge(ctx)
}
