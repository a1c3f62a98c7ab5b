package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"recount/internal/subject"
	"recount/internal/suppression"
)

const (
	ledgerTable = "main.recount_suppression"
	stateTable  = "main.recount_suppression_state"
	macsAtOnce  = 500 // parameters of one look-up
)

// ledgerDDL keeps the entries in the order in which they come, and finds a source, an erasure's entries and an attempt's
// again. A key is of one tenant. Each index is a page that an erasure writes, so the list does without one.
var ledgerDDL = []string{
	"CREATE TABLE IF NOT EXISTS " + ledgerTable + ` (
		id INTEGER PRIMARY KEY, tenant_id TEXT NOT NULL, mac BLOB NOT NULL, key_id TEXT NOT NULL, erasure BLOB NOT NULL,
		attempt TEXT, sealed BLOB NOT NULL, erased_at TEXT NOT NULL) STRICT`,
	"CREATE UNIQUE INDEX IF NOT EXISTS main.recount_suppression_by_mac ON recount_suppression (mac)",
	"CREATE INDEX IF NOT EXISTS main.recount_suppression_by_erasure ON recount_suppression (erasure)",
	"CREATE INDEX IF NOT EXISTS main.recount_suppression_by_attempt ON recount_suppression (attempt) WHERE attempt IS NOT NULL",
	"CREATE TABLE IF NOT EXISTS " + stateTable + " (one INTEGER PRIMARY KEY CHECK (one = 1), generation INTEGER NOT NULL) STRICT",
	"INSERT OR IGNORE INTO " + stateTable + " VALUES (1, 1)",
	fenceDDL,
}

// generationQuery also touches the ledger itself, so that one that can't be read is never taken for an empty one.
const generationQuery = "SELECT generation, EXISTS (SELECT 1 FROM " + ledgerTable + ") FROM " + stateTable

// Ledger is a cell's suppression ledger in an open file. It keeps suppression.Ledger, and is safe for concurrent use.
type Ledger struct {
	db   *DB
	keys *suppression.Keys

	mu     sync.RWMutex
	filter *suppression.Filter
	fences fences
	upTo   suppression.Generation // that filter and fences are complete for; 0 for none
}

var _ suppression.Ledger = (*Ledger)(nil)

// Ledger opens the file's suppression ledger, which is created when missing. From then on every table of the file that
// is ours looks into it once more before it appends. Errors: suppression.ErrKeyMissing.
func (db *DB) Ledger(ctx context.Context, keys *suppression.Keys) (*Ledger, error) {
	if err := db.submit(ctx, &request{setup: ledgerDDL}); err != nil {
		return nil, fmt.Errorf("the suppression ledger: %w", err)
	}
	l := &Ledger{db: db, keys: keys}
	if _, err := l.known(ctx); err != nil {
		return nil, fmt.Errorf("the suppression ledger: %w", err)
	}
	db.ledger.Store(l)
	return l, nil
}

// unreadable names what kept the ledger from being asked.
func unreadable(err error) error {
	if err == nil || errors.Is(err, suppression.ErrKeyMissing) || errors.Is(err, suppression.ErrSealed) || errors.Is(err, suppression.ErrCursor) {
		return err
	}
	return &subject.Fault{Reason: subject.ReasonSuppression, Cause: err}
}

// Generation is the ledger's now.
func (l *Ledger) Generation(ctx context.Context) (g suppression.Generation, err error) {
	err = l.db.read(ctx, func(q querier) error {
		var some bool
		return q.QueryRowContext(ctx, generationQuery).Scan(&g, &some) //nolint:wrapcheck // read names it
	})
	return g, unreadable(err)
}

// Ready reports whether the ledger can be read.
func (l *Ledger) Ready(ctx context.Context) error {
	_, err := l.Generation(ctx)
	return err
}

