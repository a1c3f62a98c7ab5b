package cell

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"recount/internal/intake"
	"recount/internal/stores"
	"recount/internal/stores/memory"
	"recount/internal/subject"
	"recount/internal/suppression"
	"recount/internal/suppression/suppressiontest"
)

type switchLease struct{ held atomic.Bool }

func (l *switchLease) Held() bool { return l.held.Load() }

func newGraph(t interface{ Fatal(...any) }, store string) *memory.Graph {
	spec := intake.Edges().Table
	spec.Store = store
	g, err := memory.NewGraph(spec)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func someone(t interface{ Fatal(...any) }, identity string) subject.Subject {
	s, err := subject.New("acme", identity)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func edge(ref, from, to string) stores.Row {
	return stores.Row{"row-" + ref, "acme", from, to, "crm", ref, "consent", nil, time.Now().UTC(), "knows", nil}
}

// writing is a write by way of the guard.
type writing struct {
	guard  *suppression.Guard
	paired *Paired
}

func (w writing) Append(ctx context.Context, rows []stores.Row) ([]bool, error) {
	record := intake.Edges().Table.Records()
	records := make([]subject.Record, len(rows))
	for i, row := range rows {
		var err error
		if records[i], err = record(row); err != nil {
			return nil, err
		}
	}
	var created []bool
	_, err := w.guard.Write(ctx, records, nil, func(ctx context.Context, d suppression.Decision) (err error) {
		if d.Verdicts[0] == suppression.Admitted {
			created, err = w.paired.Append(ctx, rows, d.Generation)
		}
		return err
	})
	return created, err
}

// graphCell is the graph as it is wired where journal and memory share no transaction, with a second graph in the
// journal's place.
func graphCell(t interface{ Fatal(...any) }) (c *Cell, write writing, journal, served *memory.Graph, lease *switchLease) {
	journal, served, lease = newGraph(t, "graph_journal"), newGraph(t, "graph"), &switchLease{}
	lease.held.Store(true)
	turns, ledger, writers := NewTurns(), suppressiontest.NewModel(), suppression.NewWriters(5*time.Second)
	write = writing{
		guard:  &suppression.Guard{Ledger: ledger, Writers: writers},
		paired: &Paired{Durable: journal, Turns: turns, Lease: lease, Fill: served.Fill},
	}
	salt, err := subject.NewSalt("0123456789abcdef")
	if err != nil {
		t.Fatal(err)
	}
	leased := Leased{MemoryStore: served, Lease: lease}
	c = New(Config{
		Name: "graph", Salt: salt, StoreTimeout: 5 * time.Second, Stopping: context.Background(), Lease: lease, Ledger: ledger, Guard: write.guard,
		Capture: &suppression.Capture{Ledger: ledger, Writers: writers, Stores: []suppression.Store{journal, leased}},
		Groups:  []subject.Group{{Stores: []subject.Store{journal, leased}, Lock: turns.Shared}},
	})
	return c, write, journal, served, lease
}

func about(t interface{ Fatal(...any) }, identity string) subject.Target {
	return subject.Target{Tenant: "acme", Subject: someone(t, identity), Ref: subject.Ref("ref of " + identity)}
}

// TestJournalAndMemoryAgreeWhateverIsWrittenWhileSomebodyIsErased is what the shared locks are for.
func TestJournalAndMemoryAgreeWhateverIsWrittenWhileSomebodyIsErased(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, write, journal, served, _ := graphCell(t)
		people := []string{"alice", "bob", "carol"}
		plan := rapid.SliceOfN(rapid.IntRange(0, 5), 4, 24).Draw(t, "plan")
		var wg sync.WaitGroup
		for i, step := range plan {
			wg.Go(func() {
				if step < 3 {
					c.Erase(context.Background(), "", about(t, people[step]))
					return
				}
				if _, err := write.Append(context.Background(), []stores.Row{edge(fmt.Sprint(i), people[i%3], people[(i+step)%3])}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for _, p := range people {
			inJournal, err1 := journal.Count(context.Background(), someone(t, p))
			inMemory, err2 := served.Count(context.Background(), someone(t, p))
			if err1 != nil || err2 != nil || inJournal != inMemory {
				t.Fatalf("%d rows in the journal, %d in memory: %v %v", inJournal, inMemory, err1, err2)
			}
		}
	})
}

func TestALeaseThatIsLostInMidErasureIsAFailedReceipt(t *testing.T) {
	c, write, _, _, lease := graphCell(t)
	if _, err := write.Append(t.Context(), []stores.Row{edge("1", "alice", "bob")}); err != nil {
		t.Fatal(err)
	}
	lease.held.Store(false)
	receipts := c.Erase(t.Context(), "", about(t, "alice")).Receipts
	if receipts[0].Status() != subject.Erased {
		t.Errorf("the journal was erased, and says %v %q", receipts[0].Status(), receipts[0].Reason())
	}
	if receipts[1].Status() != subject.Failed || receipts[1].Reason() != subject.ReasonNoLease {
		t.Errorf("the memory says %v %q", receipts[1].Status(), receipts[1].Reason())
	}
	if _, err := write.Append(t.Context(), []stores.Row{edge("2", "alice", "bob")}); subject.ReasonOf(err) != subject.ReasonNoLease {
		t.Errorf("a write without the lease: %v", err)
	}
	if c.Serving() == nil || c.Ready(t.Context()) == nil {
		t.Error("serving without the lease")
	}
}

func TestWhoeverIsAloneWaitsForTheOthersAndKeepsThemOut(t *testing.T) {
	turns := NewTurns()
	first, err := turns.Shared(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	second, err := turns.Shared(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wait := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	if _, err := turns.Alone(wait()); err == nil {
		t.Fatal("alone among others")
	}
	first()
	second()
	alone, err := turns.Alone(wait())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := turns.Shared(wait()); err == nil {
		t.Fatal("not alone")
	}
	alone()
	if release, err := turns.Shared(wait()); err != nil {
		t.Fatal(err)
	} else {
		release()
	}
}

func TestACallerWhoHangsUpDoesNotStopAnErasure(t *testing.T) {
	c, write, _, _, _ := graphCell(t)
	if _, err := write.Append(t.Context(), []stores.Row{edge("1", "alice", "bob")}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := subject.Fold(c.Erase(ctx, "", about(t, "alice")).Receipts); got != subject.Erased {
		t.Fatalf("got %v", got)
	}
}

func TestWithoutAJournalHealthSaysWhatThatMeans(t *testing.T) {
	c := New(Config{Name: "graph", GraphJournal: "off", Groups: []subject.Group{{Stores: []subject.Store{newGraph(t, "graph")}}}})
	if h := c.Health(); h.GraphJournal != "off" || !strings.Contains(h.GraphNote, "one instance") || !strings.Contains(h.GraphNote, "journal purge") {
		t.Errorf("%+v", h)
	}
}

type surveyor struct {
	found []stores.Suspect
	err   error
}

func (s surveyor) Survey(context.Context, []stores.Table) ([]stores.Suspect, error) {
	return s.found, s.err
}

func TestCoverageNamesWhatEveryDatabaseHasAndFailsWhenOneCanNotBeAsked(t *testing.T) {
	one := Survey{Surveyor: surveyor{found: []stores.Suspect{{Table: "t", Column: "email"}}}}
	c := New(Config{Surveys: []Survey{one, one}})
	if got, err := c.Coverage(t.Context()); err != nil || len(got) != 2 {
		t.Errorf("%v %v", got, err)
	}
	broken := errors.New("broken")
	c = New(Config{Surveys: []Survey{one, {Surveyor: surveyor{err: broken}}}})
	if _, err := c.Coverage(t.Context()); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}
