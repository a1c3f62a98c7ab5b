package wire

import (
	stdjson "encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"recount/internal/subject"
)

const answered = `{"request_id":"r1","tenant_id":"acme","subject_ref":"abc","operation":"erase","status":"erased","detail":"",
 "receipts":[%s],"generated_at":"2026-01-02T03:04:05Z"}`

const receipt = `{"cell":"graph","store":"graph","backend":"memory","status":"erased","before":3,"deleted":3,"remaining":0,
 "recoverable_until":null,"detail":"","started_at":"2026-01-02T03:04:05Z","finished_at":"2026-01-02T03:04:05.5Z"}`

func TestDecodePeerReadsAnAnswerOfTheContract(t *testing.T) {
	got, err := DecodePeer(fmt.Appendf(nil, answered, receipt))
	if err != nil {
		t.Fatal(err)
	}
	if got.RequestID != "r1" || got.TenantID != "acme" || got.SubjectRef != "abc" || got.Operation != "erase" || got.Status != "erased" {
		t.Errorf("envelope: %+v", got)
	}
	r := got.Receipts[0]
	if remaining, sound := r.Remaining.Count(); !sound || !remaining.IsZero() {
		t.Errorf("remaining: %v, %v", remaining, sound)
	}
	if before, sound := r.Before.Count(); !sound || before != subject.Measured(3) {
		t.Errorf("before: %v, %v", before, sound)
	}
	if r.RecoverableUntil != (PeerTime{}) || !r.FinishedAt.Time.Equal(time.Date(2026, 1, 2, 3, 4, 5, 5e8, time.UTC)) {
		t.Errorf("times: %+v", r)
	}
}

func TestDecodePeerRefusesWhatIsNotJSONOfTheContract(t *testing.T) {
	good := fmt.Sprintf(answered, receipt)
	for name, body := range map[string]string{
		"empty":                            ``,
		"null":                             `null`,
		"array":                            `[` + good + `]`,
		"html":                             `<!doctype html><title>502</title>`,
		"second value":                     good + `{}`,
		"trailing text":                    good + ` ok`,
		"cut off":                          good[:len(good)-9],
		"duplicate in the envelope":        strings.Replace(good, `"detail":""`, `"status":"erased"`, 1),
		"duplicate in a receipt":           fmt.Sprintf(answered, strings.Replace(receipt, `"detail":""`, `"remaining":7`, 1)),
		"duplicate in an unknown field":    strings.Replace(good, `"detail":""`, `"new":{"a":1,"a":2}`, 1),
		"unknown field twice":              strings.Replace(good, `"detail":""`, `"new":1,"new":2`, 1),
		"case-variant in the envelope":     strings.Replace(good, `"detail":""`, `"Status":"failed"`, 1),
		"case-variant in a receipt":        fmt.Sprintf(answered, strings.Replace(receipt, `"detail":""`, `"Remaining":7`, 1)),
		"case-variant of an unread field":  strings.Replace(good, `"detail":""`, `"Detail":"x"`, 1),
		"case-variant in other alphabets":  strings.Replace(good, `"detail":""`, `"ſtatus":"failed"`, 1),
		"invalid UTF-8":                    strings.Replace(good, `"r1"`, "\"r\xff\"", 1),
		"more receipts than any cell has":  fmt.Sprintf(answered, strings.Repeat("{},", maxPeerReceipts)+receipt),
		"endless depth in an unknown":      strings.Replace(good, `"detail":""`, `"new":`+strings.Repeat("[", 100_000), 1),
		"a number that is none in unknown": strings.Replace(good, `"detail":""`, `"new":01`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			var broken *MalformedError
			if got, err := DecodePeer([]byte(body)); !errors.As(err, &broken) {
				t.Errorf("want a MalformedError, got %v with %+v", err, got)
			}
		})
	}
}

func TestDecodePeerIgnoresFieldsOfANewerCell(t *testing.T) {
	body := strings.Replace(fmt.Sprintf(answered, strings.Replace(receipt, `"detail":""`, `"sticky":false,"suppressed":3`, 1)),
		`"detail":""`, `"certificate":{"status":"failed","Status":"odd"}`, 1)
	if _, err := DecodePeer([]byte(body)); err != nil {
		t.Error(err)
	}
}

