package e2e

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"recount/internal/cascade/cascadetest"
	"recount/internal/fleet"
	"recount/internal/subject"
)

// The marks of a person: an identity, a source reference and a value, each to be found nowhere.
const (
	markedPerson = "zq-alice@example.com"
	markedRef    = "zq-ref.alice@example.com"
	markedValue  = "zq-value"
)

// marks are how a mark may look in a log or an answer.
var marks = []string{"zq-", "zq%2D", "zq%2d", `zq\u002d`, "enEtYWxp", "7a712d616c"} // plain, escaped, base64, hex

// provoke makes requests that go wrong, with the person in odd places, and answers all that came back with an error.
func provoke(base string) string {
	var answers strings.Builder
	send := func(method, path, body string, header map[string]string) {
		r, err := try(http.DefaultClient, method, strings.Replace(base+path, "/intent/../", "/", 1), strings.NewReader(body), header)
		if err == nil && r.Code >= 400 {
			answers.Write(r.Body)
			_ = r.Header.Write(&answers)
		}
	}
	about := `{"tenant_id":"acme","identity_id":"` + markedPerson + `"`
	send(http.MethodPost, "subject/"+markedPerson+"?tenant_id=acme", "", nil)
	send(http.MethodGet, "subject/"+markedPerson, "", nil)
	send(http.MethodGet, "subject/"+markedPerson+"?tenant_id="+markedPerson, "", nil)
	send(http.MethodGet, "subject/"+markedPerson+"?tenant_id=acme&"+markedPerson+"=1", "", nil)
	send(http.MethodGet, "subject/"+markedPerson+"/x?tenant_id=acme", "", nil)
	send(http.MethodGet, "subject/"+markedPerson+"%zz?tenant_id=acme", "", nil)
	send(http.MethodGet, markedPerson, "", nil)
	send("ZQ-ALICE", "subject/"+markedPerson, "", nil)
	send(http.MethodPost, "subject:erase", about+`,"`+markedPerson+`":1}`, jsonBody)
	send(http.MethodPost, "subject:erase", about+`,"identity_id":"`+markedPerson+`"}`, jsonBody)
	send(http.MethodPost, "subject:erase", about+`} `+markedPerson, jsonBody)
	send(http.MethodPost, "subject:erase", `{"tenant_id":"`+markedPerson+`","identity_id":"x"}`, jsonBody)
	send(http.MethodPost, "subject:erase", `{"tenant_id":"acme","identity_id":"`+markedPerson+"\x01"+`"}`, jsonBody)
	send(http.MethodPost, "subject:erase", `{"tenant_id":"acme","identity_id":"`+strings.Repeat(markedPerson, 40)+`"}`, jsonBody)
	send(http.MethodPost, "subject:batchErase", `{"tenant_id":"acme","identity_ids":["`+markedPerson+`","`+markedPerson+`"]}`, jsonBody)
	send(http.MethodPost, "subject:erase", markedPerson, jsonBody)
	send(http.MethodPost, "subject:erase", `{}`, map[string]string{"Content-Type": markedPerson})
	send(http.MethodPost, "subject:erase", `{}`, map[string]string{"Content-Type": "application/json", "Authorization": markedPerson, "Origin": "http://" + markedValue})
	send(http.MethodPost, "subject:access", about+`,"page_token":"`+markedPerson+`"}`, jsonBody)
	source := `{"tenant_id":"acme","source":"` + markedValue + `","source_ref":"` + markedRef + `"`
	send(http.MethodPost, "source:erase", source+`,"x":1}`, jsonBody)
	send(http.MethodPost, "source:delete", `{"tenant_id":"acme","source":"","source_ref":"`+markedRef+`"}`, jsonBody)
	send(http.MethodPost, "source:batchDelete", `{"tenant_id":"acme","erasures":[{"subject_ref":"`+markedRef+`","sources":[]}]}`, jsonBody)
	send(http.MethodPost, "../suppression:allow", source+`,"reason":"`+markedRef+`","consent_ref":"c"}`, jsonBody)
	send(http.MethodPost, "../suppression:check", source+`}`, jsonBody)
	send(http.MethodPost, "../suppression:backfill", `{"tenant_id":"acme","table":"`+markedRef+`","source_column":"a","ref_column":"b","erased_at_column":"c"}`, jsonBody)
	send(http.MethodGet, "../suppression?tenant_id=acme&page_token="+markedRef, "", nil)
	send(http.MethodPost, "scores", about+`,"x":"`+markedRef+`"}`, jsonBody)
	send(http.MethodPost, "scores", about+`,"source":"s","source_ref":"`+markedRef+`"`, jsonBody)
	send(http.MethodPost, "subject:erase", about+`}`, map[string]string{"Content-Type": "application/json", "X-Request-ID": markedPerson, "Traceparent": markedPerson})
	return answers.String()
}

