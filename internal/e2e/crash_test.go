package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"recount/internal/fleet"
)

func crowd(prefix string, n int) []string {
	people := make([]string, n)
	for i := range people {
		people[i] = fmt.Sprintf("%s-%04d@example.com", prefix, i)
	}
	return people
}

// eraseAll erases everybody from so many callers at once, and answers who was told that they are erased.
func (w *world) eraseAll(people []string, width int) map[string]bool {
	var mu sync.Mutex
	told := map[string]bool{}
	queue := make(chan string)
	var wg sync.WaitGroup
	client := &http.Client{Timeout: 90 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: width}}
	for range width {
		wg.Go(func() {
			for p := range queue {
				r, err := try(client, http.MethodPost, w.Coordinator.URL+"/v1/intent/subject:erase",
					encode(w.t, map[string]string{"tenant_id": "acme", "identity_id": p}), jsonBody)
				if err == nil && r.Code == http.StatusOK && r.Answer.Status == "erased" {
					mu.Lock()
					told[p] = true
					mu.Unlock()
				}
			}
		})
	}
	for _, p := range people {
		queue <- p
	}
	close(queue)
	wg.Wait()
	return told
}

// TestAKillInTheMiddleOfManyErasuresIsMendedByARetryAndNoReceiptWasFalse kills each of the four processes in turn.
func TestAKillInTheMiddleOfManyErasuresIsMendedByARetryAndNoReceiptWasFalse(t *testing.T) {
	for _, victim := range []string{"coordinator", "ingest", "graph", "causal"} {
		t.Run(victim, func(t *testing.T) {
			w := start(t, everywhere(map[string]string{"STORE_TIMEOUT": "5s"}), own("coordinator", map[string]string{
				"STORE_TIMEOUT": "2s", "CASCADE_PEER_TIMEOUT": "3s", "CASCADE_TIMEOUT": "6s",
			}))
			people := crowd(victim, 500)
			w.write("acme", people...)
			service := map[string]*fleet.Service{"coordinator": w.Coordinator, "ingest": w.Ingest, "graph": w.Graph, "causal": w.Causal}[victim]
			killed := make(chan error, 1)
			time.AfterFunc(time.Duration(20+rand.IntN(120))*time.Millisecond, func() { killed <- service.Kill() })
			told := w.eraseAll(people, 32)
			if err := <-killed; err != nil {
				t.Fatal(err)
			}
			if err := service.StartAgain(t.Context()); err != nil {
				t.Fatal(err)
			}
			for p := range told {
				if n := w.held("acme", p); n != 0 {
					t.Fatalf("somebody was told erased, and %d rows are there", n)
				}
			}
			left := people
			for try := 0; len(left) > 0 && try < 3; try++ {
				told := w.eraseAll(left, 32)
				var still []string
				for _, p := range left {
					if !told[p] {
						still = append(still, p)
					}
				}
				left = still
			}
			if len(left) > 0 {
				t.Fatalf("%d of 500 are not erased by three retries", len(left))
			}
			if found := filesWith(t, w.dir, victim+"-0"); len(found) > 0 {
				t.Errorf("left behind: %v", found)
			}
			t.Logf("%d of 500 were told erased before the kill was mended", len(told))
		})
	}
}

