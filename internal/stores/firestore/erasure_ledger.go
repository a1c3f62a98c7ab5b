package firestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync"

	fs "cloud.google.com/go/firestore"
	"golang.org/x/mod/sumdb/tlog"

	"recount/internal/ledger"
	"recount/internal/subject"
)

const (
	erasureLedgerCollection     = "recount_erasure_ledger"
	erasureCheckpointCollection = "recount_erasure_ledger_checkpoint"
	erasuresAtATime             = 100 // entries in one transaction, and of a scan that are held at once
)

// ErasureLedger is the append-only record of what erasure requests did, shared by all processes of a deployment: one
// document per entry, one that holds the edge of the tree, and in a collection of its own the signed checkpoint. A
// transaction that appends moves all three on, after it has seen that the edge is the one that was signed.
type ErasureLedger struct {
	client  *Client
	keys    *ledger.Keys
	head    *fs.DocumentRef
	signed  *fs.DocumentRef
	appends *group[*erasureAppend]

	mu    sync.Mutex
	known ledger.Head // the longest tree that was seen: nothing shorter is believed
}

var _ ledger.Log = (*ErasureLedger)(nil)

// erasureHead is the document of the edge.
type erasureHead struct {
	Size  int64  `firestore:"size"`
	Roots []byte `firestore:"roots"` // one behind the other
}

// erasureCheckpoint is the document of the signed checkpoint.
type erasureCheckpoint struct {
	Note []byte `firestore:"note"`
}

// erasureEntry is the document of an entry. Its id is the entry's index.
type erasureEntry struct {
	EntryID string `firestore:"entry_id"`
	Line    []byte `firestore:"line"`
	Hashes  []byte `firestore:"hashes"` // what Edge.Add answered, one behind the other
	Batch   string `firestore:"batch"`  // the transaction that wrote it: one whose answer was lost knows its own
}

// erasureState is the ledger as one read shows it.
type erasureState struct {
	edge   ledger.Edge
	signed ledger.Head
	fresh  bool // neither document is there
}

// ErasureLedger opens the ledger of erasures, which is made when missing, and verifies its tree against its checkpoint by
// the hashes that both are made of. Errors: ledger.ErrTruncated, ledger.ErrTampered, ledger.ErrNoCheckpoint, wrapped;
// *subject.Fault.
func (c *Client) ErasureLedger(ctx context.Context, keys *ledger.Keys) (*ErasureLedger, error) {
	l := &ErasureLedger{
		client: c, keys: keys, head: c.docs.Collection(erasureLedgerCollection).Doc("head"),
		signed: c.docs.Collection(erasureCheckpointCollection).Doc("latest"),
	}
	l.appends = &group[*erasureAppend]{limit: erasuresAtATime, size: func(*erasureAppend) int { return 1 }, commit: l.commit}
	state, err := l.read(ctx)
	if err == nil && state.fresh {
		if err = l.found(ctx); err == nil {
			state, err = l.read(ctx)
		}
	}
	if err == nil {
		err = verifyTree(l.hashes(ctx), state.edge.Head(), state.signed)
	}
	if err != nil {
		return nil, fmt.Errorf("the ledger of erasures: %w", unrecorded(ctx, err))
	}
	return l, nil
}

// unrecorded is failed for the ledger of erasures, whose own errors stay what they are.
func unrecorded(ctx context.Context, err error) error {
	var refused *ledger.RecordError
	for _, own := range []error{ledger.ErrTruncated, ledger.ErrTampered, ledger.ErrNoCheckpoint, ledger.ErrNoEntry} {
		if errors.Is(err, own) {
			return err
		}
	}
	if errors.As(err, &refused) {
		return err
	}
	return failed(ctx, err, subject.ReasonBackendBusy)
}

