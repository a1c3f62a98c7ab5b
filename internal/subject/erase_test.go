package subject

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// scripted is a store that holds rows and answers each call by the next line of its script.
type scripted struct {
	name    string
	mu      sync.Mutex
	rows    int64
	script  []string
	counts  int
	deletes int
	release chan struct{} // ends calls that hang and ignore their context
}

func (s *scripted) Name() string    { return s.name }
func (s *scripted) Backend() string { return "scripted" }

func (s *scripted) next() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.script) == 0 {
		return "ok"
	}
	line := s.script[0]
	s.script = s.script[1:]
	return line
}

func (s *scripted) misbehave(ctx context.Context, how string) (n int64, done bool, err error) {
	switch how {
	case "error":
		return 0, true, errors.New("row of alice@example.com")
	case "not yet":
		return 0, true, &NotYet{Reason: ReasonStreamingBuffer}
	case "panic":
		panic("alice@example.com")
	case "hang":
		<-ctx.Done()
		return 0, true, ctx.Err()
	case "deaf":
		<-s.release
		return 0, true, nil
	case "negative":
		return -1, true, nil
	}
	return 0, false, nil
}

func (s *scripted) Count(ctx context.Context, _ Subject) (int64, error) {
	n, done, err := s.misbehave(ctx, s.next())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts++
	if done {
		return n, err
	}
	return s.rows, nil
}

func (s *scripted) Delete(ctx context.Context, _ Subject) (int64, error) {
	how := s.next()
	n, done, err := s.misbehave(ctx, how)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deletes++
	switch {
	case done:
		return n, err
	case how == "lie":
		return s.rows, nil
	case how == "partial" && s.rows > 0:
		s.rows--
		return 1, nil
	}
	n, s.rows = s.rows, 0
	return n, nil
}

func person(t interface{ Fatal(...any) }) Subject {
	s, err := New("acme", "alice@example.com")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func target(t interface{ Fatal(...any) }) Target { return Target{Tenant: "acme", Subject: person(t)} }

// undated hides the test's deadline, which may not be asked for where time is simulated.
type undated struct{ rapid.TB }

// TestNoScheduleOfAnswersIsErasedWithoutARecountOfZero is the one property above all.
func TestNoScheduleOfAnswersIsErasedWithoutARecountOfZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		how := rapid.SampledFrom([]string{"ok", "ok", "ok", "error", "not yet", "panic", "hang", "deaf", "negative", "lie", "partial"})
		rapid.Check(undated{t}, func(t *rapid.T) {
			release := make(chan struct{})
			defer synctest.Wait()
			defer close(release)
			var all []*scripted
			var groups []Group
			for g := range rapid.IntRange(1, 3).Draw(t, "groups") {
				var group Group
				for i := range rapid.IntRange(1, 3).Draw(t, "stores") {
					s := &scripted{
						name: fmt.Sprintf("store_%d_%d", g, i), rows: rapid.Int64Range(0, 3).Draw(t, "rows"),
						script: rapid.SliceOfN(how, 0, 4).Draw(t, "script"), release: release,
					}
					all, group.Stores = append(all, s), append(group.Stores, s)
				}
				groups = append(groups, group)
			}
			ctx, cancel := context.WithCancelCause(context.Background())
			defer cancel(nil)
			if rapid.Bool().Draw(t, "cancelled") {
				after := time.Duration(rapid.IntRange(0, 3000).Draw(t, "after ms")) * time.Millisecond
				go func() {
					select {
					case <-time.After(after):
						cancel(ErrShuttingDown)
					case <-ctx.Done():
					}
				}()
			}
			e := Eraser{Cell: "test", Groups: groups, Timeout: time.Second}
			started := time.Now()
			receipts := e.Erase(ctx, target(t)).Receipts
			if took := time.Since(started); took > 15*time.Second {
				t.Fatalf("took %v", took)
			}
			if len(receipts) != len(all) {
				t.Fatalf("%d receipts for %d stores", len(receipts), len(all))
			}
			for i, r := range receipts {
				if r.Store() != all[i].name {
					t.Fatalf("receipt %d is of %s, not of %s", i, r.Store(), all[i].name)
				}
				all[i].mu.Lock()
				rows := all[i].rows
				all[i].mu.Unlock()
				if r.Status() == Erased && (rows != 0 || !r.Counts().Remaining.IsZero()) {
					t.Fatalf("%s says erased and holds %d rows", r.Store(), rows)
				}
				if r.Status() != Erased && !r.Reason().Known() {
					t.Fatalf("reason %q", r.Reason())
				}
			}
		})
	})
}

