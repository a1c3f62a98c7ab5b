package firestore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"recount/internal/stores"
	"recount/internal/stores/firestore/firestoretest"
	"recount/internal/stores/storetest"
	"recount/internal/subject"
)

func wantReason(t testing.TB, err error, want subject.Reason) {
	t.Helper()
	var fault *subject.Fault
	if !errors.As(err, &fault) || fault.Reason != want {
		t.Errorf("error %v, want the fault %s", err, want)
	}
}

func wantNotYet(t testing.TB, err error, want subject.Reason) {
	t.Helper()
	var notYet *subject.NotYet
	if !errors.As(err, &notYet) || notYet.Reason != want {
		t.Errorf("error %v, want not yet: %s", err, want)
	}
}

// bench is one database seen directly and through a proxy.
type bench struct {
	*firestoretest.Proxy

	direct, proxied *Client
}

func newBench(t testing.TB) *bench {
	t.Helper()
	proxy, project := firestoretest.NewProxy(t), firestoretest.Project()
	b := &bench{Proxy: proxy}
	for host, client := range map[string]**Client{firestoretest.Host(t): &b.direct, proxy.Host(): &b.proxied} {
		c, err := Open(context.Background(), Config{Project: project, EmulatorHost: host})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		*client = c
	}
	return b
}

