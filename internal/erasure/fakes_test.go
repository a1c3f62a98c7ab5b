package erasure

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"recount/internal/ledger"
	"recount/internal/subject"
	"recount/internal/wire"
)

// fakeRow belongs to a person and comes from a source.
type fakeRow struct {
	id     string
	person subject.Subject
	source subject.Source
}

type fakeStore struct {
	name, backend string
	rows          []fakeRow
	made          int
	keepFor       time.Duration // how long the platform could bring a deleted row back
	notYet        int           // so many deletes are answered with "not yet"
	retryAfter    time.Duration
	uncounted     subject.Reason
	deletes       int // rows that were deleted
}

func newStore(name, backend string) *fakeStore { return &fakeStore{name: name, backend: backend} }

func (s *fakeStore) add(person subject.Subject, source subject.Source) {
	s.made++
	s.rows = append(s.rows, fakeRow{fmt.Sprintf("%s-%d", s.name, s.made), person, source})
}

func (s *fakeStore) matches(t subject.Target, r fakeRow) bool {
	if t.AboutPerson() {
		return r.person == t.Subject
	}
	return slices.Contains(t.Sources, r.source)
}

func (s *fakeStore) of(t subject.Target) (rows []fakeRow) {
	for _, r := range s.rows {
		if s.matches(t, r) {
			rows = append(rows, r)
		}
	}
	return rows
}

type fakeFreeze struct {
	people []subject.Subject
	until  time.Time
}

// fakeCell is a cell in memory. The first of a world is local; the others can be down.
type fakeCell struct {
	w      *world
	name   string
	mu     sync.Mutex
	stores []*fakeStore
	down   subject.Reason // all of it
	stiff  subject.Reason // freezing alone
	frozen map[string]fakeFreeze
	froze  int
	thawed int
	// before is called when an enumeration begins, the lock not held.
	before func()
}

func newCell(w *world, name string, stores ...*fakeStore) *fakeCell {
	return &fakeCell{w: w, name: name, stores: stores, frozen: map[string]fakeFreeze{}}
}

func (c *fakeCell) Name() string { return c.name }

func (c *fakeCell) store(name string) *fakeStore {
	for _, s := range c.stores {
		if s.name == name {
			return s
		}
	}
	panic("no such store")
}

// with changes the cell while nobody uses it.
func (c *fakeCell) with(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

func (c *fakeCell) count(store, identity string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.store(store).of(subject.TargetOf(c.w.person(identity), c.w.salt)))
}

// write is what an importer does: it is refused for whoever is frozen.
func (c *fakeCell) write(store, identity string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	person := c.w.person(identity)
	for _, f := range c.frozen {
		if f.until.After(c.w.Now()) && slices.Contains(f.people, person) {
			return &subject.Fault{Reason: subject.ReasonFenced}
		}
	}
	c.store(store).add(person, c.w.source("late", "late-"+identity))
	return nil
}

func (c *fakeCell) Enumerate(_ context.Context, _ string, targets []subject.Target, list bool) []wire.Enumerated {
	if c.before != nil {
		c.before()
	}
	after := c.w.kill.aside("enumerate " + c.name)
	defer after()
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]wire.Enumerated, len(targets))
	for i, t := range targets {
		out[i] = wire.Enumerated{SubjectRef: string(t.Ref), Suppressed: subject.Measured(0)}
		if reason := c.unreachable(); reason != "" {
			out[i].Suppressed = subject.Unmeasured()
			out[i].Receipts = []wire.Coordinates{{Cell: c.name, Store: subject.AnyStore, Status: "failed", Detail: string(reason)}}
			continue
		}
		for _, s := range c.stores {
			out[i].Receipts = append(out[i].Receipts, c.coordinates(s, t, list))
		}
	}
	return out
}

