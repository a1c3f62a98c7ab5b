package bigquery_test

import (
	"testing"

	"google.golang.org/api/iterator"

	bq "cloud.google.com/go/bigquery"

	"recount/internal/stores"
	"recount/internal/stores/storetest"
	"recount/internal/subject"
)

func TestKeepsTheStorageContract(t *testing.T) {
	t.Parallel()
	worlds := map[subject.Store]*world{}
	storetest.Run(t, storetest.Harness{
		New: func(t *testing.T, table stores.Table) subject.Store {
			t.Helper()
			w := newWorld(t)
			w.create(live(table))
			store := w.table(table)
			worlds[store] = w
			return store
		},
		Physical: func(t *testing.T, store subject.Store) int64 {
			t.Helper()
			return physical(t, worlds[store], store.Name())
		},
		Slow: true,
	})
}

func physical(t *testing.T, w *world, table string) int64 {
	t.Helper()
	q := w.raw().Query("SELECT COUNT(*) AS n FROM intent." + table)
	q.DisableQueryCache = true
	rows, err := q.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var out []bq.Value
	if err := rows.Next(&out); err != nil {
		t.Fatal(err)
	}
	if err := rows.Next(&[]bq.Value{}); err != iterator.Done { //nolint:errorlint // a sentinel by contract
		t.Fatal(err)
	}
	n, _ := out[0].(int64)
	return n
}

func TestTheEmulatorsBadCacheIsBadEnough(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.events()
	count := func() int64 {
		rows, err := w.raw().Query("SELECT COUNT(*) AS n FROM intent.events").Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var out []bq.Value
		if err := rows.Next(&out); err != nil {
			t.Fatal(err)
		}
		n, _ := out[0].(int64)
		return n
	}
	first := count()
	w.seed("alice")
	if again := count(); again != first {
		t.Fatal("the emulator's cache noticed a change: it proves nothing any more")
	}
	for _, s := range w.server.Statements() {
		if s.Cache && s.JobID[:5] == "recou" {
			t.Errorf("a statement allowed a cached result: %s", s.SQL)
		}
	}
}
