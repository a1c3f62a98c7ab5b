package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"recount/internal/fleet"
	"recount/internal/httpapi/apitest"
)

func crowd(prefix string, n int) []string {
	people := make([]string, n)
	for i := range people {
		people[i] = fmt.Sprintf("%s-%04d@example.com", prefix, i)
	}
	return people
}

// verdict is what came of one erasure of one person.
type verdict struct {
	person string
	reply
	err error
}

// erased are those who were told that they are erased, whole.
func erased(verdicts []verdict) map[string]bool {
	told := map[string]bool{}
	for _, v := range verdicts {
		if v.err == nil && v.Code == http.StatusOK && v.Answer.Status == "erased" {
			told[v.person] = true
		}
	}
	return told
}

// eraseAll erases everybody from 32 callers at once, and calls midway once, when the 40th to 200th answer is there.
func eraseAll(t *testing.T, url string, people []string, midway func()) []verdict {
	t.Helper()
	var verdicts []verdict
	answers, once := atomic.Int64{}, sync.Once{}
	moment := 40 + rand.Int64N(160)
	client := &http.Client{Timeout: 90 * time.Second, Transport: apitest.Transport(t, &http.Transport{MaxIdleConnsPerHost: 32})}
	defer client.CloseIdleConnections()
	inParallel(32, people, func(person string) verdict {
		r, err := try(client, http.MethodPost, url, encode(t, map[string]string{"tenant_id": "acme", "identity_id": person}), jsonBody)
		if answers.Add(1) >= moment && midway != nil {
			once.Do(midway)
		}
		return verdict{person, r, err}
	}, func(v verdict) { verdicts = append(verdicts, v) })
	return verdicts
}

// inParallel does something for each, so many at a time, and collects what came of it.
func inParallel[In, Out any](width int, each []In, do func(In) Out, collect func(Out)) {
	queue, done := make(chan In), make(chan Out)
	var wg sync.WaitGroup
	for range width {
		wg.Go(func() {
			for in := range queue {
				done <- do(in)
			}
		})
	}
	go func() {
		for _, in := range each {
			queue <- in
		}
		close(queue)
		wg.Wait()
		close(done)
	}()
	for out := range done {
		collect(out)
	}
}

// proveTrue holds every receipt that said erased against its cell, also those of answers that failed as a whole. A cell
// that is down holds what it holds, and is asked when it is back.
func (w *world) proveTrue(verdicts []verdict) {
	w.t.Helper()
	cells := map[string]*fleet.Service{"scoring": w.Coordinator, "ingest": w.Ingest, "graph": w.Graph, "causal": w.Causal}
	inParallel(16, verdicts, func(v verdict) (lies []string) {
		counts := map[string]map[string]*int64{}
		for _, receipt := range v.Answer.Receipts {
			s := cells[receipt.Cell]
			if receipt.Status != "erased" || !s.Running() {
				continue
			}
			if counts[receipt.Cell] == nil {
				counts[receipt.Cell] = w.counts(s, v.person)
			}
			if n := counts[receipt.Cell][receipt.Store]; n == nil || *n != 0 {
				lies = append(lies, receipt.Cell+"/"+receipt.Store)
			}
		}
		return lies
	}, func(lies []string) {
		if len(lies) > 0 {
			w.t.Errorf("receipts said erased and rows are there: %v", lies)
		}
	})
}

func (w *world) counts(s *fleet.Service, person string) map[string]*int64 {
	counts := map[string]*int64{}
	r, err := try(http.DefaultClient, http.MethodPost, s.URL+"/v1/intent/subject:count", encode(w.t, map[string]string{"tenant_id": "acme", "identity_id": person}), jsonBody)
	if err != nil {
		w.t.Error(err)
	}
	for _, receipt := range r.Answer.Receipts {
		counts[receipt.Store] = receipt.Count
	}
	return counts
}

// eraseTheRest retries until everybody was told erased.
func (w *world) eraseTheRest(url string, people []string, told map[string]bool) {
	w.t.Helper()
	var left []string
	for _, p := range people {
		if !told[p] {
			left = append(left, p)
		}
	}
	again := eraseAll(w.t, url, left, nil)
	w.proveTrue(again)
	for _, v := range again {
		if v.err != nil || v.Code != http.StatusOK {
			w.t.Errorf("a retry: %v %d %s", v.err, v.Code, v.Body)
		}
	}
}

