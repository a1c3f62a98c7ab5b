package memory

import (
	"context"
	"strings"
	"sync"
	"unique"

	"recount/internal/stores"
	"recount/internal/subject"
	"recount/internal/suppression"
)

// Graph holds the edges between people. A record (tenant, source, source_ref) is one edge; an edge belongs to the
// persons at both its ends. Counting a person is one look-up, and erasing one costs as much as they have edges, however
// many their neighbours have. A person without edges leaves no trace.
//
// One lock guards it all: an edge joins any two persons, so shards would need two locks in order, and an append holds
// the lock for about a microsecond.
type Graph struct {
	layout
	packed   []int           // the columns that an edge's packed row holds
	backstop stores.Backstop // nil where another store asks the ledger

	mu      sync.RWMutex
	nodes   map[nodeKey]*node
	records map[recordKey]*edge
	derived derivations // of the few edges that derive from something
}

// GraphOption changes how a graph is made.
type GraphOption func(*Graph)

// WithBackstop lets the graph look at the suppression ledger once more before it appends: for one without a journal.
func WithBackstop(b stores.Backstop) GraphOption { return func(g *Graph) { g.backstop = b } }

type nodeKey struct {
	tenant   unique.Handle[string]
	identity string
}

type recordKey struct {
	tenant, source unique.Handle[string]
	ref            string
}

// node is one person: the edges at whose ends they are, a self loop once.
type node struct {
	nodeKey
	edges []*edge
}

type edge struct {
	ends   [2]*node
	places [2]int32 // of this edge in ends[i].edges, so that leaving takes no search; the second is unused in a self loop
	source unique.Handle[string]
	ref    string // a part of data
	data   string // the packed row
}

// NewGraph makes an empty graph for a table that is ours with two identity columns. Errors: a table of another shape.
func NewGraph(table stores.Table, options ...GraphOption) (*Graph, error) {
	l, err := newLayout(table)
	if err != nil {
		return nil, err
	}
	if len(l.identities) != 2 {
		return nil, errTwoEnds
	}
	g := &Graph{
		layout: l, packed: l.allBut(l.tenant, l.source, l.identities[0], l.identities[1]),
		nodes: map[nodeKey]*node{}, records: map[recordKey]*edge{}, derived: newDerivations(),
	}
	for _, option := range options {
		option(g)
	}
	return g, nil
}

// Reset empties the graph, for a replay from the start.
func (g *Graph) Reset() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.nodes, g.records, g.derived = map[nodeKey]*node{}, map[recordKey]*edge{}, newDerivations()
}

// Name is the table's store.
func (g *Graph) Name() string { return g.table.Store }

// Backend is "memory".
func (g *Graph) Backend() string { return Backend }

// About is the table's card.
func (g *Graph) About() subject.Card { return g.table.Card }

// IdentityFields are the columns of the two ends.
func (g *Graph) IdentityFields() []string { return g.table.Identities }

func keyOf(s subject.Subject) nodeKey {
	return nodeKey{tenant: unique.Make(s.Tenant()), identity: s.Identity()}
}

// Count is the number of edges with the subject at either end.
func (g *Graph) Count(ctx context.Context, s subject.Subject) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err //nolint:wrapcheck // a context's own error says it all
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.count(keyOf(s)), nil
}

// Delete removes every edge with the subject at either end.
func (g *Graph) Delete(ctx context.Context, s subject.Subject) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err //nolint:wrapcheck // a context's own error says it all
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.remove(keyOf(s)), nil
}

// Erase counts, removes and recounts all the subjects under one lock.
func (g *Graph) Erase(ctx context.Context, subjects []subject.Subject) []subject.Measurement {
	out := make([]subject.Measurement, len(subjects))
	g.mu.Lock()
	defer g.mu.Unlock()
	err := ctx.Err() // asked here: waiting for the lock may have taken the rest of the time
	for i, s := range subjects {
		if out[i].DeleteErr = err; err == nil {
			out[i].Before = subject.Measured(g.count(keyOf(s)))
		}
	}
	if err != nil {
		return out
	}
	for i, s := range subjects {
		out[i].Deleted = subject.Measured(g.remove(keyOf(s)))
	}
	for i, s := range subjects {
		out[i].Remaining = subject.Measured(g.count(keyOf(s)))
	}
	return out
}

