package firestore

import (
	"context"
	"errors"
	"io"
	"iter"

	fs "cloud.google.com/go/firestore"
	pb "cloud.google.com/go/firestore/apiv1/firestorepb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// namesBelow lists up to limit names below a document, at any depth and after a name. It finds them by their path, so a
// document between that is gone hides nothing.
func (c *Client) namesBelow(ctx context.Context, parent, after string, limit int) ([]string, error) {
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
	ctx, cancel := context.WithCancel(ctx) // ends the stream
	defer cancel()
	stream, err := c.tree.RunQuery(ctx, req)
	if err != nil {
		return nil, err
	}
	var names []string
	for {
		resp, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return names, nil
		case err != nil:
			return nil, err
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
			names, err = c.namesBelow(ctx, parent.Path, after, namePage)
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
				names, err = c.namesBelow(ctx, parent.Path, after, documentPage)
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

// eraseBelow deletes everything below a document, in any order (what is below is found by its path, so nothing can hide
// under what is gone), and answers no error only after a listing that was empty.
func (c *Client) eraseBelow(ctx context.Context, parent *fs.DocumentRef) (deleted int64, err error) {
	for {
		var names []string
		err := attempt(ctx, func() (err error) {
			names, err = c.namesBelow(ctx, parent.Path, "", namePage)
			return err
		})
		if err != nil || len(names) == 0 {
			return deleted, err
		}
		n, err := c.bulkDelete(ctx, c.refs(names))
		deleted += n
		if err != nil {
			return deleted, err
		}
	}
}

func (c *Client) refs(names []string) []*fs.DocumentRef {
	refs := make([]*fs.DocumentRef, len(names))
	for i, name := range names {
		refs[i] = c.docs.Doc(c.relative(name))
	}
	return refs
}