// found makes an empty ledger, unless another process does.
func (l *ErasureLedger) found(ctx context.Context) error {
	note, err := l.keys.Checkpoint(ledger.Head{})
	if err != nil {
		return err
	}
	return attempt(ctx, func() error {
		return l.client.docs.RunTransaction(ctx, func(_ context.Context, tx *fs.Transaction) error {
			docs, err := tx.GetAll([]*fs.DocumentRef{l.head, l.signed, l.entry(0)})
			if err != nil || docs[0].Exists() || docs[1].Exists() {
				return err
			}
			if docs[2].Exists() {
				return ledger.ErrNoCheckpoint
			}
			if err := tx.Create(l.head, erasureHead{}); err != nil {
				return err
			}
			return tx.Create(l.signed, erasureCheckpoint{Note: note})
		})
	})
}

func (l *ErasureLedger) entry(index int64) *fs.DocumentRef {
	return l.head.Collection("entries").Doc(fmt.Sprintf("%019d", index))
}

// read reads the edge and the checkpoint, and compares them with each other and with what this process has seen.
func (l *ErasureLedger) read(ctx context.Context) (state erasureState, err error) {
	l.mu.Lock()
	known := l.known
	l.mu.Unlock()
	docs, err := l.client.get(ctx, []*fs.DocumentRef{l.head, l.signed})
	if err == nil {
		state, err = l.stateOf(docs[0], docs[1], known)
	}
	if err == nil && state.signed.Size < state.edge.Size { // an older checkpoint was put back
		err = verifyTree(l.hashes(ctx), state.edge.Head(), state.signed)
	}
	if err == nil {
		l.learn(state.edge.Head())
	}
	return state, unrecorded(ctx, err)
}

func (l *ErasureLedger) learn(h ledger.Head) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.Size > l.known.Size {
		l.known = h
	}
}

// stateOf reads the two documents. known is a head that MUST still be covered.
func (l *ErasureLedger) stateOf(head, checkpoint *fs.DocumentSnapshot, known ledger.Head) (state erasureState, err error) {
	switch {
	case !head.Exists() && !checkpoint.Exists() && known.Size == 0:
		return erasureState{fresh: true}, nil
	case !checkpoint.Exists():
		return state, ledger.ErrNoCheckpoint
	}
	var c erasureCheckpoint
	if err := checkpoint.DataTo(&c); err != nil {
		return state, ledger.ErrTampered
	}
	if state.signed, err = l.keys.Open(c.Note); err != nil {
		return state, err
	}
	if !head.Exists() {
		return state, ledger.ErrTruncated
	}
	var h erasureHead
	if err := head.DataTo(&h); err != nil || h.Size < 0 || len(h.Roots) != bits.OnesCount64(uint64(h.Size))*tlog.HashSize {
		return state, ledger.ErrTampered
	}
	state.edge = ledger.Edge{Size: h.Size, Roots: splitHashes(h.Roots)}
	now := state.edge.Head()
	for _, covered := range []ledger.Head{state.signed, known} {
		switch {
		case covered.Size > now.Size:
			return state, ledger.ErrTruncated
		case covered.Size == now.Size && covered.Root != now.Root:
			return state, ledger.ErrTampered
		}
	}
	return state, nil
}

func splitHashes(b []byte) (hashes []tlog.Hash) {
	for part := range slices.Chunk(b, tlog.HashSize) {
		hashes = append(hashes, tlog.Hash(part))
	}
	return hashes
}

func joinHashes(hashes []tlog.Hash) []byte {
	b := make([]byte, 0, len(hashes)*tlog.HashSize)
	for _, h := range hashes {
		b = append(b, h[:]...)
	}
	return b
}

// Ready reports whether the ledger can be read and is the one that was signed.
func (l *ErasureLedger) Ready(ctx context.Context) error {
	_, err := l.read(ctx)
	return err
}

// Head keeps ledger.Log.
func (l *ErasureLedger) Head(ctx context.Context) (ledger.Head, error) {
	state, err := l.read(ctx)
	return state.edge.Head(), err
}

// within reports ledger.ErrNoEntry where the ledger has fewer entries than size.
func (l *ErasureLedger) within(ctx context.Context, size int64) error {
	l.mu.Lock()
	known := l.known.Size
	l.mu.Unlock()
	if size <= known {
		return nil
	}
	head, err := l.Head(ctx)
	if err == nil && size > head.Size {
		err = ledger.ErrNoEntry
	}
	return err
}

