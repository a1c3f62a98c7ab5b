package erasure

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"recount/internal/descriptor"
	"recount/internal/ledger"
	"recount/internal/ledger/ledgertest"
	"recount/internal/stores"
	"recount/internal/stores/sqlite"
	"recount/internal/subject"
	"recount/internal/wire"
)

// What must never be written down outside of the sealed descriptor.
const (
	tenant     = "acme"
	alice      = "alice.liddell@wonderland.example"
	alias      = "crm-contact-77310"
	phone      = "+49-170-5550123"
	sourceName = "hubspot"
	sourceRef  = "mailbox-of-liddell-991"
)

var (
	ann = wire.Principal{Sub: "sub-ann", Email: "ann@acme.example"}
	bob = wire.Principal{Sub: "sub-bob", Email: "bob@acme.example"}
	cid = wire.Principal{Sub: "sub-cid", Email: "cid@acme.example"}
)

var begin = time.Date(2026, 3, 31, 9, 30, 0, 0, time.UTC)

// world is everything that a Service works on, and outlives it.
type world struct {
	t        testing.TB
	dir      string
	requests stores.Documents
	keys     stores.Documents
	db       *sqlite.DB
	vault    *descriptor.Vault
	log      *ledger.File
	programs *ledger.FilePrograms
	signing  *ledger.Keys
	salt     subject.Salt
	cells    []*fakeCell
	audit    *recordedAudit
	observer *recordedObserver
	poster   *fakePoster
	limits   Limits
	kill     *killer
	eraser   *fakeEraser
	listing  *listing
	from     int64 // of the ledger: where the entries begin that this test is about

	mu  sync.Mutex
	now time.Time
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{
		t: t, dir: folder(t), now: begin, audit: &recordedAudit{}, observer: &recordedObserver{}, poster: &fakePoster{}, kill: &killer{},
		listing: &listing{hashes: map[string]string{}, rows: map[string]bool{}},
		signing: ledgertest.Keys(t),
		limits: Limits{
			BackupHorizonDays: new(10), LogRetentionDays: 30, DriftPercent: 10, BlastCap: 1000, ApprovalTTL: 72 * time.Hour,
			Deadline: 720 * time.Hour, Lease: 5 * time.Minute, RetryFirst: time.Minute,
		},
	}
	salt, err := subject.NewSalt("a salt for the tests of erasure")
	must(t, err)
	w.salt = salt
	wrap, err := descriptor.LocalKey(filepath.Join(w.dir, "descriptor.key"))
	must(t, err)
	w.db, err = sqlite.Open(t.Context(), filepath.Join(w.dir, "recount.db"))
	must(t, err)
	t.Cleanup(func() { _ = w.db.Close() })
	w.requests, err = w.db.Documents(t.Context(), "erasure_requests")
	must(t, err)
	w.keys, err = w.db.Documents(t.Context(), "descriptor_keys")
	must(t, err)
	w.vault = descriptor.New(wrap, w.keys)
	w.openLedger()
	t.Cleanup(func() { _ = w.log.Close() })
	w.cells = []*fakeCell{
		newCell(w, "ingest", newStore("events", "sqlite"), newStore("invoices", "sqlite")),
		newCell(w, "causal", newStore("outcomes", "bigquery")),
	}
	w.eraser = &fakeEraser{w: w}
	return w
}

// folder is in memory where the machine has such a place: what a process left in the files is the same there.
func folder(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "erasure")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (w *world) openLedger() {
	w.t.Helper()
	var err error
	w.log, err = ledger.OpenFile(w.dir, w.signing, nil)
	must(w.t, err)
	w.programs, err = ledger.OpenPrograms(w.dir)
	must(w.t, err)
}

// populate gives alice rows in every store, and others rows that have to stay.
func (w *world) populate() {
	for _, cell := range w.cells {
		for _, store := range cell.stores {
			for range 3 {
				store.add(w.person(alice), w.source(sourceName, "message-of-"+alice))
			}
			store.add(w.person(alias), w.source(sourceName, "contact-"+alias))
			store.add(w.person("bystander"), w.source(sourceName, sourceRef))
			store.add(w.person("bystander"), w.source("erp", "order-1"))
		}
	}
}

func (w *world) person(identity string) subject.Subject {
	s, err := subject.New(tenant, identity)
	must(w.t, err)
	return s
}

func (w *world) source(name, ref string) subject.Source {
	s, err := subject.NewSource(tenant, name, ref)
	must(w.t, err)
	return s
}

func (w *world) cell(name string) *fakeCell {
	for _, c := range w.cells {
		if c.name == name {
			return c
		}
	}
	w.t.Fatal("no such cell")
	return nil
}

