package firestore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"recount/internal/stores/firestore/firestoretest"
)

const leaseTime = 2 * time.Second // a busy machine renews late

func newLease(t *testing.T, client *Client, holder string, now func() time.Time) *Lease {
	t.Helper()
	l, err := NewLease(client, "graph", holder, leaseTime, now)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// keeper is a lease that is kept in the background.
type keeper struct {
	*Lease

	stop     context.CancelFunc
	done     chan error
	acquired chan int64
	lost     chan struct{}
}

func keep(t *testing.T, l *Lease) *keeper {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	k := &keeper{Lease: l, stop: cancel, done: make(chan error, 1), acquired: make(chan int64, 100), lost: make(chan struct{}, 100)}
	go func() {
		k.done <- l.Keep(ctx, func(context.Context) error {
			k.acquired <- l.Epoch()
			return nil
		}, func() { k.lost <- struct{}{} })
	}()
	t.Cleanup(cancel)
	return k
}

func within[T any](t *testing.T, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(20 * time.Second):
		t.Fatalf("%s did not happen", what)
	}
	panic("unreachable")
}

func TestALeaseGoesToOneHolderAndOverWhenItIsGivenBack(t *testing.T) {
	client := open(t, firestoretest.Host(t))
	a := keep(t, newLease(t, client, "a", time.Now))
	first := within(t, "the first acquisition", a.acquired) // an emulator that has just started may be too slow for epoch 1
	if first < 1 || !a.Held() {
		t.Fatalf("epoch %d, held %v", first, a.Held())
	}
	b := keep(t, newLease(t, client, "a", time.Now)) // the same name is no claim
	time.Sleep(2 * leaseTime)
	if b.Held() || !a.Held() || b.Epoch() != 0 {
		t.Fatalf("after renewals a holds %v, b holds %v", a.Held(), b.Held())
	}
	given := time.Now()
	a.stop()
	if err := within(t, "the end of Keep", a.done); err != nil || a.Held() {
		t.Fatalf("Keep = %v, held %v", err, a.Held())
	}
	within(t, "being told of the loss", a.lost)
	if epoch := within(t, "the second acquisition", b.acquired); epoch <= first {
		t.Errorf("epoch %d after %d", epoch, first)
	}
	if took := time.Since(given); took > leaseTime {
		t.Errorf("a lease that was given back was taken after %s", took)
	}
}

func TestALeaseWhoseHolderDiedRunsOut(t *testing.T) {
	client := open(t, firestoretest.Host(t))
	dead := newLease(t, client, "dead", time.Now)
	if wait, err := dead.take(t.Context(), true); wait != 0 || err != nil {
		t.Fatal(wait, err)
	}
	b := keep(t, newLease(t, client, "b", time.Now))
	if epoch := within(t, "the acquisition", b.acquired); epoch != 2 || dead.Held() {
		t.Errorf("epoch %d, the dead one holds %v", epoch, dead.Held())
	}
}

func TestALeaseThatCannotBeRenewedIsLostBeforeAnotherHasItAndIsAcquiredAnew(t *testing.T) {
	project, proxy := firestoretest.Project(), firestoretest.NewProxy(t)
	a := keep(t, newLease(t, openProject(t, proxy.Host(), project), "a", time.Now))
	within(t, "the first acquisition", a.acquired)
	proxy.Inject(firestoretest.Fault{Code: codes.Unavailable})
	b := keep(t, newLease(t, openProject(t, firestoretest.Host(t), project), "b", time.Now))
	if epoch := within(t, "the second acquisition", b.acquired); epoch != 2 || a.Held() {
		t.Fatalf("epoch %d, the first holds %v", epoch, a.Held())
	}
	within(t, "being told of the loss", a.lost)
	proxy.Heal()
	b.stop()
	if epoch := within(t, "the third acquisition", a.acquired); epoch != 3 {
		t.Errorf("epoch %d, want 3", epoch)
	}
}

func TestALeaseWhoseGrantIsLostOnItsWayIsStillGranted(t *testing.T) {
	proxy := firestoretest.NewProxy(t)
	proxy.Inject(firestoretest.Fault{Method: "Commit", Code: codes.Unavailable, Times: 1, Lost: true, Cut: true})
	a := keep(t, newLease(t, open(t, proxy.Host()), "a", time.Now))
	within(t, "the acquisition", a.acquired)
	if !a.Held() {
		t.Error("not held")
	}
	proxy.Inject(firestoretest.Fault{Method: "Commit", Code: codes.Unavailable, Times: 1, Lost: true})
	time.Sleep(leaseTime)
	if !a.Held() || len(a.lost) > 0 {
		t.Error("a renewal whose answer was lost lost the lease")
	}
}

