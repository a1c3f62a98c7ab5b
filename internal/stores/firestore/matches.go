package firestore

import (
	"context"
	"iter"
	"regexp"
	"slices"
	"strings"

	fs "cloud.google.com/go/firestore"
	"golang.org/x/sync/errgroup"

	"recount/internal/subject"
)

const (
	namePage     = 300 // documents per query when only keys are read
	documentPage = 50  // when whole documents are, of up to 1 MiB each
	parallel     = 16  // calls at once for the documents of one query
	queries      = 4   // queries at once for one operation
	disjunctions = 30  // equalities that one query may combine with "or"
	maxIDBytes   = 1500
)

// match is a document that bears a subject's keys, or a phantom: a document that is gone and has documents below it.
type match struct {
	ref *fs.DocumentRef
	doc *fs.DocumentSnapshot // nil for a phantom
}

// matches lists the documents of any of the identities in order of their names, each once, from a name on ("" is the
// start). Unless whole, only key fields are read.
func (c *Collection) matches(ctx context.Context, tenant string, ids []string, from string, whole bool) iter.Seq2[match, error] {
	if c.named() {
		return c.byName(ctx, tenant, ids, from)
	}
	return c.byFields(ctx, tenant, ids, from, whole)
}

// idsPerQuery is how many identities matches may be asked for at once.
func (c *Collection) idsPerQuery() int { return disjunctions / len(c.table.Identities) }

// query matches the documents of any of the identities in any of the identity fields.
func (c *Collection) query(tenant string, ids []string) fs.Query {
	named := fs.OrFilter{}
	for _, field := range c.table.Identities {
		for _, id := range ids {
			named.Filters = append(named.Filters, fs.PropertyFilter{Path: field, Operator: "==", Value: id})
		}
	}
	return c.ref.WhereEntity(fs.AndFilter{Filters: []fs.EntityFilter{
		fs.PropertyFilter{Path: c.table.Tenant, Operator: "==", Value: tenant}, named,
	}})
}

func (c *Collection) byFields(ctx context.Context, tenant string, ids []string, from string, whole bool) iter.Seq2[match, error] {
	q, size := c.query(tenant, ids).OrderBy(fs.DocumentID, fs.Asc), documentPage
	if !whole {
		q, size = q.Select(c.table.Identities...), namePage
	}
	return func(yield func(match, error) bool) {
		page := q.Limit(size)
		if from != "" {
			page = page.StartAt(from)
		}
		for {
			docs, err := c.client.all(ctx, page)
			if err != nil {
				yield(match{}, err)
				return
			}
			for _, doc := range docs {
				if !yield(match{ref: doc.Ref, doc: doc}, nil) {
					return
				}
			}
			if len(docs) < size {
				return
			}
			page = q.Limit(size).StartAfter(docs[len(docs)-1].Ref.ID)
		}
	}
}

// byName looks the identities up as document ids. An identity that can't be a document id names no document.
func (c *Collection) byName(ctx context.Context, tenant string, ids []string, from string) iter.Seq2[match, error] {
	var refs []*fs.DocumentRef
	for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) {
		if id >= from && isDocumentID(id) {
			refs = append(refs, c.ref.Doc(id))
		}
	}
	return func(yield func(match, error) bool) {
		for chunk := range slices.Chunk(refs, documentPage) {
			found, err := c.look(ctx, tenant, chunk)
			if err != nil {
				yield(match{}, err)
				return
			}
			for _, m := range found {
				if !yield(m, nil) {
					return
				}
			}
		}
	}
}

func (c *Collection) look(ctx context.Context, tenant string, refs []*fs.DocumentRef) ([]match, error) {
	docs, err := c.client.get(ctx, refs)
	if err != nil {
		return nil, err
	}
	belongs := make([]bool, len(refs))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i, doc := range docs {
		group.Go(func() (err error) {
			if doc.Exists() {
				belongs[i], err = c.ofTenant(doc, tenant)
			} else {
				belongs[i], err = c.phantomOf(ctx, refs[i], tenant)
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var found []match
	for i, doc := range docs {
		switch {
		case belongs[i] && doc.Exists():
			found = append(found, match{ref: refs[i], doc: doc})
		case belongs[i]:
			found = append(found, match{ref: refs[i]})
		}
	}
	return found, nil
}

// ofTenant reports whether the document bears the tenant. A document that bears the identity and no tenant at all can't
// be told to be somebody else's: that is an error, never a count of 0.
func (c *Collection) ofTenant(doc *fs.DocumentSnapshot, tenant string) (bool, error) {
	value, err := doc.DataAt(c.table.Tenant)
	text, ok := value.(string)
	if err != nil || !ok {
		return false, &subject.Fault{Reason: subject.ReasonUnsupported, Cause: err}
	}
	return text == tenant, nil
}

// phantomOf reports whether anything is left below a document that is gone, and is the tenant's. The tenant field went
// with the document, so the documents below must name the tenant, and one only: to guess would count too little, or erase
// another tenant's. Where they don't, write the parent with its tenant back, and erase again.
func (c *Collection) phantomOf(ctx context.Context, parent *fs.DocumentRef, tenant string) (bool, error) {
	tenants, found := map[string]bool{}, false
	for doc, err := range c.client.below(ctx, parent, "") {
		if err != nil {
			return false, err
		}
		found = true
		if value, err := doc.DataAt(c.table.Tenant); err == nil {
			if text, ok := value.(string); ok {
				tenants[text] = true
			}
		}
	}
	if found && len(tenants) != 1 {
		return false, &subject.Fault{Reason: subject.ReasonUnsupported}
	}
	return tenants[tenant], nil
}

// identities are those that the document was matched by.
func (c *Collection) identities(m match) []string {
	if c.named() {
		return []string{m.ref.ID}
	}
	var ids []string
	for _, field := range c.table.Identities {
		value, err := m.doc.DataAt(field)
		if id, ok := value.(string); err == nil && ok && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

var reservedID = regexp.MustCompile(`^__.*__$`)

// isDocumentID reports whether Firestore takes the text as a document id.
func isDocumentID(id string) bool {
	return id != "" && id != "." && id != ".." && len(id) <= maxIDBytes && !strings.Contains(id, "/") && !reservedID.MatchString(id)
}

// all reads every document of a query that has a limit.
func (c *Client) all(ctx context.Context, q fs.Query) (docs []*fs.DocumentSnapshot, err error) {
	err = attempt(ctx, func() error {
		docs, err = q.Documents(ctx).GetAll()
		return err
	})
	return docs, err
}

// get reads the documents, in order; those that are gone don't exist.
func (c *Client) get(ctx context.Context, refs []*fs.DocumentRef) (docs []*fs.DocumentSnapshot, err error) {
	err = attempt(ctx, func() error {
		docs, err = c.docs.GetAll(ctx, refs)
		return err
	})
	return docs, err
}
