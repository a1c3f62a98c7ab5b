package descriptor_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"recount/internal/descriptor"
	"recount/internal/stores"
	"recount/internal/stores/sqlite"
)

const plain = "alice.liddell@wonderland.example"

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func keys(t *testing.T) (dir string, docs stores.Documents) {
	t.Helper()
	dir = t.TempDir()
	db, err := sqlite.Open(t.Context(), filepath.Join(dir, "keys.db"))
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	docs, err = db.Documents(t.Context(), "keys")
	must(t, err)
	return dir, docs
}

func vault(t *testing.T, docs stores.Documents, path string) *descriptor.Vault {
	t.Helper()
	wrap, err := descriptor.LocalKey(path)
	must(t, err)
	return descriptor.New(wrap, docs)
}

func TestWhatIsSealedOpensUnderItsOwnIdAloneAndUnchanged(t *testing.T) {
	dir, docs := keys(t)
	v := vault(t, docs, filepath.Join(dir, "key"))
	sealed, err := v.Seal(t.Context(), "one", []byte(plain))
	must(t, err)
	other, err := v.Seal(t.Context(), "two", []byte("another"))
	must(t, err)
	if bytes.Contains(sealed, []byte("alice")) {
		t.Error("it is not sealed")
	}
	again := vault(t, docs, filepath.Join(dir, "key")) // another process
	if got, err := again.Open(t.Context(), "one", sealed); err != nil || string(got) != plain {
		t.Errorf("%q %v", got, err)
	}
	for id, text := range map[string][]byte{"two": sealed, "one": other} {
		if _, err := v.Open(t.Context(), id, text); err == nil {
			t.Errorf("%s opens what another sealed", id)
		}
	}
	for i := range sealed {
		changed := bytes.Clone(sealed)
		changed[i] ^= 1
		if _, err := v.Open(t.Context(), "one", changed); err == nil {
			t.Fatalf("byte %d was changed, and it opens", i)
		}
	}
	more, err := v.Seal(t.Context(), "one", []byte("more"))
	must(t, err)
	if got, err := v.Open(t.Context(), "one", more); err != nil || string(got) != "more" {
		t.Errorf("%q %v", got, err)
	}
	if got, err := v.Open(t.Context(), "one", sealed); err != nil || string(got) != plain {
		t.Errorf("sealing again took the first one: %q %v", got, err)
	}
}

func TestWhatWasDestroyedNeverOpensAgain(t *testing.T) {
	dir, docs := keys(t)
	v := vault(t, docs, filepath.Join(dir, "key"))
	sealed, err := v.Seal(t.Context(), "one", []byte(plain))
	must(t, err)
	must(t, v.Destroy(t.Context(), "one"))
	must(t, v.Destroy(t.Context(), "one")) // idempotent
	if _, err := v.Open(t.Context(), "one", sealed); !errors.Is(err, descriptor.ErrDestroyed) {
		t.Errorf("%v", err)
	}
	_, err = v.Seal(t.Context(), "one", []byte("new"))
	must(t, err)
	if _, err := v.Open(t.Context(), "one", sealed); err == nil {
		t.Error("a new key opens what the old one sealed")
	}
}

func TestAnotherWrappingKeyOpensNothing(t *testing.T) {
	dir, docs := keys(t)
	sealed, err := vault(t, docs, filepath.Join(dir, "key")).Seal(t.Context(), "one", []byte(plain))
	must(t, err)
	_, err = vault(t, docs, filepath.Join(dir, "another")).Open(t.Context(), "one", sealed)
	if err == nil || errors.Is(err, descriptor.ErrDestroyed) {
		t.Errorf("%v", err)
	}
}

func TestTheLocalKeyIsMadeOnceAndForItsOwnerAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "local", "key")
	if _, err := descriptor.LocalKey(path); err == nil {
		t.Error("a folder that is not there")
	}
	must(t, os.Mkdir(filepath.Dir(path), 0o700))
	var wg sync.WaitGroup
	sealed := make([][]byte, 8)
	for i := range sealed { // processes that start at one time
		wg.Go(func() {
			wrap, err := descriptor.LocalKey(path)
			if err != nil {
				t.Error(err)
				return
			}
			if sealed[i], err = wrap.Encrypt([]byte(plain), nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	wrap, err := descriptor.LocalKey(path)
	must(t, err)
	for i := range sealed {
		if _, err := wrap.Decrypt(sealed[i], nil); err != nil {
			t.Errorf("process %d has a key of its own", i)
		}
	}
	info, err := os.Stat(path)
	must(t, err)
	entries, err := os.ReadDir(filepath.Dir(path))
	must(t, err)
	if info.Mode().Perm() != 0o600 || len(entries) != 1 {
		t.Errorf("%s, %d files", info.Mode(), len(entries))
	}
	must(t, os.WriteFile(path, []byte("{"), 0o600))
	if _, err := descriptor.LocalKey(path); err == nil {
		t.Error("a file that is no keyset")
	}
}

func TestOneKeyIsMadeWhereManySealAtOneTime(t *testing.T) {
	dir, docs := keys(t)
	v := vault(t, docs, filepath.Join(dir, "key"))
	var wg sync.WaitGroup
	sealed := make([][]byte, 8)
	for i := range sealed {
		wg.Go(func() {
			var err error
			if sealed[i], err = v.Seal(context.WithoutCancel(t.Context()), "one", []byte(plain)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i := range sealed {
		if _, err := v.Open(t.Context(), "one", sealed[i]); err != nil {
			t.Errorf("%d: %v", i, err)
		}
	}
}
