package obs

import (
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"recount/internal/subject"
)

// Where an erasure runs, as Erasing takes it.
const (
	Local   = "local"   // in this cell's own stores
	Cascade = "cascade" // in every cell
)

// maxStores is how many stores are told apart. A peer names its own stores, so their number is not ours to know.
const maxStores = 256

// Metrics are the service's own figures, beside those of HTTP. Every label is bounded: cells, stores, peers, words of a
// vocabulary. It is safe for concurrent use.
type Metrics struct {
	cell         string
	receipts     *prometheus.CounterVec
	erase        *prometheus.HistogramVec
	inFlight     *prometheus.GaugeVec
	peerFailures *prometheus.CounterVec
	peerRetries  *prometheus.CounterVec
	storeErrors  *prometheus.CounterVec
	records      *prometheus.CounterVec
	auditFailed  prometheus.Counter
	auditDropped prometheus.Counter
	unreadable   prometheus.Counter
	ended        *prometheus.CounterVec
	overdue      prometheus.Gauge
	dueSoon      prometheus.Gauge
	failed       *prometheus.CounterVec

	mu     sync.Mutex
	stores map[[2]string]bool // told apart, by cell and store
}

// NewMetrics registers the metrics, with those of the process and the runtime.
func NewMetrics(to prometheus.Registerer, cell, version string) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		cell: cell, stores: map[[2]string]bool{},
		receipts: counter("recount_receipts_total", "Receipts of erasures, by cell, store and status.", "cell", "store", "status"),
		erase: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "recount_erase_duration_seconds", Help: "Time of an erasure of one subject or a batch: local, of this cell's stores, or cascade.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"cell", "kind"}),
		inFlight:     prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "recount_in_flight", Help: "Erasures that are running: local or cascade."}, []string{"kind"}),
		peerFailures: counter("recount_peer_failures_total", "Failed receipts of peers, by peer and reason.", "peer", "reason"),
		peerRetries:  counter("recount_peer_retries_total", "Further attempts at a peer, by peer and what was wrong with the last one.", "peer", "reason"),
		storeErrors:  counter("recount_store_errors_total", "Errors that stores answered, by store, step and reason.", "store", "step", "reason"),
		records:      counter("recount_intake_records_total", "Records taken in, by endpoint and outcome.", "endpoint", "outcome"),
		auditFailed:  prometheus.NewCounter(prometheus.CounterOpts{Name: "recount_audit_failures_total", Help: "Audit inserts that failed and are tried again."}),
		auditDropped: prometheus.NewCounter(prometheus.CounterOpts{Name: "recount_audit_dropped_total", Help: "Audit rows that are lost."}),
		unreadable: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "recount_suppression_unreadable_total", Help: "Records that were skipped because the suppression ledger could not be read.",
		}),
	}
	m.ended = counter("recount_requests_ended_total", "Erasure requests that came to an end, by state: stage_failed wants somebody to look.", "state")
	m.failed = counter("recount_request_errors_total", "Errors of the coordinator's own that kept erasure requests from going on, by step.", "step")
	m.overdue = prometheus.NewGauge(prometheus.GaugeOpts{Name: "recount_requests_overdue", Help: "Open erasure requests past the time limit of Art. 12(3)."})
	m.dueSoon = prometheus.NewGauge(prometheus.GaugeOpts{Name: "recount_requests_due_soon", Help: "Open erasure requests whose time limit is within a week."})
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "recount_build_info", Help: "1, with the version of the service.",
		ConstLabels: prometheus.Labels{"cell": cell, "version": version, "go_version": runtime.Version()},
	})
	build.Set(1)
	to.MustRegister(m.receipts, m.erase, m.inFlight, m.peerFailures, m.peerRetries, m.storeErrors, m.records, m.auditFailed, m.auditDropped, m.unreadable,
		m.ended, m.failed, m.overdue, m.dueSoon,
		build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Erasing counts an erasure in, Local or Cascade, and answers what counts it out, with its receipts. A cascade has the
// local cell's receipts too, which that cell has counted already.
func (m *Metrics) Erasing(kind string) (done func(receipts ...[]subject.Receipt)) {
	started := time.Now()
	m.inFlight.WithLabelValues(kind).Inc()
	return func(lists ...[]subject.Receipt) {
		m.inFlight.WithLabelValues(kind).Dec()
		m.erase.WithLabelValues(m.cell, kind).Observe(time.Since(started).Seconds())
		for _, receipts := range lists {
			for _, r := range receipts {
				if kind == Local || r.Cell() != m.cell {
					m.receipts.WithLabelValues(r.Cell(), m.storeLabel(r), r.Status().String()).Inc()
				}
			}
		}
	}
}

// storeLabel is the receipt's store, or "other" once there are too many.
func (m *Metrics) storeLabel(r subject.Receipt) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	store := [2]string{r.Cell(), r.Store()}
	if !m.stores[store] {
		if len(m.stores) == maxStores {
			return "other"
		}
		m.stores[store] = true
	}
	return r.Store()
}

// PeerFailed counts a failed receipt of a peer.
func (m *Metrics) PeerFailed(peer string, reason subject.Reason) {
	m.peerFailures.WithLabelValues(peer, string(reason)).Inc()
}

// PeerRetried counts a further attempt at a peer.
func (m *Metrics) PeerRetried(peer string, reason subject.Reason) {
	m.peerRetries.WithLabelValues(peer, string(reason)).Inc()
}

// StoreFailed counts an error that a store answered.
func (m *Metrics) StoreFailed(store, step string, reason subject.Reason) {
	m.storeErrors.WithLabelValues(store, step, string(reason)).Inc()
}

// Recorded counts records that ended in one outcome.
func (m *Metrics) Recorded(endpoint, outcome string, n int) {
	m.records.WithLabelValues(endpoint, outcome).Add(float64(n))
}

// LedgerUnreadable counts records that were skipped because nobody could say whether they were erased.
func (m *Metrics) LedgerUnreadable(records int) { m.unreadable.Add(float64(records)) }

// RequestEnded counts an erasure request that came to an end.
func (m *Metrics) RequestEnded(state string) { m.ended.WithLabelValues(state).Inc() }

// RequestsDue says how many open requests are overdue, and how many are due within a week.
func (m *Metrics) RequestsDue(overdue, soon int64) {
	m.overdue.Set(float64(overdue))
	m.dueSoon.Set(float64(soon))
}

// RequestFailed counts an error that kept a request from going on.
func (m *Metrics) RequestFailed(step string) { m.failed.WithLabelValues(step).Inc() }

// AuditFailed counts an insert that failed.
func (m *Metrics) AuditFailed() { m.auditFailed.Inc() }

// AuditDropped counts rows that are lost.
func (m *Metrics) AuditDropped(rows int) { m.auditDropped.Add(float64(rows)) }
