package firestore

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	fs "cloud.google.com/go/firestore"
	"github.com/google/uuid"
	"google.golang.org/api/iterator"
	"google.golang.org/grpc/codes"

	"recount/internal/stores"
	"recount/internal/subject"
)

const (
	documentsCollection = "recount_documents_"
	documentPageBytes   = 4 << 20 // a page ends early past this
)

// Documents is a collection of documents, one Firestore document each. Every question is a range over one field, so the
// indexes that Firestore makes by itself answer it.
type Documents struct {
	client *Client
	docs   *fs.CollectionRef
}

var _ stores.Documents = (*Documents)(nil)

// documentState is a document as it is stored. Its id is the document's.
type documentState struct {
	Tenant  string     `firestore:"tenant"`
	Open    bool       `firestore:"open"`
	Due     *time.Time `firestore:"due"` // nil for zero, which no range holds
	Wake    *time.Time `firestore:"wake"`
	Version int64      `firestore:"version"`
	Body    []byte     `firestore:"body"`
	Place   string     `firestore:"place"`    // in its tenant's list
	OpenDue *time.Time `firestore:"open_due"` // Due where it is open
	Change  string     `firestore:"change"`   // the call that wrote it: one whose answer was lost knows its own
}

// Documents opens a collection, whose name is of the form [a-z0-9_]{1,64}, and checks that its indexes are there. Errors:
// *subject.Fault.
func (c *Client) Documents(ctx context.Context, collection string) (*Documents, error) {
	if !stores.IsDocumentCollection(collection) {
		return nil, errors.New("firestore: the collection's name is not of the form [a-z0-9_]{1,64}")
	}
	d := &Documents{client: c, docs: c.docs.Collection(documentsCollection + collection)}
	now := time.Now()
	_, _, listErr := d.List(ctx, "", "", 1)
	_, awakeErr := d.Awake(ctx, now, 1)
	_, dueErr := d.CountDue(ctx, now)
	if err := errors.Join(listErr, awakeErr, dueErr); err != nil {
		return nil, fmt.Errorf("the documents of %s: %w", collection, err)
	}
	return d, nil
}

// undocumented is failed for a document. The contract's own errors stay what they are.
func undocumented(ctx context.Context, err error) error {
	if errors.Is(err, stores.ErrDocumentExists) || errors.Is(err, stores.ErrDocumentNotFound) || errors.Is(err, stores.ErrDocumentStale) {
		return err
	}
	return failed(ctx, err, subject.ReasonBackendBusy)
}

func stateOf(d stores.Document, version int64, change string) documentState {
	s := documentState{
		Tenant: d.Tenant, Open: d.Open, Due: keptTime(d.Due), Wake: keptTime(d.Wake), Version: version, Body: d.Body,
		Place: placeOf(d.Tenant, d.ID), Change: change,
	}
	if d.Open {
		s.OpenDue = s.Due
	}
	return s
}

func keptTime(at time.Time) *time.Time {
	if at = stores.DocumentTime(at); at.IsZero() {
		return nil
	}
	return &at
}

// placeOf sorts a tenant's documents by id, behind what no other tenant's place begins with.
func placeOf(tenant, id string) string { return hex.EncodeToString([]byte(tenant)) + "/" + id }

// document reads what is stored.
func document(doc *fs.DocumentSnapshot) (stores.Document, documentState, error) {
	var s documentState
	if err := doc.DataTo(&s); err != nil {
		return stores.Document{}, s, &subject.Fault{Reason: subject.ReasonUnsupported, Cause: err}
	}
	d := stores.Document{ID: doc.Ref.ID, Tenant: s.Tenant, Open: s.Open, Version: s.Version, Body: s.Body}
	if s.Due != nil {
		d.Due = s.Due.UTC()
	}
	if s.Wake != nil {
		d.Wake = s.Wake.UTC()
	}
	return d, s, nil
}

// Create keeps stores.Documents. Errors: stores.ErrDocumentExists, stores.ErrDocumentForm, *subject.Fault.
func (d *Documents) Create(ctx context.Context, doc stores.Document) error {
	if err := doc.Check(); err != nil {
		return err
	}
	state, sent := stateOf(doc, 1, uuid.NewString()), 0
	err := attempt(ctx, func() error {
		sent++
		_, err := d.docs.Doc(doc.ID).Create(ctx, state)
		if codeOf(err) != codes.AlreadyExists {
			return err
		}
		if sent > 1 { // an earlier answer was lost
			_, there, err := d.get(ctx, doc.ID)
			if err != nil && !errors.Is(err, stores.ErrDocumentNotFound) || there.Change == state.Change {
				return err
			}
		}
		return stores.ErrDocumentExists
	})
	return undocumented(ctx, err)
}

// get reads a document once. Errors: stores.ErrDocumentNotFound.
func (d *Documents) get(ctx context.Context, id string) (*fs.DocumentSnapshot, documentState, error) {
	doc, err := d.docs.Doc(id).Get(ctx)
	if codeOf(err) == codes.NotFound {
		return nil, documentState{}, stores.ErrDocumentNotFound
	}
	if err != nil {
		return nil, documentState{}, err
	}
	_, s, err := document(doc)
	return doc, s, err
}

