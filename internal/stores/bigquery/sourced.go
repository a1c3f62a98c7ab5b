package bigquery

import (
	"context"
	"errors"
	"slices"

	bq "cloud.google.com/go/bigquery"

	"recount/internal/stores"
	"recount/internal/subject"
)

// pairsPerQuery is how many sources one statement names.
const pairsPerQuery = 1000

// NamesSources reports whether the table has source columns.
func (t *Table) NamesSources() bool { return t.table.Source != "" }

// Sources answers the sources of every subject's rows, in one statement.
func (t *Table) Sources(ctx context.Context, subjects []subject.Subject) ([][]subject.Source, error) {
	out := make([][]subject.Source, len(subjects))
	if len(subjects) == 0 {
		return out, ctx.Err() //nolint:wrapcheck // a context's own error says it all
	}
	tenant, ids, err := unpack(subjects)
	if err != nil {
		return nil, err
	}
	s, err := t.current(ctx)
	if err != nil {
		return nil, t.refusal("reading the sources", err)
	}
	var wrong error
	err = t.c.query(ctx, s.sources(tenant, ids), func(row map[string]bq.Value) bool {
		pos, ok := row["pos"].(int64)
		if !ok || pos < 0 || pos >= int64(len(out)) {
			wrong = &failure{"reading the sources", errors.New("the answer names no position")}
			return false
		}
		var source subject.Source
		if source, ok, wrong = sourceOf(tenant, row); ok {
			out[pos] = append(out[pos], source)
		}
		return wrong == nil
	})
	if wrong != nil {
		return nil, wrong
	}
	if err != nil {
		return nil, judge(err).read("reading the sources", err)
	}
	return out, nil
}

// sourceOf reads a row's source: ok is false where it has none.
func sourceOf(tenant string, row map[string]bq.Value) (s subject.Source, ok bool, err error) {
	source, _ := row["source"].(string)
	ref, _ := row["source_ref"].(string)
	if source == "" || ref == "" {
		return s, false, nil
	}
	if s, err = subject.NewSource(tenant, source, ref); err != nil {
		return s, false, &subject.Fault{Reason: subject.ReasonSourceInvalid, Cause: err}
	}
	return s, true, nil
}

// pairsOf are sources as a parameter.
func pairsOf(sources []subject.Source) []pair {
	pairs := make([]pair, len(sources))
	for i, s := range sources {
		pairs[i] = pair{Pos: int64(i), Source: s.Origin(), SourceRef: s.Reference()}
	}
	return pairs
}

// DerivedFrom answers what derives from the parents; in an owner's table, nothing is known to.
func (t *Table) DerivedFrom(ctx context.Context, parents []subject.Source) ([]subject.Derivation, error) {
	s, err := t.current(ctx)
	if err != nil {
		return nil, t.refusal("reading what derives", err)
	}
	if s.derived == "" {
		return nil, nil
	}
	var out []subject.Derivation
	for chunk := range slices.Chunk(parents, pairsPerQuery) {
		asked := map[subject.Source]bool{}
		for _, p := range chunk {
			asked[p] = true
		}
		var wrong error
		err := t.c.query(ctx, s.children(chunk[0].Tenant(), pairsOf(chunk)), func(row map[string]bq.Value) bool {
			var derivations []subject.Derivation
			derivations, wrong = derivationsOf(chunk[0].Tenant(), row, asked)
			out = append(out, derivations...)
			return wrong == nil
		})
		if wrong != nil {
			return nil, wrong
		}
		if err != nil {
			return nil, judge(err).read("reading what derives", err)
		}
	}
	return out, nil
}

func derivationsOf(tenant string, row map[string]bq.Value, asked map[subject.Source]bool) ([]subject.Derivation, error) {
	child, ok, err := sourceOf(tenant, row)
	if err != nil || !ok {
		return nil, err
	}
	text, _ := row["derived_from"].(string)
	parents, err := stores.ParseParents(tenant, text)
	if err != nil {
		return nil, &subject.Fault{Reason: subject.ReasonSourceInvalid, Cause: err}
	}
	var out []subject.Derivation
	for _, p := range parents {
		if asked[p] {
			out = append(out, subject.Derivation{Parent: p, Child: child})
		}
	}
	return out, nil
}

// CountSources answers how many rows bear each source.
func (t *Table) CountSources(ctx context.Context, sources []subject.Source) ([]int64, error) {
	s, err := t.current(ctx)
	if err != nil {
		return nil, t.refusal("the count", err)
	}
	counts := make([]int64, 0, len(sources))
	for chunk := range slices.Chunk(sources, pairsPerQuery) {
		counted, err := t.countPairs(ctx, s, chunk)
		if err != nil {
			return nil, err
		}
		counts = append(counts, counted...)
	}
	return counts, ctx.Err() //nolint:wrapcheck // a context's own error says it all
}

func (t *Table) countPairs(ctx context.Context, s shape, sources []subject.Source) ([]int64, error) {
	return t.positions(ctx, s.countPairs(sources[0].Tenant(), pairsOf(sources)), len(sources))
}

// DeleteSources removes the rows that bear any of the sources. As in Delete, a statement that is still running when half
// of the caller's time is over is *NotYet.
func (t *Table) DeleteSources(ctx context.Context, sources []subject.Source) (deleted int64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, &failure{"the delete", err}
	}
	s, err := t.current(ctx)
	if err != nil {
		return 0, t.refusal("the delete", err)
	}
	wait, cancel := halfOf(ctx)
	defer cancel()
	for chunk := range slices.Chunk(sources, pairsPerQuery) {
		st := s.deletePairs(chunk[0].Tenant(), pairsOf(chunk))
		keys := make([]string, len(chunk))
		for i, source := range chunk {
			keys[i] = source.Origin() + "\x00" + source.Reference()
		}
		n, err := t.c.exec(wait, st, t.jobID(st, chunk[0].Tenant(), keys))
		deleted += n
		if err != nil {
			return deleted, stillRunning(ctx, wait, judge(err).dml(err))
		}
	}
	return deleted, nil
}