func (b *bench) journal(t testing.TB, client *Client) *Journal {
	t.Helper()
	j, err := client.Journal(context.Background(), storetest.EdgesTable(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func edges(n int, identity string) []stores.Row {
	rows := make([]stores.Row, n)
	for i := range rows {
		rows[i] = storetest.NewRow(storetest.EdgesTable(), "acme", "test", fmt.Sprintf("%s-%d", identity, i), identity)
	}
	return rows
}

func (b *bench) seed(t testing.TB, n int) (*Journal, subject.Subject) {
	t.Helper()
	if _, err := b.journal(t, b.direct).Append(context.Background(), edges(n, "alice"), 0); err != nil {
		t.Fatal(err)
	}
	return b.journal(t, b.proxied), who(t, "acme", "alice")
}

func TestAPageOfDeletesThatHalfFailedIsNoSuccess(t *testing.T) {
	b := newBench(t)
	j, alice := b.seed(t, 50)
	b.Inject(firestoretest.Fault{Method: "BatchWrite", Code: codes.PermissionDenied, Writes: func(i int) bool { return i%2 == 1 }})
	n, err := j.Delete(t.Context(), alice)
	wantReason(t, err, subject.ReasonAccessDenied)
	if n != 25 {
		t.Errorf("deleted %d, want 25", n)
	}
	wantCount(t, j.Collection, alice, 25)
	b.Heal()
	erase(t, j.Collection, alice)
	wantCount(t, j.Collection, alice, 0)
}

func TestWritesThatFailInPassingAreRepeated(t *testing.T) {
	b := newBench(t)
	j, alice := b.seed(t, 50)
	b.Inject(firestoretest.Fault{Method: "BatchWrite", Code: codes.Aborted, Times: 2, Writes: func(i int) bool { return i%3 == 1 }})
	b.Inject(firestoretest.Fault{Method: "BatchWrite", Code: codes.Unavailable, Times: 1})
	b.Inject(firestoretest.Fault{Method: "RunQuery", Code: codes.Unavailable, Times: 1})
	b.Inject(firestoretest.Fault{Method: "RunAggregationQuery", Code: codes.Internal, Times: 2})
	if n := erase(t, j.Collection, alice); n != 50 {
		t.Errorf("deleted %d, want 50", n)
	}
	wantCount(t, j.Collection, alice, 0)
}

func TestARequestThatIsTooBigIsSentInHalves(t *testing.T) {
	b := newBench(t)
	j, alice := b.seed(t, 50)
	b.Inject(firestoretest.Fault{Method: "BatchWrite", Code: codes.InvalidArgument, MaxWrites: 3})
	b.Inject(firestoretest.Fault{Method: "Commit", Code: codes.InvalidArgument, MaxWrites: 7})
	if n := erase(t, j.Collection, alice); n != 50 {
		t.Errorf("deleted %d, want 50", n)
	}
	created, err := j.Append(t.Context(), edges(50, "bob"), 0)
	if err != nil || len(created) != 50 || slices.Contains(created, false) {
		t.Errorf("created %v, %v", created, err)
	}
	b.direct.put(t, "users/1", fields{"tenant": "acme", "id": "alice"})
	for i := range 40 {
		b.direct.put(t, fmt.Sprintf("users/1/orders/%d", i), fields{"i": i})
	}
	col := b.proxied.collection(t, users())
	if n := erase(t, col, alice); n != 41 {
		t.Errorf("deleted %d, want 41", n)
	}
	wantBelow(t, b.direct, "users/1", 0)
}

func TestWhatIsRefusedAloneIsAFailure(t *testing.T) {
	b := newBench(t)
	j, alice := b.seed(t, 3)
	b.Inject(firestoretest.Fault{Code: codes.InvalidArgument, Method: "BatchWrite"})
	b.Inject(firestoretest.Fault{Code: codes.InvalidArgument, Method: "Commit"})
	_, err := j.Delete(t.Context(), alice)
	wantReason(t, err, subject.ReasonDeleteFailed)
	if _, err := j.Append(t.Context(), edges(3, "bob"), 0); err == nil {
		t.Error("appended")
	}
	wantCount(t, j.Collection, alice, 3)
}

func TestEveryKindOfFailureHasItsVerdict(t *testing.T) {
	for code, c := range map[codes.Code]struct {
		reason subject.Reason
		notYet bool
	}{
		codes.Unavailable:        {subject.ReasonBackendBusy, true},
		codes.Internal:           {subject.ReasonBackendBusy, true},
		codes.DeadlineExceeded:   {subject.ReasonBackendBusy, true},
		codes.ResourceExhausted:  {subject.ReasonQuota, true},
		codes.Aborted:            {subject.ReasonConcurrentUpdate, true},
		codes.PermissionDenied:   {subject.ReasonAccessDenied, false},
		codes.Unauthenticated:    {subject.ReasonAccessDenied, false},
		codes.NotFound:           {subject.ReasonNotFound, false},
		codes.FailedPrecondition: {subject.ReasonUnsupported, false},
		codes.Unimplemented:      {subject.ReasonUnsupported, false},
		codes.Unknown:            {subject.ReasonNone, false},
		codes.DataLoss:           {subject.ReasonNone, false},
	} {
		t.Run(code.String(), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			j, alice := b.seed(t, 2)
			col := b.proxied.collection(t, users())
			b.direct.put(t, "users/1", fields{"tenant": "acme", "id": "alice"})
			orElse := func(otherwise subject.Reason) subject.Reason {
				if c.reason == subject.ReasonNone {
					return otherwise
				}
				return c.reason
			}
			wantDelete := func(err error) {
				t.Helper()
				if c.notYet {
					wantNotYet(t, err, c.reason)
				} else {
					wantReason(t, err, orElse(subject.ReasonDeleteFailed))
				}
			}
			b.Inject(firestoretest.Fault{Method: "Commit", Code: code})
			b.Inject(firestoretest.Fault{Method: "BatchWrite", Code: code})
			_, err := j.Delete(t.Context(), alice)
			wantDelete(err)
			_, err = col.Delete(t.Context(), alice)
			wantDelete(err)
			b.Heal()
			wantCount(t, j.Collection, alice, 2)
			wantCount(t, col, alice, 1)

			b.Inject(firestoretest.Fault{Code: code})
			_, err = j.Count(t.Context(), alice)
			wantReason(t, err, orElse(subject.ReasonCountFailed))
			_, err = col.Count(t.Context(), alice)
			wantReason(t, err, orElse(subject.ReasonCountFailed))
			_, err = j.Delete(t.Context(), alice)
			wantDelete(err)
			_, err = j.Read(t.Context(), alice, "", 10)
			wantReason(t, err, orElse(subject.ReasonReadFailed))
			if j.Ready(t.Context()) == nil {
				t.Error("ready")
			}
			if _, err := b.proxied.Collection(t.Context(), users()); err == nil {
				t.Error("an owner's collection was opened unchecked")
			}
		})
	}
}

func TestAStreamThatBreaksIsNoShortAnswer(t *testing.T) {
	b := newBench(t)
	j, alice := b.seed(t, 20)
	b.Inject(firestoretest.Fault{Method: "RunQuery", Code: codes.Unavailable, Broken: 7})
	if page, err := j.Read(t.Context(), alice, "", 100); err == nil {
		t.Errorf("read %d rows", len(page.Rows))
	}
	_, err := j.Delete(t.Context(), alice)
	wantNotYet(t, err, subject.ReasonBackendBusy)
	col := b.proxied
	b.Heal()
	for i := range 9 {
		b.direct.put(t, fmt.Sprintf("users/1/orders/%d", i), fields{"i": i})
	}
	b.direct.put(t, "users/1", fields{"tenant": "acme", "id": "alice"})
	owner := col.collection(t, users())
	b.Inject(firestoretest.Fault{Method: "RunQuery", Code: codes.Unavailable, Broken: 5})
	if n, err := owner.Count(t.Context(), alice); err == nil {
		t.Errorf("counted %d of 10", n)
	}
}

func TestAnAnswerThatIsLostAfterTheCommitIsRepeatedTruly(t *testing.T) {
	b := newBench(t)
	j, alice := b.seed(t, 0)
	b.Inject(firestoretest.Fault{Method: "Commit", Code: codes.Unavailable, Times: 1, Lost: true, Cut: true})
	rows := edges(30, "alice")
	created, err := j.Append(t.Context(), append(rows, rows[3]), 0)
	if err != nil || slices.Contains(created[:30], false) || created[30] {
		t.Errorf("created = %v, %v: rows of this very call are new", created, err)
	}
	wantCount(t, j.Collection, alice, 30)
	b.Inject(firestoretest.Fault{Method: "BatchWrite", Code: codes.Unavailable, Times: 1, Lost: true, Cut: true})
	erase(t, j.Collection, alice)
	wantCount(t, j.Collection, alice, 0)

	b.direct.put(t, "users/1", fields{"tenant": "acme", "id": "alice"})
	b.direct.put(t, "users/1/orders/1", fields{"i": 1})
	col := b.proxied.collection(t, users())
	b.Inject(firestoretest.Fault{Method: "Commit", Code: codes.Unavailable, Times: 1, Lost: true, Cut: true})
	erase(t, col, alice)
	wantCount(t, col, alice, 0)
	wantBelow(t, b.direct, "users/1", 0)
}

func TestASlowDatabaseEndsWithTheContext(t *testing.T) {
	b := newBench(t)
	j, alice := b.seed(t, 3)
	b.Inject(firestoretest.Fault{Delay: 20 * time.Second})
	for name, call := range map[string]func(context.Context) error{
		"Count":  func(ctx context.Context) error { _, err := j.Count(ctx, alice); return err },
		"Delete": func(ctx context.Context) error { _, err := j.Delete(ctx, alice); return err },
		"Read":   func(ctx context.Context) error { _, err := j.Read(ctx, alice, "", 1); return err },
		"Append": func(ctx context.Context) error { _, err := j.Append(ctx, edges(1, "bob"), 0); return err },
		"Scan":   func(ctx context.Context) error { return j.Scan(ctx, func(stores.Row) error { return nil }) },
		"Purge":  func(ctx context.Context) error { _, err := j.Purge(ctx); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		start := time.Now()
		err := call(ctx)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 3*time.Second {
			t.Errorf("%s answered %v after %s", name, err, time.Since(start))
		}
	}
}

func TestADatabaseThatIsNotThereIsNeverAZero(t *testing.T) {
	c, err := Open(t.Context(), Config{Project: "p", EmulatorHost: "127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	j, err := c.Journal(t.Context(), storetest.EdgesTable(), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = j.Count(t.Context(), who(t, "acme", "alice"))
	wantReason(t, err, subject.ReasonBackendBusy)
	_, err = j.Delete(t.Context(), who(t, "acme", "alice"))
	wantNotYet(t, err, subject.ReasonBackendBusy)
	_, err = j.Purge(t.Context())
	wantReason(t, err, subject.ReasonBackendBusy)
}

func TestALargeAppendThatFailsHalfWayCanBeSentAgain(t *testing.T) {
	b := newBench(t)
	j, alice := b.seed(t, 0)
	rows := edges(2*appendRows+10, "alice")
	var commits atomic.Int64
	b.Decide(func(method string) (firestoretest.Fault, bool) {
		return firestoretest.Fault{Code: codes.PermissionDenied}, method == "Commit" && commits.Add(1) == 2
	})
	created, err := j.Append(t.Context(), rows, 0)
	if err == nil || created != nil {
		t.Fatalf("created %d, %v", len(created), err)
	}
	wantCount(t, j.Collection, alice, appendRows)
	created, err = j.Append(t.Context(), rows, 0)
	if err != nil || slices.Contains(created[:appendRows], true) || slices.Contains(created[appendRows:], false) {
		t.Errorf("sent again: %v", err)
	}
	wantCount(t, j.Collection, alice, int64(len(rows)))
}

func TestScanHandsOnEveryRowOnceOverABreakingStream(t *testing.T) {
	b := newBench(t)
	j, _ := b.seed(t, 60)
	b.Inject(firestoretest.Fault{Method: "RunQuery", Code: codes.Unavailable, Broken: 25, Times: 2})
	b.Inject(firestoretest.Fault{Method: "RunQuery", Code: codes.Internal, Times: 2})
	seen := map[string]int{}
	ref := j.table.Index(j.table.SourceRef)
	err := j.Scan(t.Context(), func(row stores.Row) error {
		seen[fmt.Sprint(row[ref])]++
		return nil
	})
	if err != nil || len(seen) != 60 {
		t.Fatalf("%d rows, %v", len(seen), err)
	}
	for ref, n := range seen {
		if n != 1 {
			t.Errorf("row %s came %d times", ref, n)
		}
	}
	b.Inject(firestoretest.Fault{Method: "RunQuery", Code: codes.Unavailable})
	wantReason(t, j.Scan(t.Context(), func(stores.Row) error { return nil }), subject.ReasonBackendBusy)
	b.Heal()
	stop := errors.New("enough")
	if err := j.Scan(t.Context(), func(stores.Row) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("Scan = %v, want the consumer's own error", err)
	}
	b.direct.put(t, "edges/odd", fields{"tenant_id": "acme"})
	wantReason(t, j.Scan(t.Context(), func(stores.Row) error { return nil }), subject.ReasonReadFailed)
}

func TestPurgeEmptiesTheJournalAndSaysSoOnlyThen(t *testing.T) {
	b := newBench(t)
	j, alice := b.seed(t, 310)
	b.direct.put(t, "edges/odd", fields{"whatever": 1})
	b.Inject(firestoretest.Fault{Method: "BatchWrite", Code: codes.PermissionDenied, Times: 1, Writes: func(i int) bool { return i == 3 }})
	_, err := j.Purge(t.Context())
	wantReason(t, err, subject.ReasonAccessDenied)
	b.Inject(firestoretest.Fault{Method: "RunAggregationQuery", Code: codes.Unimplemented, Times: 1})
	_, err = j.Purge(t.Context())
	wantReason(t, err, subject.ReasonUnsupported)
	if _, err := j.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantCount(t, j.Collection, alice, 0)
	if n := physical(t, j); n != 0 {
		t.Errorf("%d documents are left", n)
	}
}
