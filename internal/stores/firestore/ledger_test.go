package firestore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"recount/internal/stores"
	"recount/internal/stores/firestore/firestoretest"
	"recount/internal/stores/storetest"
	"recount/internal/subject"
	"recount/internal/suppression"
	"recount/internal/suppression/suppressiontest"
)

func TestTheLedgerKeepsItsContract(t *testing.T) {
	host := firestoretest.Host(t)
	projects := map[string]string{}
	project := func(place string) string {
		if projects[place] == "" {
			projects[place] = firestoretest.Project()
		}
		return projects[place]
	}
	suppressiontest.Run(t, suppressiontest.Harness{
		Slow: true,
		Open: func(t *testing.T, place, cell string, k *suppression.Keys) (suppression.Ledger, error) {
			t.Helper()
			return openProject(t, host, project(place)).Ledger(t.Context(), cell, k)
		},
		Stored: func(t *testing.T, place string) string {
			t.Helper()
			client := openProject(t, host, project(place))
			text := ""
			for doc, err := range client.below(t.Context(), client.docs.Collection(ledgerCollection).Doc("ingest"), "") {
				if err != nil {
					t.Fatal(err)
				}
				text += doc.Ref.ID
				for name, value := range doc.Data() {
					if b, ok := value.([]byte); ok {
						value = string(b)
					}
					text += fmt.Sprint(name, value)
				}
			}
			return text
		},
	})
}

// TestErasuresThatWaitTogetherShareATransactionOfTheLedger: one after the other they would time each other out.
func TestErasuresThatWaitTogetherShareATransactionOfTheLedger(t *testing.T) {
	proxy := firestoretest.NewProxy(t)
	ledger, err := open(t, proxy.Host()).Ledger(t.Context(), "ingest", ledgerKeys(t))
	if err != nil {
		t.Fatal(err)
	}
	var commits atomic.Int64
	proxy.Decide(func(method string) (firestoretest.Fault, bool) {
		if method == "Commit" {
			commits.Add(1)
		}
		return firestoretest.Fault{Code: codes.OK, Delay: 100 * time.Millisecond}, method == "Commit"
	})
	const erasures = 60
	common, err := subject.NewSource("acme", "crm", "of all")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var inserted atomic.Int64
	for i := range erasures {
		wg.Go(func() {
			attempt := suppression.AttemptID(fmt.Sprint("attempt ", i))
			who, err1 := subject.New("acme", fmt.Sprint(i))
			own, err2 := subject.NewSource("acme", "crm", fmt.Sprint(i))
			err3 := ledger.Fence(t.Context(), attempt, []subject.Subject{who}, time.Now().Add(time.Minute))
			var entries []suppression.Entry
			for _, s := range []subject.Source{own, common} {
				entries = append(entries, suppression.Entry{Source: s, Reason: "test", ErasedAt: time.Now(), Erasure: subject.Ref(fmt.Sprint(i)), Attempt: attempt})
			}
			n, err4 := ledger.Record(t.Context(), entries)
			inserted.Add(int64(n))
			if err := errors.Join(err1, err2, err3, err4); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if c, n := commits.Load(), inserted.Load(); c > 12 || n != erasures+1 {
		t.Errorf("%d erasures took %d transactions and recorded %d sources", erasures, c, n)
	}
	for i := range erasures {
		if err := ledger.Withdraw(t.Context(), "acme", suppression.AttemptID(fmt.Sprint("attempt ", i))); err != nil {
			t.Fatal(err)
		}
	}
	a, err := ledger.Check(t.Context(), []subject.Record{{Source: common}})
	if err != nil || a.Verdicts[0] != suppression.Suppressed {
		t.Errorf("what all of them relied on is %v, %v", a.Verdicts, err)
	}
}

func ledgerKeys(t *testing.T) *suppression.Keys {
	t.Helper()
	k, err := suppression.ParseKeys("a suppression secret of the tests")
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestNothingThatWasRecordedIsInTheJournalAfterwards: writers hammer the same records while they are recorded and
// deleted. They have asked nobody before, so all rests on the append's own look at the ledger.
func TestNothingThatWasRecordedIsInTheJournalAfterwards(t *testing.T) {
	client := open(t, firestoretest.Host(t))
	ledger, err := client.Ledger(t.Context(), "graph", ledgerKeys(t))
	if err != nil {
		t.Fatal(err)
	}
	table := storetest.EdgesTable()
	journal, err := client.Journal(t.Context(), table, ledger)
	if err != nil {
		t.Fatal(err)
	}
	const records = 6
	sources := make([]subject.Source, records)
	for i := range sources {
		if sources[i], err = subject.NewSource("acme", "crm", fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				for i := range records {
					row := storetest.NewRow(table, "acme", "crm", fmt.Sprint(i), "alice")
					_, _ = journal.Append(ctx, []stores.Row{row}, 0) // contention may fail it
				}
			}
		})
	}
	for i := range records {
		time.Sleep(100 * time.Millisecond)
		if _, err := ledger.Record(t.Context(), []suppression.Entry{{Source: sources[i], Reason: "test", ErasedAt: time.Now(), Erasure: "r"}}); err != nil {
			t.Fatal(err)
		}
		if _, err := journal.DeleteSources(t.Context(), sources[i:i+1]); err != nil {
			t.Fatal(err)
		}
		counts, err := journal.CountSources(t.Context(), sources[:i+1])
		if err != nil {
			t.Fatal(err)
		}
		for j, n := range counts {
			if n != 0 {
				t.Fatalf("record %d is there after it was recorded and deleted", j)
			}
		}
	}
	cancel()
	wg.Wait()
	if n, err := journal.Count(t.Context(), sourceOwner(t)); err != nil || n != 0 {
		t.Fatalf("%d rows came back, %v", n, err)
	}
}

func sourceOwner(t *testing.T) subject.Subject {
	t.Helper()
	s, err := subject.New("acme", "alice")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAJournalOfAnEarlierVersionIsAskedForWhatDerives(t *testing.T) {
	client := open(t, firestoretest.Host(t))
	table := storetest.EdgesTable()
	before, err := client.Journal(t.Context(), table, nil)
	if err != nil {
		t.Fatal(err)
	}
	parent, err := subject.NewSource("acme", "crm", "parent")
	if err != nil {
		t.Fatal(err)
	}
	row := storetest.Derived(table, "acme", "score", "1", "bob", parent)
	if _, err := before.Append(t.Context(), []stores.Row{row}, 0); err != nil {
		t.Fatal(err)
	}
	it, err := before.item(row)
	if err != nil {
		t.Fatal(err)
	}
	delete(it.fields, parentsField) // as it was written then
	if _, err := before.Collection.ref.Doc(it.name).Set(t.Context(), it.fields); err != nil {
		t.Fatal(err)
	}
	if got, err := before.DerivedFrom(t.Context(), []subject.Source{parent}); err != nil || len(got) != 0 {
		t.Fatalf("the row of an earlier version is not one: %d, %v", len(got), err)
	}
	ledger, err := client.Ledger(t.Context(), "graph", ledgerKeys(t))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // twice: it is done once
		now, err := client.Journal(t.Context(), table, ledger)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := now.DerivedFrom(t.Context(), []subject.Source{parent}); err != nil || len(got) != 1 {
			t.Fatalf("%d derivations, %v", len(got), err)
		}
	}
}
