package cascade_test

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"recount/internal/cascade"
	"recount/internal/cascade/cascadetest"
	"recount/internal/subject"
)

// node is a JSON value as a tree that can say what JSON libraries hide: the same name twice, and the letters of a number.
type node struct {
	literal string // null, true, a number, a quoted string; "" for the two below
	list    []node // of an array, if isList
	isList  bool
	fields  []field
}

type field struct {
	name  string
	value node
}

func lit(text string) node   { return node{literal: text} }
func quote(text string) node { return lit(strconv.Quote(text)) }

func (n node) write(b *bytes.Buffer) {
	switch {
	case n.literal != "":
		b.WriteString(n.literal)
	case n.isList:
		b.WriteByte('[')
		for i, item := range n.list {
			if i > 0 {
				b.WriteByte(',')
			}
			item.write(b)
		}
		b.WriteByte(']')
	default:
		b.WriteByte('{')
		for i, f := range n.fields {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(strconv.Quote(f.name) + ":")
			f.value.write(b)
		}
		b.WriteByte('}')
	}
}

// get is the value of a field that is there once, spelt so, and in no other case beside it.
func (n node) get(name string) (value node, ok bool) {
	seen := 0
	for _, f := range n.fields {
		if strings.EqualFold(f.name, name) {
			seen++
			value, ok = f.value, f.name == name
		}
	}
	return value, ok && seen == 1
}

// unique reports whether no object in the tree has a name twice.
func (n node) unique() bool {
	names := map[string]bool{}
	for _, f := range n.fields {
		if names[f.name] || !f.value.unique() {
			return false
		}
		names[f.name] = true
	}
	return !slices.ContainsFunc(n.list, func(item node) bool { return !item.unique() })
}

var storeName = regexp.MustCompile(`^"[a-z][a-z0-9_-]{0,62}"$`)

// flawless is the oracle: it says, without any of the code that is tested, whether an answer of the causal cell is one
// that lets its two stores count as erased.
func flawless(code int, tail string, top node, s subject.Subject) bool {
	is := func(n node, name, literal string) bool {
		value, ok := n.get(name)
		return ok && value.literal == literal
	}
	if code != 200 || strings.TrimSpace(tail) != "" || !top.unique() ||
		!is(top, "request_id", `"`+requestID+`"`) || !is(top, "tenant_id", `"acme"`) || !is(top, "operation", `"erase"`) ||
		!is(top, "status", `"erased"`) || !is(top, "subject_ref", `"`+string(s.Ref(cascadetest.Salt()))+`"`) {
		return false
	}
	receipts, ok := top.get("receipts")
	if !ok || !receipts.isList {
		return false
	}
	stores := map[string]int{}
	for _, r := range receipts.list {
		remaining, there := r.get("remaining")
		before, counted := r.get("before")
		deleted, told := r.get("deleted")
		until, said := r.get("recoverable_until")
		if !is(r, "cell", `"causal"`) || !is(r, "status", `"erased"`) || !there || remaining.literal != "0" ||
			!counted || !natural(before) || !told || deleted.literal != "null" && !natural(deleted) ||
			said && until.literal != "null" && !strings.HasPrefix(until.literal, `"2026`) {
			return false
		}
		for _, name := range []string{"suppressed", "derived"} {
			if n, there := r.get(name); there && n.literal != "null" && !natural(n) {
				return false
			}
		}
		store, _ := r.get("store")
		if !storeName.MatchString(store.literal) {
			return false
		}
		stores[strings.Trim(store.literal, `"`)]++
	}
	if sources, there := top.get("sources"); there && sources.literal != "null" && !pairs(sources) {
		return false
	}
	counts := slices.Collect(maps.Values(stores))
	return stores["holdout_assignments"] == 1 && stores["outcomes"] == 1 && slices.Max(counts) == 1 && variantFree(top)
}

// pairs reports a list of pairs of texts that are not empty.
func pairs(n node) bool {
	text := func(pair node, name string) bool {
		for _, f := range pair.fields {
			if f.name == name {
				return len(f.value.literal) > 2 && f.value.literal[0] == '"'
			}
		}
		return false
	}
	return n.isList && !slices.ContainsFunc(n.list, func(pair node) bool { return !text(pair, "source") || !text(pair, "source_ref") })
}

// variantFree reports whether no field of the contract is there in another case.
func variantFree(top node) bool {
	envelope := []string{
		"request_id", "tenant_id", "subject_ref", "operation", "status", "detail", "receipts", "generated_at", "retry_after_s", "sources",
	}
	inReceipt := []string{
		"cell", "store", "backend", "status", "before", "deleted", "remaining", "recoverable_until", "detail", "started_at",
		"finished_at", "suppressed", "derived", "sticky",
	}
	spelt := func(n node, known []string) bool {
		return !slices.ContainsFunc(n.fields, func(f field) bool {
			return slices.Contains(known, strings.ToLower(f.name)) && !slices.Contains(known, f.name)
		})
	}
	receipts, _ := top.get("receipts")
	return spelt(top, envelope) && !slices.ContainsFunc(receipts.list, func(r node) bool { return !spelt(r, inReceipt) })
}