func TestCountDeleteAndRecountAreUnconditional(t *testing.T) {
	for name, script := range map[string][]string{
		"nothing there":          nil,
		"the count broke":        {"error"},
		"the delete broke":       {"ok", "error"},
		"everything broke":       {"error", "error", "error"},
		"the delete is deferred": {"ok", "not yet"},
		"the count panicked":     {"panic"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &scripted{name: "s", script: script}
			(&Eraser{Groups: []Group{{Stores: []Store{s}}}, Timeout: time.Second}).Erase(t.Context(), target(t))
			if s.counts+boolToInt(name == "the count panicked") != 2 || s.deletes != 1 {
				t.Fatalf("%d counts and %d deletes, want 2 and 1", s.counts, s.deletes)
			}
		})
	}
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestAStoreThatHangsLeavesTheOthersTheirReceipts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		deaf := &scripted{name: "deaf", rows: 1, script: []string{"deaf"}, release: release}
		fine := &scripted{name: "fine", rows: 1}
		after := &scripted{name: "after", rows: 1}
		e := Eraser{Groups: []Group{{Stores: []Store{deaf, after}}, {Stores: []Store{fine}}}, Timeout: time.Second}
		receipts := e.Erase(t.Context(), target(t)).Receipts
		if r := receipts[0]; r.Status() != Failed || r.Reason() != ReasonTimeout {
			t.Errorf("the hung store: %v %q", r.Status(), r.Reason())
		}
		if receipts[1].Status() != Erased || receipts[2].Status() != Erased {
			t.Errorf("siblings: %v %v", receipts[1].Status(), receipts[2].Status())
		}
		close(release)
	})
}

func TestALockOutlivesTheCallsThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var unlocked atomic.Bool
		g := Group{
			Stores: []Store{&scripted{name: "deaf", script: []string{"ok", "deaf"}, release: release}},
			Lock: func(context.Context) (func(), error) {
				return func() { unlocked.Store(true) }, nil
			},
		}
		(&Eraser{Groups: []Group{g}, Timeout: time.Second}).Erase(t.Context(), target(t))
		if synctest.Wait(); unlocked.Load() {
			t.Fatal("unlocked while a delete was still running")
		}
		close(release)
		if synctest.Wait(); !unlocked.Load() {
			t.Fatal("never unlocked")
		}
	})
}

func TestWithoutItsLockAGroupIsFailedAndUntouched(t *testing.T) {
	s := &scripted{name: "s", rows: 1}
	g := Group{Stores: []Store{s}, Lock: func(context.Context) (func(), error) {
		return nil, &Fault{Reason: ReasonNoLease}
	}}
	r := (&Eraser{Groups: []Group{g}, Timeout: time.Second}).Erase(t.Context(), target(t)).Receipts[0]
	if r.Status() != Failed || r.Reason() != ReasonNoLease || s.deletes != 0 {
		t.Fatalf("%v %q, %d deletes", r.Status(), r.Reason(), s.deletes)
	}
}

func TestAStoppingProcessSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(ErrShuttingDown) })
		s := &scripted{name: "s", script: []string{"hang"}}
		r := (&Eraser{Groups: []Group{{Stores: []Store{s}}}, Timeout: time.Minute}).Erase(ctx, target(t)).Receipts[0]
		if r.Status() != Failed || r.Reason() != ReasonShuttingDown {
			t.Fatalf("%v %q", r.Status(), r.Reason())
		}
	})
}

func TestAFlightIsOnlySharedByThoseWhoAskedBeforeItBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var flights Flights
		var began atomic.Int64
		run := func() Erasure {
			n := began.Add(1)
			time.Sleep(time.Second)
			return Erasure{Receipts: make([]Receipt, n)}
		}
		var wg sync.WaitGroup
		ask := func() {
			wg.Go(func() {
				before := began.Load()
				if got := int64(len(flights.Do(person(t), run).Receipts)); got <= before {
					t.Errorf("asked when %d had begun, was given number %d", before, got)
				}
			})
		}
		ask()
		synctest.Wait()
		for range 100 {
			ask()
		}
		wg.Wait()
		if n := began.Load(); n != 2 {
			t.Fatalf("%d runs for one caller and a hundred that came while it ran", n)
		}
		if len(flights.flying) != 0 {
			t.Fatal("a landed flight is still on the board")
		}
	})
}
