package firestore

import (
	"os"
	"testing"

	"recount/internal/stores"
	"recount/internal/stores/firestore/firestoretest"
	"recount/internal/stores/storetest"
	"recount/internal/subject"
)

func TestMain(m *testing.M) { os.Exit(firestoretest.Run(m)) }

func open(t *testing.T, host string) *Client {
	t.Helper()
	return openProject(t, host, firestoretest.Project())
}

func openProject(t *testing.T, host, project string) *Client {
	t.Helper()
	client, err := Open(t.Context(), Config{Project: project, EmulatorHost: host, CursorSecret: []byte("a secret of the tests")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return client
}

func TestTheJournalKeepsTheContractOfStores(t *testing.T) {
	host := firestoretest.Host(t)
	storetest.Run(t, storetest.Harness{
		New: func(t *testing.T, table stores.Table) subject.Store {
			journal, err := open(t, host).Journal(t.Context(), table, nil)
			if err != nil {
				t.Fatal(err)
			}
			return journal
		},
		Physical: physical,
		Slow:     true,
	})
}

func physical(t *testing.T, store subject.Store) int64 {
	t.Helper()
	journal, ok := store.(*Journal)
	if !ok {
		t.Fatalf("a store of type %T", store)
	}
	n, err := aggregate(t.Context(), journal.Collection.ref.Query)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