// TestAKillInTheMiddleOfManyErasuresIsMendedByARetryAndNoReceiptWasFalse kills each of the four processes in turn.
func TestAKillInTheMiddleOfManyErasuresIsMendedByARetryAndNoReceiptWasFalse(t *testing.T) {
	for _, victim := range []string{"coordinator", "ingest", "graph", "causal"} {
		t.Run(victim, func(t *testing.T) {
			t.Parallel()
			w := start(t, everywhere(map[string]string{"STORE_TIMEOUT": "5s"}), own("coordinator", map[string]string{
				"STORE_TIMEOUT": "2s", "CASCADE_PEER_TIMEOUT": "3s", "CASCADE_TIMEOUT": "6s",
			}))
			people := crowd(victim, 500)
			w.write("acme", people...)
			service := map[string]*fleet.Service{"coordinator": w.Coordinator, "ingest": w.Ingest, "graph": w.Graph, "causal": w.Causal}[victim]
			erase := w.Coordinator.URL + "/v1/intent/subject:erase"
			verdicts := eraseAll(t, erase, people, func() {
				if err := service.Kill(); err != nil {
					t.Error(err)
				}
			})
			told := erased(verdicts)
			if len(told) < 20 || len(told) > 480 {
				t.Errorf("%d of 500 were told erased: the kill was not in the middle", len(told))
			}
			w.proveTrue(verdicts)
			if err := service.StartAgain(t.Context()); err != nil {
				t.Fatal(err)
			}
			w.proveTrue(verdicts)
			w.eraseTheRest(erase, people, told)
			if found := filesWith(t, w.dir, victim+"-0"); len(found) > 0 {
				t.Errorf("left behind: %v", found)
			}
		})
	}
}

// writeEdges gives each person one edge.
func (w *world) writeEdges(people []string) {
	w.t.Helper()
	var body strings.Builder
	for _, p := range people {
		fmt.Fprintf(&body, `{"tenant_id":"acme","identity_id":%q,"related_id":"hub","relation":"knows","source":"s","source_ref":%q,"consent_basis":"c"}`+"\n", p, p)
	}
	r := w.do(http.MethodPost, w.Graph.URL+"/v1/intent/graph/edges", strings.NewReader(body.String()), map[string]string{"Content-Type": "application/x-ndjson"})
	if r.Code != http.StatusOK || !strings.Contains(string(r.Body), `"rejected_total":0`) {
		w.t.Fatalf("%d %s", r.Code, r.Body)
	}
}

// TestTheGraphIsKilledAtRandomMomentsAndNobodyWhoWasToldErasedReturns is the journal's test.
func TestTheGraphIsKilledAtRandomMomentsAndNobodyWhoWasToldErasedReturns(t *testing.T) {
	w := start(t, only("graph"))
	for round := range 6 {
		people := crowd(fmt.Sprintf("round%d", round), 300)
		w.writeEdges(people)
		verdicts := eraseAll(t, w.Graph.URL+"/v1/intent/subject:delete", people, func() {
			time.Sleep(time.Duration(rand.IntN(10)) * time.Millisecond)
			if err := w.Graph.Kill(); err != nil {
				t.Error(err)
			}
		})
		if err := w.Graph.StartAgain(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.proveTrue(verdicts)
		for _, p := range people {
			if n := w.counts(w.Graph, p); *n["graph"] != *n["graph_journal"] {
				t.Errorf("round %d: %d rows in memory and %d in the journal", round, *n["graph"], *n["graph_journal"])
			}
		}
	}
}

func TestASecondGraphWaitsAndTakesOverWhenTheFirstDies(t *testing.T) {
	w := start(t, only("graph"))
	people := crowd("heir", 300)
	w.writeEdges(people)
	second := secondGraph(t, w)
	if r := w.do(http.MethodGet, second.URL+"/ready", nil, nil); r.Code != http.StatusServiceUnavailable {
		t.Errorf("a second graph is ready: %d", r.Code)
	}
	for _, verb := range []string{"delete", "count", "access"} {
		if r := w.ask(second, verb, "acme", people[0]); r.Code != http.StatusServiceUnavailable {
			t.Errorf("a second graph answers %s: %d %s", verb, r.Code, r.Body)
		}
	}
	verdicts := eraseAll(t, w.Graph.URL+"/v1/intent/subject:delete", people, func() {
		if err := w.Graph.Kill(); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "the second never took over", func() bool {
		return w.do(http.MethodGet, second.URL+"/ready", nil, nil).Code == http.StatusOK
	})
	w.Graph = second
	w.proveTrue(verdicts)
	told := erased(verdicts)
	if len(told) == 0 || len(told) == len(people) {
		t.Errorf("%d of %d were told erased: the kill was not in the middle", len(told), len(people))
	}
	w.eraseTheRest(second.URL+"/v1/intent/subject:delete", people, told)
	if found := filesWith(t, w.dir, "heir-0"); len(found) > 0 {
		t.Errorf("left behind: %v", found)
	}
}
