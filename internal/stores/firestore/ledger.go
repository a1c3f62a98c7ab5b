package firestore

import (
	"context"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	fs "cloud.google.com/go/firestore"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"recount/internal/subject"
	"recount/internal/suppression"
)

const (
	ledgerCollection = "recount_suppression"
	firstGeneration  = 1
	entriesAtOnce    = 200 // in one transaction, which takes 500 writes
	erasuresAtOnce   = 30  // values of one "in" filter
)

// Ledger is a cell's suppression ledger, shared by all instances of the cell. One document holds the generation and the
// ids of the keys in use; entries and fences are in collections below it.
//
// Everything that suppresses moves the generation on in the transaction that writes it, so the order of commits is the
// order of generations: an instance that has read up to one has missed nothing before it. While the generation stands
// still, a check reads that one document.
type Ledger struct {
	client  *Client
	keys    *suppression.Keys
	state   *fs.DocumentRef
	changes *group[*change]

	mu     sync.RWMutex
	upTo   suppression.Generation // that filter and fences are complete for; 0 for none
	filter *suppression.Filter
	fences []fence
}

var _ suppression.Ledger = (*Ledger)(nil)

// ledgerState is the document of a cell.
type ledgerState struct {
	Generation int64    `firestore:"generation"`
	Keys       []string `firestore:"keys"`
}

// entry is the document of a source. Its id is the source's key in hex.
type entry struct {
	Tenant     string    `firestore:"tenant"`
	Key        string    `firestore:"key"`
	Sealed     []byte    `firestore:"sealed"`
	Erasure    string    `firestore:"erasure"`
	Attempt    string    `firestore:"attempt"`
	ErasedAt   time.Time `firestore:"erased_at"`
	Generation int64     `firestore:"generation"`
}

// fence is the document of a fence.
type fence struct {
	Attempt string    `firestore:"attempt"`
	Tag     string    `firestore:"tag"`
	Until   time.Time `firestore:"until"`
}

// Ledger opens the suppression ledger of a cell. Errors: suppression.ErrKeyMissing.
func (c *Client) Ledger(ctx context.Context, cell string, keys *suppression.Keys) (*Ledger, error) {
	if !isDocumentID(cell) {
		return nil, errors.New("the cell's name can't be a document id")
	}
	l := &Ledger{client: c, keys: keys, state: c.docs.Collection(ledgerCollection).Doc(cell)}
	l.changes = &group[*change]{limit: changesAtOnce, size: func(c *change) int { return c.writes }, commit: l.commit}
	if _, err := l.known(ctx); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *Ledger) entries() *fs.CollectionRef { return l.state.Collection("entries") }

func (l *Ledger) fenced() *fs.CollectionRef { return l.state.Collection("fences") }

// unreadable is failed for the ledger. Its own sentinels stay what they are.
func unreadable(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, suppression.ErrKeyMissing) || errors.Is(err, suppression.ErrSealed) || errors.Is(err, suppression.ErrCursor) {
		return err
	}
	return failed(ctx, err, subject.ReasonSuppression)
}

// readState reads a document that may not be there yet.
func readState(doc *fs.DocumentSnapshot, err error) (ledgerState, error) {
	state := ledgerState{Generation: firstGeneration}
	if status.Code(err) == codes.NotFound {
		return state, nil
	}
	if err != nil {
		return state, err
	}
	return state, doc.DataTo(&state)
}

// Generation reads the one document.
func (l *Ledger) Generation(ctx context.Context) (suppression.Generation, error) {
	state, err := l.read(ctx)
	return suppression.Generation(state.Generation), err
}

func (l *Ledger) read(ctx context.Context) (state ledgerState, err error) {
	err = attempt(ctx, func() (err error) {
		state, err = readState(l.state.Get(ctx))
		return err
	})
	if err == nil {
		err = l.keys.CheckIDs(state.Keys)
	}
	return state, unreadable(ctx, err)
}

// Ready reports whether the ledger can be read.
func (l *Ledger) Ready(ctx context.Context) error {
	_, err := l.Generation(ctx)
	return err
}

