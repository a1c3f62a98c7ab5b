package firestore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"

	fs "cloud.google.com/go/firestore"

	"recount/internal/stores"
	"recount/internal/subject"
)

// parentsField lists, in a document of a journal, a hash of each thing that the row was derived from: what a query can
// look for. The hash adds nothing to what the row says itself, and goes with it.
const parentsField = "parent_keys"

// documentID is the id of a record's document, and how a parent is looked for.
func documentID(s subject.Source) string {
	sum := sha256.Sum256(prefixed(s.Tenant(), s.Origin(), s.Reference()))
	return hex.EncodeToString(sum[:])
}

func parentKeys(parents []subject.Source) []string {
	keys := make([]string, len(parents))
	for i, p := range parents {
		keys[i] = documentID(p)
	}
	return keys
}

// DerivedFrom queries the rows that name any of the parents.
func (j *Journal) DerivedFrom(ctx context.Context, parents []subject.Source) ([]subject.Derivation, error) {
	var out []subject.Derivation
	for chunk := range slices.Chunk(parents, disjunctions) {
		asked := map[subject.Source]bool{}
		for _, p := range chunk {
			asked[p] = true
		}
		q := j.Collection.ref.Where(parentsField, "array-contains-any", parentKeys(chunk)).OrderBy(fs.DocumentID, fs.Asc)
		for page := q.Limit(namePage); ; {
			docs, err := j.client.all(ctx, page)
			if err != nil {
				return nil, failed(ctx, err, subject.ReasonReadFailed)
			}
			for _, doc := range docs {
				derivations, err := j.derivations(doc, asked)
				if err != nil {
					return nil, err
				}
				out = append(out, derivations...)
			}
			if len(docs) < namePage {
				break
			}
			page = q.Limit(namePage).StartAfter(docs[len(docs)-1].Ref.ID)
		}
	}
	return out, nil
}

func (j *Journal) derivations(doc *fs.DocumentSnapshot, asked map[subject.Source]bool) ([]subject.Derivation, error) {
	row, err := j.row(doc)
	if err != nil {
		return nil, err
	}
	record, err := j.record(row)
	if err != nil {
		return nil, &subject.Fault{Reason: subject.ReasonSourceInvalid, Cause: err}
	}
	var out []subject.Derivation
	for _, p := range record.Parents {
		if asked[p] {
			out = append(out, subject.Derivation{Parent: p, Child: record.Source})
		}
	}
	return out, nil
}

// CountSources looks the records up by their ids.
func (j *Journal) CountSources(ctx context.Context, sources []subject.Source) ([]int64, error) {
	counts := make([]int64, 0, len(sources))
	for chunk := range slices.Chunk(sources, namePage) {
		docs, err := j.client.get(ctx, j.documents(chunk))
		if err != nil {
			return nil, failed(ctx, err, subject.ReasonCountFailed)
		}
		for _, doc := range docs {
			n := int64(0)
			if doc.Exists() {
				n = 1
			}
			counts = append(counts, n)
		}
	}
	return counts, ctx.Err() //nolint:wrapcheck // a context's own error says it all
}

// DeleteSources deletes the records by their ids.
func (j *Journal) DeleteSources(ctx context.Context, sources []subject.Source) (deleted int64, err error) {
	for chunk := range slices.Chunk(sources, namePage) {
		n, failure := j.client.bulkDelete(ctx, j.documents(chunk))
		deleted, err = deleted+n, worse(err, failure)
	}
	return deleted, err
}

func (j *Journal) documents(sources []subject.Source) []*fs.DocumentRef {
	refs := make([]*fs.DocumentRef, len(sources))
	for i, s := range sources {
		refs[i] = j.Collection.ref.Doc(documentID(s))
	}
	return refs
}

// migrations is where a journal is noted whose documents all have what this version looks for.
const migrations = "recount_migrations"

// listParents adds parentsField to the documents that an earlier version wrote, once. It may be broken off and done again.
func (j *Journal) listParents(ctx context.Context) error {
	done := j.client.docs.Collection(migrations).Doc(documentIDOf(j.table.Name))
	docs, err := j.client.get(ctx, []*fs.DocumentRef{done})
	if err != nil {
		return failed(ctx, err, subject.ReasonReadFailed)
	}
	if docs[0].Exists() {
		return nil
	}
	err = j.Scan(ctx, func(row stores.Row) error {
		record, err := j.record(row)
		if err != nil || len(record.Parents) == 0 {
			return err
		}
		ref := j.Collection.ref.Doc(documentID(record.Source))
		return attempt(ctx, func() error {
			_, err := ref.Update(ctx, []fs.Update{{Path: parentsField, Value: parentKeys(record.Parents)}})
			return err
		})
	})
	if err != nil {
		return failed(ctx, err, subject.ReasonReadFailed)
	}
	err = attempt(ctx, func() error {
		_, err := done.Set(ctx, map[string]any{"parents": true})
		return err
	})
	return failed(ctx, err, subject.ReasonBackendBusy)
}

func documentIDOf(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:])
}

var errMoved = errors.New("the suppression ledger moved on")
