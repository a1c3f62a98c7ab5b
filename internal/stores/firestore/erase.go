package firestore

import (
	"context"
	"errors"
	"slices"
	"sync"

	fs "cloud.google.com/go/firestore"
	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"golang.org/x/sync/errgroup"

	"recount/internal/subject"
)

// Count is the number of the subject's documents and of all documents below them. In a collection that is ours, which
// has none below, the server counts.
func (c *Collection) Count(ctx context.Context, s subject.Subject) (int64, error) {
	if !c.ours() {
		counts, err := c.Counts(ctx, []subject.Subject{s})
		if err != nil {
			return 0, err
		}
		return counts[0], nil
	}
	n, err := aggregate(ctx, c.query(s.Tenant(), []string{s.Identity()}))
	return n, failed(ctx, err, subject.ReasonCountFailed)
}

var errNoCount = errors.New("the server answered no count")

// aggregate lets the server count. An answer without a count is an error, never 0.
func aggregate(ctx context.Context, q fs.Query) (n int64, err error) {
	const alias = "n"
	err = attempt(ctx, func() error {
		result, err := q.NewAggregationQuery().WithCount(alias).Get(ctx)
		if err != nil {
			return err
		}
		value, ok := result[alias].(*pb.Value)
		if !ok {
			return errNoCount
		}
		count, ok := value.GetValueType().(*pb.Value_IntegerValue)
		if !ok {
			return errNoCount
		}
		n = count.IntegerValue
		return nil
	})
	return n, err
}

// Delete removes the subject's documents and everything below them.
func (c *Collection) Delete(ctx context.Context, s subject.Subject) (int64, error) {
	return c.DeleteAll(ctx, []subject.Subject{s})
}

// Counts is Count of many subjects, with as many in one query as Firestore takes.
func (c *Collection) Counts(ctx context.Context, subjects []subject.Subject) ([]int64, error) {
	totals := totals{of: map[subject.Subject]int64{}}
	err := c.eachQuery(subjects, func(tenant string, ids []string) error {
		return c.tally(ctx, tenant, ids, &totals)
	})
	if err != nil {
		return nil, failed(ctx, err, subject.ReasonCountFailed)
	}
	counts := make([]int64, len(subjects))
	for i, s := range subjects {
		counts[i] = totals.of[s]
	}
	return counts, nil
}

type totals struct {
	mu sync.Mutex
	of map[subject.Subject]int64
}

// tally adds what the identities' documents come to.
func (c *Collection) tally(ctx context.Context, tenant string, ids []string, totals *totals) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	var listing error
	for m, err := range c.matches(ctx, tenant, ids, "", false) {
		if err != nil {
			listing = err
			break
		}
		group.Go(func() error {
			n, err := c.weight(ctx, m)
			totals.mu.Lock()
			defer totals.mu.Unlock()
			for _, id := range c.identities(m) { // others than were asked for are another query's to count
				if s, invalid := subject.New(tenant, id); invalid == nil && slices.Contains(ids, id) {
					totals.of[s] += n
				}
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return listing
}

// weight is the number of documents that a match stands for.
func (c *Collection) weight(ctx context.Context, m match) (n int64, err error) {
	if !c.ours() {
		if n, err = c.client.countBelow(ctx, m.ref); err != nil {
			return 0, err
		}
	}
	if m.doc != nil {
		n++
	}
	return n, nil
}

// DeleteAll is Delete of many subjects. What can't be deleted does not stop the rest; the error is the worst that was
// met, a *subject.NotYet only when nothing else was.
func (c *Collection) DeleteAll(ctx context.Context, subjects []subject.Subject) (int64, error) {
	var sum outcome
	err := c.eachQuery(subjects, func(tenant string, ids []string) error {
		var page []match
		for m, err := range c.matches(ctx, tenant, ids, "", false) {
			if err != nil {
				sum.add(0, undeleted(ctx, err))
				break
			}
			if page = append(page, m); len(page) == namePage {
				c.erasePage(ctx, page, &sum)
				page = page[:0]
			}
		}
		c.erasePage(ctx, page, &sum)
		return ctx.Err()
	})
	sum.add(0, failed(ctx, err, subject.ReasonDeleteFailed))
	return sum.deleted, sum.err
}

// outcome is what several deletes came to.
type outcome struct {
	mu      sync.Mutex
	deleted int64
	err     error
}

func (o *outcome) add(n int64, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.deleted += n
	o.err = worse(o.err, err)
}

func (c *Collection) erasePage(ctx context.Context, page []match, sum *outcome) {
	if !c.ours() {
		c.eraseTrees(ctx, page, sum)
		return
	}
	refs := make([]*fs.DocumentRef, len(page))
	for i, m := range page {
		refs[i] = m.ref
	}
	sum.add(c.client.bulkDelete(ctx, refs))
}

// eraseTrees deletes what is below each document before the document: a crash in between leaves the keys by which the
// rest is found. Then it looks below once more, for what was written there in the meantime. From there on the keys are
// gone and a recount would see nothing, so what fails then is a failure for good, never *subject.NotYet.
func (c *Collection) eraseTrees(ctx context.Context, page []match, sum *outcome) {
	bare := make([]*fs.DocumentRef, len(page))
	each(page, func(i int, m match) {
		n, err := c.client.eraseBelow(ctx, m.ref)
		sum.add(n, undeleted(ctx, err))
		if err == nil && m.doc != nil {
			bare[i] = m.ref
		}
	})
	bare = slices.DeleteFunc(bare, func(ref *fs.DocumentRef) bool { return ref == nil })
	sum.add(c.client.bulkDelete(ctx, bare))
	each(bare, func(_ int, ref *fs.DocumentRef) {
		n, err := c.client.eraseBelow(ctx, ref)
		sum.add(n, forGood(ctx, err))
	})
}

// each works on a few items at once.
func each[T any](items []T, work func(i int, item T)) {
	var group errgroup.Group
	group.SetLimit(parallel)
	for i, item := range items {
		group.Go(func() error {
			work(i, item)
			return nil
		})
	}
	_ = group.Wait() // nobody answers an error
}

// eachQuery cuts subjects into what one query may name, and does a few of them at once.
func (c *Collection) eachQuery(subjects []subject.Subject, work func(tenant string, ids []string) error) error {
	ids, seen := map[string][]string{}, map[subject.Subject]bool{}
	for _, s := range subjects {
		if !seen[s] {
			seen[s] = true
			ids[s.Tenant()] = append(ids[s.Tenant()], s.Identity())
		}
	}
	var group errgroup.Group
	group.SetLimit(queries)
	for tenant, all := range ids {
		for chunk := range slices.Chunk(all, c.idsPerQuery()) {
			group.Go(func() error { return work(tenant, chunk) })
		}
	}
	return group.Wait()
}
