package cascade

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestThreePeersExistWithoutAnyConfiguration(t *testing.T) {
	got, err := ParsePeers(PeerEnv{}, "scoring")
	want := []PeerConfig{
		{Name: "ingest", Stores: []string{"intent_events"}},
		{Name: "graph", Stores: []string{"graph"}},
		{Name: "causal", Stores: []string{"holdout_assignments", "outcomes"}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestPeersAreReadFromTheEnvironment(t *testing.T) {
	got, err := ParsePeers(PeerEnv{
		IngestURL: " https://ingest.example/ ", GraphURL: "http://127.0.0.1:8082", CausalURL: "http://[::1]:8083/causal/",
		Extra:          "billing=https://billing.example , crm-eu=http://localhost:9000",
		ExpectedStores: "graph=graph|graph_journal, billing=invoices,crm-eu=contacts | notes",
	}, "scoring")
	want := []PeerConfig{
		{"ingest", "https://ingest.example", []string{"intent_events"}},
		{"graph", "http://127.0.0.1:8082", []string{"graph", "graph_journal"}},
		{"causal", "http://[::1]:8083/causal", []string{"holdout_assignments", "outcomes"}},
		{"billing", "https://billing.example", []string{"invoices"}},
		{"crm-eu", "http://localhost:9000", []string{"contacts", "notes"}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestEveryBadPeerIsNamed(t *testing.T) {
	for name, row := range map[string]struct {
		env  PeerEnv
		want string
	}{
		"http elsewhere":         {PeerEnv{IngestURL: "http://ingest.example"}, `INTENT_INGEST_URL: the URL of "ingest" must be https`},
		"http to a lookalike":    {PeerEnv{IngestURL: "http://127.0.0.1.example"}, `INTENT_INGEST_URL: the URL of "ingest" must be https`},
		"http to a short form":   {PeerEnv{IngestURL: "http://127.1"}, `INTENT_INGEST_URL: the URL of "ingest" must be https`},
		"another scheme":         {PeerEnv{GraphURL: "ftp://graph.example"}, `INTENT_GRAPH_URL: the URL of "graph" must begin with https`},
		"no scheme":              {PeerEnv{GraphURL: "graph.example"}, `INTENT_GRAPH_URL`},
		"opaque":                 {PeerEnv{GraphURL: "https:graph.example"}, `INTENT_GRAPH_URL`},
		"no host":                {PeerEnv{GraphURL: "https:///x"}, `INTENT_GRAPH_URL`},
		"an empty port":          {PeerEnv{GraphURL: "https://graph.example:"}, `INTENT_GRAPH_URL`},
		"no such port":           {PeerEnv{GraphURL: "https://graph.example:99999"}, `INTENT_GRAPH_URL`},
		"a password":             {PeerEnv{CausalURL: "https://u:hunter2@c.example"}, `INTENT_CAUSAL_URL: the URL of "causal" must not hold a user`},
		"a query":                {PeerEnv{CausalURL: "https://c.example?hunter2"}, `INTENT_CAUSAL_URL: the URL of "causal" must not have a query`},
		"an empty query":         {PeerEnv{CausalURL: "https://c.example?"}, `INTENT_CAUSAL_URL: the URL of "causal" must not have a query`},
		"a fragment":             {PeerEnv{CausalURL: "https://c.example#hunter2"}, `INTENT_CAUSAL_URL: the URL of "causal" must not have a query`},
		"one URL twice":          {PeerEnv{IngestURL: "https://a.example", GraphURL: "HTTPS://A.example:443/"}, `INTENT_GRAPH_URL: "graph" has the same URL as "ingest"`},
		"extra without a value":  {PeerEnv{Extra: "billing"}, `CASCADE_EXTRA_PEERS: item 1`},
		"extra without a URL":    {PeerEnv{Extra: "billing="}, `CASCADE_EXTRA_PEERS: item 1`},
		"extra with a bad name":  {PeerEnv{Extra: "Billing=https://b.example"}, `CASCADE_EXTRA_PEERS: item 1`},
		"a comma too many":       {PeerEnv{ExpectedStores: "graph=graph,"}, `CASCADE_EXPECTED_STORES: item 2`},
		"extra named as another": {PeerEnv{Extra: "graph=https://g.example"}, `CASCADE_EXTRA_PEERS: there is already a cell named "graph"`},
		"extra named as local":   {PeerEnv{Extra: "scoring=https://g.example"}, `CASCADE_EXTRA_PEERS: there is already a cell named "scoring"`},
		"extra twice":            {PeerEnv{Extra: "b=https://b.example,b=https://c.example", ExpectedStores: "b=x"}, `CASCADE_EXTRA_PEERS: there is already a cell named "b"`},
		"extra without stores":   {PeerEnv{Extra: "b=https://b.example"}, `CASCADE_EXPECTED_STORES: the extra peer "b" needs the stores`},
		"stores of nobody":       {PeerEnv{ExpectedStores: "billing=invoices"}, `CASCADE_EXPECTED_STORES: there is no peer named "billing"`},
		"stores given twice":     {PeerEnv{ExpectedStores: "graph=graph,graph=graph_journal"}, `CASCADE_EXPECTED_STORES: "graph" is listed twice`},
		"one store twice":        {PeerEnv{ExpectedStores: "graph=a|a"}, `CASCADE_EXPECTED_STORES: "graph" has the store "a" twice`},
		"a nameless store":       {PeerEnv{ExpectedStores: "graph=graph||b"}, `CASCADE_EXPECTED_STORES: a store of "graph"`},
		"every store":            {PeerEnv{ExpectedStores: "graph=*"}, `CASCADE_EXPECTED_STORES: a store of "graph"`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParsePeers(row.env, "scoring")
			if err == nil || !strings.Contains(err.Error(), row.want) || got != nil {
				t.Fatalf("got %+v, %v", got, err)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error quotes a secret: %v", err)
			}
			if n := strings.Count(err.Error(), "\n"); n != 0 {
				t.Errorf("one fault has %d lines: %v", n+1, err)
			}
		})
	}
}

func TestAllFaultsAreNamedAtOnce(t *testing.T) {
	_, err := ParsePeers(PeerEnv{
		IngestURL: "http://a.example?x", GraphURL: "//", Extra: "b=https://b.example,?", ExpectedStores: "nobody=x",
	}, "scoring")
	if err == nil {
		t.Fatal("no error")
	}
	got := strings.Split(err.Error(), "\n")
	for i, want := range []string{
		"INTENT_INGEST_URL: ", "INTENT_INGEST_URL: ", "INTENT_GRAPH_URL: ", "CASCADE_EXTRA_PEERS: item 2",
		"CASCADE_EXPECTED_STORES: there is no peer", "CASCADE_EXPECTED_STORES: the extra peer",
	} {
		if i >= len(got) || !strings.HasPrefix(got[i], want) {
			t.Fatalf("line %d of %q, want %q", i, got, want)
		}
	}
	if len(got) != 6 {
		t.Errorf("%d faults: %q", len(got), got)
	}
}

func FuzzParsePeers(f *testing.F) {
	f.Add("https://a.example", "b=https://b.example", "b=x|y,graph=graph")
	f.Add("http://localhost:1/x/", "b=http://[::1]:2", "b=x")
	f.Fuzz(func(t *testing.T, url, extra, expected string) {
		peers, err := ParsePeers(PeerEnv{IngestURL: url, Extra: extra, ExpectedStores: expected}, "scoring")
		if err != nil {
			return
		}
		var names, urls []string
		for _, p := range peers {
			if len(p.Stores) == 0 || strings.HasSuffix(p.URL, "/") || strings.ContainsAny(p.URL, "?#@") && p.URL != "" && !strings.Contains(p.URL[9:], "/") {
				t.Errorf("took %+v", p)
			}
			if slices.Contains(names, p.Name) || p.URL != "" && slices.Contains(urls, p.URL) {
				t.Errorf("took %+v twice", p)
			}
			names, urls = append(names, p.Name), append(urls, p.URL)
		}
	})
}
