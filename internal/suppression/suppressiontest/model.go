package suppressiontest

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"recount/internal/subject"
	"recount/internal/suppression"
)

// Model is the reference ledger: maps under one lock. It holds plaintext, and is for tests alone. Its faults are caused by
// Break.
type Model struct {
	mu         sync.Mutex
	generation suppression.Generation
	entries    map[subject.Source]suppression.Entry
	fences     []fence
	broken     error
	breaks     int // calls that fail yet; below 0 for all
}

type fence struct {
	attempt  suppression.AttemptID
	tenant   string
	identity string
	until    time.Time
}

// NewModel makes an empty reference ledger.
func NewModel() *Model { return &Model{generation: 1, entries: map[subject.Source]suppression.Entry{}} }

// Break lets every call fail with the error; nil mends it.
func (m *Model) Break(err error) { m.BreakFor(-1, err) }

// BreakFor lets so many calls fail with the error.
func (m *Model) BreakFor(calls int, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.broken, m.breaks = err, calls
}

// fault is the error of this call. The lock is held.
func (m *Model) fault() error {
	if m.broken == nil || m.breaks == 0 {
		return nil
	}
	m.breaks--
	return m.broken
}

// Check looks into the maps.
func (m *Model) Check(_ context.Context, records []subject.Record) (suppression.Answer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := suppression.Answer{Verdicts: make([]suppression.Verdict, len(records)), Generation: m.generation, Parents: map[int]subject.Source{}}
	for i, r := range records {
		a.Verdicts[i] = suppression.Admitted
		if m.fenced(r) {
			a.Verdicts[i] = suppression.Fenced
		}
		for _, p := range r.Parents {
			if _, gone := m.entries[p]; gone {
				a.Verdicts[i], a.Parents[i] = suppression.Suppressed, p
				break
			}
		}
		if _, gone := m.entries[r.Source]; gone {
			a.Verdicts[i] = suppression.Suppressed
			delete(a.Parents, i)
		}
	}
	return a, m.fault()
}

func (m *Model) fenced(r subject.Record) bool {
	return slices.ContainsFunc(m.fences, func(f fence) bool {
		return f.tenant == r.Source.Tenant() && slices.Contains(r.Identities, f.identity) && time.Now().Before(f.until)
	})
}

// Generation is the number of changes.
func (m *Model) Generation(context.Context) (suppression.Generation, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.generation, m.fault()
}

// Record keeps what is there already.
func (m *Model) Record(_ context.Context, entries []suppression.Entry) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.fault(); err != nil {
		return 0, err
	}
	fresh := 0
	for _, e := range entries {
		there, known := m.entries[e.Source]
		switch {
		case !known:
			m.entries[e.Source] = e
			fresh++
		case there.Attempt != e.Attempt:
			there.Attempt = ""
			m.entries[e.Source] = there
		}
	}
	if fresh > 0 {
		m.generation++
	}
	return fresh, nil
}

// RecordDerived records children under their parents' erasures.
func (m *Model) RecordDerived(ctx context.Context, children map[subject.Source]subject.Source) error {
	var entries []suppression.Entry
	m.mu.Lock()
	for child, parent := range children {
		p, known := m.entries[parent]
		if _, there := m.entries[child]; known && !there {
			entries = append(entries, suppression.Entry{Source: child, Reason: suppression.ReasonDerived, ErasedAt: p.ErasedAt, Erasure: p.Erasure})
		}
	}
	m.mu.Unlock()
	_, err := m.Record(ctx, entries)
	return err
}

// Recorded lists entries by their erasure.
func (m *Model) Recorded(_ context.Context, tenant string, refs []subject.Ref) ([][]suppression.Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([][]suppression.Entry, len(refs))
	for _, e := range m.entries {
		for i, ref := range refs {
			if e.Source.Tenant() == tenant && e.Erasure == ref {
				out[i] = append(out[i], suppression.Entry{Source: e.Source, Reason: e.Reason, ErasedAt: e.ErasedAt})
			}
		}
	}
	return out, m.fault()
}

// Fence remembers who is fenced.
func (m *Model) Fence(_ context.Context, attempt suppression.AttemptID, subjects []subject.Subject, until time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.fault(); err != nil {
		return err
	}
	for _, s := range subjects {
		m.fences = append(m.fences, fence{attempt, s.Tenant(), s.Identity(), until})
	}
	m.generation++
	return nil
}

// Lower forgets an attempt's fences.
func (m *Model) Lower(_ context.Context, attempt suppression.AttemptID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fences = slices.DeleteFunc(m.fences, func(f fence) bool { return f.attempt == attempt })
	return m.fault()
}

// Withdraw forgets an attempt's entries.
func (m *Model) Withdraw(_ context.Context, tenant string, attempt suppression.AttemptID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.fault(); err != nil {
		return err
	}
	for s, e := range m.entries {
		if s.Tenant() == tenant && attempt != "" && e.Attempt == attempt {
			delete(m.entries, s)
		}
	}
	return nil
}

// Allow forgets one source.
func (m *Model) Allow(_ context.Context, s subject.Source) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.fault(); err != nil {
		return false, err
	}
	_, known := m.entries[s]
	delete(m.entries, s)
	return known, nil
}

// List pages in the order of the sources. Its cursor is a number, which the suite's rules on contents allow a model.
func (m *Model) List(_ context.Context, tenant, cursor string, limit int) ([]suppression.Entry, string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	start, err := strconv.Atoi("0" + cursor)
	if err != nil {
		return nil, "", suppression.ErrCursor
	}
	var all []suppression.Entry
	for s, e := range m.entries {
		if s.Tenant() == tenant {
			all = append(all, suppression.Entry{Source: s, Reason: e.Reason, ErasedAt: e.ErasedAt})
		}
	}
	slices.SortFunc(all, func(a, b suppression.Entry) int {
		return strings.Compare(a.Source.Origin()+"\x00"+a.Source.Reference(), b.Source.Origin()+"\x00"+b.Source.Reference())
	})
	end := min(start+limit, len(all))
	next := ""
	if end < len(all) {
		next = strconv.Itoa(end)
	}
	return all[min(start, end):end], next, m.fault()
}

// Ready answers what Break set.
func (m *Model) Ready(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.fault()
}
