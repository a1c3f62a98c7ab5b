package e2e

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"recount/internal/fleet"
	"recount/internal/ledger"
	"recount/internal/verify"
	"recount/internal/wire"
)

func TestAPeerThatIsDownKeepsARequestPendingAndItClosesByItselfWhenThePeerIsBack(t *testing.T) {
	w := start(t)
	w.write("acme", "alice@example.com")
	r := w.previewed(people("alice@example.com"))
	if err := w.Graph.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, principal := range []string{"dpo@acme.example", "counsel@acme.example"} {
		w.read(w.action(principal, r.ID, "approve", map[string]any{"preview_digest": r.Preview.Digest}))
	}
	pending := w.reaches(r.ID, "pending")
	if !strings.Contains(pending.StateDetail, "graph") || !strings.Contains(pending.StateDetail, "peer_unreachable") {
		t.Errorf("it is pending because of %q", pending.StateDetail)
	}
	for _, s := range pending.Stores {
		if s.Cell != "graph" && s.Status != "erased" {
			t.Errorf("%s of %s waits for the other cell: %s", s.Store, s.Cell, s.Status)
		}
	}
	if err := w.Graph.StartAgain(t.Context()); err != nil {
		t.Fatal(err)
	}
	closed := w.reaches(r.ID, "closed")
	if n := w.held("acme", "alice@example.com"); n != 0 || closed.Attempts < 2 {
		t.Errorf("%d rows are left after %d attempts", n, closed.Attempts)
	}
}

// TestARequestSurvivesKillsOfTheCoordinator kills it at random moments of a run, and compares what each request came to
// with one that nothing disturbed.
func TestARequestSurvivesKillsOfTheCoordinator(t *testing.T) {
	kills := 200
	if testing.Short() {
		kills = 10
	}
	w := start(t)
	crowd := crowd("killed", kills+1)
	w.write("acme", crowd...)
	for _, start := range []func() error{w.Coordinator.Kill, func() error { return w.Coordinator.StartAgain(t.Context()) }} {
		if err := start(); err != nil { // the cache of the coordinator's cell is empty after a kill: so it is for the first
			t.Fatal(err)
		}
	}
	undisturbed := summary(w.reaches(w.approved(people(crowd[0])).ID, "closed"))
	inTheMiddle := 0
	for _, person := range crowd[1:] {
		r := w.approved(people(person))
		time.Sleep(time.Duration(rand.IntN(70_000)) * time.Microsecond)
		if err := w.Coordinator.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := w.Coordinator.StartAgain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if now := w.read(w.admin("dpo@acme.example", http.MethodGet, "/admin/erasure/"+r.ID, nil)); now.State != "closed" {
			inTheMiddle++
		}
		if got := summary(w.reaches(r.ID, "closed")); got != undisturbed {
			t.Fatalf("it came to\n%s\nand undisturbed to\n%s", got, undisturbed)
		}
		if n := w.held("acme", person); n != 0 {
			t.Fatalf("%d rows are left", n)
		}
	}
	if inTheMiddle < kills/4 {
		t.Errorf("only %d of %d kills met a run", inTheMiddle, kills)
	}
	w.Stop()
	deletesFollowTheirProgram(t, w.Coordinator.DataDir)
}

// deletesFollowTheirProgram reads the ledger as somebody else would: every deletion comes behind an entry whose program is
// there, with the hash that the entry gives.
func deletesFollowTheirProgram(t *testing.T, dir string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "erasure-ledger.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	programs := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		r, err := ledger.Decode([]byte(strings.TrimSuffix(line, "\n")))
		if err != nil {
			t.Fatal(err)
		}
		switch r.Phase {
		case "enumerate:outcome":
			body, err := os.ReadFile(filepath.Join(dir, r.ProgramRef))
			if err != nil || !verify.Program(body, r.ProgramHash) {
				t.Fatalf("the program of an entry: %v", err)
			}
			programs[r.ProgramRef] = true
		case "execute:intent", "execute:outcome":
			if !programs[r.ProgramRef] {
				t.Fatalf("%s names a program that no entry before it has", r.Phase)
			}
		}
	}
	if len(programs) == 0 {
		t.Fatal("there is no program")
	}
}

// TestARequestRunsOnBigQueryAndFirestore has the request, its keys, the ledger and the programs in Firestore, and the rows in
// BigQuery, which keeps what was deleted for a while.
func TestARequestRunsOnBigQueryAndFirestore(t *testing.T) {
	w, _ := onBigQuery(t, nil)
	w.write("acme", "alice@example.com")
	closed := w.reaches(w.approved(people("alice@example.com")).ID, "closed")
	if n := w.held("acme", "alice@example.com"); n != 0 {
		t.Errorf("%d rows are left", n)
	}
	var got wire.CertificateResponse
	if err := json.Unmarshal(w.admin("dpo@acme.example", http.MethodGet, "/admin/erasure/"+closed.ID+"/certificate", nil).Body, &got); err != nil {
		t.Fatal(err)
	}
	keys, err := verify.ParseKeys(strings.Join(got.Keys, ","))
	if err != nil {
		t.Fatal(err)
	}
	statement, err := verify.Certificate([]byte(got.Certificate), keys)
	if err != nil || statement.RecoverableUntil == nil || statement.RecoverableUntil.Before(time.Now().AddDate(0, 0, 7)) {
		t.Errorf("the certificate: %v, recoverable until %v", err, statement.RecoverableUntil)
	}
	if err := w.Coordinator.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := w.Coordinator.StartAgain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := w.read(w.admin("dpo@acme.example", http.MethodGet, "/admin/erasure/"+closed.ID, nil)); r.State != "closed" {
		t.Errorf("after a restart it is %s", r.State)
	}
}

// TestTwoCoordinatorsOnOneFirestoreRunEachRequestOnce has two instances of the coordinator look for what is due at the same
// time, as Cloud Run starts them.
func TestTwoCoordinatorsOnOneFirestoreRunEachRequestOnce(t *testing.T) {
	requests := 16
	if testing.Short() {
		requests = 8
	}
	w, _ := onBigQuery(t, nil)
	twin, err := w.Coordinator.Twin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = twin.Stop() })
	crowd := crowd("raced", requests)
	w.write("acme", crowd...)
	first, ids := w.Coordinator, []string{}
	for i, person := range crowd {
		r := w.previewed(people(person))
		for n, principal := range []string{"dpo@acme.example", "counsel@acme.example"} {
			w.Coordinator = []*fleet.Service{first, twin}[(i+n)%2] // either is woken up by half of them
			r = w.read(w.action(principal, r.ID, "approve", map[string]any{"preview_digest": r.Preview.Digest}))
		}
		ids = append(ids, r.ID)
	}
	w.Coordinator = first
	entries := map[string]bool{}
	for i, id := range ids {
		closed := w.reaches(id, "closed")
		if n := w.held("acme", crowd[i]); n != 0 || closed.Attempts != 1 {
			t.Errorf("%d rows are left, %d attempts", n, closed.Attempts)
		}
		for _, st := range closed.Stages {
			for _, entry := range st.Entries {
				if entries[entry] {
					t.Errorf("%s of %s: an entry stands for two", st.Name, id)
				}
				entries[entry] = true
			}
			if want := map[string]int{"freeze": 2, "enumerate": 1, "execute": 2, "verify": 1}[st.Name]; want > 0 && len(st.Entries) != want {
				t.Errorf("%s of %s has %d entries, not %d", st.Name, id, len(st.Entries), want)
			}
		}
	}
}
