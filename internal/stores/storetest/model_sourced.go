package storetest

import (
	"context"
	"slices"

	"recount/internal/stores"
	"recount/internal/subject"
)

// NamesSources reports whether the table has source columns.
func (m *Model) NamesSources() bool { return m.table.Source != "" }

// Sources lists the sources of each subject's rows.
func (m *Model) Sources(ctx context.Context, subjects []subject.Subject) ([][]subject.Source, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([][]subject.Source, len(subjects))
	for i, s := range subjects {
		for _, row := range m.rows {
			if r, err := m.record(row); err != nil {
				return nil, err
			} else if m.matches(row, s) && !slices.Contains(out[i], r.Source) {
				out[i] = append(out[i], r.Source)
			}
		}
	}
	return out, ctx.Err() //nolint:wrapcheck // a context's own error says it all
}

// DerivedFrom looks at every row's parents.
func (m *Model) DerivedFrom(ctx context.Context, parents []subject.Source) ([]subject.Derivation, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []subject.Derivation
	for _, row := range m.rows {
		r, err := m.record(row)
		if err != nil {
			return nil, err
		}
		for _, p := range r.Parents {
			if slices.Contains(parents, p) {
				out = append(out, subject.Derivation{Parent: p, Child: r.Source})
			}
		}
	}
	return out, ctx.Err() //nolint:wrapcheck // a context's own error says it all
}

// CountSources counts the rows that bear each source.
func (m *Model) CountSources(ctx context.Context, sources []subject.Source) ([]int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	counts := make([]int64, len(sources))
	for _, row := range m.rows {
		r, err := m.record(row)
		if err != nil {
			return nil, err
		}
		if i := slices.Index(sources, r.Source); i >= 0 {
			counts[i]++
		}
	}
	return counts, ctx.Err() //nolint:wrapcheck // a context's own error says it all
}

// DeleteSources removes the rows that bear any of the sources.
func (m *Model) DeleteSources(ctx context.Context, sources []subject.Source) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err //nolint:wrapcheck // a context's own error says it all
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	had := len(m.rows)
	m.rows = slices.DeleteFunc(m.rows, func(row stores.Row) bool {
		r, err := m.record(row)
		return err == nil && slices.Contains(sources, r.Source)
	})
	return int64(had - len(m.rows)), nil
}

func (m *Model) record(row stores.Row) (subject.Record, error) { return m.table.Records()(row) }
