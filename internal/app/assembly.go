package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"recount/internal/cell"
	"recount/internal/intake"
	"recount/internal/stores"
	"recount/internal/stores/bigquery"
	"recount/internal/stores/memory"
	"recount/internal/subject"
	"recount/internal/suppression"
)

// cachedScores is how many subjects the score cache holds.
const cachedScores = 100_000

// assembly collects what a cell is made of while it is opened.
type assembly struct {
	groups   []subject.Group
	intakes  []*intake.Intake
	surveys  []cell.Survey
	close    []func() error // in the order of opening
	archives []archive      // the databases that backfills can read
	ledger   suppression.Ledger
	guard    *suppression.Guard
	capture  *suppression.Capture
	lease    *replayedLease // of the graph, nil for the others
	journal  string         // graph: "sqlite", "firestore", "off"
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
	suppression.Store
	stores.Appender
}

// keep sets the ledger that remembers what is erased, and the guard that every write of the cell asks. Where rows and
// ledger share no transaction, the guard's writes have a time limit, and erasures wait for those that are under way.
func (a *assembly) keep(ledger suppression.Ledger, writers *suppression.Writers, elsewhere time.Duration) {
	a.ledger = ledger
	a.guard = &suppression.Guard{Ledger: ledger, Writers: writers}
	a.capture = &suppression.Capture{Ledger: ledger, Writers: writers, Elsewhere: elsewhere}
}

// captures is the capture of the stores that need one: those of a vault record in their own transaction.
func (a *assembly) captures() subject.Capture {
	if len(a.groups) == 1 && a.groups[0].Vault != nil {
		return nil
	}
	return a.capture
}

// alone adds a table that no other store is filled from.
func (a *assembly) alone(table ownTable, kind intake.Kind) error {
	a.groups = append(a.groups, subject.Group{Stores: []subject.Store{table}})
	a.capture.Stores = append(a.capture.Stores, table)
	a.takeIn(table, kind)
	return nil
}

// takeIn adds the write endpoint of a kind of record.
func (a *assembly) takeIn(store intake.Appender, kind intake.Kind) {
	a.intakes = append(a.intakes, &intake.Intake{Kind: kind, Guard: a.guard, Store: store})
}

// journal is the durable side of a graph.
type journal interface {
	ownTable
	Scan(ctx context.Context, yield func(stores.Row) error) error
}

// journalled adds the graph in memory behind a journal with which it shares no transaction: the journal is erased first,
// and the memory answers only while this instance holds the lease and has replayed the journal.
func (a *assembly) journalled(durable journal, backend string, keep lease) error {
	served, err := a.graph(durable, backend, keep)
	if err != nil {
		return err
	}
	turns := a.lease.turns
	a.groups = append(a.groups, subject.Group{Stores: []subject.Store{durable, served}, Lock: turns.Shared})
	a.capture.Stores = append(a.capture.Stores, durable, served)
	a.takeIn(&cell.Paired{Durable: durable, Fill: served.Fill, Turns: turns, Lease: a.lease}, intake.Edges())
	return nil
}

// graph makes the graph in memory that a journal is replayed into once the lease is held.
func (a *assembly) graph(durable journal, backend string, keep lease) (cell.Leased, error) {
	served, err := newGraph()
	if err != nil {
		return cell.Leased{}, err
	}
	a.lease = &replayedLease{lease: keep, turns: cell.NewTurns(), graph: served, journal: durable, guard: a.guard}
	a.journal = backend
	return cell.Leased{MemoryStore: served, Lease: a.lease}, nil
}

// graphAlone adds a graph that lives in this instance's memory and nowhere else.
func (a *assembly) graphAlone() error {
	served, err := newGraph(memory.WithBackstop(cell.Backstop(a.guard.Ledger, intake.Edges().Table)))
	if err != nil {
		return err
	}
	a.journal = "off"
	return a.alone(served, intake.Edges())
}

func newGraph(options ...memory.GraphOption) (*memory.Graph, error) {
	spec := intake.Edges().Table
	spec.Store = "graph"
	graph, err := memory.NewGraph(spec, options...)
	if err != nil {
		return nil, fmt.Errorf("making the graph: %w", err)
	}
	return graph, nil
}

// newScoreCache makes the cache in memory that is filled from the scores.
func newScoreCache() (*memory.Cache, error) {
	spec := intake.Scores().Table
	spec.Store = "score_cache"
	cache, err := memory.NewCache(spec, "ingested_at", cachedScores)
	if err != nil {
		return nil, fmt.Errorf("making the score cache: %w", err)
	}
	return cache, nil
}
