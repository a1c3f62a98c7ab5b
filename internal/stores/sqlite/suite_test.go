package sqlite_test

import (
	"path/filepath"
	"testing"

	"recount/internal/stores"
	"recount/internal/stores/sqlite"
	"recount/internal/stores/storetest"
	"recount/internal/subject"
)

func TestTheStoreConforms(t *testing.T) {
	storetest.Run(t, storetest.Harness{
		Casefold: true,
		New: func(t *testing.T, table stores.Table) subject.Store {
			db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "cell.db"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := db.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			})
			store, err := db.Table(t.Context(), table)
			if err != nil {
				t.Fatal(err)
			}
			return store
		},
	})
}