func TestACountIsAnIntegerOrNullAndItsAbsenceIsNeither(t *testing.T) {
	for text, want := range map[string]string{
		`"remaining":0`:                   "0",
		`"remaining":9223372036854775807`: "9223372036854775807",
		`"remaining":null`:                "null",
		`"x":0`:                           "unsound",
		`"remaining":9223372036854775808`: "unsound",
		`"remaining":-1`:                  "unsound",
		`"remaining":-0`:                  "unsound",
		`"remaining":0.0`:                 "unsound",
		`"remaining":0e0`:                 "unsound",
		`"remaining":1E2`:                 "unsound",
		`"remaining":"0"`:                 "unsound",
		`"remaining":false`:               "unsound",
		`"remaining":[]`:                  "unsound",
		`"remaining":{}`:                  "unsound",
		`"remaining":[0]`:                 "unsound",
	} {
		got, err := DecodePeer(fmt.Appendf(nil, `{"receipts":[{%s}]}`, text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		count, sound := got.Receipts[0].Remaining.Count()
		said := "unsound"
		if sound {
			said = count.String()
		}
		if said != want {
			t.Errorf("%s is %s, want %s", text, said, want)
		}
	}
}

func TestFieldsOfAnotherTypeReadAsNothingAndSpareTheirSiblings(t *testing.T) {
	got, err := DecodePeer(fmt.Appendf(nil, `{"request_id":7,"tenant_id":null,"status":["erased"],"retry_after_s":"soon",
		"receipts":[null,"x",[{"store":"a"}],{"store":{"a":1},"status":false,"detail":3,"started_at":9},%s]}`, receipt))
	if err != nil {
		t.Fatal(err)
	}
	if got.RequestID != "" || got.TenantID != "" || got.Status != "" || got.RetryAfter != 0 {
		t.Errorf("envelope: %+v", got)
	}
	if len(got.Receipts) != 5 || got.Receipts[4].Store != "graph" {
		t.Fatalf("receipts: %+v", got.Receipts)
	}
	for _, r := range got.Receipts[:4] {
		if r.Store != "" || r.Status != "" || r.Detail != "" {
			t.Errorf("read %+v", r)
		}
	}
	for _, odd := range []string{`{}`, `"none"`, `null`, `7`} {
		if got, err := DecodePeer([]byte(`{"receipts":` + odd + `}`)); err != nil || len(got.Receipts) != 0 {
			t.Errorf("receipts %s: %+v, %v", odd, got, err)
		}
	}
}

func TestATimeIsReadOrMalformedAndAlwaysWritable(t *testing.T) {
	for text, malformed := range map[string]bool{
		`"2026-12-14T10:00:00Z"`:      false,
		`"2026-12-14T10:00:00+02:00"`: false,
		`null`:                        false,
		`"soon"`:                      true,
		`""`:                          true,
		`0`:                           true,
		`"2026-02-30T10:00:00Z"`:      true,
		`"9999-12-31T23:59:59-12:00"`: true, // year 10000 in UTC, which JSON can't write
		`"0000-01-01T00:00:00+12:00"`: true,
	} {
		got, err := DecodePeer(fmt.Appendf(nil, `{"receipts":[{"recoverable_until":%s}]}`, text))
		if err != nil {
			t.Fatal(err)
		}
		until := got.Receipts[0].RecoverableUntil
		if until.Malformed != malformed {
			t.Errorf("%s: malformed is %v", text, until.Malformed)
		}
		if _, err := stdjson.Marshal(until.Time); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestRetryAfterIsAtMostADay(t *testing.T) {
	for text, want := range map[string]time.Duration{
		`1800`: 30 * time.Minute, `9223372036854775807`: 24 * time.Hour, `-5`: 0, `1.5`: 0, `null`: 0,
	} {
		got, err := DecodePeer([]byte(`{"retry_after_s":` + text + `}`))
		if err != nil || time.Duration(got.RetryAfter) != want {
			t.Errorf("%s: %v, %v", text, time.Duration(got.RetryAfter), err)
		}
	}
}

func TestNames(t *testing.T) {
	for word, good := range map[string]bool{
		"graph": true, "graph_journal": true, "a": true, "a-1": true, "a" + strings.Repeat("b", 62): true,
		"": false, "*": false, "Graph": false, "1a": false, "_a": false, "a b": false, "a\n": false, "é": false,
		"a" + strings.Repeat("b", 63): false, "a.b": false,
	} {
		if IsName(word) != good {
			t.Errorf("%q: %v", word, !good)
		}
		if (PeerText(word).Name() == word) != (good || word == "") {
			t.Errorf("%q reads as %q", word, PeerText(word).Name())
		}
	}
}

func TestTheFieldListsCoverTheContract(t *testing.T) {
	for _, pair := range []struct {
		writes reflect.Type
		reads  []string
	}{
		{reflect.TypeFor[EraseResponse](), responseFields},
		{reflect.TypeFor[Receipt](), receiptFields},
		{reflect.TypeFor[BatchResponse](), batchFields},
	} {
		for i := range pair.writes.NumField() {
			name, _, _ := strings.Cut(pair.writes.Field(i).Tag.Get("json"), ",")
			if !strings.Contains(" "+strings.Join(pair.reads, " ")+" ", " "+name+" ") {
				t.Errorf("%v.%s is not among %v", pair.writes, name, pair.reads)
			}
		}
	}
}

func TestWhatACellWritesIsReadUnchanged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		receipts := rapid.SliceOfN(rapid.Custom(drawReceipt), 0, 6).Draw(t, "receipts")
		written := FromReceipts("r1", subject.Target{Tenant: "acme", Ref: "abc"}, receipts, time.Now())
		body, err := Marshal(BatchResponse{Status: written.Status, Results: []EraseResponse{written}})
		if err != nil {
			t.Fatal(err)
		}
		batch, err := DecodePeerBatch(body)
		if err != nil {
			t.Fatal(err)
		}
		got := batch.Results[0]
		if string(got.Status) != written.Status || string(batch.Status) != written.Status || len(got.Receipts) != len(receipts) {
			t.Fatalf("%+v came back as %+v", written, got)
		}
		if written.RetryAfterS != nil && time.Duration(got.RetryAfter) != time.Duration(*written.RetryAfterS)*time.Second {
			t.Fatalf("retry after %v", time.Duration(got.RetryAfter))
		}
		for i, r := range receipts {
			sameReceipt(t, got.Receipts[i], r)
		}
	})
}

func sameReceipt(t *rapid.T, got PeerReceipt, want subject.Receipt) {
	t.Helper()
	for _, pair := range []struct {
		got  PeerCount
		want subject.Count
	}{{got.Before, want.Counts().Before}, {got.Deleted, want.Counts().Deleted}, {got.Remaining, want.Counts().Remaining}} {
		if count, sound := pair.got.Count(); !sound || count != pair.want {
			t.Fatalf("count %v came back as %v, %v", pair.want, count, sound)
		}
	}
	if string(got.Store) != want.Store() || string(got.Status) != want.Status().String() ||
		ReasonWord(string(got.Detail)) != want.Reason() || !got.RecoverableUntil.Time.Equal(want.Times().RecoverableUntil) {
		t.Fatalf("came back as %+v", got)
	}
}

func drawReceipt(t *rapid.T) subject.Receipt {
	count := rapid.Custom(func(t *rapid.T) subject.Count {
		if rapid.Bool().Draw(t, "null") {
			return subject.Unmeasured()
		}
		return subject.Measured(rapid.Int64Min(0).Draw(t, "n"))
	})
	counts := subject.Counts{Before: count.Draw(t, "before"), Deleted: count.Draw(t, "deleted"), Remaining: count.Draw(t, "remaining")}
	label := subject.Label{Cell: "graph", Store: rapid.StringMatching(`[a-z][a-z0-9_]{0,9}`).Draw(t, "store"), Backend: "memory"}
	var times subject.Times
	if rapid.Bool().Draw(t, "kept") {
		times.RecoverableUntil = time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "until"), 0)
	}
	return subject.Attest(subject.Statement{
		Label: label, Times: times, Counts: counts,
		Status:     rapid.SampledFrom([]subject.Status{subject.Failed, subject.Pending, subject.Erased}).Draw(t, "status"),
		Reason:     rapid.SampledFrom(subject.Reasons()).Draw(t, "reason"),
		RetryAfter: time.Duration(rapid.IntRange(0, 7200).Draw(t, "after")) * time.Second,
	})
}

