package stores

import (
	"context"
	"errors"
	"time"
)

// Errors of Documents. None carries anything of a document.
var (
	ErrDocumentExists   = errors.New("there is a document of that id already")
	ErrDocumentNotFound = errors.New("there is no document of that id")
	ErrDocumentStale    = errors.New("the document has changed since it was read")
)

// Document is a state that outlives a process: of an erasure request, or a key that is wrapped. Its body is opaque to the
// adapter, and holds nothing personal in plaintext.
type Document struct {
	ID      string // [a-z0-9-]{1,64}, unique in its collection; those of one tenant are listed by it, the greatest first
	Tenant  string
	Open    bool      // work may still be due
	Due     time.Time // UTC, microseconds; zero for none
	Wake    time.Time // when somebody has to look at it again; zero for never
	Version int64     // counts its changes from 1
	Body    []byte    // at most 900 KiB
}

// Documents is one collection of documents. One conformance suite, storetest.Documents, is run by every adapter. It MUST be
// safe for concurrent use by several processes, and durable when it answers. No call may get slower with the number of
// documents that it does not answer.
type Documents interface {
	// Create adds a document, as version 1. Errors: ErrDocumentExists.
	Create(ctx context.Context, d Document) error
	// Get answers a document. Errors: ErrDocumentNotFound.
	Get(ctx context.Context, id string) (Document, error)
	// Update replaces the document that has d's version, and answers it with the next one. Of all that try it with one
	// version, one succeeds. Errors: ErrDocumentStale, ErrDocumentNotFound.
	Update(ctx context.Context, d Document) (Document, error)
	// Delete removes a document for good: where the adapter owns the files, its bytes are gone from them. Deleting what is
	// not there is no error.
	Delete(ctx context.Context, id string) error
	// List answers at most limit documents of a tenant behind the cursor ("" is the start), the greatest id first, and the
	// cursor of what follows ("" at the end).
	List(ctx context.Context, tenant, cursor string, limit int) (page []Document, next string, err error)
	// Awake answers the ids of at most limit documents whose Wake is not after at, the earliest first.
	Awake(ctx context.Context, at time.Time, limit int) (ids []string, err error)
	// CountDue is how many open documents are due before that time.
	CountDue(ctx context.Context, before time.Time) (int64, error)
}