// Get keeps stores.Documents. Errors: stores.ErrDocumentNotFound, *subject.Fault.
func (d *Documents) Get(ctx context.Context, id string) (found stores.Document, err error) {
	if !stores.IsDocumentID(id) {
		return found, stores.ErrDocumentNotFound
	}
	err = attempt(ctx, func() error {
		doc, _, err := d.get(ctx, id)
		if err == nil {
			found, _, err = document(doc)
		}
		return err
	})
	return found, undocumented(ctx, err)
}

// Update keeps stores.Documents. What was read MUST not have changed when it is written, which the server checks. Where an
// answer was lost and another changed the document before it was asked for again, it is stale, though the update took. Errors:
// stores.ErrDocumentStale, stores.ErrDocumentNotFound, stores.ErrDocumentForm, *subject.Fault.
func (d *Documents) Update(ctx context.Context, doc stores.Document) (stores.Document, error) {
	if !stores.IsDocumentID(doc.ID) {
		return stores.Document{}, stores.ErrDocumentNotFound
	}
	if err := doc.Check(); err != nil {
		return stores.Document{}, err
	}
	state := stateOf(doc, doc.Version+1, uuid.NewString())
	err := attempt(ctx, func() error {
		snapshot, there, err := d.get(ctx, doc.ID)
		switch {
		case err != nil:
			return err
		case there.Change == state.Change: // written by an earlier try, whose answer was lost
			return nil
		case there.Version != doc.Version:
			return stores.ErrDocumentStale
		}
		_, err = snapshot.Ref.Update(ctx, state.fields(), fs.LastUpdateTime(snapshot.UpdateTime))
		switch codeOf(err) {
		case codes.FailedPrecondition:
			return stores.ErrDocumentStale
		case codes.NotFound:
			return stores.ErrDocumentNotFound
		default:
			return err
		}
	})
	if err != nil {
		return stores.Document{}, undocumented(ctx, err)
	}
	doc.Due, doc.Wake, doc.Version = stores.DocumentTime(doc.Due), stores.DocumentTime(doc.Wake), state.Version
	return doc, nil
}

// fields are all of a stored document: only an update can name the time of the one that it replaces.
func (s documentState) fields() []fs.Update {
	return []fs.Update{
		{Path: "tenant", Value: s.Tenant},
		{Path: "open", Value: s.Open},
		{Path: "due", Value: s.Due},
		{Path: "wake", Value: s.Wake},
		{Path: "version", Value: s.Version},
		{Path: "body", Value: s.Body},
		{Path: "place", Value: s.Place},
		{Path: "open_due", Value: s.OpenDue},
		{Path: "change", Value: s.Change},
	}
}

// Delete keeps stores.Documents. Errors: *subject.Fault.
func (d *Documents) Delete(ctx context.Context, id string) error {
	if !stores.IsDocumentID(id) {
		return nil // it can't be there
	}
	err := attempt(ctx, func() error {
		_, err := d.docs.Doc(id).Delete(ctx)
		return err
	})
	return failed(ctx, err, subject.ReasonDeleteFailed)
}

// List keeps stores.Documents. A page ends early when its bodies are large. Errors: *subject.Fault.
func (d *Documents) List(ctx context.Context, tenant, cursor string, limit int) (page []stores.Document, next string, err error) {
	if cursor != "" && !stores.IsDocumentID(cursor) {
		return nil, "", errCursor
	}
	if limit <= 0 {
		return nil, "", nil
	}
	first := placeOf(tenant, "")
	below := first + "~" // greater than any id
	if cursor != "" {
		below = first + cursor
	}
	query := d.docs.Where("place", ">", first).Where("place", "<", below).OrderBy("place", fs.Desc).Limit(limit + 1)
	err = attempt(ctx, func() error {
		page, next, err = readPage(ctx, query, limit)
		return err
	})
	if err != nil {
		return nil, "", undocumented(ctx, err)
	}
	return page, next, nil
}

func readPage(ctx context.Context, query fs.Query, limit int) (page []stores.Document, next string, err error) {
	docs := query.Documents(ctx)
	defer docs.Stop()
	for size := 0; ; {
		snapshot, err := docs.Next()
		if errors.Is(err, iterator.Done) {
			return page, "", nil
		}
		if err != nil {
			return nil, "", err
		}
		if len(page) == limit || size > documentPageBytes {
			return page, page[len(page)-1].ID, nil
		}
		doc, _, err := document(snapshot)
		if err != nil {
			return nil, "", err
		}
		page, size = append(page, doc), size+len(doc.Body)
	}
}

// Awake keeps stores.Documents. Errors: *subject.Fault.
func (d *Documents) Awake(ctx context.Context, at time.Time, limit int) (ids []string, err error) {
	if limit <= 0 {
		return nil, nil
	}
	docs, err := d.client.all(ctx, d.docs.Where("wake", "<=", stores.DocumentTime(at)).OrderBy("wake", fs.Asc).Select().Limit(limit))
	for _, doc := range docs {
		ids = append(ids, doc.Ref.ID)
	}
	return ids, undocumented(ctx, err)
}

// CountDue keeps stores.Documents. Errors: *subject.Fault.
func (d *Documents) CountDue(ctx context.Context, before time.Time) (int64, error) {
	n, err := aggregate(ctx, d.docs.Where("open_due", "<", stores.DocumentBound(before)))
	return n, undocumented(ctx, err)
}
