package firestore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	fs "cloud.google.com/go/firestore"

	"recount/internal/stores"
	"recount/internal/subject"
)

// NameColumn as a table's one identity column says that the identity is the document id.
const NameColumn = fs.DocumentID

// kept is the longest that Firestore can bring a deleted document back: point-in-time recovery reaches back 7 days where
// it is on, versions 1 hour where it is off. Whether it is on is a setting of the database that may change between the
// delete and the question, so the answer is the upper bound, and needs no call. Backups and exports are the operator's.
const kept = 7 * 24 * time.Hour

// Collection is one collection as a store: its documents that bear a subject's keys, and everything below them. It
// implements subject.Store, Batch, Reader, Retainer, Described, Identified and Prober.
type Collection struct {
	client *Client
	table  stores.Table
	ref    *fs.CollectionRef
}

// Collection opens a collection and refuses what could not be counted truly: matching by case folding, names that are no
// field paths, and, in an owner's collection, a key field that holds anything but strings in any document.
func (c *Client) Collection(ctx context.Context, table stores.Table) (*Collection, error) {
	col := &Collection{client: c, table: table, ref: c.docs.Collection(table.Name)}
	if err := col.check(); err != nil {
		return nil, fmt.Errorf("store %s: %w", table.Store, err)
	}
	if table.Columns == nil {
		if err := col.checkTypes(ctx); err != nil {
			return nil, fmt.Errorf("store %s: %w", table.Store, err)
		}
	}
	return col, nil
}

// Name is the table's store.
func (c *Collection) Name() string { return c.table.Store }

// Backend is "firestore".
func (c *Collection) Backend() string { return "firestore" }

// About is the table's card.
func (c *Collection) About() subject.Card { return c.table.Card }

// IdentityFields are the fields that name people.
func (c *Collection) IdentityFields() []string { return slices.Clone(c.table.Identities) }

// RecoverableUntil is 7 days after the delete, the upper bound: see kept.
func (c *Collection) RecoverableUntil(_ context.Context, deleted time.Time) (time.Time, error) {
	return deleted.Add(kept), nil
}

// Ready reads at most one document's name.
func (c *Collection) Ready(ctx context.Context) error {
	err := attempt(ctx, func() error {
		_, err := c.ref.Select().Limit(1).Documents(ctx).GetAll()
		return err
	})
	return failed(ctx, err, subject.ReasonBackendBusy)
}

// named reports whether the identity is the document id.
func (c *Collection) named() bool { return c.table.Identities[0] == NameColumn }

// ours reports whether this program alone writes the collection: its documents never have anything below them.
func (c *Collection) ours() bool { return c.table.Columns != nil }

var (
	errCasefold = errors.New("case folding is beyond Firestore: store a case-folded copy of the identity in a field of " +
		"its own, name that field as the identity column, and match it exactly")
	errMixedName = errors.New("an identity column " + NameColumn + " must be the only one: declare a second store for the other fields")
)

func (c *Collection) check() error {
	t := c.table
	switch {
	case t.Match == stores.MatchCasefold:
		return errCasefold
	case t.Match != "" && t.Match != stores.MatchExact:
		return fmt.Errorf("unknown match %q", t.Match)
	case c.ref == nil:
		return fmt.Errorf("%q is not the path of a collection (an odd number of parts between slashes)", t.Name)
	case t.Tenant == "" || t.Tenant == NameColumn:
		return errors.New("a tenant field is required")
	case len(t.Identities) == 0:
		return errors.New("an identity field is required")
	case len(t.Identities) > 1 && slices.Contains(t.Identities, NameColumn):
		return errMixedName
	}
	for _, field := range c.fields() {
		if _, err := c.ref.Where(field, "==", "").Serialize(); err != nil {
			return fmt.Errorf("%q is not a field's name or dotted path", field)
		}
	}
	return nil
}

// fields are the key fields that documents are queried by.
func (c *Collection) fields() []string {
	if c.named() {
		return []string{c.table.Tenant}
	}
	return append([]string{c.table.Tenant}, c.table.Identities...)
}

// checkTypes looks at every document for a key that is no string: a query for a string would pass it over, and count 0.
// Null is no value. Only the ends of a field's index are read, so the cost does not grow with the collection.
func (c *Collection) checkTypes(ctx context.Context) error {
	fields := c.fields()
	if c.NamesSources() {
		fields = append(fields, c.table.Source, c.table.SourceRef)
	}
	for _, field := range fields {
		ordered := c.ref.Select().OrderBy(field, fs.Asc).Limit(1)
		for _, q := range []fs.Query{
			ordered.StartAfter(nil).EndBefore(""), // booleans, numbers, timestamps sort before strings
			ordered.StartAt([]byte{}),             // bytes, references, points, arrays, vectors, maps after them
		} {
			var found []*fs.DocumentSnapshot
			err := attempt(ctx, func() (err error) {
				found, err = q.Documents(ctx).GetAll()
				return err
			})
			if err != nil {
				return fmt.Errorf("field %s could not be checked (it needs its single-field index): %w", field,
					failed(ctx, err, subject.ReasonCountFailed))
			}
			if len(found) > 0 {
				return fmt.Errorf("field %s holds something else than a string in some document: a query for a string would "+
					"pass that document over and count 0; store the keys as strings", field)
			}
		}
	}
	return nil
}
