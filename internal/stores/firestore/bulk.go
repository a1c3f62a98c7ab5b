package firestore

import (
	"context"

	fs "cloud.google.com/go/firestore"

	"recount/internal/subject"
)

// bulkSize is how many deletes the SDK's BulkWriter sends at once.
const bulkSize = 20

// bulkDelete deletes documents, in no order, and reads the answer for every one: the page may half fail. A request that
// is refused is sent again in halves; what fails in passing is repeated; what fails for good does not stop the rest. The
// number is that of the deletes that were acknowledged.
func (c *Client) bulkDelete(ctx context.Context, refs []*fs.DocumentRef) (deleted int64, err error) {
	for size, n := bulkSize, 1; len(refs) > 0; {
		var again []*fs.DocumentRef
		var refused, busy error
		for i, failure := range c.bulkPass(ctx, refs, size) {
			switch {
			case failure == nil:
				deleted++
				continue
			case isRefused(failure) && size > 1:
				refused = failure
			case isPassing(failure) && n < attempts && ctx.Err() == nil:
				busy = failure
			default:
				err = worse(err, undeleted(ctx, failure))
				continue
			}
			again = append(again, refs[i])
		}
		if refused != nil {
			size /= 2
		}
		if busy != nil && !pause(ctx, n) {
			return deleted, worse(err, failed(ctx, busy, subject.ReasonDeleteFailed))
		}
		if busy != nil {
			n++
		}
		refs = again
	}
	return deleted, err
}

// bulkPass tries each delete once, with at most size in one request, and answers for each.
func (c *Client) bulkPass(ctx context.Context, refs []*fs.DocumentRef, size int) []error {
	results := make([]error, len(refs))
	jobs := make([]*fs.BulkWriterJob, len(refs))
	writer := c.docs.BulkWriter(ctx)
	for i, ref := range refs {
		jobs[i], results[i] = writer.Delete(ref)
		if size < bulkSize && (i+1)%size == 0 {
			writer.Flush()
		}
	}
	writer.End()
	for i, job := range jobs {
		if results[i] == nil {
			_, results[i] = job.Results()
		}
	}
	return results
}
