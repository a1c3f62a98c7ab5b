package audit_test

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"recount/internal/audit"
	"recount/internal/subject"
)

var at = time.Date(2026, 12, 1, 10, 0, 0, 123456789, time.FixedZone("", 3600))

func event(t testing.TB) audit.Event {
	t.Helper()
	person, err := subject.New("acme", "alice@example.com")
	if err != nil {
		t.Fatal(err)
	}
	salt, err := subject.NewSalt("0123456789abcdef")
	if err != nil {
		t.Fatal(err)
	}
	return audit.Event{RequestID: "r1", TenantID: "acme", Ref: person.Ref(salt), Operation: "erase", Actor: "bot@x.io", At: at}
}

func counts(before, deleted, remaining int64) subject.Counts {
	return subject.Counts{Before: subject.Measured(before), Deleted: subject.Measured(deleted), Remaining: subject.Measured(remaining)}
}

func judged(store string, c subject.Counts, deleteErr error) subject.Receipt {
	return subject.Judge(subject.Label{Cell: "ingest", Store: store, Backend: "sqlite"}, subject.Times{},
		subject.Measurement{Counts: c, DeleteErr: deleteErr}, func(_ error, otherwise subject.Reason) subject.Reason { return otherwise })
}

func TestAnErasureIsWrittenDownStoreByStore(t *testing.T) {
	e := event(t)
	rows := audit.FromReceipts(e, "ingest", []subject.Receipt{
		judged("events", counts(3, 3, 0), nil),
		judged("buffered", counts(3, 0, 3), &subject.NotYet{Reason: subject.ReasonStreamingBuffer}),
		judged("broken", subject.Counts{Before: subject.Measured(3)}, errors.New("row of alice@example.com")),
	})
	got, err := json.Marshal([]map[string]any{rows[0].Columns(), rows[1].Columns(), rows[2].Columns()})
	if err != nil {
		t.Fatal(err)
	}
	row := func(store, counts, status, detail string) string {
		before, deleted, remaining := counts[:strings.Index(counts, " ")], strings.Fields(counts)[1], strings.Fields(counts)[2]
		return `{"actor":"bot@x.io","before":` + before + `,"cell":"ingest","deleted":` + deleted + `,"detail":"` + detail +
			`","occurred_at":"2026-12-01T09:00:00.123456Z","operation":"erase","remaining":` + remaining + `,"request_id":"r1","status":"` + status +
			`","store":"` + store + `","subject_ref":"` + string(e.Ref) + `","tenant_id":"acme"}`
	}
	want := "[" + row("events", "3 3 0", "erased", "") + "," + row("buffered", "3 0 3", "pending", "streaming_buffer") + "," +
		row("broken", "3 null null", "failed", "delete_failed") + "]"
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestAnAccessIsWrittenDownStoreByStore(t *testing.T) {
	e := event(t)
	e.Operation = "access"
	rows := audit.FromAccess(e, "ingest", []subject.AccessReceipt{
		{Label: subject.Label{Cell: "ingest", Store: "events"}, Count: subject.Measured(7), Rows: []map[string]any{{"identity_id": "alice@example.com"}}},
		{Label: subject.Label{Cell: "ingest", Store: "broken"}, Count: subject.Measured(7), Reason: subject.ReasonReadFailed},
	})
	read, broken := rows[0].Columns(), rows[1].Columns()
	if read["status"] != "read" || read["remaining"] != int64(7) || read["before"] != nil || read["deleted"] != nil || read["detail"] != "" {
		t.Errorf("%v", read)
	}
	if broken["status"] != "failed" || broken["remaining"] != nil || broken["detail"] != "read_failed" {
		t.Errorf("%v", broken)
	}
}

func TestAnOperationWithoutAReceiptIsWrittenDownAsFailed(t *testing.T) {
	for _, rows := range [][]audit.Row{audit.FromReceipts(event(t), "scoring", nil), audit.FromAccess(event(t), "scoring", nil)} {
		if len(rows) != 1 || rows[0].Status != "failed" || rows[0].Store != "*" || rows[0].Cell != "scoring" || rows[0].Detail != string(subject.ReasonNothingVerified) {
			t.Errorf("%+v", rows)
		}
	}
}

func TestNoOtherColumnIsEverWritten(t *testing.T) {
	allowed := strings.Fields("actor before cell deleted detail occurred_at operation remaining request_id status store subject_ref tenant_id")
	if got := slices.Sorted(maps.Keys(audit.Row{}.Columns())); !slices.Equal(got, allowed) {
		t.Errorf("%v", got)
	}
	if t2 := audit.Table(); !t2.Covers("intent_erasure_audit", "subject_ref") {
		t.Error("coverage takes the reference for a forgotten key")
	}
}
