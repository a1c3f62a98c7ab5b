package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"recount/internal/audit"
	"recount/internal/cell"
	"recount/internal/httpapi"
	"recount/internal/httpapi/intakeapi"
	"recount/internal/httpapi/opsapi"
	"recount/internal/httpapi/subjectapi"
	"recount/internal/httpapi/suppressionapi"
	"recount/internal/intake"
	"recount/internal/obs"
	"recount/internal/stores/sqlite"
	"recount/internal/subject"
	"recount/internal/wire"
)

// Version is set by the build; a plain `go build` says what the module was.
var Version = ""

func version() string {
	if Version != "" {
		return Version
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return "unknown"
}

// RunCell runs a cell until ctx ends.
func RunCell(ctx context.Context, c CellConfig, logTo io.Writer) error {
	r, err := newRunning(&c.Service, logTo)
	if err != nil {
		return err
	}
	name := c.Cell
	open := func(ctx context.Context) (*assembly, error) {
		if c.StoreBackend == "gcp" {
			return onGCP(ctx, &c.Service, name, c.GraphDurableProject)
		}
		return embedded(ctx, &c.Service, name)
	}
	if c.CellFile != "" {
		name = c.owner.Cell
		open = func(ctx context.Context) (*assembly, error) { return owners(ctx, &c.Service, c.owner) }
	}
	return r.run(ctx, name, open, nil, nil)
}

// RunCoordinator runs the scoring cell and the cascade until ctx ends.
func RunCoordinator(ctx context.Context, c CoordinatorConfig, logTo io.Writer) error {
	r, err := newRunning(&c.Service, logTo)
	if err != nil {
		return err
	}
	open := func(ctx context.Context) (*assembly, error) {
		if c.StoreBackend == "gcp" {
			return onGCP(ctx, &c.Service, coordinatorCell, "")
		}
		return embedded(ctx, &c.Service, coordinatorCell)
	}
	return r.run(ctx, coordinatorCell, open, func(local *cell.Cell) *coordinator { return newCoordinator(r, c, local) }, &c.Erasure)
}

// running is one service from its configuration to its end.
type running struct {
	*Service
	log     *zap.Logger
	life    *httpapi.Life
	metrics *prometheus.Registry
	obs     *obs.Metrics
	auth    httpapi.Authenticator
}

func newRunning(s *Service, logTo io.Writer) (*running, error) {
	log, err := obs.NewLogger(s.LogLevel, logTo)
	if err != nil {
		return nil, err
	}
	return &running{Service: s, log: log, life: httpapi.NewLife(), metrics: prometheus.NewRegistry()}, nil
}

func (r *running) run(ctx context.Context, name string, open func(context.Context) (*assembly, error), coordinate func(*cell.Cell) *coordinator, e *Erasure) (err error) {
	r.obs = obs.NewMetrics(r.metrics, name, version())
	if r.auth, err = r.authenticator(ctx); err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", r.ListenAddr)
	if err != nil {
		return fmt.Errorf("LISTEN_ADDR: %w", err)
	}
	defer func() { _ = listener.Close() }() // Serve has closed it already, unless it never ran
	a, err := open(ctx)
	if a != nil {
		defer func() { err = errors.Join(err, a.closeAll()) }()
	}
	if err != nil {
		return err
	}
	recorder, closeAudit, err := r.openAudit(ctx, name, a)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAudit()) }()

	if err := r.backfillAtStart(ctx, a); err != nil {
		return err
	}
	local := r.newCell(name, a)
	var coordinating *coordinator
	if coordinate != nil {
		coordinating = coordinate(local)
	}
	if coordinating != nil && e.enabled {
		q, opening := r.openRequests(ctx, e)
		defer func() { err = errors.Join(err, q.closeAll()) }()
		if opening != nil {
			return opening
		}
		if coordinating.admin, err = r.adminAuthenticator(ctx, e); err != nil {
			return err
		}
		coordinating.requests = r.newErasures(e, q, coordinating, recorder)
		coordinating.openDSR = r.openDSRSurface(e, q)
	}
	sites, err := r.sites(ctx, listener, local, a, coordinating, recorder)
	if err != nil {
		return err
	}
	r.log.Info("serving", zap.String("cell", name), zap.String("version", version()), zap.String("address", listener.Addr().String()),
		zap.String("store_backend", r.StoreBackend), zap.String("auth_mode", r.AuthMode))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	kept := make(chan error, 1)
	go func() {
		var err error
		if a.lease != nil {
			if err = a.lease.keep(ctx); err != nil {
				cancel() // a graph that can't be replayed must not linger unready for ever: start again
			}
		}
		kept <- err
	}()
	driven := make(chan struct{})
	go func() {
		defer close(driven)
		if coordinating != nil && coordinating.requests != nil {
			coordinating.requests.Run(ctx)
		}
	}()
	err = r.life.Serve(ctx, r.log, sites...)
	cancel()
	<-driven
	return errors.Join(err, <-kept)
}

