package ledger_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"recount/internal/ledger"
	"recount/internal/ledger/ledgertest"
)

func TestFileKeepsTheContract(t *testing.T) {
	ledgertest.RunLog(t, func(t *testing.T) func() ledger.Log {
		dir, keys := t.TempDir(), ledgertest.Keys(t)
		return func() ledger.Log { return opened(t, dir, keys) }
	})
	ledgertest.RunPrograms(t, func(t *testing.T) ledger.Programs {
		p, err := ledger.OpenPrograms(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		return p
	})
}

func opened(t *testing.T, dir string, keys *ledger.Keys) *ledger.File {
	t.Helper()
	f, err := ledger.OpenFile(dir, keys, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func filled(t *testing.T, dir string, keys *ledger.Keys, n int) {
	t.Helper()
	f, err := ledger.OpenFile(dir, keys, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if _, err := f.Append(t.Context(), ledgertest.Record(fmt.Sprintf("e%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestATornLastLineIsSetAsideAndWhatWasBeforeItKept(t *testing.T) {
	dir, keys := t.TempDir(), ledgertest.Keys(t)
	filled(t, dir, keys, 3)
	path := filepath.Join(dir, "erasure-ledger.jsonl")
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(`{"v":1,"entry_id":"torn`); err != nil {
		t.Fatal(err)
	}
	_ = file.Close()
	f := opened(t, dir, keys)
	e, err := f.Append(t.Context(), ledgertest.Record("after"))
	if err != nil || e.Index != 3 {
		t.Fatalf("the entry after the torn one is %d, %v", e.Index, err)
	}
	torn, err := filepath.Glob(filepath.Join(dir, "erasure-ledger.torn-*"))
	if err != nil || len(torn) != 1 {
		t.Fatalf("%d torn lines were set aside, %v", len(torn), err)
	}
	if body, _ := os.ReadFile(path); bytes.Contains(body, []byte("torn")) || bytes.Count(body, []byte("\n")) != 4 {
		t.Error("the torn line is still in the ledger")
	}
}

func TestEveryChangedByteIsRefused(t *testing.T) {
	dir, keys := t.TempDir(), ledgertest.Keys(t)
	filled(t, dir, keys, 8)
	path := filepath.Join(dir, "erasure-ledger.jsonl")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(r *rapid.T) {
		bad := bytes.Clone(good)
		at := rapid.IntRange(0, len(bad)-1).Draw(r, "at")
		bad[at] ^= byte(rapid.IntRange(1, 255).Draw(r, "change"))
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			r.Fatal(err)
		}
		if f, err := ledger.OpenFile(dir, keys, nil); err == nil {
			_ = f.Close()
			r.Fatalf("a ledger with byte %d changed was opened", at)
		}
		torn, _ := filepath.Glob(filepath.Join(dir, "erasure-ledger.torn-*"))
		for _, name := range torn { // the changed byte was the last line's end
			_ = os.Remove(name)
		}
	})
}

func TestACutOffTailIsDetected(t *testing.T) {
	dir, keys := t.TempDir(), ledgertest.Keys(t)
	filled(t, dir, keys, 5)
	path := filepath.Join(dir, "erasure-ledger.jsonl")
	good, _ := os.ReadFile(path)
	lines := bytes.SplitAfter(good, []byte("\n"))
	for keep := range 5 {
		if err := os.WriteFile(path, bytes.Join(lines[:keep], nil), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ledger.OpenFile(dir, keys, nil); !errors.Is(err, ledger.ErrTruncated) {
			t.Errorf("with %d of 5 lines: %v", keep, err)
		}
	}
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "erasure-ledger.checkpoint")); err != nil {
		t.Fatal(err)
	}
	if _, err := ledger.OpenFile(dir, keys, nil); !errors.Is(err, ledger.ErrNoCheckpoint) {
		t.Errorf("without its checkpoint: %v", err)
	}
}

func TestACheckpointOfAnotherKeyIsRefusedAndOneOfAnOldKeyIsNot(t *testing.T) {
	dir := t.TempDir()
	old, _ := ledger.GenerateKey("recount-test")
	fresh, _ := ledger.GenerateKey("recount-test")
	oldKeys, _ := ledger.ParseKeys(old)
	filled(t, dir, oldKeys, 2)
	if _, err := ledger.OpenFile(dir, ledgertest.Keys(t), nil); !errors.Is(err, ledger.ErrTampered) {
		t.Errorf("a foreign key: %v", err)
	}
	rotated, err := ledger.ParseKeys(fresh + "," + old)
	if err != nil {
		t.Fatal(err)
	}
	opened(t, dir, rotated)
	if text := fmt.Sprintf("%v %+v %s", rotated, rotated, rotated); strings.Contains(text, "PRIVATE") {
		t.Error("keys print themselves")
	}
}

func TestAFailedWriteOrSyncPoisonsUntilItIsReopened(t *testing.T) {
	for name, fault := range map[string]ledger.Faults{
		"sync":        {Sync: errors.New("EIO")},
		"write":       {Write: errors.New("ENOSPC")},
		"short write": {Write: errors.New("ENOSPC"), Short: 20},
	} {
		t.Run(name, func(t *testing.T) {
			f, faults, err := ledger.OpenFaulty(t.TempDir(), ledgertest.Keys(t))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = f.Close() }()
			if _, err := f.Append(t.Context(), ledgertest.Record("good")); err != nil {
				t.Fatal(err)
			}
			*faults = fault
			if _, err := f.Append(t.Context(), ledgertest.Record("lost")); !errors.Is(err, ledger.ErrPoisoned) {
				t.Fatalf("the failed append: %v", err)
			}
			*faults = ledger.Faults{}
			if _, err := f.Append(t.Context(), ledgertest.Record("next")); !errors.Is(err, ledger.ErrPoisoned) {
				t.Errorf("an append after it: %v", err)
			}
			if _, _, err := f.Checkpoint(t.Context()); !errors.Is(err, ledger.ErrPoisoned) {
				t.Errorf("a checkpoint after it: %v", err)
			}
			if err := f.Ready(t.Context()); !errors.Is(err, ledger.ErrPoisoned) {
				t.Errorf("ready: %v", err)
			}
			if err := f.Reopen(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := f.Append(t.Context(), ledgertest.Record("again")); err != nil {
				t.Fatal(err)
			}
			if e, err := f.Find(t.Context(), "good", 0); err != nil || e.Index != 0 {
				t.Errorf("what was acknowledged: %d, %v", e.Index, err)
			}
		})
	}
}

// TestHelperAppend appends in a process of its own until it is killed, and prints what was acknowledged.
func TestHelperAppend(t *testing.T) {
	dir := os.Getenv("RECOUNT_LEDGER_DIR")
	if dir == "" {
		t.Skip("is run by TestWhatWasAcknowledgedSurvivesAKill")
	}
	keys, err := ledger.ParseKeys(os.Getenv("RECOUNT_LEDGER_KEY"))
	if err != nil {
		t.Fatal(err)
	}
	f, err := ledger.OpenFile(dir, keys, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		id := fmt.Sprintf("p%d-%d", os.Getpid(), i)
		if _, err := f.Append(t.Context(), ledgertest.Record(id)); err != nil {
			t.Fatal(err)
		}
		fmt.Println("acknowledged", id)
	}
}

func TestWhatWasAcknowledgedSurvivesAKill(t *testing.T) {
	dir := t.TempDir()
	private, _ := ledger.GenerateKey("recount-test")
	keys, _ := ledger.ParseKeys(private)
	var said bytes.Buffer
	for range 3 {
		var out [2]bytes.Buffer
		var commands [2]*exec.Cmd
		for i := range commands { // two processes at a time
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHelperAppend$")
			cmd.Env = append(os.Environ(), "RECOUNT_LEDGER_DIR="+dir, "RECOUNT_LEDGER_KEY="+private)
			cmd.Stdout = &out[i]
			commands[i] = cmd
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
		}
		waitForLines(t, filepath.Join(dir, "erasure-ledger.jsonl"))
		for i, cmd := range commands {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			said.Write(out[i].Bytes())
		}
	}
	f := opened(t, dir, keys)
	there := map[string]bool{}
	if err := f.Scan(t.Context(), 0, func(e ledger.Entry) error {
		r, err := ledger.Decode(e.Line)
		there[r.EntryID] = true
		return err
	}); err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(said.String()) {
		id, ok := strings.CutPrefix(strings.TrimSpace(line), "acknowledged ")
		if !ok || !strings.HasSuffix(line, "\n") {
			continue
		}
		if n++; !there[id] {
			t.Errorf("%s was acknowledged and is gone", id)
		}
	}
	if n == 0 {
		t.Fatal("nothing was acknowledged before the kills")
	}
}

func waitForLines(t *testing.T, path string) {
	t.Helper()
	before, _ := os.ReadFile(path)
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if now, _ := os.ReadFile(path); bytes.Count(now, []byte("\n")) > bytes.Count(before, []byte("\n"))+50 {
			return
		}
	}
	t.Fatal("the ledger does not grow")
}

func FuzzDecode(f *testing.F) {
	line, _ := ledgertest.Record("e1").Encode()
	f.Add(line)
	f.Add([]byte(`{"v":1,"v":1}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := ledger.Decode(line)
		if err != nil {
			return
		}
		again, err := r.Encode()
		if err != nil {
			t.Fatalf("a decoded record can't be encoded: %v", err)
		}
		if second, err := ledger.Decode(again); err != nil || fmt.Sprint(second) != fmt.Sprint(r) {
			t.Fatalf("it changed: %v", err)
		}
	})
}

// remembered is an anchor in memory.
type remembered struct{ head ledger.Head }

func (r *remembered) Last(context.Context) (ledger.Head, error) { return r.head, nil }

func (r *remembered) Keep(_ context.Context, h ledger.Head) error {
	r.head = h
	return nil
}

func TestALedgerThatIsPutBackWithItsCheckpointIsRefusedByItsAnchor(t *testing.T) {
	dir, keys, anchor := t.TempDir(), ledgertest.Keys(t), &remembered{}
	grow := func(n int) {
		f, err := ledger.OpenFile(dir, keys, anchor)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if _, err := f.Append(t.Context(), ledgertest.Record(fmt.Sprintf("e%d-%d", n, i))); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	grow(3)
	then := map[string][]byte{}
	for _, name := range []string{"erasure-ledger.jsonl", "erasure-ledger.checkpoint"} {
		then[name], _ = os.ReadFile(filepath.Join(dir, name))
	}
	grow(2)
	for name, body := range then {
		if err := os.WriteFile(filepath.Join(dir, name), body, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ledger.OpenFile(dir, keys, anchor); !errors.Is(err, ledger.ErrTruncated) {
		t.Errorf("a ledger of an earlier day: %v", err)
	}
	for name := range then {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ledger.OpenFile(dir, keys, anchor); !errors.Is(err, ledger.ErrTruncated) {
		t.Errorf("a ledger that is gone: %v", err)
	}
}
