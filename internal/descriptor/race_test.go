package descriptor_test

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"recount/internal/descriptor"
	"recount/internal/stores/sqlite"
)

func TestWhatSealsAtTheSameTimeSealsUnderOneKey(t *testing.T) {
	dir := t.TempDir()
	db, err := sqlite.Open(t.Context(), filepath.Join(dir, "keys.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	keys, err := db.Documents(t.Context(), "keys")
	if err != nil {
		t.Fatal(err)
	}
	wrap, err := descriptor.LocalKey(filepath.Join(dir, "descriptor.key"))
	if err != nil {
		t.Fatal(err)
	}
	vault := descriptor.New(wrap, keys)
	for round := range 5 {
		id := fmt.Sprintf("request-%d", round)
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				text := fmt.Sprintf("text %d", i)
				sealed, err := vault.Seal(t.Context(), id, []byte(text))
				if err != nil {
					t.Errorf("sealing: %v", err)
					return
				}
				if plain, err := vault.Open(t.Context(), id, sealed); err != nil || string(plain) != text {
					t.Errorf("%q, %v", plain, err)
				}
			})
		}
		wg.Wait()
	}
}
