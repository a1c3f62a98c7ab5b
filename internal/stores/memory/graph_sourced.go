package memory

import (
	"context"
	"unique"

	"recount/internal/subject"
)

// NamesSources reports that every edge names its source.
func (g *Graph) NamesSources() bool { return true }

func recordOf(s subject.Source) recordKey {
	return recordKey{tenant: unique.Make(s.Tenant()), source: unique.Make(s.Origin()), ref: s.Reference()}
}

// Sources answers the sources of each subject's edges.
func (g *Graph) Sources(ctx context.Context, subjects []subject.Subject) ([][]subject.Source, error) {
	if err := ctx.Err(); err != nil {
		return nil, err //nolint:wrapcheck // a context's own error says it all
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	out := make([][]subject.Source, len(subjects))
	for i, s := range subjects {
		key := keyOf(s)
		n, ok := g.nodes[key]
		if !ok {
			continue
		}
		for _, e := range n.edges {
			source, err := recordKey{tenant: key.tenant, source: e.source, ref: e.ref}.asSource()
			if err != nil {
				return nil, err
			}
			out[i] = append(out[i], source)
		}
	}
	return out, nil
}

// DerivedFrom answers the edges that name one of the parents.
func (g *Graph) DerivedFrom(ctx context.Context, parents []subject.Source) ([]subject.Derivation, error) {
	if err := ctx.Err(); err != nil {
		return nil, err //nolint:wrapcheck // a context's own error says it all
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.derived.of(parents)
}

// CountSources answers 1 for each source of which there is an edge.
func (g *Graph) CountSources(ctx context.Context, sources []subject.Source) ([]int64, error) {
	if err := ctx.Err(); err != nil {
		return nil, err //nolint:wrapcheck // a context's own error says it all
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	counts := make([]int64, len(sources))
	for i, s := range sources {
		counts[i] = g.bears(s)
	}
	return counts, nil
}

// DeleteSources removes the edges that bear one of the sources.
func (g *Graph) DeleteSources(ctx context.Context, sources []subject.Source) (deleted int64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err //nolint:wrapcheck // a context's own error says it all
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range sources {
		deleted += g.removeRecord(s)
	}
	return deleted, nil
}

// EraseTargets counts, removes and recounts every target, and what derives from it, under one lock.
func (g *Graph) EraseTargets(targets []subject.Target, derived [][]subject.Source) []subject.Measurement {
	g.mu.Lock()
	defer g.mu.Unlock()
	return eraseTargets(targets, derived, place{
		count: func(s subject.Subject) int64 { return g.count(keyOf(s)) }, remove: func(s subject.Subject) { g.remove(keyOf(s)) },
		bears: g.bears, removeRecord: func(s subject.Source) { g.removeRecord(s) },
		owns: func(s subject.Source, who subject.Subject) bool {
			e, ok := g.records[recordOf(s)]
			return ok && (e.ends[0].nodeKey == keyOf(who) || e.ends[1].nodeKey == keyOf(who))
		},
	})
}

func (g *Graph) bears(s subject.Source) int64 {
	if _, ok := g.records[recordOf(s)]; ok {
		return 1
	}
	return 0
}

// removeRecord takes one edge out, and each of its ends that is left without edges.
func (g *Graph) removeRecord(s subject.Source) int64 {
	record := recordOf(s)
	e, ok := g.records[record]
	if !ok {
		return 0
	}
	delete(g.records, record)
	g.derived.remove(record)
	for i, n := range e.ends {
		if i == 1 && e.ends[0] == n {
			break
		}
		if n.leave(e.places[i]); len(n.edges) == 0 {
			delete(g.nodes, n.nodeKey)
		}
	}
	return 1
}