// TestNothingPersonalIsLeftInLogsMetricsAuditsOrProblems provokes errors with a person in odd places, and searches.
func TestNothingPersonalIsLeftInLogsMetricsAuditsOrProblems(t *testing.T) {
	parrot := httptest.NewServer(http.HandlerFunc(parrot))
	defer parrot.Close()
	w := start(t, everywhere(map[string]string{"LOG_LEVEL": "debug", "INTENT_SUBJECT_SALT": cascadetest.SaltText}), own("coordinator", map[string]string{
		"CASCADE_EXTRA_PEERS": "parrot=" + parrot.URL, "CASCADE_EXPECTED_STORES": "parrot=rows",
		"CASCADE_PEER_TIMEOUT": "26s",
	}))
	writeMarked(w)
	if len(filesWith(t, w.dir, "zq-")) < 4 {
		t.Error("the search doesn't see what is there")
	}
	answers := provoke(w.Coordinator.URL+"/v1/intent/") + provoke(w.Ingest.URL+"/v1/intent/")
	for _, down := range []*fleet.Service{nil, w.Ingest} {
		if down != nil {
			if err := down.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		r := w.ask(w.Coordinator, "erase", "acme", markedPerson)
		if got := statuses(r.Answer.Receipts); r.Code != http.StatusBadGateway || got["scoring/intent_scores"] != "erased" || got["parrot/rows"] != "failed unknown_reason" {
			t.Errorf("%d %v", r.Code, got)
		}
		answers += string(r.Body)
	}
	if err := w.Ingest.StartAgain(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, s := range w.All() {
		answers += string(w.ask(s, "delete", "acme", markedPerson).Body)
		answers += string(w.do(http.MethodGet, s.URL+"/metrics", nil, nil).Body) + string(w.do(http.MethodGet, s.URL+"/health", nil, nil).Body)
	}
	for _, mark := range marks {
		if at := strings.Index(answers, mark); at >= 0 {
			t.Errorf("an answer or a metric holds the person: %s", answers[max(0, at-200):min(len(answers), at+100)])
		}
	}
	w.Stop()
	if found := filesWith(t, w.dir, marks...); len(found) > 0 {
		t.Error(found)
	}
}

// writeMarked gives the marked person a row of every kind, with marks in everything that a row may hold.
func writeMarked(w *world) {
	w.t.Helper()
	for _, k := range kinds {
		record := map[string]any{"tenant_id": "acme", "identity_id": markedPerson, "source": markedValue, "source_ref": markedRef, "consent_basis": markedValue}
		maps.Copy(record, k.own)
		for name, value := range record {
			switch value.(type) {
			case map[string]any:
				record[name] = map[string]any{markedValue: markedPerson}
			case string:
				if slices.Contains([]string{"event_type", "model_version", "relation", "related_id", "experiment", "metric"}, name) {
					record[name] = markedValue
				}
			}
		}
		r := w.do(http.MethodPost, k.service(w.Fleet).URL+k.path, encode(w.t, record), jsonBody)
		if r.Code != http.StatusOK || !strings.Contains(string(r.Body), `"accepted":1`) {
			w.t.Fatalf("%s: %d %s", k.path, r.Code, r.Body)
		}
	}
}

// parrot is a peer that repeats the person wherever an answer has room for words.
func parrot(w http.ResponseWriter, r *http.Request) {
	person, err := subject.New("acme", markedPerson)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Parrot", markedPerson)
	w.WriteHeader(http.StatusBadGateway)
	_, _ = fmt.Fprintf(w, `{"request_id":%q,"tenant_id":"acme","subject_ref":%q,"operation":"erase","status":"failed","detail":%[3]q,
		"receipts":[{"cell":"parrot","store":"rows","backend":%[3]q,"status":"failed","before":null,"deleted":null,"remaining":null,"recoverable_until":null,"detail":%[3]q,
		"started_at":%[3]q,"finished_at":%[3]q,%[3]q:%[3]q}],"generated_at":%[3]q}`, r.Header.Get("X-Request-ID"), person.Ref(cascadetest.Salt()), markedPerson)
}

// TestNoByteOfTheErasedIsLeftAmongThoseWhoStay erases half of a crowd in random order: the pages that they shared with the
// others stay in use, and are rearranged.
func TestNoByteOfTheErasedIsLeftAmongThoseWhoStay(t *testing.T) {
	w := start(t)
	gone, kept := crowd("gone", 3000), crowd("kept", 3000)
	for _, people := range [][]string{gone, kept} { // rows of many lengths
		for i := range people {
			people[i] += strings.Repeat("x", rand.IntN(300))
		}
	}
	all := slices.Concat(gone, kept)
	for _, people := range [][]string{gone, all} {
		rand.Shuffle(len(people), func(i, j int) { people[i], people[j] = people[j], people[i] })
	}
	w.write("acme", all...)
	for few := range slices.Chunk(gone, 20) {
		r := w.do(http.MethodPost, w.Coordinator.URL+"/v1/intent/subject:batchErase", encode(t, map[string]any{"tenant_id": "acme", "identity_ids": few}), jsonBody)
		if r.Code != http.StatusOK {
			t.Fatalf("%d %.300s", r.Code, r.Body)
		}
	}
	if found := filesWith(t, w.dir, "gone-"); len(found) > 0 {
		t.Errorf("left behind: %v", found)
	}
	if len(filesWith(t, w.dir, kept[0])) < 4 {
		t.Error("somebody else is gone too")
	}
}

func TestTheAuditHasARowForEachReceiptAndNothingElse(t *testing.T) {
	w := start(t, own("coordinator", map[string]string{"INTENT_CAUSAL_URL": ""}))
	w.write("acme", "alice")
	answer := w.ask(w.Coordinator, "erase", "acme", "alice").Answer
	w.ask(w.Ingest, "access", "acme", "alice")
	w.Stop()
	rows := auditRows(t, filepath.Join(w.dir, "coordinator", "audit.db"))
	audited := map[string]string{}
	for _, row := range rows {
		audited[fmt.Sprint(row["cell"], "/", row["store"])] = strings.TrimSuffix(fmt.Sprint(row["status"], " ", row["detail"]), " ")
	}
	if len(rows) != 6 || !maps.Equal(audited, statuses(answer.Receipts)) {
		t.Errorf("%d rows: %v", len(rows), audited)
	}
	for _, row := range rows {
		var columns []string
		for name := range row {
			columns = append(columns, name)
		}
		slices.Sort(columns)
		if got := fmt.Sprint(columns); got != "[actor before cell deleted detail occurred_at operation remaining request_id status store subject_ref tenant_id]" {
			t.Errorf("columns %s", got)
		}
		measured := fmt.Sprint(row["before"], row["deleted"], row["remaining"])
		if row["operation"] != "erase" || row["status"] == "erased" && measured != "1 1 0" || row["status"] != "erased" && measured != "<nil> <nil> <nil>" || len(fmt.Sprint(row["subject_ref"])) != 64 {
			t.Errorf("%v", row)
		}
	}
	operations := map[any]int{}
	for _, row := range auditRows(t, filepath.Join(w.dir, "ingest", "audit.db")) {
		operations[row["operation"]]++
	}
	if fmt.Sprint(operations) != "map[access:1 erase:1]" {
		t.Errorf("at the ingest cell: %v", operations)
	}
}