// Append adds edges, all or none, but for those that the backstop does not admit.
func (g *Graph) Append(ctx context.Context, rows []stores.Row, seen suppression.Generation) ([]bool, error) {
	drafts, err := g.draft(rows)
	if err != nil {
		return nil, err
	}
	var admitted []bool
	if g.backstop != nil && len(rows) > 0 {
		if admitted, err = g.backstop(ctx, rows, seen); err != nil {
			return nil, err
		}
	}
	created := make([]bool, len(rows))
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err //nolint:wrapcheck // a context's own error says it all
	}
	for i, d := range drafts {
		created[i] = (admitted == nil || admitted[i]) && g.add(d)
	}
	return created, nil
}

// Fill takes in rows that a journal took, those too that it had already: the graph knows what it has.
func (g *Graph) Fill(rows []stores.Row, _ []bool) {
	drafts, err := g.draft(rows)
	if err != nil {
		return // the journal's table is the graph's own: its rows fit
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, d := range drafts {
		g.add(d)
	}
}

// draft is an edge that is not in the graph yet.
type draft struct {
	record  recordKey
	ends    [2]string
	data    string
	parents []subject.Source
}

// draft checks and packs the rows, which needs no lock.
func (g *Graph) draft(rows []stores.Row) ([]draft, error) {
	drafts := make([]draft, len(rows))
	var buf []byte
	for i, row := range rows {
		if err := g.check(row); err != nil {
			return nil, err
		}
		buf = g.pack(row, g.packed, buf[:0])
		d := draft{data: string(buf), ends: [2]string{g.text(row, g.identities[0]), g.text(row, g.identities[1])}}
		_, afterRowID := packedText(d.data)
		d.record.ref, _ = packedText(afterRowID)
		d.record.tenant, d.record.source = unique.Make(g.text(row, g.tenant)), unique.Make(g.text(row, g.source))
		d.parents = g.parents(row)
		drafts[i] = d
	}
	return drafts, nil
}

func (g *Graph) count(key nodeKey) int64 {
	n, ok := g.nodes[key]
	if !ok {
		return 0
	}
	return int64(len(n.edges))
}

func (g *Graph) add(d draft) (created bool) {
	if _, ok := g.records[d.record]; ok {
		return false
	}
	e := &edge{source: d.record.source, ref: d.record.ref, data: d.data}
	g.records[d.record] = e
	g.derived.add(d.record, d.parents)
	for i, identity := range d.ends {
		e.ends[i] = g.node(nodeKey{tenant: d.record.tenant, identity: identity})
		if i == 0 || e.ends[0] != e.ends[1] {
			e.ends[i].join(e, i)
		}
	}
	return true
}

func (g *Graph) node(key nodeKey) *node {
	n, ok := g.nodes[key]
	if !ok {
		key.identity = strings.Clone(key.identity) // not the buffer that it was cut from
		n = &node{nodeKey: key}
		g.nodes[key] = n
	}
	return n
}

// remove takes out every edge of a node, and each node that is left without edges.
func (g *Graph) remove(key nodeKey) int64 {
	n, ok := g.nodes[key]
	if !ok {
		return 0
	}
	for _, e := range n.edges {
		record := recordKey{tenant: key.tenant, source: e.source, ref: e.ref}
		delete(g.records, record)
		g.derived.remove(record)
		for i, other := range e.ends {
			if other == n {
				continue
			}
			if other.leave(e.places[i]); len(other.edges) == 0 {
				delete(g.nodes, other.nodeKey)
			}
		}
	}
	delete(g.nodes, key)
	return int64(len(n.edges))
}

func (n *node) join(e *edge, end int) {
	e.places[end] = int32(len(n.edges)) //nolint:gosec // 2^31 edges at one node don't fit into any memory
	n.edges = append(n.edges, e)
}

// leave takes the edge at a place out of the list: the last one moves there.
func (n *node) leave(place int32) {
	last := len(n.edges) - 1
	moved := n.edges[last]
	n.edges[place], n.edges[last] = moved, nil
	n.edges = n.edges[:last]
	end := 0
	if moved.ends[0] != n {
		end = 1
	}
	moved.places[end] = place
	if c := cap(n.edges); c > 16 && last < c/4 { // give the memory back after a large erasure
		n.edges = append(make([]*edge, 0, c/2), n.edges...)
	}
}
