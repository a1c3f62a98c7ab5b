package app

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/tink-crypto/tink-go-gcpkms/v2/integration/gcpkms"
	"github.com/tink-crypto/tink-go/v2/tink"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"recount/internal/audit"
	"recount/internal/auth"
	"recount/internal/descriptor"
	"recount/internal/erasure"
	"recount/internal/httpapi"
	"recount/internal/httpapi/erasureapi"
	"recount/internal/httpapi/opendsrapi"
	"recount/internal/ledger"
	"recount/internal/notify"
	"recount/internal/stores"
	"recount/internal/stores/sqlite"
)

// requests is what erasure requests stand on, while it is opened.
type requests struct {
	documents, keys stores.Documents
	index           stores.Documents // of OpenDSR
	anchor          stores.Documents // of the ledger, embedded
	openDSR         *notify.Signer   // nil where it is switched off
	wrap            tink.AEAD
	ledger          ledger.Log
	programs        ledger.Programs
	signer          *ledger.Keys
	holder          string
	close           []func() error // in the order of opening
}

func (q *requests) closeAll() error {
	var faults []error
	for i := len(q.close) - 1; i >= 0; i-- {
		faults = append(faults, q.close[i]())
	}
	return errors.Join(faults...)
}

// The collections of documents.
const (
	requestCollection = "erasure_requests"
	keyCollection     = "descriptor_keys"
	indexCollection   = "opendsr_requests"
	anchorCollection  = "ledger_anchor"
)

// openRequests opens what the backend keeps of erasure requests. The data folder is held by its lock already.
func (r *running) openRequests(ctx context.Context, e *Erasure) (*requests, error) {
	q := &requests{signer: e.keys}
	dir := r.dataDir(coordinatorCell)
	if r.StoreBackend == "gcp" {
		return q, q.onGCP(ctx, r.Service, e)
	}
	q.holder = "embedded" // the folder's lock lets in one process: a lease that its predecessor left is its own
	if err := q.embeddedDocuments(ctx, dir); err != nil {
		return q, err
	}
	return q, errors.Join(q.embeddedLedger(dir), q.openDSRKey(dir, e))
}

func (q *requests) embeddedDocuments(ctx context.Context, dir string) (err error) {
	db, err := sqlite.Open(ctx, filepath.Join(dir, "requests.db"))
	if err != nil {
		return fmt.Errorf("opening the requests: %w", err)
	}
	q.close = append(q.close, db.Close)
	collections := map[string]*stores.Documents{
		requestCollection: &q.documents, keyCollection: &q.keys, indexCollection: &q.index, anchorCollection: &q.anchor,
	}
	// They are made by small synced writes: at the same time they share them.
	var opening errgroup.Group
	for name, collection := range collections {
		opening.Go(func() (err error) {
			if *collection, err = db.Documents(ctx, name); err != nil {
				return fmt.Errorf("opening %s: %w", name, err)
			}
			return nil
		})
	}
	opening.Go(func() (err error) {
		q.wrap, err = descriptor.LocalKey(filepath.Join(dir, "descriptor-keyset.json"))
		return err
	})
	return opening.Wait()
}

func (q *requests) embeddedLedger(dir string) (err error) {
	if q.signer == nil {
		if q.signer, err = localSigningKey(filepath.Join(dir, "ledger-signing.key")); err != nil {
			return err
		}
	}
	file, err := ledger.OpenFile(dir, q.signer, anchored{q.anchor})
	if err != nil {
		return fmt.Errorf("opening the ledger of erasures: %w", err)
	}
	q.ledger = file
	q.close = append(q.close, file.Close)
	q.programs, err = ledger.OpenPrograms(dir)
	return err
}

