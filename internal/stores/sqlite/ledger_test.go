package sqlite_test

import (
	"os"
	"path/filepath"
	"testing"

	"recount/internal/stores/sqlite"
	"recount/internal/suppression"
	"recount/internal/suppression/suppressiontest"
)

func TestTheLedgerKeepsItsContract(t *testing.T) {
	root := t.TempDir()
	suppressiontest.Run(t, suppressiontest.Harness{
		Open: func(t *testing.T, place, cell string, k *suppression.Keys) (suppression.Ledger, error) {
			t.Helper()
			db, err := sqlite.Open(t.Context(), filepath.Join(root, place, cell, "recount.db")) // a ledger is its cell's own file
			if err != nil {
				return nil, err
			}
			t.Cleanup(func() {
				if err := db.Close(); err != nil {
					t.Error(err)
				}
			})
			return db.Ledger(t.Context(), k)
		},
		Stored: func(t *testing.T, place string) string {
			t.Helper()
			all := ""
			err := filepath.WalkDir(filepath.Join(root, place), func(path string, d os.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return err
				}
				data, err := os.ReadFile(path)
				all += string(data)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			return all
		},
	})
}
