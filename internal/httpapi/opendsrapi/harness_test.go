package opendsrapi_test

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"recount/internal/audit"
	"recount/internal/auth"
	"recount/internal/descriptor"
	"recount/internal/erasure"
	"recount/internal/httpapi"
	"recount/internal/httpapi/opendsrapi"
	"recount/internal/ledger"
	"recount/internal/notify"
	"recount/internal/stores/sqlite"
	"recount/internal/subject"
	"recount/internal/wire"
)

const domain = "dsr.example.com"

var (
	salt, _    = subject.NewSalt("0123456789abcdef")
	signingKey = sync.OnceValues(notify.GenerateKey)
	start      = time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	limits     = erasure.Limits{
		LogRetentionDays: 30, DriftPercent: 10, BlastCap: 1000, ApprovalTTL: 24 * time.Hour, Deadline: time.Hour, Lease: time.Minute, RetryFirst: time.Second,
	}
)

type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) move(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(by)
}

// fakeCell is a cell with one store, and the cascade over it.
type fakeCell struct {
	mu    sync.Mutex
	rows  int64
	stuck bool // nothing can be deleted
}

func (*fakeCell) Name() string { return "scoring" }

func (*fakeCell) Follow(_ context.Context, _ string, targets []subject.Target) ([][]subject.Source, error) {
	return make([][]subject.Source, len(targets)), nil
}

func (f *fakeCell) Enumerate(_ context.Context, _ string, targets []subject.Target, _ bool) []wire.Enumerated {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]wire.Enumerated, len(targets))
	for i, t := range targets {
		out[i] = wire.Enumerated{SubjectRef: string(t.Ref), Suppressed: subject.Measured(0), Receipts: []wire.Coordinates{
			{Cell: "scoring", Store: "scores", Backend: "fake", Status: "counted", Count: subject.Measured(f.rows)},
		}}
	}
	return out
}

func (*fakeCell) Freeze(context.Context, string, string, []subject.Subject, time.Time) error {
	return nil
}
func (*fakeCell) Thaw(context.Context, string, string, string) error { return nil }

func (f *fakeCell) EraseBatch(_ context.Context, _ string, targets []subject.Target) []subject.Erasure {
	f.mu.Lock()
	defer f.mu.Unlock()
	label := subject.Label{Cell: "scoring", Store: "scores", Backend: "fake"}
	out := make([]subject.Erasure, len(targets))
	for i := range targets {
		counts := subject.Counts{Before: subject.Measured(f.rows), Deleted: subject.Measured(f.rows), Remaining: subject.Measured(0), Derived: subject.Measured(0)}
		if f.stuck {
			out[i].Receipts = []subject.Receipt{subject.NewFailed(label, subject.Times{}, counts, subject.ReasonDeleteFailed)}
			continue
		}
		out[i].Receipts = []subject.Receipt{subject.Attest(subject.Statement{Label: label, Counts: counts, Status: subject.Erased})}
		f.rows = 0
	}
	return out
}

type noAudit struct{}

func (noAudit) Record(...audit.Row) {}

type observer struct{ t *testing.T }

func (observer) RequestEnded(string)      {}
func (observer) RequestsDue(int64, int64) {}
func (o observer) RequestFailed(step string, err error) {
	o.t.Errorf("%s: %v", step, err)
}

type callers map[string]auth.Caller

func (c callers) Authenticate(r *http.Request) (auth.Caller, error) {
	caller, known := c[r.Header.Get("Authorization")]
	if !known {
		return auth.Caller{}, auth.ErrUnauthenticated
	}
	return caller, nil
}

type noMeter struct{}

func (noMeter) Started()                                    {}
func (noMeter) Finished(string, string, int, time.Duration) {}

// between stands between the surface and the service.
type between struct {
	*erasure.Service
	dies  bool   // before anything is filed
	state string // what Show says, where set
}

func (b *between) FileOpenDSR(ctx context.Context, by wire.Principal, id string, asked wire.FileRequest, from erasure.DSR) (wire.Request, error) {
	if b.dies {
		return wire.Request{}, fmt.Errorf("filing for %v", asked.Descriptor.PersonIDs)
	}
	return b.Service.FileOpenDSR(ctx, by, id, asked, from)
}

func (b *between) Show(ctx context.Context, id string) (wire.Request, error) {
	r, err := b.Service.Show(ctx, id)
	if b.state != "" {
		r.State = b.state
	}
	return r, err
}

type fixture struct {
	t       *testing.T
	clock   *clock
	cell    *fakeCell
	service *between
	index   *sqlite.Documents
	hook    *receiver
	url     string
}

func serve(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, clock: &clock{at: start}, cell: &fakeCell{rows: 7}, hook: receive(t)}
	pem, err := signingKey()
	if err != nil {
		t.Fatal(err)
	}
	signer, err := notify.NewSigner(pem, domain)
	if err != nil {
		t.Fatal(err)
	}
	f.service = &between{Service: f.erasures(signer)}
	identities, err := opendsrapi.ParseIdentities("controller_customer_id={value},email=person-email:{value}")
	if err != nil {
		t.Fatal(err)
	}
	api := httpapi.New(httpapi.Config{
		Log: zap.NewNop(), Meter: noMeter{}, Rate: 1e6, MaxInFlight: 100,
		Auth: callers{
			"dsar":   {Email: "dsar@example.com", Sub: "1", Roles: auth.Erase},
			"other":  {Email: "other@example.com", Sub: "2", Roles: auth.Erase},
			"reader": {Email: "reader@example.com", Sub: "3", Roles: auth.Read | auth.Write | auth.Allow},
			"globex": {Email: "globex@example.com", Sub: "4", Roles: auth.Erase, Tenants: []string{"globex"}},
		},
	})
	if err := opendsrapi.Mount(api, opendsrapi.Surface{
		Requests: f.service, Index: f.index, Key: []byte(strings.Repeat("k", 32)), Signer: signer, Domain: domain, Identities: identities, Now: f.clock.now,
	}); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	f.url = server.URL
	return f
}