func natural(n node) bool {
	_, err := strconv.ParseUint(n.literal, 10, 63)
	return err == nil
}

// good is the flawless answer.
func good(s subject.Subject) node {
	receiptOf := func(store string) node {
		return node{fields: []field{
			{"cell", quote("causal")},
			{"store", quote(store)},
			{"backend", quote("sqlite")},
			{"status", quote("erased")},
			{"before", lit("2")},
			{"deleted", lit("2")},
			{"remaining", lit("0")},
			{"suppressed", lit("2")},
			{"derived", lit("0")},
			{"sticky", lit("true")},
			{"recoverable_until", lit("null")},
			{"detail", quote("")},
			{"started_at", quote("2026-01-02T03:04:05Z")},
			{"finished_at", quote("2026-01-02T03:04:05Z")},
		}}
	}
	return node{fields: []field{
		{"request_id", quote(requestID)},
		{"tenant_id", quote("acme")},
		{"subject_ref", quote(string(s.Ref(cascadetest.Salt())))},
		{"operation", quote("erase")},
		{"status", quote("erased")},
		{"detail", quote("")},
		{"receipts", node{isList: true, list: []node{receiptOf("holdout_assignments"), receiptOf("outcomes")}}},
		{"sources", node{isList: true, list: []node{{fields: []field{{"source", quote("crm")}, {"source_ref", quote("1")}}}}}},
		{"generated_at", quote("2026-01-02T03:04:05Z")},
	}}
}

var literals = []string{
	"0", "1", "2", "-1", "-0", "0.0", "0e0", "1e400", "9223372036854775807", "9223372036854775808", "null", "true", "false",
	`""`, `"0"`, `"erased"`, `"Erased"`, `"erased "`, `"pending"`, `"failed"`, `"causal"`, `"outcomes"`, `"experiments"`, `"*"`,
	`"acme"`, `"globex"`, `"access"`, `"erase"`, `"2026-12-14T10:00:00Z"`, `"soon"`, `"\ud83d\ude00"`,
}

var names = []string{
	"status", "Status", "remaining", "REMAINING", "before", "deleted", "cell", "store", "Store", "receipts", "request_id",
	"recoverable_until", "novelty", "retry_after_s", "suppressed", "derived", "Derived", "sources", "source_ref",
}

func drawNode(t *rapid.T, depth int) node {
	switch kind := rapid.IntRange(0, 5).Draw(t, "kind"); {
	case kind < 4 || depth == 0:
		return lit(rapid.SampledFrom(literals).Draw(t, "literal"))
	case kind == 4:
		n := node{isList: true}
		for range rapid.IntRange(0, 3).Draw(t, "items") {
			n.list = append(n.list, drawNode(t, depth-1))
		}
		return n
	default:
		var n node
		for range rapid.IntRange(0, 4).Draw(t, "fields") {
			n.fields = append(n.fields, field{rapid.SampledFrom(names).Draw(t, "name"), drawNode(t, depth-1)})
		}
		return n
	}
}

// mutate changes one thing somewhere in the tree. It copies what it changes.
func mutate(t *rapid.T, n node) node {
	n.fields, n.list = slices.Clone(n.fields), slices.Clone(n.list)
	switch {
	case n.isList && len(n.list) > 0:
		i := rapid.IntRange(0, len(n.list)-1).Draw(t, "item")
		switch rapid.IntRange(0, 9).Draw(t, "in list") {
		case 0:
			n.list = slices.Delete(n.list, i, i+1)
		case 1:
			n.list = append(n.list, n.list[i])
		case 2:
			n.list[i] = drawNode(t, 2)
		default:
			n.list[i] = mutate(t, n.list[i])
		}
		return n
	case len(n.fields) > 0:
		i := rapid.IntRange(0, len(n.fields)-1).Draw(t, "field")
		if inner := slices.IndexFunc(n.fields, func(f field) bool { return f.value.isList }); inner >= 0 && rapid.Bool().Draw(t, "deeper") {
			n.fields[inner].value = mutate(t, n.fields[inner].value)
			return n
		}
		switch rapid.IntRange(0, 9).Draw(t, "in object") {
		case 0:
			n.fields = slices.Delete(n.fields, i, i+1)
		case 1:
			n.fields[i].name = rapid.SampledFrom(names).Draw(t, "rename")
		case 2:
			n.fields = append(n.fields, field{rapid.SampledFrom(names).Draw(t, "more"), drawNode(t, 2)})
		case 3:
			j := rapid.IntRange(0, len(n.fields)-1).Draw(t, "swap")
			n.fields[i], n.fields[j] = n.fields[j], n.fields[i]
		default:
			n.fields[i].value = mutate(t, n.fields[i].value)
		}
		return n
	default:
		return drawNode(t, 1)
	}
}

