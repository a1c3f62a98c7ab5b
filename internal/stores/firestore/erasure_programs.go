package firestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	iofs "io/fs"
	"slices"

	fs "cloud.google.com/go/firestore"
	"google.golang.org/grpc/codes"

	"recount/internal/ledger"
)

const (
	erasureProgramsCollection = "recount_erasure_programs"
	programPart               = 512 << 10 // a document holds at most 1 MiB
	partsAtOnce               = 8
	maxEntryID                = 256
)

// ErasurePrograms keeps programs in documents: their parts, under names that a body alone has, and last a head that makes
// them whole.
type ErasurePrograms struct{ client *Client }

var _ ledger.Programs = (*ErasurePrograms)(nil)

// ErasurePrograms are the programs of the ledger of erasures. It makes no call.
func (c *Client) ErasurePrograms() *ErasurePrograms { return &ErasurePrograms{client: c} }

// programHead is the document of a program.
type programHead struct {
	Hash string `firestore:"hash"`
	Size int64  `firestore:"size"`
}

// programPiece is the document of a part.
type programPiece struct {
	Body []byte `firestore:"body"`
}

// head is the document of an entry's program. Errors: *ledger.RecordError.
func (p *ErasurePrograms) head(entryID string) (*fs.DocumentRef, error) {
	if !isDocumentID(entryID) || len(entryID) > maxEntryID {
		return nil, &ledger.RecordError{Field: "entry_id", Problem: "is none that a program can have"}
	}
	return p.client.docs.Collection(erasureProgramsCollection).Doc(entryID), nil
}

func (h programHead) parts(ref *fs.DocumentRef) (refs []*fs.DocumentRef) {
	for at := int64(0); at < h.Size; at += programPart {
		refs = append(refs, ref.Collection("parts").Doc(fmt.Sprintf("%s-%06d", h.Hash, at/programPart)))
	}
	return refs
}

// readHead reads a head. Errors: ledger.ErrNoEntry, ledger.ErrTampered.
func readHead(ctx context.Context, ref *fs.DocumentRef) (head programHead, err error) {
	err = attempt(ctx, func() error {
		doc, err := ref.Get(ctx)
		switch {
		case codeOf(err) == codes.NotFound:
			return ledger.ErrNoEntry
		case err != nil:
			return err
		case doc.DataTo(&head) != nil || head.Size < 0:
			return ledger.ErrTampered
		}
		return nil
	})
	return head, err
}

// Write keeps ledger.Programs. Errors: *ledger.RecordError; fs.ErrExist, wrapped; *subject.Fault.
func (p *ErasurePrograms) Write(ctx context.Context, entryID string, body []byte) error {
	ref, err := p.head(entryID)
	if err != nil {
		return err
	}
	head := programHead{Hash: ledger.Hash(body), Size: int64(len(body))}
	known, err := taken(ctx, ref, head)
	if known || err != nil {
		return err
	}
	parts := slices.Collect(slices.Chunk(body, programPart))
	for i, part := range head.parts(ref) {
		if err := attempt(ctx, func() error {
			_, err := part.Set(ctx, programPiece{Body: parts[i]})
			return err
		}); err != nil {
			return unrecorded(ctx, err)
		}
	}
	err = attempt(ctx, func() error {
		_, err := ref.Create(ctx, head)
		return err
	})
	if codeOf(err) == codes.AlreadyExists { // another process, or this one and the answer was lost
		_, err := taken(ctx, ref, head)
		return err
	}
	return unrecorded(ctx, err)
}

// taken reports whether the program is there already. Errors: fs.ErrExist, wrapped, when it is another.
func taken(ctx context.Context, ref *fs.DocumentRef, head programHead) (bool, error) {
	switch there, err := readHead(ctx, ref); {
	case err == nil && there == head:
		return true, nil
	case err == nil:
		return true, fmt.Errorf("there is another program for the entry: %w", iofs.ErrExist)
	case errors.Is(err, ledger.ErrNoEntry):
		return false, nil
	default:
		return false, unrecorded(ctx, err)
	}
}

// Read keeps ledger.Programs. Errors: ledger.ErrNoEntry; ledger.ErrTampered when it is not what was written; *subject.Fault.
func (p *ErasurePrograms) Read(ctx context.Context, entryID string) ([]byte, error) {
	ref, err := p.head(entryID)
	if err != nil {
		return nil, err
	}
	head, err := readHead(ctx, ref)
	if err != nil {
		return nil, unrecorded(ctx, err)
	}
	var body bytes.Buffer
	for refs := range slices.Chunk(head.parts(ref), partsAtOnce) {
		docs, err := p.client.get(ctx, refs)
		if err != nil {
			return nil, unrecorded(ctx, err)
		}
		for _, doc := range docs {
			var piece programPiece
			if !doc.Exists() || doc.DataTo(&piece) != nil {
				return nil, ledger.ErrTampered
			}
			body.Write(piece.Body)
		}
	}
	if ledger.Hash(body.Bytes()) != head.Hash {
		return nil, ledger.ErrTampered
	}
	return body.Bytes(), nil
}