// backfillAtStart takes up the past erasures that SUPPRESSION_BACKFILL names.
func (r *running) backfillAtStart(ctx context.Context, a *assembly) error {
	if r.backfill == nil {
		return nil
	}
	seen, recorded, rejected, err := (&backfilling{archives: a.archives, ledger: a.ledger}).backfillAtStart(ctx, *r.backfill)
	r.log.Info("past erasures were taken up", zap.Int("seen", seen), zap.Int("recorded", recorded), zap.Int("rejected", rejected))
	return err
}

func (r *running) newCell(name string, a *assembly) *cell.Cell {
	budget := intake.NewBudget()
	for _, in := range a.intakes {
		in.Count, in.Budget = r.obs.Recorded, budget
	}
	a.guard.OnUnreadable = r.ledgerUnreadable
	c := cell.Config{
		Name: name, Version: version(), Salt: r.salt, Groups: a.groups, Intakes: a.intakes, StoreTimeout: r.StoreTimeout,
		Ledger: a.ledger, Guard: a.guard, Keys: r.suppression, Capture: a.captures(),
		Deny: r.AccessDenyFields, OnError: r.storeFailed, Stopping: r.life.Erasures(), Surveys: a.surveys, GraphJournal: a.journal,
		Observe: func() func(...[]subject.Receipt) { return r.obs.Erasing(obs.Local) },
	}
	if a.lease != nil {
		c.Lease = a.lease
	}
	return cell.New(c)
}

// ledgerUnreadable logs and counts records that were skipped because nobody could say whether they were erased.
func (r *running) ledgerUnreadable(records int, err error) {
	r.obs.LedgerUnreadable(records)
	r.log.Error("the suppression ledger can not be read: records are skipped", zap.Int("records", records),
		zap.String("reason", string(subject.ReasonOf(err))), zap.String("kind", fmt.Sprintf("%T", innermost(err))))
}

// storeFailed logs the kind of a store's error, and nothing of its text: it may quote a row.
func (r *running) storeFailed(store, step string, err error) {
	reason := subject.ReasonOf(err)
	r.obs.StoreFailed(store, step, reason)
	r.log.Warn("a store answered an error", zap.String("store", store), zap.String("step", step), zap.String("reason", string(reason)),
		zap.String("kind", fmt.Sprintf("%T", innermost(err))))
}

func innermost(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}

