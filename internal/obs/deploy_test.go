package obs_test

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"recount/internal/httpapi"
	"recount/internal/obs"
	"recount/internal/subject"
)

// registry has every metric of a service, each touched once: a vector shows nothing before.
func registry(t testing.TB) *prometheus.Registry {
	t.Helper()
	r := prometheus.NewRegistry()
	m := obs.NewMetrics(r, "scoring", "v1.2.3")
	for _, kind := range []string{obs.Local, obs.Cascade} {
		m.Erasing(kind)([]subject.Receipt{receipt("scoring", "intent_scores"), receipt("graph", "graph")})
	}
	m.PeerFailed("graph", subject.ReasonPeerTimeout)
	m.PeerRetried("graph", subject.ReasonPeerTimeout)
	m.StoreFailed("intent_scores", "count", subject.ReasonTimeout)
	m.Recorded("scores", "accepted", 3)
	m.AuditFailed()
	m.RequestEnded("closed")
	m.RequestFailed("drive")
	m.AuditDropped(2)
	http := httpapi.NewMetrics(r)
	http.Started()
	http.Finished("GET", "/health", 200, time.Millisecond)
	return r
}

func receipt(cell, store string) subject.Receipt {
	return subject.NewFailed(subject.Label{Cell: cell, Store: store}, subject.Times{}, subject.Counts{}, subject.ReasonTimeout)
}

// served is the labels of every series of ours, by the name that a query uses.
func served(t *testing.T) map[string][]string {
	t.Helper()
	families, err := registry(t).Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "recount_") {
			continue
		}
		labels := []string{"instance", "job"} // those of the scraper
		for _, pair := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, pair.GetName())
		}
		if f.GetType() != dto.MetricType_HISTOGRAM {
			out[f.GetName()] = labels
			continue
		}
		for suffix, more := range map[string]string{"_bucket": "le", "_sum": "", "_count": ""} {
			out[f.GetName()+suffix] = append(slices.Clone(labels), more)
		}
	}
	return out
}

var (
	metricUsed = regexp.MustCompile(`(recount_[a-zA-Z0-9_]+)(?:\{([^}]*)\})?`)
	matcher    = regexp.MustCompile(`([a-zA-Z_]+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"`)
	grouping   = regexp.MustCompile(`by\s*\(([^)]*)\)`)
	shown      = regexp.MustCompile(`\{\{\s*(?:\$labels\.)?([a-zA-Z_]+)\s*\}\}`)
)

// checkQuery reports whatever a query names that no service has, and answers the metrics that it uses. legends are
// the templates that print the labels of its result.
func checkQuery(t *testing.T, where, query string, series map[string][]string, legends ...string) []string {
	t.Helper()
	if strings.Count(query, "(") != strings.Count(query, ")") || strings.Count(query, "{") != strings.Count(query, "}") {
		t.Errorf("%s: unbalanced: %s", where, query)
	}
	var used, grouped []string
	for _, found := range metricUsed.FindAllStringSubmatch(query, -1) {
		labels, known := series[found[1]]
		if !known {
			t.Errorf("%s: no service has %s", where, found[1])
			continue
		}
		used = append(used, found[1])
		for _, m := range matcher.FindAllStringSubmatch(found[2], -1) {
			if !slices.Contains(labels, m[1]) {
				t.Errorf("%s: %s has no label %s", where, found[1], m[1])
			}
			if _, err := subject.ParseStatus(m[2]); m[1] == "status" && err != nil {
				t.Errorf("%s: no receipt has the status %q", where, m[2])
			}
		}
		for _, by := range grouping.FindAllStringSubmatch(query, -1) {
			for _, label := range strings.Split(by[1], ",") {
				grouped = append(grouped, strings.TrimSpace(label))
				if !slices.Contains(labels, strings.TrimSpace(label)) {
					t.Errorf("%s: %s has no label %s", where, found[1], label)
				}
			}
		}
	}
	if grouped == nil && len(used) > 0 {
		grouped = series[used[0]]
	}
	for _, legend := range legends {
		for _, found := range shown.FindAllStringSubmatch(legend, -1) {
			if !slices.Contains(grouped, found[1]) {
				t.Errorf("%s: the result has no label %s, which %q shows", where, found[1], legend)
			}
		}
	}
	return used
}

func TestTheAlertsNameWhatTheServicesServe(t *testing.T) {
	text, err := os.ReadFile("../../deploy/prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Name  string `yaml:"name"`
			Rules []struct {
				Alert       string            `yaml:"alert"`
				Expr        string            `yaml:"expr"`
				For         string            `yaml:"for"`
				Labels      map[string]string `yaml:"labels"`
				Annotations map[string]string `yaml:"annotations"`
			} `yaml:"rules"`
		} `yaml:"groups"`
	}
	if err := yaml.UnmarshalWithOptions(text, &file, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	series, seen := served(t), map[string]bool{}
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			if seen[rule.Alert] {
				t.Errorf("%s is there twice", rule.Alert)
			}
			seen[rule.Alert] = true
			note := rule.Annotations
			if len(checkQuery(t, rule.Alert, rule.Expr, series, note["summary"], note["description"])) == 0 {
				t.Errorf("%s looks at no metric", rule.Alert)
			}
			if note["summary"] == "" || note["description"] == "" || rule.Labels["severity"] != "critical" && rule.Labels["severity"] != "warning" {
				t.Errorf("%s does not say what it means and how bad it is", rule.Alert)
			}
			if _, err := time.ParseDuration(rule.For); rule.For != "" && err != nil {
				t.Errorf("%s: for: %v", rule.Alert, err)
			}
		}
	}
	for _, alert := range strings.Fields("RecountReceiptFailed RecountPendingTooLong RecountPeerFailing RecountAuditFailing RecountAuditDropped RecountSaturated RecountNotReady") {
		if !seen[alert] {
			t.Errorf("%s is missing", alert)
		}
	}
}

func TestTheDashboardShowsEveryMetricAndNoOther(t *testing.T) {
	text, err := os.ReadFile("../../deploy/grafana/recount.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Templating struct {
			List []struct {
				Query string `json:"query"`
			} `json:"list"`
		} `json:"templating"`
		Panels []struct {
			ID      int    `json:"id"`
			Title   string `json:"title"`
			Targets []struct {
				Expr   string `json:"expr"`
				Legend string `json:"legendFormat"`
			} `json:"targets"`
		} `json:"panels"`
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	series, shown, ids := served(t), map[string]bool{}, map[int]bool{}
	for _, v := range board.Templating.List {
		checkQuery(t, "a variable", v.Query, series)
	}
	for _, p := range board.Panels {
		if ids[p.ID] {
			t.Errorf("%s: panel id %d is there twice", p.Title, p.ID)
		}
		ids[p.ID] = true
		for _, target := range p.Targets {
			for _, name := range checkQuery(t, p.Title, target.Expr, series, target.Legend) {
				shown[name] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(series)) {
		if !shown[name] && !strings.HasSuffix(name, "_sum") && !strings.HasSuffix(name, "_count") {
			t.Errorf("no panel shows %s", name)
		}
	}
}