// drawAnswer is a flawless answer with some changes, or now and then anything at all.
func drawAnswer(t *rapid.T, s subject.Subject) (code int, tail string, top node) {
	code, top = 200, good(s)
	if rapid.IntRange(0, 19).Draw(t, "wild") == 0 {
		top = drawNode(t, 4)
	}
	for range rapid.SampledFrom([]int{0, 1, 1, 1, 2, 2, 3}).Draw(t, "changes") {
		top = mutate(t, top)
	}
	if rapid.IntRange(0, 9).Draw(t, "other code") == 0 {
		code = rapid.SampledFrom([]int{200, 201, 204, 301, 400, 401, 404, 409, 500, 502}).Draw(t, "code")
	}
	if rapid.IntRange(0, 9).Draw(t, "other tail") == 0 {
		tail = rapid.SampledFrom([]string{" ", "\n", "x", "{}", "null", ",", "\x00"}).Draw(t, "tail")
	}
	return code, tail, top
}

// answersPerCheck times rapid's 100 checks makes 10,000 answers.
const answersPerCheck = 100

// TestOnlyAFlawlessAnswerIsErased holds the judge against the oracle, in both directions.
func TestOnlyAFlawlessAnswerIsErased(t *testing.T) {
	s := someone(t)
	var erased, refused, kept int
	rapid.Check(t, func(t *rapid.T) {
		for range answersPerCheck {
			code, tail, top := drawAnswer(t, s)
			var body bytes.Buffer
			top.write(&body)
			body.WriteString(tail)
			got := answering(code, body.Bytes()).Erase(t.Context(), requestID, about(s)).Receipts
			want := flawless(code, tail, top, s)
			if (subject.Fold(got) == subject.Erased) != want {
				t.Fatalf("flawless is %v, receipts say %q, for %d %s", want, told(got), code, body.Bytes())
			}
			switch {
			case want:
				erased++
			case slices.ContainsFunc(got, func(r subject.Receipt) bool { return r.Status() == subject.Erased }):
				kept++
			default:
				refused++
			}
		}
	})
	t.Logf("%d erased, %d with a sibling kept, %d refused", erased, kept, refused)
	if erased == 0 || kept == 0 || refused == 0 {
		t.Error("the answers are all of one kind: this test shows nothing")
	}
}

// answering is the causal peer with an answer that never went over a network.
func answering(code int, body []byte) *cascade.Peer {
	return cascade.NewPeer(cascade.PeerConfig{Name: "causal", URL: "https://causal.example", Stores: causal().Stores}, cascade.Options{
		Salt: cascadetest.Salt(), Timeout: 10 * time.Second, Transport: func(string) http.RoundTripper {
			return roundTrip(func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: code, Header: http.Header{}, ContentLength: -1, Body: io.NopCloser(bytes.NewReader(body))}, nil
			})
		},
	})
}

// FuzzAnswer throws bytes at the judge. Whatever it calls erased must hold a plain "remaining":0 for both stores, by the
// standard library's reading.
func FuzzAnswer(f *testing.F) {
	s := someone(f)
	var body bytes.Buffer
	good(s).write(&body)
	f.Add(200, body.Bytes())
	f.Add(409, bytes.Replace(body.Bytes(), []byte("erased"), []byte("pending"), 2))
	f.Add(200, bytes.Replace(body.Bytes(), []byte(`"remaining":0`), []byte(`"remaining":0,"Remaining":3`), 1))
	f.Fuzz(func(t *testing.T, code int, body []byte) {
		if code == 429 || code == 503 {
			return // retried, slowly
		}
		got := answering(code, body).Erase(t.Context(), requestID, about(s)).Receipts
		for _, r := range got {
			if r.Status() == subject.Erased && !r.Counts().Remaining.IsZero() || r.Cell() != "causal" {
				t.Fatalf("a false receipt: %+v", r)
			}
		}
		if subject.Fold(got) != subject.Erased {
			return
		}
		var loose struct {
			Receipts []map[string]json.RawMessage `json:"receipts"`
		}
		if err := json.Unmarshal(body, &loose); err != nil || code != 200 {
			t.Fatalf("erased by %d %q: %v", code, body, err)
		}
		for _, r := range loose.Receipts {
			if string(r["remaining"]) != "0" {
				t.Fatalf("erased with %q", body)
			}
		}
	})
}
