package e2e

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"recount/internal/fleet"
)

// raceFor is how long the race of imports and erasures goes on: RECOUNT_RACE, or a moment.
var raceFor, _ = time.ParseDuration(os.Getenv("RECOUNT_RACE"))

// taken is the answer of a write endpoint.
type taken struct {
	Accepted          int `json:"accepted"`
	Duplicates        int `json:"duplicates"`
	SkippedSuppressed int `json:"skipped_suppressed"`
	SkippedUnreadable int `json:"skipped_unreadable"`
	RejectedTotal     int `json:"rejected_total"`
}

// send posts lines to the endpoint of a kind.
func (w *world) send(k kind, lines ...map[string]any) taken {
	w.t.Helper()
	var body bytes.Buffer
	for _, line := range lines {
		text, err := json.Marshal(line)
		if err != nil {
			w.t.Fatal(err)
		}
		body.Write(append(text, '\n'))
	}
	r := w.do(http.MethodPost, k.service(w.Fleet).URL+k.path, &body, map[string]string{"Content-Type": "application/x-ndjson"})
	var got taken
	if err := json.Unmarshal(r.Body, &got); err != nil || r.Code != http.StatusOK {
		w.t.Fatalf("%s: %d %s", k.path, r.Code, r.Body)
	}
	return got
}

// line is a record of a kind.
func line(k kind, identity, ref string, more ...any) map[string]any {
	out := map[string]any{"tenant_id": "acme", "identity_id": identity, "source": "crm", "source_ref": ref, "consent_basis": "c"}
	for name, value := range k.own {
		out[name] = value
	}
	for i := 0; i+1 < len(more); i += 2 {
		out[more[i].(string)] = more[i+1]
	}
	return out
}

func parents(refs ...string) (out []map[string]string) {
	for _, ref := range refs {
		out = append(out, map[string]string{"source": "crm", "source_ref": ref})
	}
	return out
}

func (w *world) post(to *fleet.Service, path string, body any) reply {
	w.t.Helper()
	return w.do(http.MethodPost, to.URL+path, encode(w.t, body), jsonBody)
}

func (w *world) allow(ref string) reply {
	w.t.Helper()
	return w.post(w.Coordinator, "/v1/suppression:allow", map[string]string{
		"tenant_id": "acme", "source": "crm", "source_ref": ref, "reason": "consented anew", "consent_ref": "consent-7",
	})
}

// TestWhatWasErasedStaysAwayFromEveryCellUntilItIsAllowed is the headline.
func TestWhatWasErasedStaysAwayFromEveryCellUntilItIsAllowed(t *testing.T) {
	w := start(t)
	file := func(k kind) []map[string]any {
		return []map[string]any{line(k, "alice", k.path+"/1"), line(k, "alice", k.path+"/2"), line(k, "bob", k.path+"/3")}
	}
	for _, k := range kinds {
		if got := w.send(k, file(k)...); got.Accepted != 3 {
			t.Fatalf("%s: %+v", k.path, got)
		}
	}
	r := w.ask(w.Coordinator, "erase", "acme", "alice")
	if r.Code != http.StatusOK {
		t.Fatalf("%d %s", r.Code, r.Body)
	}
	for _, receipt := range r.Answer.Receipts {
		if !receipt.Sticky || receipt.Suppressed == nil || receipt.Derived == nil || *receipt.Derived != 0 || receipt.Store != "score_cache" && *receipt.Suppressed != 2 {
			t.Errorf("%+v", receipt)
		}
	}
	for round, again := range []func(){func() {}, w.restartAll} {
		again()
		for _, k := range kinds {
			if got := w.send(k, file(k)...); got != (taken{Duplicates: 1, SkippedSuppressed: 2}) {
				t.Errorf("round %d, %s: %+v", round, k.path, got)
			}
		}
		if n := w.held("acme", "alice"); n != 0 {
			t.Errorf("round %d: %d rows came back", round, n)
		}
	}
	for _, k := range kinds {
		if got := w.send(k, line(k, "alice", k.path+"/new")); got.Accepted != 1 {
			t.Errorf("a new record of the same person, %s: %+v", k.path, got)
		}
		if r := w.allow(k.path + "/1"); r.Code != http.StatusOK || !strings.Contains(string(r.Body), `"removed":true`) {
			t.Errorf("%d %s", r.Code, r.Body)
		}
		if got := w.send(k, file(k)...); got != (taken{Accepted: 1, Duplicates: 1, SkippedSuppressed: 1}) {
			t.Errorf("after one was allowed, %s: %+v", k.path, got)
		}
	}
}

