package firestore

import (
	"context"
	"slices"
	"sync"

	fs "cloud.google.com/go/firestore"

	"recount/internal/subject"
)

// NamesSources reports whether the collection has source fields.
func (c *Collection) NamesSources() bool { return c.table.Source != "" }

// Sources reads the sources of the subjects' documents. What is left below a document that is gone has none.
func (c *Collection) Sources(ctx context.Context, subjects []subject.Subject) ([][]subject.Source, error) {
	var mu sync.Mutex
	found := map[subject.Subject]map[subject.Source]bool{}
	err := c.eachQuery(subjects, func(tenant string, ids []string) error {
		for m, err := range c.matches(ctx, tenant, ids, "", true) {
			if err != nil {
				return err
			}
			source, ok, err := c.sourceOf(tenant, m.doc)
			if err != nil {
				return err
			}
			mu.Lock()
			for _, id := range c.identities(m) {
				if s, invalid := subject.New(tenant, id); ok && invalid == nil && slices.Contains(ids, id) {
					if found[s] == nil {
						found[s] = map[subject.Source]bool{}
					}
					found[s][source] = true
				}
			}
			mu.Unlock()
		}
		return nil
	})
	if err != nil {
		return nil, failed(ctx, err, subject.ReasonReadFailed)
	}
	out := make([][]subject.Source, len(subjects))
	for i, s := range subjects {
		for source := range found[s] {
			out[i] = append(out[i], source)
		}
	}
	return out, nil
}

// sourceOf is the document's source: ok is false where it has none.
func (c *Collection) sourceOf(tenant string, doc *fs.DocumentSnapshot) (s subject.Source, ok bool, err error) {
	if doc == nil {
		return s, false, nil
	}
	var parts [2]string
	for i, field := range []string{c.table.Source, c.table.SourceRef} {
		value, err := doc.DataAt(field)
		if err != nil || value == nil {
			return s, false, nil //nolint:nilerr // the field is not there
		}
		if parts[i], ok = value.(string); !ok { // it came after the start, which refuses such a field
			return s, false, &subject.Fault{Reason: subject.ReasonSourceInvalid}
		}
	}
	if parts[0] == "" || parts[1] == "" {
		return s, false, nil
	}
	if s, err = subject.NewSource(tenant, parts[0], parts[1]); err != nil {
		return s, false, &subject.Fault{Reason: subject.ReasonSourceInvalid, Cause: err}
	}
	return s, true, nil
}

// DerivedFrom answers nothing: in an owner's collection, nothing is known to derive.
func (c *Collection) DerivedFrom(ctx context.Context, _ []subject.Source) ([]subject.Derivation, error) {
	return nil, ctx.Err() //nolint:wrapcheck // a context's own error says it all
}

// CountSources answers how many documents bear each source, with all that is below them.
func (c *Collection) CountSources(ctx context.Context, sources []subject.Source) ([]int64, error) {
	var mu sync.Mutex
	tallied := map[subject.Source]int64{}
	err := c.eachPair(ctx, sources, func(s subject.Source, doc *fs.DocumentSnapshot) error {
		n, err := c.weight(ctx, match{ref: doc.Ref, doc: doc})
		mu.Lock()
		defer mu.Unlock()
		tallied[s] += n
		return err
	})
	if err != nil {
		return nil, failed(ctx, err, subject.ReasonCountFailed)
	}
	counts := make([]int64, len(sources))
	for i, s := range sources {
		counts[i] = tallied[s]
	}
	return counts, nil
}

// DeleteSources removes the documents that bear one of the sources, and everything below them.
func (c *Collection) DeleteSources(ctx context.Context, sources []subject.Source) (int64, error) {
	var sum outcome
	var mu sync.Mutex
	var page []match
	err := c.eachPair(ctx, sources, func(_ subject.Source, doc *fs.DocumentSnapshot) error {
		mu.Lock()
		defer mu.Unlock()
		if page = append(page, match{ref: doc.Ref, doc: doc}); len(page) == namePage {
			c.erasePage(ctx, page, &sum)
			page = page[:0]
		}
		return nil
	})
	c.erasePage(ctx, page, &sum)
	sum.add(0, failed(ctx, err, subject.ReasonDeleteFailed))
	return sum.deleted, sum.err
}

// eachPair finds the documents of every source, with as many in one query as Firestore takes.
func (c *Collection) eachPair(ctx context.Context, sources []subject.Source, visit func(subject.Source, *fs.DocumentSnapshot) error) error {
	for chunk := range slices.Chunk(sources, disjunctions) {
		either := fs.OrFilter{}
		for _, s := range chunk {
			either.Filters = append(either.Filters, fs.AndFilter{Filters: []fs.EntityFilter{
				fs.PropertyFilter{Path: c.table.Tenant, Operator: "==", Value: s.Tenant()},
				fs.PropertyFilter{Path: c.table.Source, Operator: "==", Value: s.Origin()},
				fs.PropertyFilter{Path: c.table.SourceRef, Operator: "==", Value: s.Reference()},
			}})
		}
		q := c.ref.WhereEntity(either).Select(c.table.Source, c.table.SourceRef).OrderBy(fs.DocumentID, fs.Asc)
		for page := q.Limit(namePage); ; {
			docs, err := c.client.all(ctx, page)
			if err != nil {
				return err
			}
			for _, doc := range docs {
				s, ok, err := c.sourceOf(chunk[0].Tenant(), doc)
				if err != nil {
					return err
				}
				if ok {
					if err := visit(s, doc); err != nil {
						return err
					}
				}
			}
			if len(docs) < namePage {
				break
			}
			page = q.Limit(namePage).StartAfter(docs[len(docs)-1].Ref.ID)
		}
	}
	return ctx.Err() //nolint:wrapcheck // a context's own error says it all
}