// TestTheGraphIsKilledAtRandomMomentsAndNobodyWhoWasToldErasedReturns is the journal's test.
func TestTheGraphIsKilledAtRandomMomentsAndNobodyWhoWasToldErasedReturns(t *testing.T) {
	w := start(t, only("graph"))
	for round := range 6 {
		people := crowd(fmt.Sprintf("round%d", round), 60)
		var body strings.Builder
		for _, p := range people {
			fmt.Fprintf(&body, `{"tenant_id":"acme","identity_id":%q,"related_id":"hub","relation":"knows","source":"s","source_ref":%q,"consent_basis":"c"}`+"\n", p, p)
		}
		if r := w.do(http.MethodPost, w.Graph.URL+"/v1/intent/graph/edges", strings.NewReader(body.String()), map[string]string{"Content-Type": "application/x-ndjson"}); r.Code != http.StatusOK {
			t.Fatalf("%s", r.Body)
		}
		killed := make(chan error, 1)
		time.AfterFunc(time.Duration(rand.IntN(60))*time.Millisecond, func() { killed <- w.Graph.Kill() })
		told := map[string]bool{}
		for _, p := range people {
			r, err := try(http.DefaultClient, http.MethodPost, w.Graph.URL+"/v1/intent/subject:delete", encode(t, map[string]string{"tenant_id": "acme", "identity_id": p}), jsonBody)
			if err != nil {
				break
			}
			told[p] = r.Code == http.StatusOK
		}
		if err := <-killed; err != nil {
			t.Fatal(err)
		}
		if err := w.Graph.StartAgain(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, p := range people {
			if n := w.held("acme", p); told[p] && n != 0 {
				t.Fatalf("round %d: somebody was told erased and has returned with %d rows", round, n)
			} else if !told[p] && n != 0 && n != 2 {
				t.Fatalf("round %d: journal and memory disagree: %d rows", round, n)
			}
		}
	}
}

func TestASecondGraphWaitsAndTakesOverWhenTheFirstDies(t *testing.T) {
	w := start(t, only("graph"))
	w.do(http.MethodPost, w.Graph.URL+"/v1/intent/graph/edges", encode(t, map[string]any{
		"tenant_id": "acme", "identity_id": "alice", "related_id": "bob", "relation": "knows", "source": "s", "source_ref": "1", "consent_basis": "c",
	}), jsonBody)
	second := secondGraph(t, w)
	if r := w.do(http.MethodGet, second.URL+"/ready", nil, nil); r.Code != http.StatusServiceUnavailable {
		t.Errorf("a second graph is ready: %d", r.Code)
	}
	for _, verb := range []string{"delete", "count", "access"} {
		if r := w.ask(second, verb, "acme", "alice"); r.Code != http.StatusServiceUnavailable {
			t.Errorf("a second graph answers %s: %d %s", verb, r.Code, r.Body)
		}
	}
	if err := w.Graph.Kill(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if r := w.do(http.MethodGet, second.URL+"/ready", nil, nil); r.Code == http.StatusOK {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the second never took over")
		}
	}
	r := w.ask(second, "delete", "acme", "alice")
	if r.Code != http.StatusOK || *r.Answer.Receipts[0].Before != 1 || *r.Answer.Receipts[1].Before != 1 {
		t.Errorf("%d %s", r.Code, r.Body)
	}
}

// TestAStopLetsRunningErasuresEnd sends SIGTERM while a peer takes longer than a stop may.
func TestAStopLetsRunningErasuresEnd(t *testing.T) {
	slow := slowPeer(t, 12*time.Second)
	w := start(t, own("coordinator", map[string]string{"CASCADE_EXTRA_PEERS": "slow=" + slow.URL, "CASCADE_EXPECTED_STORES": "slow=rows"}))
	w.write("acme", "alice")
	answered := make(chan reply, 1)
	go func() {
		r, err := try(http.DefaultClient, http.MethodPost, w.Coordinator.URL+"/v1/intent/subject:erase", encode(t, map[string]string{"tenant_id": "acme", "identity_id": "alice"}), jsonBody)
		if err != nil {
			t.Error(err)
		}
		answered <- r
	}()
	for deadline := time.Now().Add(5 * time.Second); w.held("acme", "alice") != 0 && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
	}
	stopped := time.Now()
	if err := w.Coordinator.Stop(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(stopped); took > 10*time.Second {
		t.Errorf("the stop took %s", took)
	}
	r := <-answered
	got := statuses(r.Answer.Receipts)
	if r.Code != http.StatusBadGateway || got["slow/*"] != "failed shutting_down" || got["ingest/intent_events"] != "erased" || got["scoring/intent_scores"] != "erased" {
		t.Errorf("%d %v", r.Code, got)
	}
}