func FuzzDecodePeer(f *testing.F) {
	f.Add(fmt.Appendf(nil, answered, receipt))
	f.Add(fmt.Appendf(nil, answered, receipt+`,null,{"remaining":-1}`))
	f.Add([]byte(`{"status":"erased","results":[{"status":"erased","receipts":[{"remaining":0}]}]}`))
	f.Add([]byte(`{"receipts":[{"remaining":0,"Remaining":1}]}{}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if _, err := DecodePeerBatch(body); err == nil && !stdjson.Valid(body) {
			t.Fatal("took what is not JSON for a batch")
		}
		got, err := DecodePeer(body)
		if err != nil {
			return
		}
		var loose struct{ Receipts stdjson.RawMessage }
		if err := stdjson.Unmarshal(body, &loose); err != nil {
			t.Fatalf("took what is not a JSON object: %v", err)
		}
		var items []stdjson.RawMessage
		_ = stdjson.Unmarshal(loose.Receipts, &items) // not a list: no items
		if len(items) != len(got.Receipts) {
			t.Fatalf("%d receipts read as %d", len(items), len(got.Receipts))
		}
		for i, item := range items {
			checkZero(t, item, got.Receipts[i])
		}
	})
}

// checkZero asserts that a remaining of 0 was read only where the bytes say exactly 0.
func checkZero(t *testing.T, item stdjson.RawMessage, read PeerReceipt) {
	t.Helper()
	var fields map[string]stdjson.RawMessage
	_ = stdjson.Unmarshal(item, &fields) // not an object: no fields
	count, sound := read.Remaining.Count()
	if zero := string(fields["remaining"]) == "0"; zero != (sound && count.IsZero()) {
		t.Fatalf("remaining %q read as %v, %v", fields["remaining"], count, sound)
	}
	if _, there := fields["remaining"]; sound && !there {
		t.Fatal("a missing count is sound")
	}
}