func (w *world) restartAll() {
	w.t.Helper()
	for _, s := range w.All() {
		if err := s.Kill(); err != nil {
			w.t.Fatal(err)
		}
		if err := s.StartAgain(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
	}
}

// TestWhatDerivesFromTheErasedGoesFromEveryCell follows a chain from cell to cell and from person to person.
func TestWhatDerivesFromTheErasedGoesFromEveryCell(t *testing.T) {
	w := start(t)
	events, scores, edges, outcomes := kindAt("/v1/intent/events"), kindAt("/v1/intent/scores"), kindAt("/v1/intent/graph/edges"), kindAt("/v1/intent/outcomes")
	w.send(events, line(events, "alice", "event"))
	w.send(scores, line(scores, "bob", "score", "derived_from", parents("event")), line(scores, "bob", "own"))
	w.send(edges, line(edges, "carol", "edge", "derived_from", parents("score", "elsewhere")))
	w.send(outcomes, line(outcomes, "dave", "outcome", "derived_from", parents("edge")))
	r := w.ask(w.Coordinator, "erase", "acme", "alice")
	if r.Code != http.StatusOK {
		t.Fatalf("%d %s", r.Code, r.Body)
	}
	derived := map[string]int64{}
	for _, receipt := range r.Answer.Receipts {
		derived[receipt.Store] = *receipt.Derived
	}
	// The cache holds bob's latest score, which may be the other one.
	if derived["intent_events"] != 0 || derived["intent_scores"] != 1 || derived["graph_journal"] != 1 || derived["graph"] != 1 || derived["outcomes"] != 1 {
		t.Errorf("derived: %v", derived)
	}
	for identity, want := range map[string]int64{"alice": 0, "carol": 0, "dave": 0} {
		if n := w.held("acme", identity); n != want {
			t.Errorf("%s has %d rows", identity, n)
		}
	}
	if got := w.send(scores, line(scores, "bob", "score", "derived_from", parents("event")), line(scores, "erin", "late", "derived_from", parents("event")),
		line(scores, "erin", "later", "derived_from", parents("late"))); got != (taken{SkippedSuppressed: 3}) {
		t.Errorf("what derives from it came back: %+v", got)
	}
	if got := w.send(scores, line(scores, "erin", "latest", "derived_from", parents("later"))); got != (taken{SkippedSuppressed: 1}) {
		t.Errorf("what derives from what was refused: %+v", got)
	}
}

func kindAt(path string) kind {
	for _, k := range kinds {
		if k.path == path {
			return k
		}
	}
	panic(path)
}

func TestASourceIsErasedFromEveryCellAndKeptOutWhereItNeverWas(t *testing.T) {
	w := start(t)
	events, outcomes := kindAt("/v1/intent/events"), kindAt("/v1/intent/outcomes")
	w.send(events, line(events, "alice", "1"), line(events, "bob", "2"))
	r := w.post(w.Coordinator, "/v1/intent/source:erase", map[string]string{"tenant_id": "acme", "source": "crm", "source_ref": "1"})
	if r.Code != http.StatusOK || !strings.Contains(string(r.Body), `"operation":"erase_source"`) {
		t.Fatalf("%d %s", r.Code, r.Body)
	}
	for _, receipt := range r.Answer.Receipts {
		before := int64(0)
		if receipt.Store == "intent_events" {
			before = 1
		}
		if *receipt.Before != before || *receipt.Remaining != 0 || *receipt.Suppressed != 1 {
			t.Errorf("%+v", receipt)
		}
	}
	if got := w.send(outcomes, line(outcomes, "carol", "1")); got != (taken{SkippedSuppressed: 1}) {
		t.Errorf("in a cell that never had it: %+v", got)
	}
	if w.held("acme", "alice") != 0 || w.held("acme", "bob") != 1 {
		t.Error("the wrong rows went")
	}
	if r := w.post(w.Ingest, "/v1/intent/source:erase", map[string]string{"tenant_id": "acme", "source": "crm", "source_ref": "1"}); r.Code != http.StatusMethodNotAllowed {
		t.Errorf("a cell cascades: %d", r.Code)
	}
}

// TestALedgerThatCanNotBeReadStopsImportsAndErasuresAndSaysSo hides the ledger's table from a running cell.
func TestALedgerThatCanNotBeReadStopsImportsAndErasuresAndSaysSo(t *testing.T) {
	w := start(t, only("ingest"))
	events := kindAt("/v1/intent/events")
	w.send(events, line(events, "alice", "1"))
	db, err := sql.Open("sqlite", "file:"+filepath.Join(w.Ingest.DataDir, "recount.db")+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	rename := func(from, to string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), "ALTER TABLE "+from+" RENAME TO "+to); err != nil {
			t.Fatal(err)
		}
	}
	rename("recount_suppression", "hidden")
	if got := w.send(events, line(events, "alice", "1"), line(events, "bob", "2")); got != (taken{SkippedUnreadable: 2}) {
		t.Errorf("%+v", got)
	}
	if r := w.ask(w.Ingest, "delete", "acme", "alice"); r.Code != http.StatusBadGateway || statuses(r.Answer.Receipts)["ingest/intent_events"] != "failed suppression_failed" {
		t.Errorf("%d %s", r.Code, r.Body)
	}
	if r := w.do(http.MethodGet, w.Ingest.URL+"/ready", nil, nil); r.Code != http.StatusServiceUnavailable || !strings.Contains(string(r.Body), "suppression_failed") {
		t.Errorf("%d %s", r.Code, r.Body)
	}
	if r := w.post(w.Ingest, "/v1/suppression:check", map[string]any{"tenant_id": "acme", "items": []map[string]string{{"source": "crm", "source_ref": "9"}}}); !strings.Contains(string(r.Body), `["unreadable"]`) {
		t.Errorf("%d %s", r.Code, r.Body)
	}
	if metrics := string(w.do(http.MethodGet, w.Ingest.URL+"/metrics", nil, nil).Body); !strings.Contains(metrics, "recount_suppression_unreadable_total 3\n") {
		t.Error("nobody counted what was skipped")
	}
	if n := w.heldBy(w.Ingest, "acme", "alice"); n != 1 {
		t.Errorf("%d rows: an erasure that could not record took something", n)
	}
	rename("hidden", "recount_suppression")
	if r := w.ask(w.Ingest, "delete", "acme", "alice"); r.Code != http.StatusOK {
		t.Errorf("%d %s", r.Code, r.Body)
	}
	if got := w.send(events, line(events, "alice", "1"), line(events, "bob", "2")); got != (taken{Accepted: 1, SkippedSuppressed: 1}) {
		t.Errorf("%+v", got)
	}
}

