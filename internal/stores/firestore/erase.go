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
			return err //nolint:wrapcheck // classified by its status
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
	totals := map[subject.Subject]int64{}
	err := c.eachQuery(subjects, func(tenant string, ids []string) error {
		return c.tally(ctx, tenant, ids, totals)
	})
	if err != nil {
		return nil, failed(ctx, err, subject.ReasonCountFailed)
	}
	counts := make([]int64, len(subjects))
	for i, s := range subjects {
		counts[i] = totals[s]
	}
	return counts, nil
}

// tally adds what the identities' documents come to.
func (c *Collection) tally(ctx context.Context, tenant string, ids []string, totals map[subject.Subject]int64) error {
	var mu sync.Mutex
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
			mu.Lock()
			defer mu.Unlock()
			for _, id := range c.identities(m) {
				if s, invalid := subject.New(tenant, id); invalid == nil {
					totals[s] += n
				}
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err //nolint:wrapcheck // our own
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
func (c *Collection) DeleteAll(ctx context.Context, subjects []subject.Subject) (deleted int64, err error) {
	listing := c.eachQuery(subjects, func(tenant string, ids []string) error {
		var page []match
		flush := func() {
			n, failure := c.erasePage(ctx, page)
			deleted += n
			err = worse(err, undeleted(ctx, failure))
			page = page[:0]
		}
		for m, failure := range c.matches(ctx, tenant, ids, "", false) {
			if failure != nil {
				err = worse(err, undeleted(ctx, failure))
				break
			}
			if page = append(page, m); len(page) == namePage {
				flush()
			}
		}
		flush()
		return ctx.Err()
	})
	return deleted, worse(err, failed(ctx, listing, subject.ReasonDeleteFailed))
}

func (c *Collection) erasePage(ctx context.Context, page []match) (deleted int64, err error) {
	if c.ours() {
		refs := make([]*fs.DocumentRef, len(page))
		for i, m := range page {
			refs[i] = m.ref
		}
		return c.client.bulkDelete(ctx, refs)
	}
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(parallel)
	for _, m := range page {
		group.Go(func() error {
			n, failure := c.client.eraseTree(ctx, m)
			mu.Lock()
			defer mu.Unlock()
			deleted += n
			err = worse(err, undeleted(ctx, failure))
			return nil // the others go on
		})
	}
	_ = group.Wait()
	return deleted, err
}

// eachQuery cuts subjects into what one query may name.
func (c *Collection) eachQuery(subjects []subject.Subject, work func(tenant string, ids []string) error) error {
	var tenants []string
	ids, seen := map[string][]string{}, map[subject.Subject]bool{}
	for _, s := range subjects {
		if seen[s] {
			continue
		}
		seen[s] = true
		if ids[s.Tenant()] == nil {
			tenants = append(tenants, s.Tenant())
		}
		ids[s.Tenant()] = append(ids[s.Tenant()], s.Identity())
	}
	for _, tenant := range tenants {
		for chunk := range slices.Chunk(ids[tenant], c.idsPerQuery()) {
			if err := work(tenant, chunk); err != nil {
				return err
			}
		}
	}
	return nil
}