// Follow answers the sources of people's rows. Nothing derives from anything in these cells.
func (c *fakeCell) Follow(_ context.Context, _ string, targets []subject.Target) ([][]subject.Source, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if reason := c.unreachable(); reason != "" {
		return nil, &subject.Fault{Reason: reason}
	}
	out := make([][]subject.Source, len(targets))
	for i, t := range targets {
		for _, s := range c.stores {
			for _, r := range s.of(t) {
				if t.AboutPerson() {
					out[i] = append(out[i], r.source)
				}
			}
		}
	}
	return out, nil
}

func (c *fakeCell) unreachable() subject.Reason {
	if c.w.kill.isDead() {
		return subject.ReasonPeerUnreachable
	}
	return c.down
}

func (c *fakeCell) coordinates(s *fakeStore, t subject.Target, list bool) wire.Coordinates {
	if s.uncounted != "" {
		return wire.Coordinates{Cell: c.name, Store: s.name, Status: "failed", Detail: string(s.uncounted)}
	}
	rows := s.of(t)
	out := wire.Coordinates{
		Cell: c.name, Store: s.name, Backend: s.backend, Status: "counted", Count: subject.Measured(int64(len(rows))), Sticky: true,
	}
	if s.keepFor > 0 {
		until := c.w.Now().Add(s.keepFor)
		out.RecoverableUntil = &until
	}
	if list && t.AboutPerson() {
		for _, r := range rows {
			out.RowIDs = append(out.RowIDs, r.id)
			sum := sha256.Sum256([]byte("key" + r.source.Origin() + r.source.Reference()))
			out.Sources = append(out.Sources, wire.KeyedSource{KeyID: "k1", Digest: hex.EncodeToString(sum[:])})
		}
	}
	return out
}

func (c *fakeCell) Freeze(_ context.Context, _, freezeID string, people []subject.Subject, until time.Time) error {
	after := c.w.kill.aside("freeze " + c.name)
	defer after()
	c.mu.Lock()
	defer c.mu.Unlock()
	if reason := c.unreachable(); reason != "" {
		return &subject.Fault{Reason: reason}
	}
	if c.stiff != "" {
		return &subject.Fault{Reason: c.stiff}
	}
	if until.After(c.w.Now().Add(24 * time.Hour)) {
		return &subject.Fault{Reason: subject.ReasonPeerHTTPStatus}
	}
	c.frozen[freezeID] = fakeFreeze{people, until}
	c.froze++
	return nil
}

func (c *fakeCell) Thaw(_ context.Context, _, freezeID, _ string) error {
	after := c.w.kill.aside("thaw " + c.name)
	defer after()
	c.mu.Lock()
	defer c.mu.Unlock()
	if reason := c.unreachable(); reason != "" {
		return &subject.Fault{Reason: reason}
	}
	delete(c.frozen, freezeID)
	c.thawed++
	return nil
}

func (c *fakeCell) isFrozen(identity string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.frozen {
		if f.until.After(c.w.Now()) && slices.Contains(f.people, c.w.person(identity)) {
			return true
		}
	}
	return false
}

// fakeEraser is a cascade over the fake cells. It looks into the ledger before it deletes anything.
type fakeEraser struct {
	w     *world
	mu    sync.Mutex
	wrong []string // what was deleted without a program
	calls int
	// during is called before anything is deleted, without a lock.
	during func()
}

func (e *fakeEraser) EraseBatch(_ context.Context, _ string, targets []subject.Target) []subject.Erasure {
	after := e.w.kill.call("erase")
	defer after()
	if e.during != nil {
		e.during()
	}
	e.mu.Lock()
	e.calls++
	e.mu.Unlock()
	listed := e.w.listed()
	out := make([]subject.Erasure, len(targets))
	for i, t := range targets {
		for n, c := range e.w.cells {
			if !t.KeepsAll(c.name) {
				out[i].Receipts = append(out[i].Receipts, e.erase(c, n == 0, t, listed)...)
			}
		}
	}
	return out
}