func (q *requests) onGCP(ctx context.Context, s *Service, e *Erasure) error {
	host, _ := os.Hostname() // a random part tells instances apart anyway
	var part [8]byte
	_, _ = rand.Read(part[:]) // never fails: crypto/rand ends the program instead
	q.holder = host + "-" + hex.EncodeToString(part[:])
	client, err := openFirestore(ctx, s, s.GCPProject, s.FirestoreDatabase)
	if err != nil {
		return err
	}
	q.close = append(q.close, client.Close)
	if q.documents, err = client.Documents(ctx, requestCollection); err != nil {
		return fmt.Errorf("opening the requests: %w", err)
	}
	if q.keys, err = client.Documents(ctx, keyCollection); err != nil {
		return fmt.Errorf("opening the descriptors' keys: %w", err)
	}
	if q.index, err = client.Documents(ctx, indexCollection); err != nil {
		return fmt.Errorf("opening OpenDSR's index: %w", err)
	}
	if err := q.openDSRKey(s.dataDir(coordinatorCell), e); err != nil {
		return err
	}
	if err := q.gcpKeys(ctx, s, e); err != nil {
		return err
	}
	if q.ledger, err = client.ErasureLedger(ctx, q.signer); err != nil {
		return fmt.Errorf("opening the ledger of erasures: %w", err)
	}
	q.programs = client.ErasurePrograms()
	return nil
}

// gcpKeys takes the keys that the configuration names. On a developer's machine, against emulators, there is no KMS: then
// they are files, as embedded.
func (q *requests) gcpKeys(ctx context.Context, s *Service, e *Erasure) (err error) {
	dir := s.dataDir(coordinatorCell)
	if q.signer == nil || e.DescriptorKMSKey == "" {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("making the data folder: %w", err)
		}
	}
	if q.signer == nil {
		if q.signer, err = localSigningKey(filepath.Join(dir, "ledger-signing.key")); err != nil {
			return err
		}
	}
	if e.DescriptorKMSKey == "" {
		q.wrap, err = descriptor.LocalKey(filepath.Join(dir, "descriptor-keyset.json"))
		return err
	}
	uri := "gcp-kms://" + e.DescriptorKMSKey
	client, err := gcpkms.NewClient(ctx, uri)
	if err != nil {
		return errors.New("DESCRIPTOR_KMS_KEY: the key management service can't be reached with it")
	}
	q.close = append(q.close, client.Close)
	if q.wrap, err = client.GetAEAD(uri); err != nil {
		return errors.New("DESCRIPTOR_KMS_KEY: not of the form projects/P/locations/L/keyRings/R/cryptoKeys/K")
	}
	return nil
}

// openDSRKey takes the configured key, or that of an embedded deployment, in a file for its owner's eyes only.
func (q *requests) openDSRKey(dir string, e *Erasure) error {
	if e.OpenDSRDomain == "" {
		return nil
	}
	key := e.OpenDSRSigningKey.reveal()
	if key == "" {
		path := filepath.Join(dir, "opendsr-signing.pem")
		text, err := os.ReadFile(path) //nolint:gosec // the configured folder
		if errors.Is(err, fs.ErrNotExist) {
			made, making := notify.GenerateKey()
			if making != nil {
				return making
			}
			text = []byte(made)
			err = errors.Join(os.MkdirAll(dir, 0o700), writeSecret(path, text))
		}
		if err != nil {
			return fmt.Errorf("OpenDSR's signing key: %w", err)
		}
		key = string(text)
	}
	signer, err := notify.NewSigner(key, e.OpenDSRDomain)
	if err != nil {
		return fmt.Errorf("OpenDSR's signing key: %w", err)
	}
	q.openDSR = signer
	return nil
}

// localSigningKey is the ledger's key of an embedded deployment, in a file for its owner's eyes only.
func localSigningKey(path string) (*ledger.Keys, error) {
	text, err := os.ReadFile(path) //nolint:gosec // the configured folder
	if errors.Is(err, fs.ErrNotExist) {
		private, making := ledger.GenerateKey("recount")
		if making != nil {
			return nil, making
		}
		text = []byte(private)
		err = writeSecret(path, text)
	}
	if err != nil {
		return nil, fmt.Errorf("the ledger's signing key: %w", err)
	}
	keys, err := ledger.ParseKeys(string(text))
	if err != nil {
		return nil, fmt.Errorf("the ledger's signing key in %s: %w", filepath.Base(path), err)
	}
	return keys, nil
}

