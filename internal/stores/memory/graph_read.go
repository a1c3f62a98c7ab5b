package memory

import (
	"context"
	"slices"
	"strings"

	"recount/internal/stores"
	"recount/internal/subject"
)

// cursorPrefix marks a cursor as one of the graph's. A row id follows, which is opaque and outlives a restart.
const cursorPrefix = "g1."

// Read pages through a subject's edges in the order of their row ids.
func (g *Graph) Read(ctx context.Context, s subject.Subject, cursor string, limit int) (subject.Page, error) {
	if err := ctx.Err(); err != nil {
		return subject.Page{}, err //nolint:wrapcheck // a context's own error says it all
	}
	after, ok := strings.CutPrefix(cursor, cursorPrefix)
	if cursor != "" && (!ok || after == "") {
		return subject.Page{}, errCursor
	}
	edges := g.page(keyOf(s), after, limit+1)
	var page subject.Page
	size, last := 0, ""
	for i, e := range edges {
		if i == limit || size > maxPageBytes {
			page.Next = cursorPrefix + last
			break
		}
		row := make(stores.Row, len(g.table.Columns))
		row[g.tenant], row[g.source] = e.ends[0].tenant.Value(), e.source.Value()
		row[g.identities[0]], row[g.identities[1]] = e.ends[0].identity, e.ends[1].identity
		g.unpack(e.data, g.packed, row)
		shown, err := g.show(row)
		if err != nil {
			return subject.Page{}, err
		}
		page.Rows = append(page.Rows, shown)
		size += len(e.data)
		last = e.rowID()
	}
	return page, nil
}

// page picks the n edges of a node with the least row ids after the given one. What it reads of an edge never changes,
// so that the rows are unpacked without the lock.
func (g *Graph) page(key nodeKey, after string, n int) []*edge {
	g.mu.RLock()
	defer g.mu.RUnlock()
	node, ok := g.nodes[key]
	if !ok {
		return nil
	}
	var best []*edge
	keep := func() {
		slices.SortFunc(best, func(a, b *edge) int { return strings.Compare(a.rowID(), b.rowID()) })
		best = best[:min(n, len(best))]
	}
	for _, e := range node.edges {
		if e.rowID() <= after {
			continue
		}
		if best = append(best, e); len(best) >= 4*n { // never the whole of a large node
			keep()
		}
	}
	keep()
	return best
}

func (e *edge) rowID() string {
	id, _ := packedText(e.data)
	return id
}