func (e *fakeEraser) erase(c *fakeCell, local bool, t subject.Target, listed map[string]bool) (out []subject.Receipt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	times := subject.Times{Started: e.w.Now(), Finished: e.w.Now()}
	if reason := c.unreachable(); reason != "" {
		return []subject.Receipt{subject.NewFailed(subject.Label{Cell: c.name, Store: subject.AnyStore}, times, subject.Counts{}, reason)}
	}
	for _, s := range c.stores {
		if t.Keeps(c.name, s.name) {
			continue
		}
		if s.keepFor > 0 {
			times.RecoverableUntil = e.w.Now().Add(s.keepFor)
		}
		m, rows := subject.Measurement{}, s.of(t)
		m.Before = subject.Measured(int64(len(rows)))
		if s.notYet > 0 && len(rows) > 0 {
			s.notYet--
			m.DeleteErr = &subject.NotYet{Reason: subject.ReasonStreamingBuffer, After: s.retryAfter}
		} else {
			e.remove(c, s, t, rows, listed)
		}
		m.Deleted = subject.Measured(int64(len(rows) - len(s.of(t))))
		m.Remaining = subject.Measured(int64(len(s.of(t))))
		m.Suppressed, m.Derived = subject.Measured(0), subject.Measured(0)
		label := subject.Label{Cell: c.name, Store: s.name, Backend: s.backend, Sticky: true}
		receipt := subject.Judge(label, times, m, func(error, subject.Reason) subject.Reason { return subject.ReasonDeleteFailed })
		if !local {
			receipt = subject.Attest(subject.Statement{Label: label, Times: times, Counts: m.Counts, Status: receipt.Status(), Reason: receipt.Reason(), RetryAfter: receipt.RetryAfter()})
		}
		out = append(out, receipt)
	}
	return out
}

func (e *fakeEraser) remove(c *fakeCell, s *fakeStore, t subject.Target, rows []fakeRow, listed map[string]bool) {
	if s.uncounted != "" {
		return
	}
	for _, r := range rows {
		key := c.name + "/" + s.name + "/"
		if t.AboutPerson() && !listed[key+r.id] || !listed[key+"*"] {
			e.mu.Lock()
			e.wrong = append(e.wrong, key+r.id)
			e.mu.Unlock()
		}
	}
	s.deletes += len(rows)
	s.rows = slices.DeleteFunc(s.rows, func(r fakeRow) bool { return s.matches(t, r) })
}

// listing is what listed has read of the ledger so far.
type listing struct {
	mu     sync.Mutex
	next   int64
	hashes map[string]string
	rows   map[string]bool
}

// listed is what the programs of the execute:intent entries hold, as cell/store/row, and cell/store/* for each store, where
// the program is there and its hash is the one that its enumerate entry says.
func (w *world) listed() map[string]bool {
	l := w.listing
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = w.log.Scan(context.Background(), max(l.next, w.from), func(entry ledger.Entry) error {
		r, err := ledger.Decode(entry.Line)
		l.next = entry.Index + 1
		switch {
		case err == nil && r.Phase == "enumerate:outcome":
			l.hashes[r.ProgramRef] = r.ProgramHash
		case err == nil && r.Phase == "execute:intent":
			w.list(l, r.ProgramRef)
		}
		return err
	})
	return maps.Clone(l.rows)
}

func (w *world) list(l *listing, ref string) {
	body, err := w.programs.Read(context.Background(), strings.TrimSuffix(strings.TrimPrefix(ref, "erasure-programs/"), ".jsonl"))
	if err != nil || ledger.Hash(body) != l.hashes[ref] {
		return
	}
	for line := range bytes.Lines(body) {
		var st struct {
			Cell, Store string
			RowIDs      []string `json:"row_ids"`
		}
		if json.Unmarshal(line, &st) == nil {
			l.rows[st.Cell+"/"+st.Store+"/*"] = true
			for _, id := range st.RowIDs {
				l.rows[st.Cell+"/"+st.Store+"/"+id] = true
			}
		}
	}
}