// Line keeps ledger.Log. An entry that the checkpoint covers is proved. Errors: ledger.ErrNoEntry, ledger.ErrTampered,
// ledger.ErrTruncated, *subject.Fault.
func (l *ErasureLedger) Line(ctx context.Context, index int64) (ledger.Entry, error) {
	if index < 0 {
		return ledger.Entry{}, ledger.ErrNoEntry
	}
	if err := l.within(ctx, index+1); err != nil {
		return ledger.Entry{}, err
	}
	entries, err := l.entries(ctx, index, index+1)
	if err != nil {
		return ledger.Entry{}, unrecorded(ctx, err)
	}
	return l.proved(ctx, index, entries[0])
}

// entries reads the documents of the entries from one index up to another.
func (l *ErasureLedger) entries(ctx context.Context, from, to int64) ([]erasureEntry, error) {
	refs := make([]*fs.DocumentRef, 0, to-from)
	for i := from; i < to; i++ {
		refs = append(refs, l.entry(i))
	}
	docs, err := l.client.get(ctx, refs)
	if err != nil {
		return nil, err
	}
	out, err := entriesOf(docs)
	l.mu.Lock()
	defer l.mu.Unlock()
	if errors.Is(err, ledger.ErrTruncated) && to < l.known.Size {
		err = ledger.ErrTampered
	}
	return out, err
}

// entriesOf reads documents that MUST be there, in the order of their indexes. Errors: ledger.ErrTruncated where the last
// of them is missing, ledger.ErrTampered.
func entriesOf(docs []*fs.DocumentSnapshot) ([]erasureEntry, error) {
	out := make([]erasureEntry, len(docs))
	for i := len(docs) - 1; i >= 0; i-- {
		if !docs[i].Exists() {
			if i == len(docs)-1 {
				return nil, ledger.ErrTruncated
			}
			return nil, ledger.ErrTampered
		}
		if err := docs[i].DataTo(&out[i]); err != nil || len(out[i].Hashes) == 0 || len(out[i].Hashes)%tlog.HashSize != 0 {
			return nil, ledger.ErrTampered
		}
	}
	return out, nil
}

// proved compares an entry with the tree.
func (l *ErasureLedger) proved(ctx context.Context, index int64, e erasureEntry) (ledger.Entry, error) {
	l.mu.Lock()
	known := l.known
	l.mu.Unlock()
	hash := tlog.RecordHash(e.Line)
	if !bytes.Equal(hash[:], e.Hashes[:tlog.HashSize]) {
		return ledger.Entry{}, ledger.ErrTampered
	}
	proof, err := tlog.ProveRecord(known.Size, index, l.hashes(ctx))
	if err != nil {
		return ledger.Entry{}, unrecorded(ctx, err)
	}
	if tlog.CheckRecord(proof, known.Size, known.Root, index, hash) != nil {
		return ledger.Entry{}, ledger.ErrTampered
	}
	return ledger.Entry{Index: index, Line: e.Line}, nil
}

// Find keeps ledger.Log, by an index. Errors: those of Line.
func (l *ErasureLedger) Find(ctx context.Context, entryID string, from int64) (ledger.Entry, error) {
	docs, err := l.client.all(ctx, l.head.Collection("entries").Where("entry_id", "==", entryID).Select())
	if err != nil {
		return ledger.Entry{}, unrecorded(ctx, err)
	}
	for _, doc := range docs { // by name, which is by index
		var index int64
		if _, err := fmt.Sscanf(doc.Ref.ID, "%d", &index); err != nil || index < from {
			continue
		}
		e, err := l.Line(ctx, index)
		if err != nil {
			return ledger.Entry{}, err
		}
		if r, err := ledger.Decode(e.Line); err != nil || r.EntryID != entryID {
			return ledger.Entry{}, ledger.ErrTampered
		}
		return e, nil
	}
	return ledger.Entry{}, ledger.ErrNoEntry
}