// known brings filter and fences up to the ledger's generation, and answers that.
func (l *Ledger) known(ctx context.Context) (suppression.Generation, error) {
	g, err := l.Generation(ctx)
	if err != nil {
		return 0, err
	}
	l.mu.RLock()
	upTo, full := l.upTo, l.filter != nil && l.filter.Full()
	l.mu.RUnlock()
	if upTo >= g && !full {
		return upTo, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.upTo >= g && !l.filter.Full() {
		return l.upTo, nil
	}
	return l.upTo, l.load(ctx)
}

// load reads, in one snapshot, the entries that came since and the fences. The lock is held.
func (l *Ledger) load(ctx context.Context) error {
	since, filter := l.upTo, l.filter
	if filter == nil || filter.Full() {
		n, err := aggregate(ctx, l.entries().Query)
		if err != nil {
			return unreadable(ctx, err)
		}
		since, filter = 0, suppression.NewFilter(int(2*n))
	}
	var macs []suppression.MAC
	var fences []fence
	var state ledgerState
	err := attempt(ctx, func() error {
		return l.client.docs.RunTransaction(ctx, func(_ context.Context, tx *fs.Transaction) (err error) {
			macs, fences = nil, nil
			if state, err = readState(tx.Get(l.state)); err != nil {
				return err
			}
			docs, err := tx.Documents(l.entries().Where("generation", ">", int64(since)).Select()).GetAll()
			if err != nil {
				return err
			}
			for _, doc := range docs {
				mac, err := macOf(doc.Ref.ID)
				if err != nil {
					return err
				}
				macs = append(macs, mac)
			}
			fences, err = readFences(tx.Documents(l.fenced()).GetAll())
			return err
		}, fs.ReadOnly)
	})
	if err == nil {
		err = l.keys.CheckIDs(state.Keys)
	}
	if err != nil {
		return unreadable(ctx, err)
	}
	for _, m := range macs {
		filter.Add(m)
	}
	l.filter, l.fences, l.upTo = filter, fences, suppression.Generation(state.Generation)
	return nil
}

func readFences(docs []*fs.DocumentSnapshot, err error) ([]fence, error) {
	fences := make([]fence, len(docs))
	for i, doc := range docs {
		if err := doc.DataTo(&fences[i]); err != nil {
			return nil, err
		}
	}
	return fences, err
}

func macOf(id string) (m suppression.MAC, err error) {
	raw, err := hex.DecodeString(id)
	if err != nil || len(raw) != len(m) {
		return m, suppression.ErrSealed
	}
	return suppression.MAC(raw), nil
}

func (l *Ledger) entry(m suppression.MAC) *fs.DocumentRef {
	return l.entries().Doc(hex.EncodeToString(m[:]))
}

// Recorded queries the entries of erasures.
func (l *Ledger) Recorded(ctx context.Context, tenant string, refs []subject.Ref) ([][]suppression.Entry, error) {
	out := make([][]suppression.Entry, len(refs))
	places := map[string]int{}
	var tags []string
	for i, ref := range refs {
		for _, tag := range l.keys.Erasure(tenant, ref) {
			text := hex.EncodeToString(tag)
			places[text] = i
			tags = append(tags, text)
		}
	}
	for chunk := range slices.Chunk(tags, erasuresAtOnce) {
		var docs []*fs.DocumentSnapshot
		err := attempt(ctx, func() (err error) {
			docs, err = l.entries().Where("erasure", "in", chunk).Documents(ctx).GetAll()
			return err
		})
		if err != nil {
			return nil, unreadable(ctx, err)
		}
		for _, doc := range docs {
			e, stored, err := l.open(doc)
			if err != nil {
				return nil, err
			}
			i := places[stored.Erasure]
			out[i] = append(out[i], e)
		}
	}
	for i, ref := range refs { // one that is asked for twice
		out[i] = out[places[hex.EncodeToString(l.keys.Erasure(tenant, ref)[0])]]
	}
	return out, nil
}

func (l *Ledger) open(doc *fs.DocumentSnapshot) (suppression.Entry, entry, error) {
	var stored entry
	if err := doc.DataTo(&stored); err != nil {
		return suppression.Entry{}, stored, suppression.ErrSealed
	}
	mac, err := macOf(doc.Ref.ID)
	if err != nil {
		return suppression.Entry{}, stored, err
	}
	s, reason, err := l.keys.Open(stored.Tenant, stored.Key, mac, stored.Sealed)
	return suppression.Entry{Source: s, Reason: reason, ErasedAt: stored.ErasedAt.UTC()}, stored, err
}

const ledgerCursor = "f1."

// List pages in the order of the keys, which say nothing. The cursor is the last one.
func (l *Ledger) List(ctx context.Context, tenant, cursor string, limit int) (entries []suppression.Entry, next string, err error) {
	q := l.entries().Where("tenant", "==", tenant).OrderBy(fs.DocumentID, fs.Asc)
	if cursor != "" {
		id, marked := strings.CutPrefix(cursor, ledgerCursor)
		if _, err := macOf(id); err != nil || !marked {
			return nil, "", suppression.ErrCursor
		}
		q = q.StartAfter(id)
	}
	docs, err := l.client.all(ctx, q.Limit(limit+1))
	if err != nil {
		return nil, "", unreadable(ctx, err)
	}
	for i, doc := range docs {
		if i == limit {
			next = ledgerCursor + docs[i-1].Ref.ID
			break
		}
		e, _, err := l.open(doc)
		if err != nil {
			return nil, "", err
		}
		entries = append(entries, e)
	}
	return entries, next, nil
}
