// Package cell is one service that owns stores and answers for them alone: it erases, counts and shows what they hold,
// takes records in, and says how it is.
package cell

import (
	"context"
	"time"

	"recount/internal/intake"
	"recount/internal/stores"
	"recount/internal/subject"
	"recount/internal/suppression"
	"recount/internal/wire"
)

// Config is what a cell is made of.
type Config struct {
	Name    string // on every receipt: [a-z][a-z0-9_-]{0,62}
	Version string
	Salt    subject.Salt
	Groups  []subject.Group
	Intakes []*intake.Intake
	// Ledger remembers what was erased from this cell. Every write asks it by way of Guard.
	Ledger suppression.Ledger
	Guard  *suppression.Guard
	// Keys make the keyed digests of sources that programs hold.
	Keys *suppression.Keys
	// Capture records what the groups without a vault are about to lose.
	Capture subject.Capture
	// StoreTimeout is the deadline of one store, from count to recount.
	StoreTimeout time.Duration
	Deny         []string // fields that an access never shows
	OnError      func(store, step string, err error)
	// Observe, where set, is called when an erasure begins, and what it answers when it has ended.
	Observe func() (done func(receipts ...[]subject.Receipt))
	// Stopping ends, with cause subject.ErrShuttingDown, when running erasures must answer. A client that hangs up
	// does not end it.
	Stopping context.Context //nolint:containedctx // the process's own, not a request's
	// Surveys look for columns that no store covers, one for each database that the cell reaches.
	Surveys []Survey
	// Lease, where set, MUST be held for the cell to answer for its memory.
	Lease interface{ Held() bool }
	// GraphJournal says where the graph is journalled: "sqlite", "firestore" or "off"; "" for other cells.
	GraphJournal string
}

// Survey looks at one database for keys that the cell's tables there don't cover.
type Survey struct {
	Surveyor stores.Surveyor
	Covered  []stores.Table
}

// Cell answers for its stores. It is safe for concurrent use.
type Cell struct {
	config   Config
	eraser   subject.Eraser
	accessor subject.Accessor
	flights  subject.Flights
}

// New makes a cell of stores that are open.
func New(c Config) *Cell {
	var all []subject.Store
	for _, g := range c.Groups {
		all = append(all, g.Stores...)
	}
	return &Cell{
		config: c,
		eraser: subject.Eraser{Cell: c.Name, Groups: c.Groups, Timeout: c.StoreTimeout, Capture: c.Capture, OnError: c.OnError},
		accessor: subject.Accessor{
			Cell: c.Name, Stores: all, Timeout: c.StoreTimeout, Deny: append(subject.DefaultDeny(), c.Deny...),
			Pages: subject.NewPageKey(c.Salt), OnError: c.OnError,
		},
	}
}

// Name is the cell's name on receipts.
func (c *Cell) Name() string { return c.config.Name }

// Salt makes the pseudonyms of this deployment.
func (c *Cell) Salt() subject.Salt { return c.config.Salt }

// Intakes are the write endpoints of the cell.
func (c *Cell) Intakes() []*intake.Intake { return c.config.Intakes }

// Ledger is the cell's suppression ledger.
func (c *Cell) Ledger() suppression.Ledger { return c.config.Ledger }

// Guard is what every write to the cell's stores asks.
func (c *Cell) Guard() *suppression.Guard { return c.config.Guard }

// Erase erases the target from every store and answers a receipt for each. Neither the caller's context nor its request
// id matter to stores: an erasure that has started is finished, and concurrent calls for one person share the work.
func (c *Cell) Erase(_ context.Context, _ string, t subject.Target) subject.Erasure {
	if !t.AboutPerson() {
		return c.erase([]subject.Target{t})[0]
	}
	return c.flights.Do(t.Subject, func() subject.Erasure { return c.erase([]subject.Target{t})[0] })
}

// EraseBatch is Erase for many targets of one tenant, answered in order.
func (c *Cell) EraseBatch(_ context.Context, _ string, targets []subject.Target) []subject.Erasure {
	return c.erase(targets)
}

func (c *Cell) erase(targets []subject.Target) []subject.Erasure {
	if c.config.Observe == nil {
		return c.eraser.EraseAll(c.config.Stopping, targets)
	}
	done := c.config.Observe()
	erasures := c.eraser.EraseAll(c.config.Stopping, targets)
	lists := make([][]subject.Receipt, len(erasures))
	for i, e := range erasures {
		lists[i] = e.Receipts
	}
	done(lists...)
	return erasures
}

// Count counts the subject in every store.
func (c *Cell) Count(ctx context.Context, s subject.Subject) []subject.CountReceipt {
	return c.accessor.Count(ctx, s)
}

// Access shows a page of what every store holds. Errors: subject.ErrPageToken.
func (c *Cell) Access(ctx context.Context, s subject.Subject, page subject.PageRequest) ([]subject.AccessReceipt, error) {
	return c.accessor.Access(ctx, s, page)
}

// Coverage lists columns that look like a subject's key and belong to no store.
func (c *Cell) Coverage(ctx context.Context) ([]stores.Suspect, error) {
	suspects := []stores.Suspect{}
	for _, s := range c.config.Surveys {
		found, err := s.Surveyor.Survey(ctx, s.Covered)
		if err != nil {
			return nil, err
		}
		suspects = append(suspects, found...)
	}
	return suspects, nil
}

// Serving reports a *subject.Fault when the cell may not answer for its stores now, because another instance holds the
// graph's lease.
func (c *Cell) Serving() error {
	if c.config.Lease != nil && !c.config.Lease.Held() {
		return &subject.Fault{Reason: subject.ReasonNoLease}
	}
	return nil
}

// Ready reports what can't answer now: the suppression ledger, or the first store.
func (c *Cell) Ready(ctx context.Context) error {
	if err := c.Serving(); err != nil {
		return err
	}
	if err := c.config.Ledger.Ready(ctx); err != nil {
		return err
	}
	for _, store := range c.accessor.Stores {
		if p, ok := store.(subject.Prober); ok {
			if err := p.Ready(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// Health says what the cell is, without touching a store.
func (c *Cell) Health() wire.Health {
	h := wire.Health{Status: "ok", Cell: c.config.Name, Version: c.config.Version, GraphJournal: c.config.GraphJournal}
	if c.config.GraphJournal == "off" {
		h.GraphNote = "the graph lives in this instance's memory alone: it is lost at a restart, and a second instance would " +
			"hold another one. Run exactly one instance, or set INTENT_GRAPH_DURABLE_PROJECT. Rows of an earlier journal are " +
			"still there until `recount journal purge` empties it."
	}
	for _, store := range c.accessor.Stores {
		h.Stores = append(h.Stores, wire.HealthStore{Store: store.Name(), Backend: store.Backend()})
	}
	return h
}
