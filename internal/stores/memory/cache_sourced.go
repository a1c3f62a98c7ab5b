package memory

import (
	"context"

	"recount/internal/subject"
)

// NamesSources reports that every row names its source.
func (c *Cache) NamesSources() bool { return true }

// Sources answers the source of each subject's row.
func (c *Cache) Sources(ctx context.Context, subjects []subject.Subject) ([][]subject.Source, error) {
	if err := ctx.Err(); err != nil {
		return nil, err //nolint:wrapcheck // a context's own error says it all
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([][]subject.Source, len(subjects))
	for i, s := range subjects {
		entry, ok := c.latest.Peek(s)
		if !ok {
			continue
		}
		source, err := entry.record.asSource()
		if err != nil {
			return nil, err
		}
		out[i] = []subject.Source{source}
	}
	return out, nil
}

// DerivedFrom answers the rows that name one of the parents.
func (c *Cache) DerivedFrom(ctx context.Context, parents []subject.Source) ([]subject.Derivation, error) {
	if err := ctx.Err(); err != nil {
		return nil, err //nolint:wrapcheck // a context's own error says it all
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.derived.of(parents)
}

// CountSources answers 1 for each source of which a row is held.
func (c *Cache) CountSources(ctx context.Context, sources []subject.Source) ([]int64, error) {
	if err := ctx.Err(); err != nil {
		return nil, err //nolint:wrapcheck // a context's own error says it all
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := make([]int64, len(sources))
	for i, s := range sources {
		counts[i] = c.bears(s)
	}
	return counts, nil
}

// DeleteSources drops the rows that bear one of the sources.
func (c *Cache) DeleteSources(ctx context.Context, sources []subject.Source) (deleted int64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err //nolint:wrapcheck // a context's own error says it all
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range sources {
		deleted += c.bears(s)
		c.removeRecord(s)
	}
	return deleted, nil
}

// EraseTargets counts, drops and recounts every target, and what derives from it, under one lock.
func (c *Cache) EraseTargets(targets []subject.Target, derived [][]subject.Source) []subject.Measurement {
	c.mu.Lock()
	defer c.mu.Unlock()
	return eraseTargets(targets, derived, place{
		count: c.count, remove: func(s subject.Subject) { c.remove(s) }, bears: c.bears, removeRecord: c.removeRecord,
		owns: func(s subject.Source, who subject.Subject) bool { return c.records[recordOf(s)] == who },
	})
}

func (c *Cache) bears(s subject.Source) int64 {
	if _, ok := c.records[recordOf(s)]; ok {
		return 1
	}
	return 0
}

func (c *Cache) removeRecord(s subject.Source) {
	if whose, ok := c.records[recordOf(s)]; ok {
		c.remove(whose)
	}
}
