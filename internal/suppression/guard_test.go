package suppression_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"recount/internal/subject"
	"recount/internal/suppression"
	"recount/internal/suppression/suppressiontest"
)

func origin(t interface{ Fatal(...any) }, ref string) subject.Source {
	s, err := subject.NewSource("acme", "crm", ref)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func record(t *testing.T, ref string, parents ...string) subject.Record {
	t.Helper()
	r := subject.Record{Source: origin(t, ref), Identities: []string{"owner of " + ref}}
	for _, p := range parents {
		r.Parents = append(r.Parents, origin(t, p))
	}
	return r
}

func suppress(t *testing.T, l suppression.Ledger, refs ...string) {
	t.Helper()
	for _, ref := range refs {
		if _, err := l.Record(t.Context(), []suppression.Entry{{Source: origin(t, ref), Erasure: "r"}}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWhatDerivesFromTheSuppressedIsSuppressedInWhateverOrderItComes(t *testing.T) {
	ledger := suppressiontest.NewModel()
	suppress(t, ledger, "1")
	guard := &suppression.Guard{Ledger: ledger}
	records := []subject.Record{record(t, "4", "3"), record(t, "3", "2"), record(t, "2", "1"), record(t, "5"), record(t, "6", "5")}
	want := []suppression.Verdict{suppression.Suppressed, suppression.Suppressed, suppression.Suppressed, suppression.Admitted, suppression.Admitted}
	d, fenced := guard.Decide(t.Context(), records)
	if fenced || !slices.Equal(d.Verdicts, want) {
		t.Fatalf("%v", d.Verdicts)
	}
	// And alone, when it comes again: what derives from it must be recognised.
	if d, _ := guard.Decide(t.Context(), []subject.Record{record(t, "7", "4")}); d.Verdicts[0] != suppression.Suppressed {
		t.Errorf("what derives from what was refused: %v", d.Verdicts)
	}
	recorded, err := ledger.Recorded(t.Context(), "acme", []subject.Ref{"r"})
	if err != nil || len(recorded[0]) != 5 {
		t.Errorf("the erasure has %d entries, %v", len(recorded[0]), err)
	}
}

func TestAnUnreadableLedgerAdmitsNothingAndSaysSo(t *testing.T) {
	ledger := suppressiontest.NewModel()
	ledger.Break(errors.New("broken"))
	told := 0
	guard := &suppression.Guard{Ledger: ledger, OnUnreadable: func(n int, _ error) { told += n }}
	d, err := guard.Write(t.Context(), []subject.Record{record(t, "1"), record(t, "2")}, nil, func(context.Context, suppression.Decision) error {
		t.Error("written")
		return nil
	})
	if err != nil || !slices.Equal(d.Verdicts, []suppression.Verdict{suppression.Unreadable, suppression.Unreadable}) || told != 2 {
		t.Errorf("%v, %v, told of %d", d.Verdicts, err, told)
	}
}

func TestAFencedWriteWaitsAndIsThenWrittenOrToBeSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger := suppressiontest.NewModel()
		guard := &suppression.Guard{Ledger: ledger, Writers: suppression.NewWriters(time.Minute)}
		who, err := subject.New("acme", "owner of 1")
		if err != nil {
			t.Fatal(err)
		}
		fence := func() {
			if err := ledger.Fence(t.Context(), "a", []subject.Subject{who}, time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		fence()
		time.AfterFunc(time.Second, func() { _ = ledger.Lower(context.Background(), "a") })
		written := 0
		write := func(context.Context, suppression.Decision) error { written++; return nil }
		if _, err := guard.Write(t.Context(), []subject.Record{record(t, "1"), record(t, "2")}, nil, write); err != nil || written != 1 {
			t.Errorf("after the fence was lowered: %v, written %d times", err, written)
		}
		fence()
		_, err = guard.Write(t.Context(), []subject.Record{record(t, "1"), record(t, "2")}, nil, write)
		if subject.ReasonOf(err) != subject.ReasonFenced || written != 1 {
			t.Errorf("behind a fence that stays: %v, written %d times", err, written)
		}
	})
}

func TestADrainWaitsForTheWritesThatEnteredBeforeAndNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		writers := suppression.NewWriters(time.Hour)
		var left atomic.Int64
		var wg sync.WaitGroup
		for i := range 10 {
			_, leave := writers.Enter(t.Context())
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Second)
				left.Add(1)
				leave()
			})
		}
		impatient, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if err := writers.Drain(impatient); err == nil {
			t.Fatal("drained while writes were under way")
		}
		drained := make(chan error, 1)
		go func() { drained <- writers.Drain(t.Context()) }()
		synctest.Wait()
		_, leave := writers.Enter(t.Context()) // later: it is not waited for
		if err := <-drained; err != nil || left.Load() != 10 {
			t.Fatalf("%v, %d of 10 had left", err, left.Load())
		}
		leave()
		wg.Wait()
	})
}

func TestAWriteHasATimeLimit(t *testing.T) {
	writers := suppression.NewWriters(10 * time.Millisecond)
	guard := &suppression.Guard{Ledger: suppressiontest.NewModel(), Writers: writers}
	_, err := guard.Write(t.Context(), []subject.Record{record(t, "1")}, nil, func(ctx context.Context, _ suppression.Decision) error {
		<-ctx.Done()
		return fmt.Errorf("stopped: %w", ctx.Err())
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}