// erasures is a service over files.
func (f *fixture) erasures(signer *notify.Signer) *erasure.Service {
	f.t.Helper()
	must := func(err error) {
		if err != nil {
			f.t.Helper()
			f.t.Fatal(err)
		}
	}
	dir := f.t.TempDir()
	db, err := sqlite.Open(f.t.Context(), filepath.Join(dir, "coordinator.db"))
	must(err)
	f.t.Cleanup(func() { must(db.Close()) })
	documents := func(collection string) *sqlite.Documents {
		d, err := db.Documents(f.t.Context(), collection)
		must(err)
		return d
	}
	f.index = documents("opendsr")
	wrap, err := descriptor.LocalKey(filepath.Join(dir, "descriptor.key"))
	must(err)
	private, err := ledger.GenerateKey("test")
	must(err)
	keys, err := ledger.ParseKeys(private)
	must(err)
	log, err := ledger.OpenFile(filepath.Join(dir, "ledger"), keys, nil)
	must(err)
	f.t.Cleanup(func() { must(log.Close()) })
	programs, err := ledger.OpenPrograms(filepath.Join(dir, "ledger"))
	must(err)
	return erasure.New(erasure.Config{
		Holder: "test", Salt: salt, Digest: func(string, []byte) string { return strings.Repeat("0", 64) },
		Requests: documents("requests"), Sealer: descriptor.New(wrap, documents("keys")), Ledger: log, Programs: programs, Signer: keys,
		Cells: []erasure.Cell{f.cell}, Eraser: f.cell, Audit: noAudit{}, Observer: observer{f.t},
		Poster:   notify.New(notify.Config{Hosts: notify.Hosts{f.hook.host}, AllowLoopback: true}),
		Callback: notify.WebhookSecrets{}, OpenDSR: signer, Limits: limits, Now: f.clock.now,
	})
}

type answer struct {
	status int
	header http.Header
	body   string
}

func (f *fixture) do(caller, method, path, body string) answer {
	f.t.Helper()
	r, err := http.NewRequestWithContext(f.t.Context(), method, f.url+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	r.Header.Set("Authorization", caller)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		f.t.Error(err)
		return answer{}
	}
	defer func() { _ = response.Body.Close() }()
	got, err := io.ReadAll(response.Body)
	if err != nil {
		f.t.Error(err)
	}
	if response.StatusCode/100 == 2 && method != http.MethodHead {
		f.verify(response.Header, got)
	}
	return answer{response.StatusCode, response.Header, string(got)}
}

// verify holds a signature against the certificate that the service shows.
func (f *fixture) verify(header http.Header, body []byte) {
	f.t.Helper()
	response, err := http.Get(f.url + "/opendsr/certificate.pem")
	if err != nil {
		f.t.Error(err)
		return
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	block, _ := pem.Decode(text)
	if err != nil || block == nil {
		f.t.Errorf("%v: %s", err, text)
		return
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		f.t.Error(err)
		return
	}
	signature, err := base64.StdEncoding.DecodeString(header.Get("X-OpenDSR-Signature"))
	if err != nil || certificate.CheckSignature(x509.SHA256WithRSA, body, signature) != nil {
		f.t.Errorf("not signed: %v, %s", header, body)
	}
	if got := header.Get("X-OpenDSR-Processor-Domain"); got != domain || certificate.VerifyHostname(got) != nil {
		f.t.Errorf("the domain is %q", got)
	}
}

// into reads the answer, which must have that status.
func (a answer) into(t *testing.T, status int) map[string]any {
	t.Helper()
	out := map[string]any{}
	if err := json.Unmarshal([]byte(a.body), &out); a.status != status || err != nil {
		t.Fatalf("%d, want %d: %s", a.status, status, a.body)
	}
	return out
}

// problem reports what is not a problem document of that status and word, or names the person.
func (a answer) problem(t *testing.T, what string, status int, word string) {
	t.Helper()
	if a.status != status || !strings.Contains(a.body, `"urn:recount:problem:`+word+`"`) || a.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%s: %d, want %d %s: %s", what, a.status, status, word, a.body)
	}
	if strings.Contains(strings.ToLower(a.body), "zora") {
		t.Errorf("%s: the answer quotes an identity: %s", what, a.body)
	}
}

// receiver takes callbacks.
type receiver struct {
	url  string
	host notify.Host

	mu     sync.Mutex
	status int
	got    []callback
}

type callback struct {
	header http.Header
	body   []byte
}

func receive(t *testing.T) *receiver {
	r := &receiver{status: http.StatusOK}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.got = append(r.got, callback{req.Header, body})
		w.WriteHeader(r.status)
	}))
	t.Cleanup(server.Close)
	r.url, r.host = server.URL, notify.Host(strings.TrimPrefix(server.URL, "http://"))
	return r
}

// took is what came since the last time; from now on it answers that status.
func (r *receiver) took(status int) []callback {
	r.mu.Lock()
	defer r.mu.Unlock()
	got := r.got
	r.got, r.status = nil, status
	return got
}
