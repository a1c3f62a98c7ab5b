package firestore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	fs "cloud.google.com/go/firestore"
	"google.golang.org/grpc/codes"

	"recount/internal/ledger"
	"recount/internal/ledger/ledgertest"
	"recount/internal/stores/firestore/firestoretest"
)

func erasures(t *testing.T, c *Client, keys *ledger.Keys) *ErasureLedger {
	t.Helper()
	l, err := c.ErasureLedger(t.Context(), keys)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestTheLedgerOfErasuresKeepsItsContract(t *testing.T) {
	host := firestoretest.Host(t)
	ledgertest.RunLog(t, func(t *testing.T) func() ledger.Log {
		project, keys := firestoretest.Project(), ledgertest.Keys(t)
		return func() ledger.Log { return erasures(t, openProject(t, host, project), keys) }
	})
}

func TestProgramsKeepTheirContract(t *testing.T) {
	host := firestoretest.Host(t)
	ledgertest.RunPrograms(t, func(t *testing.T) ledger.Programs { return open(t, host).ErasurePrograms() })
}

func TestAProgramIsNotThereBeforeItIsWholeNorWhenItWasChanged(t *testing.T) {
	proxy := firestoretest.NewProxy(t)
	p := open(t, proxy.Host()).ErasurePrograms()
	body := make([]byte, 2*programPart+1)
	var commits atomic.Int64
	proxy.Decide(func(method string) (firestoretest.Fault, bool) {
		return firestoretest.Fault{Code: codes.PermissionDenied}, method == "Commit" && commits.Add(1) > 2
	})
	if err := p.Write(t.Context(), "e", body); err == nil {
		t.Fatal("a part was not written, and the program was")
	}
	if _, err := p.Read(t.Context(), "e"); !errors.Is(err, ledger.ErrNoEntry) {
		t.Errorf("a half program: %v", err)
	}
	proxy.Decide(func(method string) (firestoretest.Fault, bool) {
		return firestoretest.Fault{Code: codes.Unavailable, Lost: true}, method == "Commit" && commits.Add(1)%2 == 0
	})
	if err := p.Write(t.Context(), "e", body); err != nil {
		t.Fatalf("every other answer was lost: %v", err)
	}
	proxy.Heal()
	if got, err := p.Read(t.Context(), "e"); err != nil || len(got) != len(body) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	ref, _ := p.head("e")
	head, err := readHead(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := head.parts(ref)[1].Set(t.Context(), programPiece{Body: make([]byte, 3)}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Read(t.Context(), "e"); !errors.Is(err, ledger.ErrTampered) {
		t.Errorf("a changed part: %v", err)
	}
}

// filled is a ledger of n entries.
func filled(t *testing.T, c *Client, keys *ledger.Keys, n int) *ErasureLedger {
	t.Helper()
	l := erasures(t, c, keys)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if _, err := l.Append(t.Context(), ledgertest.Record(fmt.Sprintf("e%d", i))); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	return l
}

func set(t *testing.T, ref *fs.DocumentRef, path string, value any) {
	t.Helper()
	if _, err := ref.Update(t.Context(), []fs.Update{{Path: path, Value: value}}); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, ref *fs.DocumentRef) {
	t.Helper()
	if _, err := ref.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func headOf(t *testing.T, l *ErasureLedger) erasureHead {
	t.Helper()
	var h erasureHead
	doc, err := l.head.Get(t.Context())
	if err == nil {
		err = doc.DataTo(&h)
	}
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Each change to what is stored is noticed when the ledger is opened anew.
func TestAnOpeningRefusesALedgerThatIsNotTheSignedOne(t *testing.T) {
	host := firestoretest.Host(t)
	for name, c := range map[string]struct {
		change func(t *testing.T, l *ErasureLedger)
		want   error
	}{
		"the last entry is gone":     {func(t *testing.T, l *ErasureLedger) { remove(t, l.entry(12)) }, ledger.ErrTruncated},
		"the edge is gone":           {func(t *testing.T, l *ErasureLedger) { remove(t, l.head) }, ledger.ErrTruncated},
		"the checkpoint is gone":     {func(t *testing.T, l *ErasureLedger) { remove(t, l.signed) }, ledger.ErrNoCheckpoint},
		"a hash of the tree differs": {func(t *testing.T, l *ErasureLedger) { set(t, l.entry(7), "hashes", make([]byte, 4*32)) }, ledger.ErrTampered},
		"a hash of the tree is gone": {func(t *testing.T, l *ErasureLedger) { set(t, l.entry(7), "hashes", make([]byte, 2*32)) }, ledger.ErrTampered},
		"an entry in it is gone":     {func(t *testing.T, l *ErasureLedger) { remove(t, l.entry(7)) }, ledger.ErrTampered},
		"the edge differs": {func(t *testing.T, l *ErasureLedger) {
			h := headOf(t, l)
			h.Roots[0] ^= 1
			set(t, l.head, "roots", h.Roots)
		}, ledger.ErrTampered},
		"the edge was set back, and the entries behind it cut off": {func(t *testing.T, l *ErasureLedger) {
			h := headOf(t, l)
			remove(t, l.entry(12))
			set(t, l.head, "size", int64(12))
			set(t, l.head, "roots", h.Roots[:64])
		}, ledger.ErrTruncated},
		"everything but the entries is gone": {func(t *testing.T, l *ErasureLedger) {
			remove(t, l.head)
			remove(t, l.signed)
		}, ledger.ErrNoCheckpoint},
		"the checkpoint is another's": {func(t *testing.T, l *ErasureLedger) {
			note, err := ledgertest.Keys(t).Checkpoint(ledger.Head{Size: 1})
			if err != nil {
				t.Fatal(err)
			}
			set(t, l.signed, "note", note)
		}, ledger.ErrTampered},
	} {
		t.Run(name, func(t *testing.T) {
			client, keys := open(t, host), ledgertest.Keys(t)
			l := filled(t, client, keys, 13)
			if _, err := client.ErasureLedger(t.Context(), keys); err != nil {
				t.Fatalf("before anything was changed: %v", err)
			}
			c.change(t, l)
			if _, err := client.ErasureLedger(t.Context(), keys); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}

func TestAChangedEntryIsRefusedWhenItIsRead(t *testing.T) {
	client, keys := open(t, firestoretest.Host(t)), ledgertest.Keys(t)
	l := filled(t, client, keys, 13)
	forged := ledgertest.Record("forged")
	line, err := forged.Encode()
	if err != nil {
		t.Fatal(err)
	}
	all := func(ledger.Entry) error { return nil }
	for name, change := range map[string]func(){
		"its line":          func() { set(t, l.entry(4), "line", line) },
		"its line and hash": func() { set(t, l.entry(4), "hashes", joinHashes((&ledger.Edge{}).Add(line))) },
	} {
		set(t, l.entry(4), "line", line)
		change()
		set(t, l.entry(4), "entry_id", "forged")
		for _, l := range []*ErasureLedger{l, erasures(t, client, keys)} { // 4 is below the hashes that an opening reads
			if _, err := l.Line(t.Context(), 4); !errors.Is(err, ledger.ErrTampered) {
				t.Errorf("%s, read: %v", name, err)
			}
			if _, err := l.Find(t.Context(), "forged", 0); !errors.Is(err, ledger.ErrTampered) {
				t.Errorf("%s, found: %v", name, err)
			}
			for _, from := range []int64{0, 3} {
				if err := l.Scan(t.Context(), from, all); !errors.Is(err, ledger.ErrTampered) {
					t.Errorf("%s, scanned from %d: %v", name, from, err)
				}
			}
			if _, err := l.Line(t.Context(), 6); err != nil && name == "its line" {
				t.Errorf("another entry: %v", err)
			}
		}
	}
	remove(t, l.entry(5))
	if _, err := l.Line(t.Context(), 5); !errors.Is(err, ledger.ErrTampered) {
		t.Errorf("a missing entry: %v", err)
	}
}

// An older checkpoint that is put back is good: what it covers is still there, and the next append signs the whole.
func TestAnOlderCheckpointMayBePutBack(t *testing.T) {
	client, keys := open(t, firestoretest.Host(t)), ledgertest.Keys(t)
	l := filled(t, client, keys, 5)
	note, head, err := l.Checkpoint(t.Context())
	if err != nil || head.Size != 5 {
		t.Fatalf("%d, %v", head.Size, err)
	}
	filled(t, client, keys, 8)
	set(t, l.signed, "note", note)
	l = erasures(t, client, keys)
	if e, err := l.Append(t.Context(), ledgertest.Record("next")); err != nil || e.Index != 13 {
		t.Fatalf("entry %d, %v", e.Index, err)
	}
	set(t, l.signed, "note", note)
	set(t, l.entry(11), "hashes", make([]byte, 3*32))
	if _, err := l.Append(t.Context(), ledgertest.Record("another")); !errors.Is(err, ledger.ErrTampered) {
		t.Errorf("appended to a tree that the checkpoint did not grow into: %v", err)
	}
}

// An open ledger notices that what it has seen is gone, and signs nothing over it.
func TestAnOpenLedgerNeverAppendsToLessThanItHasSeen(t *testing.T) {
	client, keys := open(t, firestoretest.Host(t)), ledgertest.Keys(t)
	l := filled(t, client, keys, 4)
	for i := range int64(4) {
		remove(t, l.entry(i))
	}
	remove(t, l.head)
	remove(t, l.signed)
	erasures(t, client, keys) // a new one, which is sound in itself
	if _, err := l.Append(t.Context(), ledgertest.Record("x")); !errors.Is(err, ledger.ErrTruncated) {
		t.Errorf("append: %v", err)
	}
	if err := l.Ready(t.Context()); !errors.Is(err, ledger.ErrTruncated) {
		t.Errorf("ready: %v", err)
	}
	if _, _, err := l.Checkpoint(t.Context()); !errors.Is(err, ledger.ErrTruncated) {
		t.Errorf("checkpoint: %v", err)
	}
}

func TestALostAnswerAppendsNothingTwice(t *testing.T) {
	proxy, project, keys := firestoretest.NewProxy(t), firestoretest.Project(), ledgertest.Keys(t)
	l := erasures(t, openProject(t, proxy.Host(), project), keys)
	other := erasures(t, openProject(t, firestoretest.Host(t), project), keys)
	for i := range 3 {
		if _, err := other.Append(t.Context(), ledgertest.Record(fmt.Sprintf("other-%d", i))); err != nil {
			t.Fatal(err)
		}
		proxy.Inject(firestoretest.Fault{Method: "Commit", Times: 1, Code: codes.Unavailable, Lost: true})
		e, err := l.Append(t.Context(), ledgertest.Record(fmt.Sprintf("own-%d", i)))
		if err != nil || e.Index != int64(2*i+1) {
			t.Fatalf("entry %d, %v", e.Index, err)
		}
		proxy.Inject(firestoretest.Fault{Method: "Commit", Times: 1, Code: codes.Aborted}) // and this one did not take
	}
	if head, err := other.Head(t.Context()); err != nil || head.Size != 6 {
		t.Errorf("%d entries, %v", head.Size, err)
	}
	proxy.Heal()
	proxy.Inject(firestoretest.Fault{Method: "Commit", Code: codes.PermissionDenied})
	if _, err := l.Append(t.Context(), ledgertest.Record("refused")); err == nil {
		t.Error("appended without permission")
	}
	proxy.Heal()
	if e, err := l.Append(t.Context(), ledgertest.Record("again")); err != nil || e.Index != 6 {
		t.Errorf("the next entry is %d, %v", e.Index, err)
	}
}

func TestAppendsThatWaitTogetherShareATransaction(t *testing.T) {
	proxy := firestoretest.NewProxy(t)
	l := erasures(t, open(t, proxy.Host()), ledgertest.Keys(t))
	var commits atomic.Int64
	proxy.Decide(func(method string) (firestoretest.Fault, bool) {
		if method != "Commit" {
			return firestoretest.Fault{}, false
		}
		commits.Add(1)
		return firestoretest.Fault{Code: codes.OK, Delay: 200 * time.Millisecond}, true
	})
	const n = 150
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if _, err := l.Append(t.Context(), ledgertest.Record(fmt.Sprintf("e%d", i))); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if c := commits.Load(); c > 5 { // one that is first, and the others by the hundred
		t.Errorf("%d appends took %d transactions", n, c)
	}
	if head, err := l.Head(t.Context()); err != nil || head.Size != n {
		t.Errorf("%d entries, %v", head.Size, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := l.Append(ctx, ledgertest.Record("late")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a caller who can't wait: %v", err)
	}
	if e, err := l.Append(t.Context(), ledgertest.Record("last")); err != nil || e.Index != n+1 { // theirs came in all the same
		t.Errorf("entry %d, %v", e.Index, err)
	}
}
