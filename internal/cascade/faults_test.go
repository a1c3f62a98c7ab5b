package cascade_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"recount/internal/cascade"
	"recount/internal/cascade/cascadetest"
	"recount/internal/subject"
	"recount/internal/wire"
)

const requestID = "6f1b3c1e5f0a4f0e9d8c7b6a59483726"

func someone(t testing.TB) subject.Subject {
	t.Helper()
	s, err := subject.New("acme", "alice@example.com:erase/%2F")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// about is the erasure of a person.
func about(s subject.Subject) subject.Target { return subject.TargetOf(s, cascadetest.Salt()) }

// everyone is the erasure of many.
func everyone(people ...subject.Subject) []subject.Target {
	targets := make([]subject.Target, len(people))
	for i, s := range people {
		targets[i] = about(s)
	}
	return targets
}

func causal() *cascadetest.Cell {
	return &cascadetest.Cell{Name: "causal", Stores: []string{"holdout_assignments", "outcomes"}}
}

// peerAt is the causal peer behind a URL, with a timeout that no good answer needs.
func peerAt(url string, timeout time.Duration) *cascade.Peer {
	return cascade.NewPeer(
		cascade.PeerConfig{Name: "causal", URL: url, Stores: causal().Stores},
		cascade.Options{Salt: cascadetest.Salt(), Timeout: timeout, Transport: plain()},
	)
}

// plain is a pool of its own for each test, so that no test gets another's idle connection.
func plain() func(string) http.RoundTripper {
	pool := cascade.NewTransport()
	return func(string) http.RoundTripper { return pool }
}

// told writes receipts as "store status", with the reason where there is one.
func told(receipts []subject.Receipt) []string {
	out := make([]string, len(receipts))
	for i, r := range receipts {
		out[i] = strings.TrimSpace(r.Store() + " " + r.Status().String() + " " + string(r.Reason()))
	}
	return out
}

type object = map[string]any

// receipt is the i-th receipt of an answer, to be changed.
func receipt(answer object, i int) object { return answer["receipts"].([]any)[i].(object) }

// inReceipt changes a field of the second receipt, which is of the store outcomes.
func inReceipt(field string, value any) func(object) {
	return func(a object) { receipt(a, 1)[field] = value }
}

func inEnvelope(field string, value any) func(object) { return func(a object) { a[field] = value } }

func without(field string) func(object) { return func(a object) { delete(receipt(a, 1), field) } }

// all makes one change of several.
func all(changes ...func(object)) func(object) {
	return func(a object) {
		for _, change := range changes {
			change(a)
		}
	}
}

func number(literal string) json.RawMessage { return json.RawMessage(literal) }

// fault is a row of the matrix: what is wrong with an otherwise flawless answer of two erased stores.
type fault struct {
	code   int                 // 0 is 200
	change func(object)        // of the answer
	text   func(string) string // of its JSON
	serve  http.HandlerFunc    // in place of any answer
	want   []string
}

func envelope(reason subject.Reason) []string { return []string{"* failed " + string(reason)} }

// second is what is told when the receipt of outcomes was coerced and its sibling kept.
func second(reason subject.Reason) []string {
	return []string{"holdout_assignments erased", "outcomes failed " + string(reason)}
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func text(body string) func(string) string { return func(string) string { return body } }

func replace(old, replacement string) func(string) string {
	return func(body string) string { return strings.Replace(body, old, replacement, 1) }
}

var faults = map[string]fault{
	"nothing wrong": {want: []string{"holdout_assignments erased", "outcomes erased"}},
	"fields of a newer cell": {
		change: all(inEnvelope("certificate", object{"Status": "x"}), inReceipt("sticky", true)),
		want:   []string{"holdout_assignments erased", "outcomes erased"},
	},
	"a store more than expected": {
		change: func(a object) {
			more := object{}
			for k, v := range receipt(a, 0) {
				more[k] = v
			}
			more["store"] = "experiments"
			a["receipts"] = append(a["receipts"].([]any), more)
		},
		want: []string{"holdout_assignments erased", "outcomes erased", "experiments erased"},
	},
	"honestly pending": {
		code:   409,
		change: all(inEnvelope("status", "pending"), inReceipt("status", "pending"), inReceipt("remaining", 2), inReceipt("detail", "streaming_buffer: hint")),
		want:   []string{"holdout_assignments erased", "outcomes pending streaming_buffer"},
	},
	"honestly failed": {
		code:   502,
		change: all(inEnvelope("status", "failed"), inReceipt("status", "failed"), inReceipt("remaining", nil), inReceipt("detail", "recount_failed")),
		want:   second(subject.ReasonRecountFailed),
	},
	"failed without a reason": {
		code:   502,
		change: all(inEnvelope("status", "failed"), inReceipt("status", "failed")),
		want:   second(subject.ReasonNoReason),
	},
	"failed in words of its own": {
		code:   502,
		change: all(inEnvelope("status", "failed"), inReceipt("status", "failed"), inReceipt("detail", "row of alice is locked")),
		want:   second(subject.ReasonUnknown),
	},

	"401":                          {serve: status(401), want: envelope(subject.ReasonPeerUnauthorised)},
	"403":                          {serve: status(403), want: envelope(subject.ReasonPeerUnauthorised)},
	"301":                          {serve: status(301), want: envelope(subject.ReasonPeerRedirected)},
	"304":                          {serve: status(304), want: envelope(subject.ReasonPeerRedirected)},
	"201":                          {code: 201, want: envelope(subject.ReasonPeerHTTPStatus)},
	"202":                          {code: 202, want: envelope(subject.ReasonPeerHTTPStatus)},
	"204":                          {serve: status(204), want: envelope(subject.ReasonPeerHTTPStatus)},
	"206":                          {code: 206, want: envelope(subject.ReasonPeerHTTPStatus)},
	"404":                          {serve: status(404), want: envelope(subject.ReasonPeerHTTPStatus)},
	"405":                          {serve: status(405), want: envelope(subject.ReasonPeerHTTPStatus)},
	"500":                          {serve: status(500), want: envelope(subject.ReasonPeerHTTPStatus)},
	"504":                          {code: 504, want: envelope(subject.ReasonPeerHTTPStatus)},
	"429 for an hour":              {serve: busy(429, "3600"), want: envelope(subject.ReasonPeerUnavailable)},
	"503 for longer than counts":   {serve: busy(503, "99999999999999999999"), want: envelope(subject.ReasonPeerUnavailable)},
	"503 until tomorrow":           {serve: busy(503, time.Now().Add(24*time.Hour).UTC().Format(http.TimeFormat)), want: envelope(subject.ReasonPeerUnavailable)},
	"502 of a front end":           {code: 502, text: text("<html>bad gateway</html>"), want: envelope(subject.ReasonPeerNotJSON)},
	"erased with code 409":         {code: 409, want: envelope(subject.ReasonPeerMismatch)},
	"erased with code 502":         {code: 502, want: envelope(subject.ReasonPeerMismatch)},
	"failed on top, erased below":  {code: 502, change: inEnvelope("status", "failed"), want: envelope(subject.ReasonPeerMismatch)},
	"pending with code 200":        {change: all(inEnvelope("status", "pending"), inReceipt("status", "pending"), inReceipt("remaining", 2)), want: envelope(subject.ReasonPeerMismatch)},
	"failed with code 200":         {change: all(inEnvelope("status", "failed"), inReceipt("status", "failed")), want: envelope(subject.ReasonPeerMismatch)},
	"erased on top, failed below":  {change: inReceipt("status", "failed"), want: envelope(subject.ReasonPeerMismatch)},
	"erased on top, pending below": {change: all(inReceipt("status", "pending"), inReceipt("remaining", 2)), want: envelope(subject.ReasonPeerMismatch)},
	"no status on top":             {change: func(a object) { delete(a, "status") }, want: envelope(subject.ReasonPeerUnknownStatus)},
	"Erased on top":                {change: inEnvelope("status", "Erased"), want: envelope(subject.ReasonPeerUnknownStatus)},
	"a number for a top status":    {change: inEnvelope("status", 200), want: envelope(subject.ReasonPeerUnknownStatus)},

	"no body":                 {text: text(""), want: envelope(subject.ReasonPeerNotJSON)},
	"null":                    {text: text("null"), want: envelope(subject.ReasonPeerNotJSON)},
	"an array":                {text: text("[]"), want: envelope(subject.ReasonPeerNotJSON)},
	"HTML":                    {text: text("<html></html>"), want: envelope(subject.ReasonPeerNotJSON)},
	"plain text":              {text: text("ok"), want: envelope(subject.ReasonPeerNotJSON)},
	"half an answer":          {text: func(s string) string { return s[:len(s)/2] }, want: envelope(subject.ReasonPeerNotJSON)},
	"a second JSON value":     {text: func(s string) string { return s + `{"status":"failed"}` }, want: envelope(subject.ReasonPeerNotJSON)},
	"trailing letters":        {text: func(s string) string { return s + `x` }, want: envelope(subject.ReasonPeerNotJSON)},
	"invalid UTF-8":           {text: replace("acme", "ac\xffme"), want: envelope(subject.ReasonPeerNotJSON)},
	"two statuses on top":     {text: replace(`"operation"`, `"status":"failed","operation"`), want: envelope(subject.ReasonPeerNotJSON)},
	"two remainings":          {text: replace(`"remaining"`, `"remaining":5,"remaining"`), want: envelope(subject.ReasonPeerNotJSON)},
	"two cases of remaining":  {text: replace(`"remaining"`, `"Remaining":5,"remaining"`), want: envelope(subject.ReasonPeerNotJSON)},
	"twice the same unknown":  {text: replace(`"operation"`, `"x":1,"x":2,"operation"`), want: envelope(subject.ReasonPeerNotJSON)},
	"a body without an end":   {serve: endless, want: envelope(subject.ReasonPeerTooLarge)},
	"a huge announced length": {text: func(s string) string { return s + strings.Repeat(" ", 65<<20) }, want: envelope(subject.ReasonPeerTooLarge)},
	"a thousand receipts": {
		change: func(a object) { a["receipts"] = slices.Repeat(a["receipts"].([]any), 500) },
		want:   envelope(subject.ReasonPeerNotJSON),
	},

	"an empty object":        {text: text("{}"), want: envelope(subject.ReasonPeerNoReceipts)},
	"no receipts":            {change: inEnvelope("receipts", []any{}), want: envelope(subject.ReasonPeerNoReceipts)},
	"null receipts":          {change: inEnvelope("receipts", nil), want: envelope(subject.ReasonPeerNoReceipts)},
	"receipts are an object": {change: inEnvelope("receipts", object{"outcomes": "erased"}), want: envelope(subject.ReasonPeerNoReceipts)},
	"receipts are missing":   {change: func(a object) { delete(a, "receipts") }, want: envelope(subject.ReasonPeerNoReceipts)},
	"another request":        {change: inEnvelope("request_id", "0"+requestID[1:]), want: envelope(subject.ReasonPeerWrongRequest)},
	"no request":             {change: func(a object) { delete(a, "request_id") }, want: envelope(subject.ReasonPeerWrongRequest)},
	"request in capitals":    {change: inEnvelope("request_id", strings.ToUpper(requestID)), want: envelope(subject.ReasonPeerWrongRequest)},
	"another subject":        {change: inEnvelope("subject_ref", strings.Repeat("0", 64)), want: envelope(subject.ReasonPeerWrongSubject)},
	"another tenant":         {change: inEnvelope("tenant_id", "globex"), want: envelope(subject.ReasonPeerWrongTenant)},
	"another operation":      {change: inEnvelope("operation", "access"), want: envelope(subject.ReasonPeerWrongOp)},
	"no operation":           {change: inEnvelope("operation", nil), want: envelope(subject.ReasonPeerWrongOp)},

	"another cell":     {change: inReceipt("cell", "ingest"), want: second(subject.ReasonPeerWrongCell)},
	"no cell":          {change: without("cell"), want: second(subject.ReasonPeerWrongCell)},
	"cell in capitals": {change: inReceipt("cell", "Causal"), want: second(subject.ReasonPeerWrongCell)},
	"an expected store missing": {
		change: func(a object) { a["receipts"] = a["receipts"].([]any)[:1] },
		want:   second(subject.ReasonPeerStoreMissing),
	},
	"another store instead": {
		change: inReceipt("store", "graph"),
		want:   []string{"holdout_assignments erased", "graph erased", "outcomes failed peer_store_missing"},
	},
	"one store twice": {
		change: inReceipt("store", "holdout_assignments"),
		want:   []string{"holdout_assignments failed peer_store_repeated", "outcomes failed peer_store_missing"},
	},
	"a store twice beside all": {
		change: func(a object) { a["receipts"] = append(a["receipts"].([]any), receipt(a, 1)) },
		want:   second(subject.ReasonPeerStoreRepeated),
	},
	"nameless":            {change: without("store"), want: nameless},
	"named by a number":   {change: inReceipt("store", 7), want: nameless},
	"named *":             {change: inReceipt("store", "*"), want: nameless},
	"named with a space":  {change: inReceipt("store", "outcomes "), want: nameless},
	"named in capitals":   {change: inReceipt("store", "Outcomes"), want: nameless},
	"a receipt is null":   {change: func(a object) { a["receipts"].([]any)[1] = nil }, want: nameless},
	"a receipt is a word": {change: func(a object) { a["receipts"].([]any)[1] = "erased" }, want: nameless},

	"an unknown status":      {change: inReceipt("status", "done"), want: second(subject.ReasonPeerUnknownStatus)},
	"an upper-case status":   {change: inReceipt("status", "ERASED"), want: second(subject.ReasonPeerUnknownStatus)},
	"a padded status":        {change: inReceipt("status", "erased "), want: second(subject.ReasonPeerUnknownStatus)},
	"no status":              {change: without("status"), want: second(subject.ReasonPeerUnknownStatus)},
	"a null status":          {change: inReceipt("status", nil), want: second(subject.ReasonPeerUnknownStatus)},
	"unknown, folded failed": {code: 502, change: all(inReceipt("status", "done"), inEnvelope("status", "failed")), want: second(subject.ReasonPeerUnknownStatus)},
	"unknown, beside a failed one under erased": {
		change: func(a object) { receipt(a, 0)["status"] = "failed"; receipt(a, 1)["status"] = "done" },
		want:   envelope(subject.ReasonPeerMismatch),
	},
	"erased with one row":     {change: inReceipt("remaining", 1), want: second(subject.ReasonPeerFalseErased)},
	"erased with null":        {change: inReceipt("remaining", nil), want: second(subject.ReasonPeerFalseErased)},
	"erased, before null":     {change: inReceipt("before", nil), want: second(subject.ReasonPeerBadCount)},
	"erased, deleted null":    {change: inReceipt("deleted", nil), want: []string{"holdout_assignments erased", "outcomes erased"}},
	"remaining missing":       {change: without("remaining"), want: second(subject.ReasonPeerBadCount)},
	"before missing":          {change: without("before"), want: second(subject.ReasonPeerBadCount)},
	"deleted missing":         {change: without("deleted"), want: second(subject.ReasonPeerBadCount)},
	"remaining negative":      {change: inReceipt("remaining", -1), want: second(subject.ReasonPeerBadCount)},
	"remaining minus zero":    {change: inReceipt("remaining", number("-0")), want: second(subject.ReasonPeerBadCount)},
	"remaining a fraction":    {change: inReceipt("remaining", number("0.0")), want: second(subject.ReasonPeerBadCount)},
	"remaining half a row":    {change: inReceipt("remaining", number("0.5")), want: second(subject.ReasonPeerBadCount)},
	"remaining an exponent":   {change: inReceipt("remaining", number("0e1")), want: second(subject.ReasonPeerBadCount)},
	"remaining a string":      {change: inReceipt("remaining", "0"), want: second(subject.ReasonPeerBadCount)},
	"remaining false":         {change: inReceipt("remaining", false), want: second(subject.ReasonPeerBadCount)},
	"remaining a list":        {change: inReceipt("remaining", []any{0}), want: second(subject.ReasonPeerBadCount)},
	"before overflows":        {change: inReceipt("before", number("9223372036854775808")), want: second(subject.ReasonPeerBadCount)},
	"remaining wraps to zero": {change: inReceipt("remaining", number("18446744073709551616")), want: second(subject.ReasonPeerBadCount)},
	"deleted negative":        {change: inReceipt("deleted", -2), want: second(subject.ReasonPeerBadCount)},
	"kept until nobody knows": {change: inReceipt("recoverable_until", "soon"), want: second(subject.ReasonRetention)},
	"pending with nothing remaining": {
		code: 409, change: all(inEnvelope("status", "pending"), inReceipt("status", "pending")), want: second(subject.ReasonPeerFalsePending),
	},
	"pending with null remaining": {
		code: 409, change: all(inEnvelope("status", "pending"), inReceipt("status", "pending"), inReceipt("remaining", nil)),
		want: second(subject.ReasonPeerFalsePending),
	},
	"failed with a count missing": {
		code: 502, change: all(inEnvelope("status", "failed"), inReceipt("status", "failed"), without("before")), want: second(subject.ReasonPeerBadCount),
	},
}

var nameless = []string{"holdout_assignments erased", "* failed peer_store_nameless", "outcomes failed peer_store_missing"}

func busy(code int, retryAfter string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", retryAfter)
		w.WriteHeader(code)
	}
}

func endless(w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(http.StatusOK)
	for r.Context().Err() == nil {
		if _, err := w.Write(make([]byte, 64<<10)); err != nil {
			return
		}
	}
}

// handler answers with the fault.
func (f fault) handler(t *testing.T, cell *cascadetest.Cell, s subject.Subject) http.HandlerFunc {
	t.Helper()
	return func(w http.ResponseWriter, r *http.Request) {
		if f.serve != nil {
			f.serve(w, r)
			return
		}
		body, err := wire.Marshal(cell.Answer(r.Header.Get("X-Request-ID"), s))
		if err == nil && f.change != nil {
			var answer object
			if err = json.Unmarshal(body, &answer); err == nil {
				f.change(answer)
				body, err = json.Marshal(answer)
			}
		}
		if err != nil {
			t.Error(err)
		}
		if f.text != nil {
			body = []byte(f.text(string(body)))
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		if f.code != 0 {
			w.WriteHeader(f.code)
		}
		_, _ = w.Write(body)
	}
}

func TestEveryLieOfAPeerIsAFailedReceiptWithItsReason(t *testing.T) {
	s := someone(t)
	for name, row := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int32
			answer := row.handler(t, causal(), s)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				answer(w, r)
			}))
			defer server.Close()
			got := peerAt(server.URL, 20*time.Second).Erase(t.Context(), requestID, about(s)).Receipts
			if !slices.Equal(told(got), row.want) {
				t.Errorf("got  %q\nwant %q", told(got), row.want)
			}
			for _, r := range got {
				if r.Cell() != "causal" {
					t.Errorf("a receipt of cell %q", r.Cell())
				}
				if r.Store() == "*" && (r.Counts() != subject.Counts{}) {
					t.Errorf("counts of no store: %+v", r.Counts())
				}
				if r.Times().Started.IsZero() || r.Times().Finished.IsZero() {
					t.Errorf("times: %+v", r.Times())
				}
			}
			if n := requests.Load(); n != 1 {
				t.Errorf("%d requests for an answer that no retry makes better", n)
			}
		})
	}
}

