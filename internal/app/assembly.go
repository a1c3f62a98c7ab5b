package app

import (
	"context"
	"errors"
	"fmt"

	"recount/internal/cell"
	"recount/internal/intake"
	"recount/internal/stores"
	"recount/internal/stores/bigquery"
	"recount/internal/stores/memory"
	"recount/internal/subject"
)

// cachedScores is how many subjects the score cache holds.
const cachedScores = 100_000

// assembly collects what a cell is made of while it is opened.
type assembly struct {
	groups  []subject.Group
	intakes []*intake.Intake
	surveys []cell.Survey
	close   []func() error // in the order of opening
	lease   *replayedLease // of the graph, nil for the others
	journal string         // graph: "sqlite", "firestore", "off"
	// bigquery is the cell's own dataset, which has the audit table too; nil where there is none.
	bigquery *bigquery.Client
	// purge empties a graph journal that is switched off; nil but on such a graph cell.
	purge func(ctx context.Context, project string) (int64, error)
}

// closeAll closes in reverse order and answers every error.
func (a *assembly) closeAll() error {
	var faults []error
	for i := len(a.close) - 1; i >= 0; i-- {
		faults = append(faults, a.close[i]())
	}
	return errors.Join(faults...)
}

// ownTable is a table that is ours, as its adapter opens it.
type ownTable interface {
	subject.Store
	stores.Appender
}

// alone adds a table that no other store is filled from.
func (a *assembly) alone(table ownTable, kind intake.Kind) error {
	a.groups = append(a.groups, subject.Group{Stores: []subject.Store{table}})
	a.intakes = append(a.intakes, &intake.Intake{Kind: kind, Store: table})
	return nil
}

// cached adds a table, and a cache in memory that is filled under the lock that erasures take.
func (a *assembly) cached(table ownTable, kind intake.Kind) error {
	spec := kind.Table
	spec.Store = "score_cache"
	cache, err := memory.NewCache(spec, "ingested_at", cachedScores)
	if err != nil {
		return fmt.Errorf("making the score cache: %w", err)
	}
	locks := cell.NewLocks()
	fill := func(rows []stores.Row, created []bool) {
		for i, row := range rows {
			if created[i] {
				_ = cache.Put(row) // the table took it, so it fits; and the cache may miss any row
			}
		}
	}
	a.groups = append(a.groups, subject.Group{Stores: []subject.Store{table, cache}, Lock: locks.Lock})
	a.intakes = append(a.intakes, &intake.Intake{Kind: kind, Store: &cell.Paired{Durable: table, Fill: fill, Locks: locks, Table: kind.Table}})
	return nil
}

// journal is the durable side of a graph.
type journal interface {
	ownTable
	Scan(ctx context.Context, yield func(stores.Row) error) error
}

// graph adds the graph in memory behind its journal: the journal is erased first, under the locks that writes take, and
// the memory answers only while this instance holds the lease and has replayed the journal.
func (a *assembly) graph(durable journal, backend string, keep lease) error {
	kind := intake.Edges()
	served, err := newGraph(kind)
	if err != nil {
		return err
	}
	locks := cell.NewLocks()
	a.lease = &replayedLease{lease: keep, locks: locks, graph: served, journal: durable}
	a.journal = backend
	fill := func(rows []stores.Row, _ []bool) { a.lease.fill(rows) }
	a.groups = append(a.groups, subject.Group{
		Stores: []subject.Store{durable, cell.Leased{MemoryStore: served, Lease: a.lease}},
		Lock:   locks.Lock,
	})
	a.intakes = append(a.intakes, &intake.Intake{
		Kind:  kind,
		Store: &cell.Paired{Durable: durable, Fill: fill, Locks: locks, Table: kind.Table, Lease: a.lease},
	})
	return nil
}

// graphAlone adds a graph that lives in this instance's memory and nowhere else.
func (a *assembly) graphAlone() error {
	kind := intake.Edges()
	served, err := newGraph(kind)
	if err != nil {
		return err
	}
	a.journal = "off"
	return a.alone(served, kind)
}

func newGraph(kind intake.Kind) (*memory.Graph, error) {
	spec := kind.Table
	spec.Store = "graph"
	graph, err := memory.NewGraph(spec)
	if err != nil {
		return nil, fmt.Errorf("making the graph: %w", err)
	}
	return graph, nil
}
