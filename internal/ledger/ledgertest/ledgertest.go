// Package ledgertest is the conformance suite of ledger.Log and ledger.Programs: every adapter runs it.
package ledgertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"recount/internal/ledger"
)

// Keys are signing keys made for one test.
func Keys(t testing.TB) *ledger.Keys {
	t.Helper()
	private, err := ledger.GenerateKey("recount-test")
	if err != nil {
		t.Fatal(err)
	}
	keys, err := ledger.ParseKeys(private)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// Record is a good record with that id.
func Record(id string) ledger.Record {
	return ledger.Record{
		V: ledger.Version, EntryID: id, AtUS: time.Now().UnixMicro(), TenantID: "acme", Method: ledger.MethodSubject, Phase: "execute:intent",
		SubjectKind: "person", SubjectID: strings.Repeat("ab", 32), RequestRef: "4f1c", RowsDeleted: map[string]int64{"ingest/intent_events": 3},
	}
}

// RunLog runs the suite. open answers a log over one and the same place each time it is called, as another process would
// open it; the place is new for every test.
func RunLog(t *testing.T, place func(t *testing.T) (open func() ledger.Log)) {
	for name, test := range map[string]func(*testing.T, func() ledger.Log){
		"an entry is what was appended, under the next number":  entries,
		"the tree is the one that the lines make":               tree,
		"every entry is proved in every tree that holds it":     proofs,
		"an entry is found by its id, from the index on":        finding,
		"two writers at once lose nothing and repeat nothing":   writers,
		"a second opening sees what the first one acknowledged": reopening,
		"a record that could hold a name is refused":            refusals,
	} {
		t.Run(name, func(t *testing.T) { test(t, place(t)) })
	}
}

func appended(t *testing.T, l ledger.Log, id string) ledger.Entry {
	t.Helper()
	e, err := l.Append(t.Context(), Record(id))
	if err != nil {
		t.Fatalf("append %s: %v", id, err)
	}
	return e
}

func lines(t *testing.T, l ledger.Log, from int64) [][]byte {
	t.Helper()
	var out [][]byte
	next := from
	if err := l.Scan(t.Context(), from, func(e ledger.Entry) error {
		if e.Index != next {
			return fmt.Errorf("entry %d came where %d was due", e.Index, next)
		}
		next++
		out = append(out, e.Line)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

func entries(t *testing.T, open func() ledger.Log) {
	l := open()
	if head, err := l.Head(t.Context()); err != nil || head != (ledger.Head{}) {
		t.Fatalf("a new log has the head %v, %v", head, err)
	}
	for i := range 5 {
		want := Record(fmt.Sprintf("e%d", i))
		e, err := l.Append(t.Context(), want)
		if err != nil || e.Index != int64(i) {
			t.Fatalf("entry %d: %d, %v", i, e.Index, err)
		}
		got, err := l.Line(t.Context(), e.Index)
		if err != nil {
			t.Fatal(err)
		}
		r, err := ledger.Decode(got.Line)
		if err != nil || fmt.Sprint(r) != fmt.Sprint(want) {
			t.Fatalf("entry %d came back as another: %v", i, err)
		}
	}
	for _, index := range []int64{-1, 5} {
		if _, err := l.Line(t.Context(), index); !errors.Is(err, ledger.ErrNoEntry) {
			t.Errorf("entry %d: %v", index, err)
		}
	}
	if n := len(lines(t, l, 2)); n != 3 {
		t.Errorf("a scan from 2 of 5 yields %d", n)
	}
	if err := l.Ready(t.Context()); err != nil {
		t.Error(err)
	}
}

// root computes the tree as RFC 6962 defines it, by recursion, and with nothing of the product's.
func root(all [][]byte) tlog.Hash {
	if len(all) == 0 {
		return tlog.Hash{}
	}
	if len(all) == 1 {
		return tlog.RecordHash(all[0])
	}
	k := 1
	for k*2 < len(all) {
		k *= 2
	}
	return tlog.NodeHash(root(all[:k]), root(all[k:]))
}

func tree(t *testing.T, open func() ledger.Log) {
	l := open()
	for i := range 20 {
		appended(t, l, fmt.Sprintf("e%d", i))
		head, err := l.Head(t.Context())
		if err != nil || head.Size != int64(i+1) || head.Root != root(lines(t, l, 0)) {
			t.Fatalf("after %d entries the head is of %d, %v", i+1, head.Size, err)
		}
	}
	note, head, err := l.Checkpoint(t.Context())
	if err != nil || head.Size != 20 || len(note) == 0 {
		t.Fatalf("the checkpoint covers %d, %v", head.Size, err)
	}
}

func proofs(t *testing.T, open func() ledger.Log) {
	l := open()
	const n = 13
	for i := range n {
		appended(t, l, fmt.Sprintf("e%d", i))
	}
	all := lines(t, l, 0)
	for size := int64(1); size <= n; size++ {
		for index := range size {
			proof, err := l.Prove(t.Context(), size, index)
			if err != nil {
				t.Fatal(err)
			}
			if err := tlog.CheckRecord(proof, size, root(all[:size]), index, tlog.RecordHash(all[index])); err != nil {
				t.Fatalf("entry %d of %d: %v", index, size, err)
			}
		}
	}
	for _, bad := range [][2]int64{{n + 1, 0}, {3, 3}, {3, -1}} {
		if _, err := l.Prove(t.Context(), bad[0], bad[1]); !errors.Is(err, ledger.ErrNoEntry) {
			t.Errorf("a proof of %d in %d: %v", bad[1], bad[0], err)
		}
	}
}

func finding(t *testing.T, open func() ledger.Log) {
	l := open()
	for i := range 4 {
		appended(t, l, fmt.Sprintf("e%d", i))
	}
	if e, err := l.Find(t.Context(), "e2", 1); err != nil || e.Index != 2 {
		t.Errorf("e2: %d, %v", e.Index, err)
	}
	for _, c := range []struct {
		id   string
		from int64
	}{{"e2", 3}, {"e9", 0}, {"acme", 0}} {
		if _, err := l.Find(t.Context(), c.id, c.from); !errors.Is(err, ledger.ErrNoEntry) {
			t.Errorf("%s from %d: %v", c.id, c.from, err)
		}
	}
}

func writers(t *testing.T, open func() ledger.Log) {
	logs := []ledger.Log{open(), open()}
	const each = 40
	var wg sync.WaitGroup
	var mu sync.Mutex
	indexes := map[int64]string{}
	for w, l := range logs {
		for g := range 4 {
			wg.Go(func() {
				for i := range each / 4 {
					id := fmt.Sprintf("w%d-g%d-%d", w, g, i)
					e, err := l.Append(context.Background(), Record(id))
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					if other, taken := indexes[e.Index]; taken {
						t.Errorf("%s and %s are both entry %d", other, id, e.Index)
					}
					indexes[e.Index] = id
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	l := open()
	all := lines(t, l, 0)
	if len(all) != 2*each {
		t.Fatalf("%d entries of %d", len(all), 2*each)
	}
	for i, line := range all {
		var r struct {
			EntryID string `json:"entry_id"`
		}
		if err := json.Unmarshal(line, &r); err != nil || r.EntryID != indexes[int64(i)] {
			t.Fatalf("entry %d is %q and was acknowledged as %q", i, r.EntryID, indexes[int64(i)])
		}
	}
	if head, err := l.Head(t.Context()); err != nil || head.Root != root(all) {
		t.Errorf("the head is not that of the lines: %v", err)
	}
}

func reopening(t *testing.T, open func() ledger.Log) {
	first := open()
	for i := range 9 {
		appended(t, first, fmt.Sprintf("e%d", i))
	}
	before, err := first.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	second := open()
	if after, err := second.Head(t.Context()); err != nil || after != before {
		t.Fatalf("the head was %d and is %d, %v", before.Size, after.Size, err)
	}
	if e := appended(t, second, "e9"); e.Index != 9 {
		t.Errorf("the next entry is %d", e.Index)
	}
}

func refusals(t *testing.T, open func() ledger.Log) {
	l := open()
	for field, change := range map[string]func(*ledger.Record){
		"subject_id":   func(r *ledger.Record) { r.SubjectID = "person-email:a@x.io" },
		"note":         func(r *ledger.Record) { r.Note = "Alice was here" },
		"entry_id":     func(r *ledger.Record) { r.EntryID = "" },
		"method":       func(r *ledger.Record) { r.Method = "delete" },
		"at_us":        func(r *ledger.Record) { r.AtUS = 0 },
		"v":            func(r *ledger.Record) { r.V = 2 },
		"rows_deleted": func(r *ledger.Record) { r.RowsDeleted = map[string]int64{"a@x": 1} },
		"program_ref":  func(r *ledger.Record) { r.ProgramRef = strings.Repeat("a", 300) },
	} {
		r := Record("x")
		change(&r)
		var refused *ledger.RecordError
		if _, err := l.Append(t.Context(), r); !errors.As(err, &refused) || refused.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	if head, err := l.Head(t.Context()); err != nil || head.Size != 0 {
		t.Errorf("a refused record is counted: %d, %v", head.Size, err)
	}
}

// RunPrograms runs the suite of programs.
func RunPrograms(t *testing.T, open func(t *testing.T) ledger.Programs) {
	t.Run("a program is read as it was written, once", func(t *testing.T) {
		p := open(t)
		body := []byte(strings.Repeat(`{"cell":"ingest","store":"intent_events"}`+"\n", 60_000)) // over 2 MiB
		if _, err := p.Read(t.Context(), "e1"); !errors.Is(err, ledger.ErrNoEntry) {
			t.Fatalf("a program that nobody wrote: %v", err)
		}
		for range 2 {
			if err := p.Write(t.Context(), "e1", body); err != nil {
				t.Fatal(err)
			}
		}
		got, err := p.Read(t.Context(), "e1")
		if err != nil || string(got) != string(body) {
			t.Fatalf("%d bytes came back of %d, %v", len(got), len(body), err)
		}
		if err := p.Write(t.Context(), "e1", []byte("{}\n")); err == nil {
			t.Error("another program replaced it")
		}
		if err := p.Write(t.Context(), "../e1", body); err == nil {
			t.Error("a program was written outside of its folder")
		}
	})
}
