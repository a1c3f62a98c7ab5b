package cascade_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"recount/internal/cascade"
	"recount/internal/cascade/cascadetest"
	"recount/internal/subject"
)

// target is a cell that answers as it is told to, for every subject alike.
type target struct {
	name string
	do   func(ctx context.Context) []subject.Receipt
}

func (t target) Name() string { return t.name }

func (t target) Erase(ctx context.Context, _ string, _ subject.Target) subject.Erasure {
	return subject.Erasure{Receipts: t.do(ctx)}
}

func (t target) EraseBatch(ctx context.Context, id string, targets []subject.Target) []subject.Erasure {
	out := make([]subject.Erasure, len(targets))
	for i := range out {
		out[i] = t.Erase(ctx, id, targets[i])
	}
	return out
}

// erasing is a cell with one store, named after it, that erases.
func erasing(name string) target {
	return target{name, func(context.Context) []subject.Receipt {
		return (&cascadetest.Cell{Name: name, Stores: []string{name + "_rows"}}).Erased()
	}}
}

func lines(receipts []subject.Receipt) []string {
	out := told(receipts)
	for i, r := range receipts {
		out[i] = r.Cell() + ": " + out[i]
	}
	return out
}

func TestReceiptsComeInTheOrderOfTheTargetsWhoeverIsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := func(name string, after time.Duration) target {
			return target{name, func(ctx context.Context) []subject.Receipt {
				time.Sleep(after)
				return erasing(name).do(ctx)
			}}
		}
		c := cascade.New(time.Minute, late("scoring", 3*time.Second), late("ingest", 2*time.Second), late("graph", time.Second))
		started := time.Now()
		got := c.Erase(t.Context(), requestID, about(someone(t)))
		want := []string{"scoring: scoring_rows erased", "ingest: ingest_rows erased", "graph: graph_rows erased"}
		if !slices.Equal(lines(got), want) {
			t.Errorf("got %q", lines(got))
		}
		if took := time.Since(started); took != 3*time.Second {
			t.Errorf("took %v: targets must run at once", took)
		}
	})
}

func TestATargetThatFailsToAnswerCostsNoSiblingItsReceipts(t *testing.T) {
	hung := make(chan struct{})
	t.Cleanup(func() { close(hung) })
	for name, row := range map[string]struct {
		do   func(context.Context) []subject.Receipt
		want string
	}{
		"panics":  {func(context.Context) []subject.Receipt { panic("alice") }, "store_panicked"},
		"hangs":   {func(context.Context) []subject.Receipt { <-hung; return nil }, "store_timeout"},
		"is mute": {func(context.Context) []subject.Receipt { return nil }, "nothing_verified"},
	} {
		t.Run(name, func(t *testing.T) {
			c := cascade.New(50*time.Millisecond, erasing("scoring"), target{"ingest", row.do}, erasing("graph"))
			want := []string{"scoring: scoring_rows erased", "ingest: * failed " + row.want, "graph: graph_rows erased"}
			if got := c.Erase(t.Context(), requestID, about(someone(t))); !slices.Equal(lines(got), want) {
				t.Errorf("got %q", lines(got))
			}
			batch := c.EraseBatch(t.Context(), requestID, everyone(people(t, 2)...))
			for _, got := range batch {
				if !slices.Equal(lines(got), want) {
					t.Errorf("batch: got %q", lines(got))
				}
			}
		})
	}
}

// short answers for fewer subjects than it was asked about.
type short struct{ target }

func (s short) EraseBatch(ctx context.Context, id string, targets []subject.Target) []subject.Erasure {
	return s.target.EraseBatch(ctx, id, targets[1:])
}

func TestABatchWithoutAListPerSubjectIsFailed(t *testing.T) {
	c := cascade.New(time.Second, erasing("scoring"), short{erasing("ingest")})
	for _, got := range c.EraseBatch(t.Context(), requestID, everyone(people(t, 3)...)) {
		want := []string{"scoring: scoring_rows erased", "ingest: * failed peer_results_mismatch"}
		if !slices.Equal(lines(got), want) {
			t.Errorf("got %q", lines(got))
		}
	}
}

func TestACascadeWithoutTargetsVerifiesNothing(t *testing.T) {
	if got := cascade.New(time.Second).Erase(t.Context(), requestID, about(someone(t))); subject.Fold(got) != subject.Failed {
		t.Errorf("got %q", lines(got))
	}
}

func TestACallerThatHangsUpDoesNotStopTheCascade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := target{"ingest", func(ctx context.Context) []subject.Receipt {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(time.Second):
				return erasing("ingest").do(ctx)
			}
		}}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		got := cascade.New(time.Minute, slow).Erase(ctx, requestID, about(someone(t)))
		if want := []string{"ingest: ingest_rows erased"}; !slices.Equal(lines(got), want) {
			t.Errorf("got %q", lines(got))
		}
	})
}

func TestStopEndsWhatRunsAndSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := make(chan error, 1)
		c := cascade.New(time.Minute, erasing("scoring"), target{"ingest", func(ctx context.Context) []subject.Receipt {
			<-ctx.Done()
			cause <- context.Cause(ctx)
			time.Sleep(time.Hour)
			return nil
		}})
		time.AfterFunc(time.Second, c.Stop)
		got := c.Erase(t.Context(), requestID, about(someone(t)))
		want := []string{"scoring: scoring_rows erased", "ingest: * failed shutting_down"}
		if !slices.Equal(lines(got), want) {
			t.Errorf("got %q", lines(got))
		}
		if err := <-cause; err != subject.ErrShuttingDown { //nolint:errorlint // the very value
			t.Errorf("cause %v", err)
		}
		c.Stop()              // twice is once
		time.Sleep(time.Hour) // the hung target comes back
	})
}

func TestHungTargetsShareOneGracePeriod(t *testing.T) {
	hung := make(chan struct{})
	defer close(hung)
	var targets []cascade.Cell
	for i := range 20 {
		targets = append(targets, target{fmt.Sprintf("cell%d", i), func(context.Context) []subject.Receipt { <-hung; return nil }})
	}
	started := time.Now()
	got := cascade.New(10*time.Millisecond, targets...).Erase(t.Context(), requestID, about(someone(t)))
	if took := time.Since(started); len(got) != 20 || took > 4*time.Second {
		t.Errorf("%d receipts after %v", len(got), took)
	}
}