func TestAnAnswerThatComesTooLateGrantsNothing(t *testing.T) {
	proxy := firestoretest.NewProxy(t)
	client := open(t, proxy.Host())
	proxy.Inject(firestoretest.Fault{Method: "Commit", Delay: leaseTime, Times: 1})
	l := newLease(t, client, "a", time.Now)
	if wait, err := l.take(t.Context(), true); err != nil || wait == 0 || l.Held() {
		t.Errorf("wait %s, %v, held %v", wait, err, l.Held())
	}
}

func TestALeaseEndsOnItsHoldersOwnClock(t *testing.T) {
	client := open(t, firestoretest.Host(t))
	start := time.Now()
	var at atomic.Pointer[time.Time]
	at.Store(&start)
	l := newLease(t, client, "a", func() time.Time { return *at.Load() })
	if wait, err := l.take(t.Context(), true); wait != 0 || err != nil || !l.Held() {
		t.Fatal(wait, err)
	}
	for name, now := range map[string]time.Time{
		"both clocks":                         start.Add(leaseTime * 9 / 10), // inside the lease, past the margin
		"a clock without a monotonic reading": start.Round(0).Add(leaseTime),
	} {
		at.Store(&now)
		if l.Held() {
			t.Errorf("%s: held", name)
		}
		at.Store(&start)
		if !l.Held() {
			t.Errorf("%s: the test's clock is wrong", name)
		}
	}
}

func TestAFailedReplayGivesTheLeaseBack(t *testing.T) {
	client := open(t, firestoretest.Host(t))
	l, broken := newLease(t, client, "a", time.Now), errors.New("broken")
	told := 0
	err := l.Keep(t.Context(), func(context.Context) error { return broken }, func() { told++ })
	if !errors.Is(err, broken) || told != 1 || l.Held() {
		t.Errorf("Keep = %v, told %d times, held %v", err, told, l.Held())
	}
	b := newLease(t, client, "b", time.Now)
	if wait, err := b.take(t.Context(), true); wait != 0 || err != nil {
		t.Errorf("the lease was not given back: wait %s, %v", wait, err)
	}
}

// Holders whose clocks are hours apart race over a network that fails; no two may hold the lease at once, and no two
// acquisitions have one epoch.
func TestNoTwoHoldersHoldALeaseAtOnce(t *testing.T) {
	project := firestoretest.Project()
	var keepers []*keeper
	var proxies []*firestoretest.Proxy
	for i, skew := range []time.Duration{0, -3 * time.Hour, 5 * time.Hour} {
		proxy := firestoretest.NewProxy(t)
		now := func() time.Time { return time.Now().Add(skew) }
		keepers = append(keepers, keep(t, newLease(t, openProject(t, proxy.Host(), project), fmt.Sprint(i), now)))
		proxies = append(proxies, proxy)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			held := 0
			for _, k := range keepers { // a lease that passes on during the loop was free in between
				if k.Held() {
					held++
				}
			}
			if held > 1 {
				// Two may be seen in one pass when the lease passed on inside it: look again at once, in reverse.
				again := 0
				for i := range keepers {
					if keepers[len(keepers)-1-i].Held() {
						again++
					}
				}
				if again > 1 {
					t.Error("two hold the lease")
				}
			}
			time.Sleep(100 * time.Microsecond)
		}
	})
	epochs := map[int64]int{}
	for round := range 6 {
		i := round % len(proxies)
		proxies[i].Inject(firestoretest.Fault{Code: codes.Unavailable})
		time.Sleep(leaseTime * 3 / 2)
		proxies[i].Heal()
	}
	close(stop)
	wg.Wait()
	for i, k := range keepers {
		k.stop()
		if err := within(t, "the end", k.done); err != nil {
			t.Error(err)
		}
		for range len(k.acquired) {
			epoch := <-k.acquired
			if other, taken := epochs[epoch]; taken {
				t.Errorf("epoch %d was acquired by %d and %d", epoch, other, i)
			}
			epochs[epoch] = i
		}
	}
	if len(epochs) < 2 {
		t.Errorf("only %d acquisitions: the test raced nothing", len(epochs))
	}
}
