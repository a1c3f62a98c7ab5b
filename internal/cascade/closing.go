package cascade

import (
	"context"
	"time"

	"recount/internal/subject"
	"recount/internal/wire"
)

const (
	// closingRounds is how often the cells are asked for what others resolved. Each round follows what derives from the
	// last one's sources into other cells; a chain that crosses cells more often is failed, and a retry goes on with it.
	closingRounds = 5
	// askBytes bounds the sources of one call: half of what a cell takes as a body, because JSON may escape them.
	askBytes = 400 << 10
)

// closing is a cascade that closes over sources: what one cell resolved, every other cell is asked for, until no new one
// appears.
type closing struct {
	cells     []Cell
	requestID string
	targets   []subject.Target
	known     []map[subject.Source]bool   // by target: every source that any cell resolved
	told      [][]map[subject.Source]bool // by target and cell: those that the cell resolved, or was asked for
	receipts  [][][]subject.Receipt       // by target and cell
	open      [][]bool                    // by target and cell: it can be asked for sources
}

// close follows the sources of the first answers, one list of erasures per cell, and answers the receipts by target.
func (c *Cascade) close(ctx context.Context, requestID string, cells []Cell, targets []subject.Target, answers [][]subject.Erasure) [][]subject.Receipt {
	w := &closing{cells: cells, requestID: requestID, targets: targets}
	for i, t := range targets {
		w.known = append(w.known, map[subject.Source]bool{})
		w.told = append(w.told, make([]map[subject.Source]bool, len(cells)))
		w.receipts = append(w.receipts, make([][]subject.Receipt, len(cells)))
		w.open = append(w.open, make([]bool, len(cells)))
		for k, cell := range cells {
			e := answers[k][i]
			w.receipts[i][k], w.open[i][k] = orNothing(cell, e.Receipts), e.Sources != nil
			w.told[i][k] = map[subject.Source]bool{}
			for _, s := range t.Sources {
				w.told[i][k][s] = true
			}
			w.learn(i, k, e.Sources)
		}
	}
	for range closingRounds {
		if !w.round(ctx) {
			return w.answer()
		}
	}
	if w.asks() != nil {
		w.fail(subject.ReasonSourcesOpen)
	}
	return w.answer()
}

func (w *closing) learn(target, cell int, sources []subject.Source) {
	for _, s := range sources {
		w.known[target][s] = true
		w.told[target][cell][s] = true
	}
}

// ask is a part of what one cell has to be asked for.
type ask struct {
	target  int
	sources []subject.Source
}

// asks are, by cell, the sources that it has not been told of; nil when every cell knows all.
func (w *closing) asks() [][]ask {
	out := make([][]ask, len(w.cells))
	some := false
	for k := range w.cells {
		for i := range w.targets {
			if !w.open[i][k] || len(w.told[i][k]) == len(w.known[i]) {
				continue
			}
			var missing []subject.Source
			for s := range w.known[i] {
				if !w.told[i][k][s] {
					missing = append(missing, s)
				}
			}
			if len(missing) > 0 {
				out[k], some = append(out[k], ask{target: i, sources: missing}), true
			}
		}
	}
	if !some {
		return nil
	}
	return out
}

// round asks every cell for what it has not been told of, and reports whether there was anything to ask.
func (w *closing) round(ctx context.Context) bool {
	asks := w.asks()
	if asks == nil {
		return false
	}
	type answered struct {
		asked []ask
		given []subject.Erasure
	}
	number := make(map[Cell]int, len(w.cells))
	for k, cell := range w.cells {
		number[cell] = k
	}
	answers := fanOut(ctx, w.cells, func(ctx context.Context, cell Cell) (out answered) {
		for _, batch := range batches(asks[number[cell]]) {
			out.asked = append(out.asked, batch...)
			out.given = append(out.given, eraseBatch(ctx, cell, w.requestID, w.asTargets(batch))...)
		}
		return out
	}, func(cell Cell, started time.Time, reason subject.Reason) answered {
		asked := asks[number[cell]]
		return answered{asked: asked, given: repeat(lost(cell, started, reason), len(asked))}
	})
	for k, a := range answers {
		for n, asked := range a.asked {
			w.merge(asked, k, a.given[n])
		}
	}
	return true
}

func (w *closing) asTargets(batch []ask) []subject.Target {
	out := make([]subject.Target, len(batch))
	for i, a := range batch {
		out[i] = subject.Target{Tenant: w.targets[a.target].Tenant, Sources: a.sources, Ref: w.targets[a.target].Ref, Keep: w.targets[a.target].Keep}
	}
	return out
}

// batches cuts asks into calls of a size that a cell takes.
func batches(asks []ask) [][]ask {
	var out [][]ask
	var batch []ask
	sources, size := 0, 0
	for _, a := range asks {
		from := 0
		for at, s := range a.sources {
			n := len(s.Origin()) + len(s.Reference()) + 64
			if sources > 0 && (sources == wire.MaxBatch || size+n > askBytes) {
				if at > from {
					batch = append(batch, ask{target: a.target, sources: a.sources[from:at]})
				}
				out, batch, from, sources, size = append(out, batch), nil, at, 0, 0
			}
			sources, size = sources+1, size+n
		}
		batch = append(batch, ask{target: a.target, sources: a.sources[from:]})
	}
	return append(out, batch)
}

// merge adds what a cell measured for sources of others to what it measured at first. A store that says nothing of them
// has failed: nobody knows whether they are gone from it.
func (w *closing) merge(asked ask, cell int, given subject.Erasure) {
	w.learn(asked.target, cell, asked.sources)
	w.learn(asked.target, cell, given.Sources)
	byStore := map[string]subject.Receipt{}
	for _, r := range given.Receipts {
		byStore[r.Store()] = r
	}
	for n, r := range w.receipts[asked.target][cell] {
		said, ok := byStore[r.Store()]
		if !ok {
			reason := subject.ReasonPeerStoreMissing
			if all, whole := byStore[subject.AnyStore]; whole {
				reason = all.Reason()
			}
			said = subject.NewFailed(subject.Label{Cell: r.Cell(), Store: r.Store()}, r.Times(), subject.Counts{}, reason)
		}
		w.receipts[asked.target][cell][n] = r.Closed(said, int64(len(asked.sources)))
	}
}

// fail gives up on what was not closed over within the bound.
func (w *closing) fail(reason subject.Reason) {
	for k, asks := range w.asks() {
		for _, a := range asks {
			for n, r := range w.receipts[a.target][k] {
				w.receipts[a.target][k][n] = r.Closed(subject.NewFailed(subject.Label{Cell: r.Cell(), Store: r.Store()}, r.Times(), subject.Counts{}, reason), 0)
			}
		}
	}
}

func (w *closing) answer() [][]subject.Receipt {
	out := make([][]subject.Receipt, len(w.targets))
	for i := range w.targets {
		for k := range w.cells {
			out[i] = append(out[i], w.receipts[i][k]...)
		}
	}
	return out
}
