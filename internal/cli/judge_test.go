package cli

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"recount/internal/subject"
	"recount/internal/wire"
)

const ref = "a3f1a3f1a3f1a3f1a3f1a3f1a3f1a3f1a3f1a3f1a3f1a3f1a3f1a3f1a3f1a3f1"

// anyAnswer draws what a coordinator might say: mostly right, each part now and then wrong.
func anyAnswer(t *rapid.T) (answer, string) {
	pick := func(label, right string, wrong ...string) string {
		if rapid.IntRange(0, 9).Draw(t, label+" is wrong") > 0 {
			return right
		}
		return rapid.SampledFrom(wrong).Draw(t, label)
	}
	var receipts []string
	for i := range rapid.IntRange(0, 4).Draw(t, "receipts") {
		status := pick("status", `"erased"`, `"pending"`, `"failed"`, `"ERASED"`, `null`)
		remaining := pick("remaining", `"remaining":0,`, `"remaining":1,`, `"remaining":null,`, `"remaining":-1,`, `"remaining":"0",`, ``)
		cell := pick("cell", `"graph"`, `"ingest"`, `""`, `7`)
		store := pick("store", fmt.Sprintf(`"s%d"`, i), `"s0"`, `"*"`, `""`)
		receipts = append(receipts, fmt.Sprintf(`{"cell":%s,"store":%s,"backend":"sqlite","status":%s,"before":1,"deleted":1,%s"recoverable_until":null,"detail":""}`,
			cell, store, status, remaining))
	}
	body := fmt.Sprintf(`{"request_id":%s,"tenant_id":%s,"subject_ref":%s,"operation":%s,"status":%s,"receipts":[%s]}`,
		pick("request", `"r1"`, `"r2"`, `null`), pick("tenant", `"acme"`, `"globex"`), pick("ref", `"`+ref+`"`, `"x"`), pick("operation", `"erase"`, `"count"`),
		pick("top", `"erased"`, `"pending"`, `"failed"`, `"done"`), strings.Join(receipts, ","))
	code := rapid.SampledFrom([]int{200, 200, 200, 409, 502}).Draw(t, "code")
	return answer{code: code, requestID: "r1", body: []byte(body)}, strings.Join(receipts, ",")
}

func TestNoAnswerIsErasedUnlessEveryReceiptIsAMeasuredZero(t *testing.T) {
	erased := 0
	rapid.Check(t, func(t *rapid.T) {
		got, receipts := anyAnswer(t)
		o := judgeErase(got, question{requestID: "r1", tenant: "acme", cells: []string{"graph"}})
		if o.status() != subject.Erased {
			return
		}
		erased++
		n := strings.Count(receipts, `"store"`)
		zeros := strings.Count(receipts, `"remaining":0,`)
		words := strings.Count(receipts, `"status":"erased"`)
		if n == 0 || zeros != n || words != n || got.code != http.StatusOK || !strings.Contains(receipts, `"graph"`) {
			t.Fatalf("erased was read from HTTP %d %s", got.code, got.body)
		}
	})
	if erased == 0 {
		t.Error("no answer at all was erased: the property says nothing")
	}
}

func TestWhatTheCoordinatorMeasuredIsKept(t *testing.T) {
	who, err := subject.New("acme", "alice")
	if err != nil {
		t.Fatal(err)
	}
	salt, err := subject.NewSalt("0123456789abcdef")
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		remaining := rapid.SliceOfN(rapid.Int64Range(0, 2), 1, 5).Draw(t, "remaining")
		var receipts []subject.Receipt
		for i, n := range remaining {
			status := subject.Erased
			if n > 0 {
				status = subject.Pending
			}
			receipts = append(receipts, subject.Attest(subject.Statement{
				Label:  subject.Label{Cell: "graph", Store: fmt.Sprintf("s%d", i)},
				Counts: subject.Counts{Before: subject.Measured(n), Deleted: subject.Measured(0), Remaining: subject.Measured(n)},
				Status: status, Reason: subject.ReasonQuota, RetryAfter: time.Duration(n) * time.Minute,
			}))
		}
		body, err := wire.Marshal(wire.FromReceipts("r1", subject.TargetOf(who, salt), receipts, time.Now()))
		if err != nil {
			t.Fatal(err)
		}
		o := judgeErase(answer{code: wire.HTTPStatus(subject.Fold(receipts)), body: body}, question{requestID: "r1", tenant: "acme", cells: []string{"graph"}})
		if o.status() != subject.Fold(receipts) || o.ref != who.Ref(salt) || len(o.receipts) != len(receipts) {
			t.Fatalf("%s came back as %v", body, o)
		}
	})
}

func TestABatchIsOneResultForEachPerson(t *testing.T) {
	result := func(ref string) string {
		return fmt.Sprintf(`{"request_id":"r1","tenant_id":"acme","subject_ref":%q,"operation":"erase","status":"erased",
			"receipts":[{"cell":"graph","store":"graph","backend":"memory","status":"erased","before":0,"deleted":0,"remaining":0,"recoverable_until":null}]}`, ref)
	}
	other := strings.Repeat("b", 64)
	for name, c := range map[string]struct {
		results []string
		want    subject.Status
	}{
		"two":            {[]string{result(ref), result(other)}, subject.Erased},
		"one missing":    {[]string{result(ref)}, subject.Failed},
		"one too many":   {[]string{result(ref), result(other), result(strings.Repeat("c", 64))}, subject.Failed},
		"the same twice": {[]string{result(ref), result(ref)}, subject.Failed},
		"none":           {nil, subject.Failed},
	} {
		body := fmt.Sprintf(`{"status":"erased","results":[%s]}`, strings.Join(c.results, ","))
		out := judgeBatch(answer{code: 200, body: []byte(body)}, question{requestID: "r1", tenant: "acme"}, 2)
		if len(out) != 2 {
			t.Fatalf("%s: %d outcomes", name, len(out))
		}
		for i, o := range out {
			if o.status() != c.want {
				t.Errorf("%s: person %d is %v", name, i, o.status())
			}
		}
	}
}

func TestEveryReasonHasAdvice(t *testing.T) {
	for _, reason := range subject.Reasons() {
		if advice[reason] == "" {
			t.Errorf("%s has none", reason)
		}
	}
	for reason := range advice {
		if !reason.Known() {
			t.Errorf("%s is no reason", reason)
		}
	}
}

func FuzzJudgeErase(f *testing.F) {
	f.Add([]byte(`{"request_id":"r1","tenant_id":"acme","subject_ref":"`+ref+`","operation":"erase","status":"erased","receipts":[{"cell":"graph","store":"a","status":"erased","before":0,"deleted":0,"remaining":0}]}`), 200)
	f.Fuzz(func(t *testing.T, body []byte, code int) {
		o := judgeErase(answer{code: code, body: body}, question{requestID: "r1", tenant: "acme", cells: []string{"graph"}})
		if len(o.receipts) == 0 {
			t.Fatal("no receipts")
		}
		if o.status() == subject.Erased && (code != 200 || !strings.Contains(string(body), "remaining")) {
			t.Fatal("erased without a count")
		}
	})
}
