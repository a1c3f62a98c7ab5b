package httpapi

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics is the Meter that Prometheus reads.
type Metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	inFlight prometheus.Gauge
}

// NewMetrics registers the metrics of HTTP requests.
func NewMetrics(to prometheus.Registerer) *Metrics {
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "recount_http_requests_total", Help: "Requests answered, by method, route and status code.",
		}, []string{"method", "route", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "recount_http_request_duration_seconds", Help: "Time from a request's head to the end of its answer.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"method", "route"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "recount_http_requests_in_flight", Help: "Requests that are being answered.",
		}),
	}
	to.MustRegister(m.requests, m.seconds, m.inFlight)
	return m
}

// Started counts a request in.
func (m *Metrics) Started() { m.inFlight.Inc() }

// Finished counts it out.
func (m *Metrics) Finished(method, route string, status int, took time.Duration) {
	m.inFlight.Dec()
	m.requests.WithLabelValues(method, route, strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(method, route).Observe(took.Seconds())
}