// heldBy is how many rows one cell counts.
func (w *world) heldBy(s *fleet.Service, tenant, identity string) (n int64) {
	w.t.Helper()
	for _, r := range w.ask(s, "count", tenant, identity).Answer.Receipts {
		n += *r.Count
	}
	return n
}

// TestImportsThatHammerTheErasedNeverBringThemBack erases people while their records are imported over and over, in every
// cell: from the answer on, the count stays 0.
func TestImportsThatHammerTheErasedNeverBringThemBack(t *testing.T) {
	w := start(t)
	people := 4
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	var skipped atomic.Int64
	for _, k := range kinds {
		wg.Go(func() {
			for ctx.Err() == nil {
				var lines []map[string]any
				for p := range people {
					lines = append(lines, line(k, fmt.Sprint("p", p), fmt.Sprint(k.path, p)))
				}
				got, err := w.trySend(k, lines...)
				if err != nil {
					t.Error(err)
					return
				}
				skipped.Add(int64(got.SkippedSuppressed))
			}
		})
	}
	patience := max(raceFor, 2*time.Second) / time.Duration(people)
	for p := range people {
		who := fmt.Sprint("p", p)
		eventually(t, "nobody imports "+who, func() bool { return w.held("acme", who) > 0 })
		if r := w.ask(w.Coordinator, "erase", "acme", who); r.Code != http.StatusOK {
			t.Fatalf("%d %s", r.Code, r.Body)
		}
		for until := time.Now().Add(patience); time.Now().Before(until); {
			for q := range p + 1 {
				if n := w.held("acme", fmt.Sprint("p", q)); n != 0 {
					t.Fatalf("p%d has %d rows again", q, n)
				}
			}
		}
	}
	cancel()
	wg.Wait()
	if skipped.Load() == 0 {
		t.Error("no import was refused: this test shows nothing")
	}
}

func (w *world) trySend(k kind, lines ...map[string]any) (got taken, err error) {
	var body bytes.Buffer
	for _, line := range lines {
		text, err := json.Marshal(line)
		if err != nil {
			return got, err
		}
		body.Write(append(text, '\n'))
	}
	r, err := w.try(http.MethodPost, k.service(w.Fleet).URL+k.path, &body, map[string]string{"Content-Type": "application/x-ndjson"})
	if err == nil {
		err = json.Unmarshal(r.Body, &got)
	}
	return got, err
}

