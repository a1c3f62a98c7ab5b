package audit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"recount/internal/audit"
)

// table is a sink that misbehaves by a script, and holds each row once, as a table with a key does.
type table struct {
	mu      sync.Mutex
	script  []string
	have    []string
	largest int
}

func (s *table) InsertAudit(ctx context.Context, rows []map[string]any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	how := "ok"
	if len(s.script) > 0 {
		how, s.script = s.script[0], s.script[1:]
	}
	s.largest = max(s.largest, len(rows))
	switch how {
	case "missing":
		return errors.New("no such table: row of alice@example.com")
	case "panic":
		panic("alice@example.com")
	case "hang":
		<-ctx.Done()
		return ctx.Err()
	case "slow":
		time.Sleep(time.Second)
	}
	for _, row := range rows {
		if id, _ := row["request_id"].(string); !slices.Contains(s.have, id) {
			s.have = append(s.have, id)
		}
	}
	if how == "lost answer" {
		return errors.New("connection reset")
	}
	return nil
}

func (s *table) seen() (have []string, largest int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.have), s.largest
}

type tally struct{ failed, dropped atomic.Int64 }

func (c *tally) AuditFailed(int, error) { c.failed.Add(1) }
func (c *tally) AuditDropped(n int)     { c.dropped.Add(int64(n)) }
func numbered(from, n int) (rows []audit.Row) {
	for i := range n {
		rows = append(rows, audit.Row{RequestID: fmt.Sprint(from + i), OccurredAt: at})
	}
	return rows
}

// undated hides the test's deadline, which may not be asked for where time is simulated.
type undated struct{ rapid.TB }

// TestEveryRowIsWrittenOnceOrCountedAsDropped is the promise of the outbox, over random schedules of faults.
func TestEveryRowIsWrittenOnceOrCountedAsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(undated{t}, func(t *rapid.T) {
			sink := &table{script: rapid.SliceOfN(rapid.SampledFrom([]string{"ok", "ok", "missing", "panic", "hang", "slow", "lost answer"}), 0, 12).Draw(t, "script")}
			watch := &tally{}
			capacity := rapid.IntRange(1, 1200).Draw(t, "capacity")
			r := audit.NewRecorder(sink, watch, capacity)
			recorded := 0
			for range rapid.IntRange(0, 8).Draw(t, "calls") {
				n := rapid.IntRange(0, 700).Draw(t, "rows")
				start := time.Now()
				r.Record(numbered(recorded, n)...)
				if time.Since(start) != 0 {
					t.Fatal("Record waited")
				}
				recorded += n
				time.Sleep(time.Duration(rapid.SampledFrom([]int{0, 1, 30, 2000}).Draw(t, "pause ms")) * time.Millisecond)
			}
			patience := time.Duration(rapid.SampledFrom([]int{0, 1, 300, 600_000}).Draw(t, "patience ms")) * time.Millisecond
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			start := time.Now()
			err := r.Close(ctx)
			if took := time.Since(start); took > patience+time.Second+100*time.Millisecond {
				t.Fatalf("Close took %v of %v", took, patience)
			}
			time.Sleep(2 * time.Second) // an insert that was given up may still end
			synctest.Wait()
			have, largest := sink.seen()
			dropped := int(watch.dropped.Load())
			switch both := len(have) + dropped - recorded; { // the sink has them although its answer was lost
			case both < 0:
				t.Fatalf("%d recorded, %d written, %d dropped", recorded, len(have), dropped)
			case both > 0 && err == nil:
				t.Fatalf("%d rows are both written and dropped", both)
			}
			if patience > time.Minute && err != nil {
				t.Fatalf("with time enough: %v", err)
			}
			if largest > 500 {
				t.Fatalf("an insert of %d rows", largest)
			}
			for i := 1; i < len(have); i++ {
				var a, b int
				_, _ = fmt.Sscan(have[i-1], &a)
				_, _ = fmt.Sscan(have[i], &b)
				if a >= b {
					t.Fatalf("row %d before row %d", a, b)
				}
			}
			r.Record(numbered(recorded, 1)...)
			if int(watch.dropped.Load()) != dropped+1 {
				t.Fatal("a row after the end was not counted as dropped")
			}
		})
	})
}

func TestASinkThatComesBackGetsEveryRowOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink, watch := &table{}, &tally{}
		for range 9 {
			sink.script = append(sink.script, "missing")
		}
		r := audit.NewRecorder(sink, watch, audit.DefaultCapacity)
		r.Record(numbered(0, 3)...)
		time.Sleep(10 * time.Second)
		if n := watch.failed.Load(); n < 4 || n > 9 {
			t.Errorf("%d attempts in 10 s", n)
		}
		r.Record(numbered(3, 2)...)
		time.Sleep(2 * time.Minute)
		if have, _ := sink.seen(); strings.Join(have, " ") != "0 1 2 3 4" || watch.dropped.Load() != 0 {
			t.Errorf("%v, %d dropped", have, watch.dropped.Load())
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestTheEndDoesNotWaitForALongPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &table{script: slices.Repeat([]string{"missing"}, 14)}
		r := audit.NewRecorder(sink, &tally{}, audit.DefaultCapacity)
		r.Record(numbered(0, 3)...)
		time.Sleep(2 * time.Minute) // the pauses are long by now
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if err := r.Close(ctx); err != nil {
			t.Error(err)
		}
	})
}

func TestRowsOfAShortWhileShareAnInsert(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &table{}
		r := audit.NewRecorder(sink, &tally{}, audit.DefaultCapacity)
		for i := range 10 {
			r.Record(numbered(i*4, 4)...)
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Second)
		if have, largest := sink.seen(); len(have) != 40 || largest < 20 {
			t.Errorf("%d rows, at most %d at once", len(have), largest)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

type deaf struct{ release chan struct{} }

func (d deaf) InsertAudit(context.Context, []map[string]any) error { <-d.release; return nil }

func TestASinkThatIgnoresItsDeadlineDoesNotKeepTheProcessFromStopping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink, watch := deaf{make(chan struct{})}, &tally{}
		r := audit.NewRecorder(sink, watch, 10)
		r.Record(numbered(0, 20)...)
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		err := r.Close(ctx)
		if err == nil || !strings.Contains(err.Error(), "10 audit rows") || time.Since(start) > 1200*time.Millisecond || watch.dropped.Load() != 20 {
			t.Errorf("%v after %v, %d dropped", err, time.Since(start), watch.dropped.Load())
		}
		close(sink.release)
	})
}

type taking struct{}

func (taking) InsertAudit(context.Context, []map[string]any) error { return nil }

// BenchmarkRecord is a flood: most of it is dropped.
func BenchmarkRecord(b *testing.B) {
	watch := &tally{}
	r := audit.NewRecorder(taking{}, watch, audit.DefaultCapacity)
	rows := numbered(0, 4)
	b.ReportAllocs()
	for b.Loop() {
		r.Record(rows...)
	}
	b.StopTimer()
	b.ReportMetric(float64(watch.dropped.Load())/float64(b.N), "dropped/op")
	if err := r.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
}