// sites are what is listened to: the API, and the metrics where they have a listener of their own.
func (r *running) sites(ctx context.Context, listener net.Listener, local *cell.Cell, a *assembly, c *coordinator, recorder *audit.Recorder) ([]httpapi.Site, error) {
	var admin httpapi.Authenticator
	if c != nil {
		admin = c.admin
	}
	api := httpapi.New(httpapi.Config{
		Log: r.log, Auth: r.auth, Admin: admin, Meter: httpapi.NewMetrics(r.metrics), Rate: r.RateLimit, MaxInFlight: r.MaxInFlight, TraceProject: r.GCPProject,
	})
	surface := subjectapi.Surface{Cell: local, Audit: recorder}
	health := local.Health
	if c != nil {
		surface.Coordinator = c
		health = func() wire.Health { return c.describe(local.Health()) }
	}
	subjectapi.Mount(api, surface)
	ledger := suppressionapi.Surface{
		Cell: local.Name(), Salt: r.salt, Ledger: local.Ledger(), Checker: local.Guard(), Allower: allowHere{local},
		Backfiller: &backfilling{archives: a.archives, ledger: local.Ledger()}, Audit: recorder,
	}
	if c != nil {
		ledger.Allower = c
	}
	suppressionapi.Mount(api, ledger)
	ready := local.Ready
	if c != nil && c.requests != nil {
		if err := r.mountRequests(api, c); err != nil {
			return nil, err
		}
		ready = c.ready
	}
	for _, in := range local.Intakes() {
		intakeapi.Mount(api, intakeapi.Endpoint{Path: in.Kind.Path, Intake: in, Serving: local.Serving})
	}
	metrics := promhttp.HandlerFor(r.metrics, promhttp.HandlerOpts{})
	ops := opsapi.Surface{Health: health, Ready: ready, Stopping: r.life.Stopping, Metrics: metrics, Coverage: local.Coverage, PurgeJournal: a.purge}
	sites := []httpapi.Site{{Listener: listener, Handler: api}}
	if r.MetricsAddr != "" {
		own, err := (&net.ListenConfig{}).Listen(ctx, "tcp", r.MetricsAddr)
		if err != nil {
			return nil, fmt.Errorf("METRICS_ADDR: %w", err)
		}
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", metrics)
		ops.Metrics = nil
		sites = append(sites, httpapi.Site{Listener: own, Handler: mux})
	}
	opsapi.Mount(api, ops)
	return sites, nil
}

// auditObserver logs and counts what goes wrong with the audit, which never blocks an erasure.
type auditObserver struct{ *running }

func (o auditObserver) AuditFailed(rows int, err error) {
	o.obs.AuditFailed()
	o.log.Error("audit rows could not be written and are kept to be tried again", zap.Int("rows", rows),
		zap.String("reason", string(subject.ReasonOf(err))), zap.String("kind", fmt.Sprintf("%T", innermost(err))))
}

func (o auditObserver) AuditDropped(rows int) {
	o.obs.AuditDropped(rows)
	o.log.Error("audit rows are lost", zap.Int("rows", rows))
}

// openAudit opens the audit table of the backend: SQLite in DATA_DIR, or the dataset's.
func (r *running) openAudit(ctx context.Context, name string, a *assembly) (*audit.Recorder, func() error, error) {
	var sink audit.Sink
	closeSink := func() error { return nil }
	switch {
	case r.StoreBackend == "embedded":
		db, err := sqlite.Open(ctx, filepath.Join(r.dataDir(name), "audit.db"))
		if err != nil {
			return nil, nil, fmt.Errorf("opening the audit database: %w", err)
		}
		closeSink = db.Close
		if sink, err = db.Audit(ctx); err != nil {
			return nil, nil, errors.Join(err, db.Close())
		}
	case a.bigquery != nil:
		sink = a.bigquery
	default:
		client, err := openBigQuery(ctx, r.Service, r.GCPProject, r.BigQueryDataset, r.BigQueryLocation)
		if err != nil {
			return nil, nil, fmt.Errorf("the audit table: %w", err)
		}
		sink, closeSink = client, client.Close
	}
	recorder := audit.NewRecorder(sink, auditObserver{r}, audit.DefaultCapacity)
	return recorder, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), auditDrain)
		defer cancel()
		return errors.Join(recorder.Close(ctx), closeSink())
	}, nil
}