func (w *world) Now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) move(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

// service is a process over the world.
func (w *world) service(holder string) *Service {
	cells := make([]Cell, len(w.cells))
	for i, c := range w.cells {
		cells[i] = c
	}
	return New(Config{
		Holder: holder, Salt: w.salt, Digest: digestOf, Requests: &faultyDocuments{w.requests, w.kill}, Sealer: &faultySealer{w.vault, w.kill},
		Ledger: &faultyLog{w.log, w.kill}, Programs: &faultyPrograms{w.programs, w.kill}, Signer: w.signing, Cells: cells, Eraser: w.eraser,
		Audit: w.audit, Observer: w.observer, Poster: w.poster, Callback: plainSigner("state"), OpenDSR: plainSigner("opendsr"),
		Limits: w.limits, Now: w.Now,
	})
}

func digestOf(tenant string, text []byte) string {
	mac := hmac.New(sha256.New, []byte("key of the digests"))
	mac.Write([]byte(tenant))
	mac.Write(text)
	return hex.EncodeToString(mac.Sum(nil))
}

func fileRequest() wire.FileRequest {
	return wire.FileRequest{
		Kind: "subject", TenantID: tenant, LegalRef: "17(1)(b)", Policy: "delete", ReceivedAt: begin.Add(-24 * time.Hour),
		Descriptor: wire.Descriptor{PersonIDs: []string{alice, alias}, WholeSources: []wire.Source{{Source: sourceName, SourceRef: sourceRef}}},
	}
}

// filed files a request, by ann.
func (w *world) filed(s *Service, change ...func(*wire.FileRequest)) string {
	w.t.Helper()
	asked := fileRequest()
	asked.ReceivedAt = w.Now().Add(-24 * time.Hour)
	for _, f := range change {
		f(&asked)
	}
	r, err := s.File(w.t.Context(), ann, asked)
	must(w.t, err)
	return r.ID
}

// previewed verifies and previews, and answers the digest.
func (w *world) previewed(s *Service, id string) string {
	w.t.Helper()
	_, err := s.VerifyIdentity(w.t.Context(), ann, id, "a call back to the number on file")
	must(w.t, err)
	return w.previewedAgain(s, id)
}

func (w *world) previewedAgain(s *Service, id string) string {
	w.t.Helper()
	r, err := s.Preview(w.t.Context(), ann, id, wire.ActionRequest{})
	must(w.t, err)
	return r.Preview.Digest
}

// approved takes a request from filed to approved.
func (w *world) approved(s *Service, id string) {
	w.t.Helper()
	w.approveBoth(s, id, w.previewed(s, id))
}

func (w *world) approveBoth(s *Service, id, digest string) {
	w.t.Helper()
	for _, by := range []wire.Principal{ann, bob} {
		_, err := s.Approve(w.t.Context(), by, id, digest)
		must(w.t, err)
	}
}

func (w *world) resume(s *Service) {
	w.t.Helper()
	_, _, err := s.Resume(w.t.Context())
	must(w.t, err)
}

func (w *world) show(s *Service, id string) wire.Request {
	w.t.Helper()
	r, err := s.Show(w.t.Context(), id)
	must(w.t, err)
	return r
}

// stored is what is kept of a request, with what its readers don't see.
func (w *world) stored(id string) *request {
	w.t.Helper()
	d, err := w.requests.Get(w.t.Context(), id)
	must(w.t, err)
	r, err := parse(d)
	must(w.t, err)
	return r
}

// records are the ledger's entries of a request.
func (w *world) records(id string) (out []ledger.Record) {
	w.t.Helper()
	must(w.t, w.log.Scan(w.t.Context(), w.from, func(e ledger.Entry) error {
		r, err := ledger.Decode(e.Line)
		if err == nil && r.RequestRef == id {
			out = append(out, r)
		}
		return err
	}))
	return out
}

func (w *world) report(s *Service, id string) wire.Report {
	w.t.Helper()
	r, err := s.Report(w.t.Context(), cid, id)
	must(w.t, err)
	return r
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// refusedFor answers the code of a refusal.
func refusedFor(err error) string {
	var refused *RefusedError
	if errors.As(err, &refused) {
		return refused.Code
	}
	return ""
}

func wantState(t testing.TB, r wire.Request, want string) {
	t.Helper()
	if r.State != want {
		t.Fatalf("the request is %s (%s) instead of %s; stages %+v", r.State, r.StateDetail, want, r.Stages)
	}
}

func stageOf(t testing.TB, r wire.Request, name string) wire.Stage {
	t.Helper()
	for _, st := range r.Stages {
		if st.Name == name {
			return st
		}
	}
	t.Fatalf("no stage %s", name)
	return wire.Stage{}
}

func outcomeIn(t testing.TB, r wire.Request, cell, store string) wire.StoreOutcome {
	t.Helper()
	for _, o := range r.Stores {
		if o.Cell == cell && o.Store == store {
			return o
		}
	}
	t.Fatalf("nothing is known of %s/%s: %+v", cell, store, r.Stores)
	return wire.StoreOutcome{}
}