func TestSkeletonsOfPastErasuresAreTakenUpWithTheirDates(t *testing.T) {
	dir := t.TempDir()
	config := ownersTable(t, dir,
		"CREATE TABLE invoices (tenant TEXT, customer_id TEXT, src TEXT, ref TEXT)",
		"CREATE TABLE archive (tenant TEXT, src TEXT, ref TEXT, erased_at TEXT, why TEXT)",
		"INSERT INTO archive VALUES ('acme','crm','a@example.com','2024-05-06T07:08:09Z','asked'), ('acme','crm','b','2024-05-07','asked'), ('acme','crm','c',NULL,NULL), ('globex','crm','a@example.com','2024-01-01 00:00:00',NULL), ('acme','','d','2024-01-01',NULL)",
		"INSERT INTO invoices VALUES ('acme','alice','crm','x'), ('acme','bob','crm','x')")
	s := startCell(t, "/ready", map[string]string{
		"CELL_CONFIG": config, "DATA_DIR": filepath.Join(dir, "data"),
		"SUPPRESSION_BACKFILL": "table=archive,source=src,ref=ref,erased_at=erased_at,reason=why,tenant_column=tenant",
	})
	w := &world{t: t, client: http.DefaultClient}
	r := w.do(http.MethodGet, s.URL+"/v1/suppression?tenant_id=acme", nil, nil)
	for _, want := range []string{`"source_ref":"a@example.com","reason":"asked","erased_at":"2024-05-06T07:08:09Z"`, `"source_ref":"b"`} {
		if !strings.Contains(string(r.Body), want) {
			t.Errorf("%s is not in %s", want, r.Body)
		}
	}
	if strings.Count(string(r.Body), `"source_ref"`) != 2 {
		t.Errorf("%s", r.Body)
	}
	spec := map[string]string{"tenant_column": "tenant", "table": "archive", "source_column": "src", "ref_column": "ref", "erased_at_column": "erased_at"}
	if r := w.post(s, "/v1/suppression:backfill", spec); !strings.Contains(string(r.Body), `"seen":4,"recorded":0,"rejected":1,"next_cursor":""`) {
		t.Errorf("again: %d %s", r.Code, r.Body)
	}
	spec["table"] = "nowhere"
	if r := w.post(s, "/v1/suppression:backfill", spec); r.Code != http.StatusUnprocessableEntity {
		t.Errorf("%d %s", r.Code, r.Body)
	}
	check := w.post(s, "/v1/suppression:check", map[string]any{"tenant_id": "acme", "items": []map[string]string{{"source": "crm", "source_ref": "b"}, {"source": "crm", "source_ref": "e"}}})
	if !strings.Contains(string(check.Body), `["suppressed","admitted"]`) {
		t.Errorf("%s", check.Body)
	}
}

// TestAnOwnersRowsOfOneSourceAreNotTakenForOnePersons: an owner may name a file as the source of many people's rows.
func TestAnOwnersRowsOfOneSourceAreNotTakenForOnePersons(t *testing.T) {
	dir := t.TempDir()
	config := ownersTable(t, dir, "CREATE TABLE invoices (tenant TEXT, customer_id TEXT, src TEXT, ref INTEGER)",
		"INSERT INTO invoices VALUES ('acme','alice','import',7), ('acme','bob','import',7), ('acme','alice','import',8)")
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	plain := startCell(t, "/ready", map[string]string{"CELL_CONFIG": config, "DATA_DIR": filepath.Join(dir, "plain")})
	w := &world{t: t, client: http.DefaultClient}
	if r := w.ask(plain, "delete", "acme", "nobody"); r.Code != http.StatusOK || r.Answer.Receipts[0].Sticky {
		t.Errorf("a table without source columns: %d %s", r.Code, r.Body)
	}
	sourced := filepath.Join(dir, "sourced.yaml")
	if err := os.WriteFile(sourced, bytes.Replace(text, []byte("    about:"), []byte("    source_column: src\n    source_ref_column: ref\n    about:"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startCell(t, "/ready", map[string]string{"CELL_CONFIG": sourced, "DATA_DIR": filepath.Join(dir, "sourced")})
	r := w.ask(s, "delete", "acme", "alice")
	if got := r.Answer.Receipts[0]; r.Code != http.StatusOK || !got.Sticky || *got.Before != 2 || *got.Suppressed != 2 || *got.Derived != 0 {
		t.Errorf("%d %s", r.Code, r.Body)
	}
	if n := w.heldBy(s, "acme", "bob"); n != 1 {
		t.Errorf("bob has %d rows", n)
	}
	check := w.post(s, "/v1/suppression:check", map[string]any{"tenant_id": "acme", "items": []map[string]string{{"source": "import", "source_ref": "8"}, {"source": "import", "source_ref": "9"}}})
	if !strings.Contains(string(check.Body), `["suppressed","admitted"]`) {
		t.Errorf("%s", check.Body)
	}
}