func TestABadReceiptKeepsTheCountsThatAreSound(t *testing.T) {
	s := someone(t)
	row := fault{change: inReceipt("remaining", 2)}
	server := httptest.NewServer(row.handler(t, causal(), s))
	defer server.Close()
	got := peerAt(server.URL, 10*time.Second).Erase(t.Context(), requestID, about(s)).Receipts
	want := subject.Counts{Before: subject.Measured(2), Deleted: subject.Measured(2), Remaining: subject.Measured(2)}
	if got[1].Counts() != want {
		t.Errorf("got %+v", got[1].Counts())
	}
}

func TestAPeersRetryAfterReachesThePendingReceipt(t *testing.T) {
	s := someone(t)
	row := faults["honestly pending"]
	for seconds, want := range map[any]time.Duration{60: time.Minute, nil: 30 * time.Minute, "soon": 30 * time.Minute} {
		change := all(row.change, inEnvelope("retry_after_s", seconds))
		server := httptest.NewServer(fault{code: 409, change: change}.handler(t, causal(), s))
		got := peerAt(server.URL, 10*time.Second).Erase(t.Context(), requestID, about(s)).Receipts
		server.Close()
		if got[1].RetryAfter() != want {
			t.Errorf("%v: got %v", seconds, got[1].RetryAfter())
		}
	}
}
