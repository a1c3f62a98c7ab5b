package firestore

import (
	"context"
	"errors"
	"io"
	"iter"
	"slices"
	"time"

	fs "cloud.google.com/go/firestore"
	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	treePage      = 200 // documents below one that are deleted together with it
	rollbackLimit = time.Second
)

// namesBelow lists up to limit names below a document, at any depth and after a name, inside a transaction where there
// is one. It finds them by their path, so a document between that is gone hides nothing.
func (c *Client) namesBelow(ctx context.Context, parent, after string, limit int, tx []byte) ([]string, error) {
	name := &pb.StructuredQuery_FieldReference{FieldPath: fs.DocumentID}
	query := &pb.StructuredQuery{
		Select:  &pb.StructuredQuery_Projection{Fields: []*pb.StructuredQuery_FieldReference{name}},
		From:    []*pb.StructuredQuery_CollectionSelector{{AllDescendants: true}},
		OrderBy: []*pb.StructuredQuery_Order{{Field: name, Direction: pb.StructuredQuery_ASCENDING}},
		Limit:   wrapperspb.Int32(int32(limit)), //nolint:gosec // a small constant of ours
	}
	if after != "" {
		query.StartAt = &pb.Cursor{Values: []*pb.Value{{ValueType: &pb.Value_ReferenceValue{ReferenceValue: after}}}}
	}
	req := &pb.RunQueryRequest{Parent: parent, QueryType: &pb.RunQueryRequest_StructuredQuery{StructuredQuery: query}}
	if tx != nil {
		req.ConsistencySelector = &pb.RunQueryRequest_Transaction{Transaction: tx}
	}
	ctx, cancel := context.WithCancel(ctx) // ends the stream
	defer cancel()
	stream, err := c.tree.RunQuery(ctx, req)
	if err != nil {
		return nil, err //nolint:wrapcheck // classified by its status
	}
	var names []string
	for {
		resp, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return names, nil
		case err != nil:
			return nil, err //nolint:wrapcheck // classified by its status
		case resp.GetDocument() != nil:
			names = append(names, resp.GetDocument().GetName())
		}
	}
}

// countBelow counts the documents below one, at any depth.
func (c *Client) countBelow(ctx context.Context, parent *fs.DocumentRef) (n int64, err error) {
	for after := ""; ; {
		var names []string
		err := attempt(ctx, func() (err error) {
			names, err = c.namesBelow(ctx, parent.Path, after, namePage, nil)
			return err
		})
		if err != nil {
			return 0, err
		}
		n += int64(len(names))
		if len(names) < namePage {
			return n, nil
		}
		after = names[len(names)-1]
	}
}

// below reads the documents below one, at any depth, in order of their names, after one of them ("" is the start).
func (c *Client) below(ctx context.Context, parent *fs.DocumentRef, after string) iter.Seq2[*fs.DocumentSnapshot, error] {
	return func(yield func(*fs.DocumentSnapshot, error) bool) {
		for {
			var names []string
			err := attempt(ctx, func() (err error) {
				names, err = c.namesBelow(ctx, parent.Path, after, documentPage, nil)
				return err
			})
			if err != nil {
				yield(nil, err)
				return
			}
			docs, err := c.get(ctx, c.refs(names))
			if err != nil {
				yield(nil, err)
				return
			}
			for _, doc := range docs {
				if doc.Exists() && !yield(doc, nil) {
					return
				}
			}
			if len(names) < documentPage {
				return
			}
			after = names[len(names)-1]
		}
	}
}

// eraseTree deletes a document and everything below it. The document goes in one transaction with the last of what is
// below it: neither a crash nor a write in between can leave something under a parent that is gone. The number is that
// of the documents that were there.
func (c *Client) eraseTree(ctx context.Context, top match) (deleted int64, err error) {
	for page := treePage; ; {
		var names []string
		var done bool
		err := attempt(ctx, func() (err error) {
			names, done, err = c.eraseWhole(ctx, top.ref.Path, page)
			return err
		})
		switch {
		case err != nil && isRefused(err) && len(names) > 0:
			page = len(names) / 2 // too much for one transaction
			continue
		case err != nil:
			return deleted, err
		case done && top.doc != nil:
			return deleted + int64(len(names)) + 1, nil
		case done:
			return deleted + int64(len(names)), nil
		}
		// In any order: what is below is found by its path, so nothing hides under what this pass deletes.
		n, err := c.bulkDelete(ctx, c.refs(names))
		deleted += n
		if err != nil {
			return deleted, err
		}
	}
}

// eraseWhole deletes a document and all below it in one transaction, unless more than page documents are below: it then
// answers the first of them, and deletes nothing.
func (c *Client) eraseWhole(ctx context.Context, path string, page int) (names []string, done bool, err error) {
	begun, err := c.tree.BeginTransaction(ctx, &pb.BeginTransactionRequest{Database: c.root})
	if err != nil {
		return nil, false, err //nolint:wrapcheck // classified by its status
	}
	tx := begun.GetTransaction()
	defer func() {
		if !done {
			c.rollback(ctx, tx)
		}
	}()
	names, err = c.namesBelow(ctx, path, "", page+1, tx)
	if err != nil || len(names) > page {
		return names, false, err
	}
	commit := &pb.CommitRequest{Database: c.root, Transaction: tx}
	for _, name := range append(slices.Clone(names), path) {
		commit.Writes = append(commit.Writes, &pb.Write{Operation: &pb.Write_Delete{Delete: name}})
	}
	if _, err := c.tree.Commit(ctx, commit); err != nil {
		return names, false, err //nolint:wrapcheck // classified by its status
	}
	return names, true, nil
}

// rollback gives back the locks of a transaction. Those that it can't give back end by themselves.
func (c *Client) rollback(ctx context.Context, tx []byte) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackLimit)
	defer cancel()
	_ = c.tree.Rollback(ctx, &pb.RollbackRequest{Database: c.root, Transaction: tx})
}

func (c *Client) refs(names []string) []*fs.DocumentRef {
	refs := make([]*fs.DocumentRef, len(names))
	for i, name := range names {
		refs[i] = c.docs.Doc(c.relative(name))
	}
	return refs
}