// writeSecret makes a file that must not be there yet, durably: what it signs must verify after a crash too.
func writeSecret(path string, body []byte) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) //nolint:gosec // the configured folder
	if err != nil {
		return err
	}
	_, err = file.Write(body)
	err = errors.Join(err, file.Sync(), file.Close())
	folder, opening := os.Open(filepath.Dir(path))
	if opening != nil {
		return errors.Join(err, opening)
	}
	return errors.Join(err, folder.Sync(), folder.Close())
}

// newErasures makes the service of erasure requests over what was opened.
func (r *running) newErasures(e *Erasure, q *requests, c *coordinator, recorder *audit.Recorder) *erasure.Service {
	key := derivedKey(r.salt, "erasure request digests 1")
	cells := []erasure.Cell{c.local}
	for _, peer := range c.peers {
		cells = append(cells, peer)
	}
	config := erasure.Config{
		Holder: q.holder, Salt: r.salt, Requests: q.documents, Sealer: descriptor.New(q.wrap, q.keys), Ledger: q.ledger, Programs: q.programs,
		Signer: q.signer, Cells: cells, Eraser: c, Audit: recorder, Observer: requestObserver{r},
		Poster:   notify.New(notify.Config{Hosts: e.hosts, AllowLoopback: r.AuthMode == "off"}),
		Callback: e.secrets, Limits: e.limits, Now: time.Now,
		Digest: func(tenant string, text []byte) string {
			mac := hmac.New(sha256.New, key)
			mac.Write([]byte(tenant + "|"))
			mac.Write(text)
			return hex.EncodeToString(mac.Sum(nil))
		},
	}
	if q.openDSR != nil {
		config.OpenDSR = q.openDSR
	}
	return erasure.New(config)
}

// mountRequests adds the surfaces of erasure requests to the API.
func (r *running) mountRequests(api *httpapi.API, c *coordinator) error {
	erasureapi.Mount(api, c.requests)
	if c.openDSR == nil {
		return nil
	}
	surface := *c.openDSR
	surface.Requests = c.requests
	return opendsrapi.Mount(api, surface)
}

// openDSRSurface is nil where OpenDSR is switched off.
func (r *running) openDSRSurface(e *Erasure, q *requests) *opendsrapi.Surface {
	if q.openDSR == nil {
		return nil
	}
	return &opendsrapi.Surface{
		Index: q.index, Key: derivedKey(r.salt, "opendsr digests 1"), Signer: q.openDSR, Domain: e.OpenDSRDomain, Identities: e.identities, Now: time.Now,
	}
}

// adminAuthenticator says who the principals are.
func (r *running) adminAuthenticator(ctx context.Context, e *Erasure) (httpapi.Authenticator, error) {
	if r.AuthMode == "off" {
		return auth.NewDevPrincipals(r.ListenAddr)
	}
	return auth.NewIDToken(ctx, auth.IDTokenConfig{Audience: e.AdminAudience, Callers: e.principals, CertsURL: r.AuthCertsURL, ListenAddr: r.ListenAddr})
}

// requestObserver counts and logs what becomes of requests.
type requestObserver struct{ *running }

func (o requestObserver) RequestEnded(state string) { o.obs.RequestEnded(state) }

func (o requestObserver) RequestsDue(overdue, soon int64) { o.obs.RequestsDue(overdue, soon) }

func (o requestObserver) RequestFailed(step string, err error) {
	o.obs.RequestFailed(step)
	o.log.Error("an erasure request could not go on", zap.String("step", step), zap.String("kind", fmt.Sprintf("%T", innermost(err))))
}
