package cascade_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"testing"
	"time"

	"recount/internal/subject"
	"recount/internal/wire"
)

func people(t testing.TB, n int) []subject.Subject {
	t.Helper()
	out := make([]subject.Subject, n)
	for i := range out {
		var err error
		if out[i], err = subject.New("acme", fmt.Sprintf("person-%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func result(batch object, i int) object { return batch["results"].([]any)[i].(object) }

func TestEveryLieAboutABatchIsFailed(t *testing.T) {
	good := []string{"holdout_assignments erased", "outcomes erased"}
	mismatch := envelope(subject.ReasonPeerResults)
	disagrees := envelope(subject.ReasonPeerMismatch)
	notJSON := envelope(subject.ReasonPeerNotJSON)
	unknown := envelope(subject.ReasonPeerUnknownStatus)
	for name, row := range map[string]struct {
		code   int
		change func(object)
		want   [3][]string
	}{
		"nothing wrong": {want: [3][]string{good, good, good}},
		"one result short": {
			change: func(b object) { b["results"] = b["results"].([]any)[:2] }, want: [3][]string{mismatch, mismatch, mismatch},
		},
		"one result more": {
			change: func(b object) { b["results"] = append(b["results"].([]any), result(b, 0)) },
			want:   [3][]string{mismatch, mismatch, mismatch},
		},
		"another order": {
			change: func(b object) { slices.Reverse(b["results"].([]any)) }, want: [3][]string{mismatch, mismatch, mismatch},
		},
		"one answered for another": {
			change: func(b object) { b["results"].([]any)[1] = result(b, 0) }, want: [3][]string{mismatch, mismatch, mismatch},
		},
		"no results":         {change: inEnvelope("results", []any{}), want: [3][]string{mismatch, mismatch, mismatch}},
		"null results":       {change: inEnvelope("results", nil), want: [3][]string{mismatch, mismatch, mismatch}},
		"a result is null":   {change: func(b object) { b["results"].([]any)[1] = nil }, want: [3][]string{mismatch, mismatch, mismatch}},
		"no status on top":   {change: func(b object) { delete(b, "status") }, want: [3][]string{unknown, unknown, unknown}},
		"code disagrees":     {code: 502, want: [3][]string{disagrees, disagrees, disagrees}},
		"top disagrees":      {code: 409, change: inEnvelope("status", "pending"), want: [3][]string{disagrees, disagrees, disagrees}},
		"Status beside it":   {change: inEnvelope("Status", "failed"), want: [3][]string{notJSON, notJSON, notJSON}},
		"Status in a result": {change: func(b object) { result(b, 1)["Status"] = "failed" }, want: [3][]string{notJSON, notJSON, notJSON}},
		"top hides a failed result": {
			change: func(b object) { result(b, 1)["status"] = "failed"; receipt(result(b, 1), 1)["status"] = "failed" },
			want:   [3][]string{disagrees, disagrees, disagrees},
		},
		"a failed result said openly": {
			code: 502,
			change: func(b object) {
				b["status"] = "failed"
				all(inEnvelope("status", "failed"), inReceipt("status", "failed"), inReceipt("detail", "store_timeout"))(result(b, 1))
			},
			want: [3][]string{good, second(subject.ReasonTimeout), good},
		},
		"a pending result said openly": {
			code: 409,
			change: func(b object) {
				b["status"] = "pending"
				all(inEnvelope("status", "pending"), inReceipt("status", "pending"), inReceipt("remaining", 1), inReceipt("detail", "quota"))(result(b, 2))
			},
			want: [3][]string{good, good, {"holdout_assignments erased", "outcomes pending quota"}},
		},
		"a result about another request": {
			change: func(b object) { result(b, 1)["request_id"] = "x" },
			want:   [3][]string{good, envelope(subject.ReasonPeerWrongRequest), good},
		},
		"a result of another tenant": {
			change: func(b object) { result(b, 1)["tenant_id"] = "globex" },
			want:   [3][]string{good, envelope(subject.ReasonPeerWrongTenant), good},
		},
		"a result without receipts": {
			change: func(b object) { result(b, 0)["receipts"] = []any{} },
			want:   [3][]string{envelope(subject.ReasonPeerNoReceipts), good, good},
		},
		"a result against its receipts": {
			change: func(b object) { receipt(result(b, 1), 1)["status"] = "failed" },
			want:   [3][]string{good, disagrees, good},
		},
		"a receipt without remaining": {
			change: func(b object) { without("remaining")(result(b, 2)) },
			want:   [3][]string{good, good, second(subject.ReasonPeerBadCount)},
		},
		"a receipt with a row left": {
			change: func(b object) { inReceipt("remaining", 1)(result(b, 0)) },
			want:   [3][]string{second(subject.ReasonPeerFalseErased), good, good},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			subjects := people(t, 3)
			server := httptest.NewServer(batchHandler(t, row.code, row.change))
			defer server.Close()
			got := peerAt(server.URL, 10*time.Second).EraseBatch(t.Context(), requestID, everyone(subjects...))
			if len(got) != 3 {
				t.Fatalf("%d lists for 3 subjects", len(got))
			}
			for i := range got {
				if !slices.Equal(told(got[i].Receipts), row.want[i]) {
					t.Errorf("subject %d: got %q, want %q", i, told(got[i].Receipts), row.want[i])
				}
			}
		})
	}
}

// batchHandler is the honest cell with its answer changed.
func batchHandler(t *testing.T, code int, change func(object)) http.HandlerFunc {
	t.Helper()
	return func(w http.ResponseWriter, r *http.Request) {
		honest := httptest.NewRecorder()
		causal().ServeHTTP(honest, r)
		var batch object
		if err := json.Unmarshal(honest.Body.Bytes(), &batch); err != nil {
			t.Error(err)
		}
		if change != nil {
			change(batch)
		}
		body, err := json.Marshal(batch)
		if err != nil {
			t.Error(err)
		}
		if code != 0 {
			w.WriteHeader(code)
		}
		_, _ = w.Write(body)
	}
}

func TestAThousandSubjectsAreOneCall(t *testing.T) {
	url, requests := flaky(t)
	got := peerAt(url, 30*time.Second).EraseBatch(t.Context(), requestID, everyone(people(t, wire.MaxBatch)...))
	if len(got) != wire.MaxBatch || requests.Load() != 1 {
		t.Fatalf("%d lists after %d requests", len(got), requests.Load())
	}
	for i, erasure := range got {
		receipts := erasure.Receipts
		if subject.Fold(receipts) != subject.Erased {
			t.Fatalf("subject %d: %q", i, told(receipts))
		}
	}
}

func TestABrokenBatchFailsForEverySubject(t *testing.T) {
	for name, serve := range map[string]http.HandlerFunc{"html": func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("<html>"))
	}, "500": status(500), "endless": endless} {
		url, _ := flaky(t, serve)
		got := peerAt(url, 10*time.Second).EraseBatch(t.Context(), requestID, everyone(people(t, 2)...))
		if len(got) != 2 || len(got[0].Receipts) != 1 || got[0].Receipts[0].Status() != subject.Failed ||
			!reflect.DeepEqual(told(got[0].Receipts), told(got[1].Receipts)) {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

func TestNoSubjectsNeedNoCall(t *testing.T) {
	url, requests := flaky(t)
	if got := peerAt(url, time.Second).EraseBatch(t.Context(), requestID, nil); len(got) != 0 || requests.Load() != 0 {
		t.Errorf("%d lists after %d requests", len(got), requests.Load())
	}
}