// known makes the filter complete for the ledger's generation, and answers that.
func (l *Ledger) known(ctx context.Context) (suppression.Generation, error) {
	g, err := l.Generation(ctx)
	if err != nil {
		return 0, err
	}
	l.mu.RLock()
	upTo, current := l.upTo, l.upTo >= g && !l.filter.Full()
	l.mu.RUnlock()
	if current {
		return upTo, nil // what was recorded since does no harm
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.upTo >= g && !l.filter.Full() {
		return l.upTo, nil
	}
	return l.load(ctx)
}

// load reads every key, and the generation that it is complete for, in one snapshot. The lock is held.
func (l *Ledger) load(ctx context.Context) (g suppression.Generation, err error) {
	var filter *suppression.Filter
	var up fences
	err = l.db.read(ctx, func(querier) error {
		tx, err := l.db.reads.BeginTx(ctx, nil)
		if err != nil {
			return err //nolint:wrapcheck // read names it
		}
		defer tx.Rollback() //nolint:errcheck // it only read
		var entries int
		if err := tx.QueryRowContext(ctx, "SELECT generation, (SELECT count(*) FROM "+ledgerTable+") FROM "+stateTable).Scan(&g, &entries); err != nil {
			return err //nolint:wrapcheck // read names it
		}
		if err := l.checkKeys(ctx, tx); err != nil {
			return err
		}
		filter = suppression.NewFilter(entries * 2)
		rows, err := tx.QueryContext(ctx, "SELECT mac FROM "+ledgerTable)
		if err != nil {
			return err //nolint:wrapcheck // read names it
		}
		if err := eachMAC(rows, filter.Add); err != nil {
			return err
		}
		if rows, err = tx.QueryContext(ctx, fenceQuery); err != nil {
			return err //nolint:wrapcheck // read names it
		}
		up, err = readFences(rows)
		return err
	})
	if err != nil {
		return 0, unreadable(err)
	}
	l.filter, l.fences, l.upTo = filter, up, g
	return g, nil
}

// checkKeys reports an entry under a key that is not configured. There are few keys, so it skips from one to the next.
func (l *Ledger) checkKeys(ctx context.Context, q querier) error {
	var ids []string
	err := eachText(ctx, q, "SELECT DISTINCT key_id, '' FROM "+ledgerTable, nil, func(id, _ string) error {
		ids = append(ids, id)
		return nil
	})
	return errors.Join(err, l.keys.CheckIDs(ids))
}

func eachMAC(rows *sql.Rows, visit func(suppression.MAC)) error {
	return visitAll(rows, func(rows *sql.Rows) error {
		var raw sql.RawBytes
		if err := rows.Scan(&raw); err != nil {
			return err //nolint:wrapcheck // visitAll names it
		}
		if len(raw) != len(suppression.MAC{}) {
			return suppression.ErrSealed
		}
		visit(suppression.MAC(raw))
		return nil
	})
}

// learn keeps the filter in step with a transaction that was committed: it added these keys, and moved the generation on.
// The lock is held.
func (l *Ledger) learn(from, to suppression.Generation, added []suppression.MAC) {
	if l.upTo != from { // it is behind already, and will be loaded when it is asked
		return
	}
	for _, m := range added {
		l.filter.Add(m)
	}
	l.upTo = to
}

// Check asks the filter about every source, and the ledger about what may be there.
func (l *Ledger) Check(ctx context.Context, records []subject.Record) (suppression.Answer, error) {
	g, err := l.known(ctx)
	if err != nil {
		return suppression.Answer{}, err
	}
	a := suppression.Answer{Verdicts: make([]suppression.Verdict, len(records)), Generation: g, Parents: map[int]subject.Source{}}
	for i := range a.Verdicts {
		a.Verdicts[i] = suppression.Admitted
	}
	doubts := l.doubts(records, &a)
	if len(doubts) == 0 {
		return a, nil
	}
	held := map[subject.Source]bool{}
	err = l.db.read(ctx, func(q querier) error {
		return l.hold(doubts, held, func(query string, args []any) (*sql.Rows, error) { return q.QueryContext(ctx, query, args...) })
	})
	if err != nil {
		return suppression.Answer{}, unreadable(err)
	}
	for i, r := range records {
		judge(r, i, held, &a)
	}
	return a, nil
}

// judge looks a record and its parents up among what the ledger holds.
func judge(r subject.Record, i int, held map[subject.Source]bool, a *suppression.Answer) {
	if held[r.Source] {
		a.Verdicts[i] = suppression.Suppressed
		return
	}
	for _, p := range r.Parents {
		if held[p] {
			a.Verdicts[i], a.Parents[i] = suppression.Suppressed, p
			return
		}
	}
}

// doubts are the sources of the records and their parents that the filter may hold. Records behind a fence are marked.
func (l *Ledger) doubts(records []subject.Record, a *suppression.Answer) map[subject.Source][]suppression.MAC {
	doubts := map[subject.Source][]suppression.MAC{}
	macs := make([]suppression.MAC, 0, 8)
	l.mu.RLock()
	defer l.mu.RUnlock()
	ask := func(s subject.Source) {
		macs = l.keys.AppendMACs(macs[:0], s)
		for _, m := range macs {
			if l.filter.MayHold(m) {
				doubts[s] = slices.Clone(macs)
				return
			}
		}
	}
	for i, r := range records {
		ask(r.Source)
		for _, p := range r.Parents {
			ask(p)
		}
		if l.behind(r, l.fences) {
			a.Verdicts[i] = suppression.Fenced
		}
	}
	return doubts
}

// hold finds which of the doubts are in the ledger.
func (l *Ledger) hold(doubts map[subject.Source][]suppression.MAC, held map[subject.Source]bool, query func(string, []any) (*sql.Rows, error)) error {
	byTenant := map[string][]suppression.MAC{}
	of := map[string]map[suppression.MAC]subject.Source{}
	for s, macs := range doubts {
		if of[s.Tenant()] == nil {
			of[s.Tenant()] = map[suppression.MAC]subject.Source{}
		}
		for _, m := range macs {
			byTenant[s.Tenant()] = append(byTenant[s.Tenant()], m)
			of[s.Tenant()][m] = s
		}
	}
	for tenant, macs := range byTenant {
		for chunk := range slices.Chunk(macs, macsAtOnce) {
			args := make([]any, 0, len(chunk))
			for _, m := range chunk {
				args = append(args, m[:])
			}
			rows, err := query("SELECT mac FROM "+ledgerTable+" WHERE mac IN (?"+strings.Repeat(",?", len(chunk)-1)+")", args)
			if err != nil {
				return err
			}
			if err := eachMAC(rows, func(m suppression.MAC) { held[of[tenant][m]] = true }); err != nil {
				return err
			}
		}
	}
	return nil
}

// Recorded reads the entries of erasures.
func (l *Ledger) Recorded(ctx context.Context, tenant string, refs []subject.Ref) ([][]suppression.Entry, error) {
	var out [][]suppression.Entry
	err := l.db.read(ctx, func(q querier) (err error) {
		out, err = l.recorded(tenant, refs, func(query string, args []any) (*sql.Rows, error) { return q.QueryContext(ctx, query, args...) })
		return err
	})
	return out, unreadable(err)
}

// recorded reads the entries of erasures in as few statements as can be. A tag is of one tenant and one reference.
func (l *Ledger) recorded(tenant string, refs []subject.Ref, query func(string, []any) (*sql.Rows, error)) ([][]suppression.Entry, error) {
	of := make(map[string]int, len(refs))
	places := make([]int, len(refs)) // of a reference that is asked for twice, the first
	var tags []any
	for i, ref := range refs {
		for n, tag := range l.keys.Erasure(tenant, ref) {
			first, known := of[string(tag)]
			if !known {
				of[string(tag)], first = i, i
				tags = append(tags, tag)
			}
			if n == 0 {
				places[i] = first
			}
		}
	}
	found := make([][]suppression.Entry, len(refs))
	for chunk := range slices.Chunk(tags, macsAtOnce) {
		rows, err := query("SELECT mac, key_id, sealed, erased_at, erasure, id FROM "+ledgerTable+" WHERE erasure IN (?"+strings.Repeat(",?", len(chunk)-1)+")", chunk)
		if err != nil {
			return nil, err
		}
		err = l.eachEntry(rows, tenant, func(e suppression.Entry, _ int64, erasure []byte) {
			i := of[string(erasure)]
			found[i] = append(found[i], e)
		})
		if err != nil {
			return nil, err
		}
	}
	out := make([][]suppression.Entry, len(refs))
	for i := range refs {
		out[i] = found[places[i]]
	}
	return out, nil
}

func (l *Ledger) eachEntry(rows *sql.Rows, tenant string, visit func(e suppression.Entry, id int64, erasure []byte)) error {
	return visitAll(rows, func(rows *sql.Rows) error {
		var mac, sealed, erasure []byte
		var keyID, at string
		var id int64
		if err := rows.Scan(&mac, &keyID, &sealed, &at, &erasure, &id); err != nil {
			return err //nolint:wrapcheck // visitAll names it
		}
		if len(mac) != len(suppression.MAC{}) {
			return suppression.ErrSealed
		}
		s, reason, err := l.keys.Open(tenant, keyID, suppression.MAC(mac), sealed)
		if err != nil {
			return err //nolint:wrapcheck // a sentinel of the ledger's contract
		}
		erasedAt, err := time.Parse(instantLayout, at)
		if err != nil {
			return suppression.ErrSealed
		}
		visit(suppression.Entry{Source: s, Reason: reason, ErasedAt: erasedAt}, id, erasure)
		return nil
	})
}

// List pages in the order in which the entries came. The cursor is the number of the last one.
func (l *Ledger) List(ctx context.Context, tenant, cursor string, limit int) (entries []suppression.Entry, next string, err error) {
	after := int64(0)
	if cursor != "" {
		text, marked := strings.CutPrefix(cursor, cursorMark)
		if after, err = strconv.ParseInt(text, 10, 64); err != nil || !marked || after < 0 {
			return nil, "", suppression.ErrCursor
		}
	}
	err = l.db.read(ctx, func(q querier) error {
		entries, next = nil, ""
		rows, err := q.QueryContext(ctx, "SELECT mac, key_id, sealed, erased_at, erasure, id FROM "+ledgerTable+
			" WHERE tenant_id = ?1 AND id > ?2 ORDER BY id LIMIT ?3", tenant, after, limit+1)
		if err != nil {
			return err //nolint:wrapcheck // read names it
		}
		last := ""
		return l.eachEntry(rows, tenant, func(e suppression.Entry, id int64, _ []byte) {
			if len(entries) == limit {
				next = last
				return
			}
			entries, last = append(entries, e), cursorMark+strconv.FormatInt(id, 10)
		})
	})
	return entries, next, unreadable(err)
}

const cursorMark = "s1."
