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
)

// leaseTTL is for how long the graph's lease is granted at a time.
const leaseTTL = 15 * time.Second

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
			return client.Table(ctx, k.Table)
		},
		func(t *bigquery.Table, k intake.Kind) error { return a.alone(t, k) }, kinds)
	a.surveys = append(a.surveys, cell.Survey{Surveyor: client, Covered: append(covered, audit.Table())})
	return a, err
}

func graphOnGCP(ctx context.Context, s *Service, project string) (*assembly, error) {
	a := &assembly{}
	if project == "" {
		a.purge = func(ctx context.Context, project string) (int64, error) { return purgeJournal(ctx, s, project) }
		return a, a.graphAlone()
	}
	client, err := openFirestore(ctx, s, project, s.FirestoreDatabase)
	if err != nil {
		return a, err
	}
	a.close = append(a.close, client.Close)
	kind := intake.Edges()
	durable, err := client.Journal(ctx, kind.Table)
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
	return a, a.graph(durable, "firestore", keep)
}

// purgeJournal empties a journal that is switched off and still holds rows.
func purgeJournal(ctx context.Context, s *Service, project string) (deleted int64, err error) {
	client, err := openFirestore(ctx, s, project, s.FirestoreDatabase)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	durable, err := client.Journal(ctx, intake.Edges().Table)
	if err != nil {
		return 0, fmt.Errorf("opening the graph's journal: %w", err)
	}
	return durable.Purge(ctx)
}
