// Package descriptor seals what names the person in an erasure request, each under a key of its own, so that destroying the
// key destroys the descriptor wherever a copy of it is. The keys themselves are wrapped by one that never leaves the
// deployment: a local keyset, or a key in Cloud KMS.
package descriptor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/tink"

	"recount/internal/stores"
)

// ErrDestroyed says that the key is gone, and with it what it sealed.
var ErrDestroyed = errors.New("the key of this descriptor was destroyed")

// Vault seals descriptors. It is safe for concurrent use.
type Vault struct {
	wrap tink.AEAD
	keys stores.Documents
}

// New takes the key that wraps all others, and where those are kept.
func New(wrap tink.AEAD, keys stores.Documents) *Vault { return &Vault{wrap: wrap, keys: keys} }

// Seal seals a text under the request's key, which is made when there is none yet: once, also when two calls seal at a time.
func (v *Vault) Seal(ctx context.Context, id string, plain []byte) ([]byte, error) {
	key, err := v.key(ctx, id)
	if errors.Is(err, ErrDestroyed) {
		if key, err = v.make(ctx, id); errors.Is(err, stores.ErrDocumentExists) {
			key, err = v.key(ctx, id) // another call was faster
		}
	}
	if err != nil {
		return nil, err
	}
	sealed, err := key.Encrypt(plain, []byte(id))
	if err != nil {
		return nil, fmt.Errorf("sealing: %w", err)
	}
	return sealed, nil
}

// Open opens what Seal sealed for that request. Errors: ErrDestroyed.
func (v *Vault) Open(ctx context.Context, id string, sealed []byte) ([]byte, error) {
	key, err := v.key(ctx, id)
	if err != nil {
		return nil, err
	}
	plain, err := key.Decrypt(sealed, []byte(id))
	if err != nil {
		return nil, errors.New("a descriptor can't be opened: it was changed, or sealed for another request")
	}
	return plain, nil
}

// Destroy destroys the request's key.
func (v *Vault) Destroy(ctx context.Context, id string) error {
	if err := v.keys.Delete(ctx, id); err != nil {
		return fmt.Errorf("destroying a key: %w", err)
	}
	return nil
}

func (v *Vault) make(ctx context.Context, id string) (tink.AEAD, error) {
	handle, err := keyset.NewHandle(aead.AES256GCMKeyTemplate())
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	var wrapped bytes.Buffer
	if err := handle.WriteWithAssociatedData(keyset.NewBinaryWriter(&wrapped), v.wrap, []byte(id)); err != nil {
		return nil, fmt.Errorf("wrapping a key: %w", err)
	}
	err = v.keys.Create(ctx, stores.Document{ID: id, Tenant: "-", Version: 1, Body: wrapped.Bytes()})
	if errors.Is(err, stores.ErrDocumentExists) { // somebody else made one meanwhile
		return v.key(ctx, id)
	}
	if err != nil {
		return nil, fmt.Errorf("keeping a key: %w", err)
	}
	return primitive(handle)
}

func (v *Vault) key(ctx context.Context, id string) (tink.AEAD, error) {
	d, err := v.keys.Get(ctx, id)
	if errors.Is(err, stores.ErrDocumentNotFound) {
		return nil, ErrDestroyed
	}
	if err != nil {
		return nil, fmt.Errorf("reading a key: %w", err)
	}
	handle, err := keyset.ReadWithAssociatedData(keyset.NewBinaryReader(bytes.NewReader(d.Body)), v.wrap, []byte(id))
	if err != nil {
		return nil, errors.New("a key can't be unwrapped: the key that wraps it is another one")
	}
	return primitive(handle)
}

func primitive(handle *keyset.Handle) (tink.AEAD, error) {
	key, err := aead.New(handle)
	if err != nil {
		return nil, fmt.Errorf("using a key: %w", err)
	}
	return key, nil
}

// LocalKey is the key of an embedded deployment, in a file for its owner's eyes only, which is made when missing.
func LocalKey(path string) (tink.AEAD, error) {
	text, err := os.ReadFile(path) //nolint:gosec // the configured folder
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeLocalKey(path); err != nil && !errors.Is(err, fs.ErrExist) { // another process may have made it meanwhile
			return nil, err
		}
		text, err = os.ReadFile(path) //nolint:gosec // as above
	}
	if err != nil {
		return nil, fmt.Errorf("reading the descriptors' key: %w", err)
	}
	handle, err := insecurecleartextkeyset.Read(keyset.NewJSONReader(bytes.NewReader(text)))
	if err != nil {
		return nil, fmt.Errorf("%s is no keyset", filepath.Base(path))
	}
	return primitive(handle)
}

func makeLocalKey(path string) error {
	handle, err := keyset.NewHandle(aead.AES256GCMKeyTemplate())
	if err != nil {
		return fmt.Errorf("making the descriptors' key: %w", err)
	}
	var text bytes.Buffer
	if err := insecurecleartextkeyset.Write(handle, keyset.NewJSONWriter(&text)); err != nil {
		return fmt.Errorf("writing the descriptors' key: %w", err)
	}
	return writeOnce(path, text.Bytes())
}

// writeOnce makes a file that must not be there yet, durably and whole: a process that ends in the middle leaves none under
// that name. Errors: fs.ErrExist, wrapped.
func writeOnce(path string, body []byte) error {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // with 0600
	if err != nil {
		return fmt.Errorf("making the descriptors' key: %w", err)
	}
	defer os.Remove(file.Name()) //nolint:errcheck // the link stays
	_, err = file.Write(body)
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = os.Link(file.Name(), path)
	}
	if folder, opening := os.Open(filepath.Dir(path)); opening == nil {
		err = errors.Join(err, folder.Sync(), folder.Close())
	} else {
		err = errors.Join(err, opening)
	}
	if err != nil {
		return fmt.Errorf("making the descriptors' key: %w", err)
	}
	return nil
}
