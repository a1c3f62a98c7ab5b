package obs_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"

	"recount/internal/cascade"
	"recount/internal/httpapi"
	"recount/internal/obs"
	"recount/internal/subject"
)

var (
	_ cascade.Observer = (*obs.Metrics)(nil)
	_ httpapi.Meter    = (*httpapi.Metrics)(nil)
)

func TestLogEntriesHaveTheFieldsOfCloudLogging(t *testing.T) {
	for level, severity := range map[string]string{"debug": "DEBUG", "info": "INFO", "warn": "WARNING", "error": "ERROR", "dpanic": "CRITICAL"} {
		var out bytes.Buffer
		log, err := obs.NewLogger("debug", &out)
		if err != nil {
			t.Fatal(err)
		}
		at, err := zap.ParseAtomicLevel(level)
		if err != nil {
			t.Fatal(err)
		}
		log.Log(at.Level(), "hello", zap.Duration("took", time.Second), zap.Error(errors.New("x")))
		var entry map[string]any
		if err := json.Unmarshal(out.Bytes(), &entry); err != nil {
			t.Fatalf("%s: %v", out.String(), err)
		}
		if entry["severity"] != severity || entry["message"] != "hello" || entry["took"] != "1s" {
			t.Errorf("%s: %v", level, entry)
		}
		if text, _ := entry["time"].(string); !isTime(text) {
			t.Errorf("time is %v", entry["time"])
		}
	}
}

func isTime(text string) bool {
	_, err := time.Parse(time.RFC3339Nano, text)
	return err == nil
}

func TestLogEntriesBelowTheLevelAreLeftOutAndABadLevelIsNamed(t *testing.T) {
	var out bytes.Buffer
	log, err := obs.NewLogger("warn", &out)
	if err != nil {
		t.Fatal(err)
	}
	log.Info("x")
	if out.Len() != 0 {
		t.Errorf("written: %s", out.String())
	}
	if _, err := obs.NewLogger("loud", &out); err == nil || !strings.Contains(err.Error(), "LOG_LEVEL") {
		t.Errorf("%v", err)
	}
}

func TestASubjectInALogEntryIsNotPrinted(t *testing.T) {
	var out bytes.Buffer
	log, err := obs.NewLogger("debug", &out)
	if err != nil {
		t.Fatal(err)
	}
	s, err := subject.New("acme", "alice@example.com")
	if err != nil {
		t.Fatal(err)
	}
	log.Info("x", zap.Any("a", s), zap.Reflect("b", s), zap.Stringer("c", s), zap.Any("d", []subject.Subject{s}), zap.Any("e", &s))
	log.Sugar().Infow(fmt.Sprint(s), "f", s)
	if strings.Contains(out.String(), "alice") || strings.Contains(out.String(), "acme") {
		t.Error(out.String())
	}
}

func TestEachReceiptIsCountedOnceWhereverItWasErased(t *testing.T) {
	r := prometheus.NewRegistry()
	m := obs.NewMetrics(r, "scoring", "v1")
	cascaded := m.Erasing(obs.Cascade)
	local := m.Erasing(obs.Local)
	want := `# HELP recount_in_flight Erasures that are running: local or cascade.
# TYPE recount_in_flight gauge
recount_in_flight{kind="cascade"} 1
recount_in_flight{kind="local"} 1
`
	if err := testutil.GatherAndCompare(r, strings.NewReader(want), "recount_in_flight"); err != nil {
		t.Error(err)
	}
	own, peers := []subject.Receipt{receipt("scoring", "intent_scores")}, []subject.Receipt{receipt("graph", "graph")}
	local(own)
	cascaded(append(own, peers...))
	want = `# HELP recount_receipts_total Receipts of erasures, by cell, store and status.
# TYPE recount_receipts_total counter
recount_receipts_total{cell="graph",status="failed",store="graph"} 1
recount_receipts_total{cell="scoring",status="failed",store="intent_scores"} 1
`
	if err := testutil.GatherAndCompare(r, strings.NewReader(want), "recount_receipts_total"); err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(r, "recount_erase_duration_seconds"); n != 2 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

func TestAPeerThatNamesEndlessStoresDoesNotFillTheMemory(t *testing.T) {
	r := prometheus.NewRegistry()
	m := obs.NewMetrics(r, "scoring", "v1")
	m.Erasing(obs.Local)([]subject.Receipt{receipt("scoring", "intent_scores")})
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 500 {
				m.Erasing(obs.Cascade)([]subject.Receipt{receipt("evil", fmt.Sprintf("store_%d_%d", g, i))})
			}
		})
	}
	wg.Wait()
	m.Erasing(obs.Local)([]subject.Receipt{receipt("scoring", "intent_scores")})
	if n, err := testutil.GatherAndCount(r, "recount_receipts_total"); n != 257 || err != nil {
		t.Errorf("%d series, %v", n, err)
	}
}

func TestTheMetricsKeepPrometheusConventions(t *testing.T) {
	problems, err := testutil.GatherAndLint(registry(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func BenchmarkErasing(b *testing.B) {
	m := obs.NewMetrics(prometheus.NewRegistry(), "scoring", "v1")
	receipts := []subject.Receipt{receipt("scoring", "intent_scores"), receipt("graph", "graph")}
	b.ReportAllocs()
	for b.Loop() {
		m.Erasing(obs.Local)(receipts)
	}
}
