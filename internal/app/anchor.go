package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"recount/internal/ledger"
	"recount/internal/stores"
)

// anchorID is the one document of its collection.
const anchorID = "head"

// anchored keeps the ledger's latest signed head in the database of the requests: a ledger's folder that is put back to
// an earlier day, checkpoint and all, doesn't open.
type anchored struct{ documents stores.Documents }

type anchorBody struct {
	Size int64  `json:"size"`
	Root []byte `json:"root"`
}

// Last keeps ledger.Anchor.
func (a anchored) Last(ctx context.Context) (ledger.Head, error) {
	d, err := a.documents.Get(ctx, anchorID)
	if errors.Is(err, stores.ErrDocumentNotFound) {
		return ledger.Head{}, nil
	}
	if err != nil {
		return ledger.Head{}, err
	}
	var body anchorBody
	if err := json.Unmarshal(d.Body, &body); err != nil || len(body.Root) != tlog.HashSize {
		return ledger.Head{}, errors.New("it is none")
	}
	return ledger.Head{Size: body.Size, Root: tlog.Hash(body.Root)}, nil
}

// Keep keeps ledger.Anchor. A head that is not ahead of the one that is kept changes nothing.
func (a anchored) Keep(ctx context.Context, h ledger.Head) error {
	body, err := json.Marshal(anchorBody{Size: h.Size, Root: h.Root[:]})
	if err != nil {
		return fmt.Errorf("writing it: %w", err)
	}
	for {
		last, err := a.documents.Get(ctx, anchorID)
		switch {
		case errors.Is(err, stores.ErrDocumentNotFound):
			err = a.documents.Create(ctx, stores.Document{ID: anchorID, Tenant: "-", Version: 1, Body: body})
		case err == nil:
			var there anchorBody
			if json.Unmarshal(last.Body, &there) == nil && there.Size >= h.Size {
				return nil
			}
			last.Body = body
			_, err = a.documents.Update(ctx, last)
		}
		if !errors.Is(err, stores.ErrDocumentStale) && !errors.Is(err, stores.ErrDocumentExists) {
			return err
		}
	}
}
