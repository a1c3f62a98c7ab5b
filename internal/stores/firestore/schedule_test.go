package firestore

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"pgregory.net/rapid"

	"recount/internal/stores/firestore/firestoretest"
	"recount/internal/subject"
)

// No schedule of faults makes the three steps say erased while a matching document, or one below it, is there.
func TestNoScheduleOfFaultsSaysErasedWhileSomethingIsLeft(t *testing.T) {
	b := newBench(t)
	col := b.proxied.collection(t, users())
	rounds := 0
	rapid.Check(t, func(rt *rapid.T) {
		if rounds++; rounds > 40 { // each takes a while over the wire
			return
		}
		tenant := fmt.Sprintf("t%d", rounds)
		alice := who(t, tenant, "alice")
		paths := map[string]bool{}
		for i := range rapid.IntRange(0, 4).Draw(rt, "documents") {
			field := rapid.SampledFrom([]string{"id", "related"}).Draw(rt, "field")
			path := fmt.Sprintf("users/%s-%d", tenant, i)
			b.direct.put(t, path, fields{"tenant": tenant, field: "alice"})
			paths[path] = true
			for k := range rapid.IntRange(0, 3).Draw(rt, "below") {
				below := fmt.Sprintf("%s/a/%d/b/%d", path, k, k)
				b.direct.put(t, below, fields{"x": k})
				paths[below] = true
			}
		}
		schedule := rapid.SliceOfN(faults(), 0, 40).Draw(rt, "schedule")
		var calls atomic.Int64
		b.Decide(func(string) (firestoretest.Fault, bool) {
			n := calls.Add(1) - 1
			if n >= int64(len(schedule)) {
				return firestoretest.Fault{}, false
			}
			return schedule[n], true
		})
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		receipt := measure(ctx, col, alice)
		b.Heal()
		left := 0
		for path := range paths {
			if doc, err := b.direct.docs.Doc(path).Get(context.Background()); err == nil && doc.Exists() {
				left++
			}
		}
		if receipt.Status() == subject.Erased && left > 0 {
			rt.Fatalf("erased, and %d documents are left", left)
		}
		if receipt := measure(ctx, col, alice); receipt.Status() != subject.Erased {
			rt.Fatalf("after the faults: %v (%s)", receipt.Status(), receipt.Reason())
		}
		for path := range paths {
			if _, err := b.direct.docs.Doc(path).Get(context.Background()); err == nil {
				rt.Fatalf("a document hid from the erasure after the faults")
			}
		}
	})
}

func faults() *rapid.Generator[firestoretest.Fault] {
	return rapid.Custom(func(t *rapid.T) firestoretest.Fault {
		f := firestoretest.Fault{Code: rapid.SampledFrom([]codes.Code{
			codes.OK, codes.OK, codes.OK, codes.Unavailable, codes.Aborted, codes.ResourceExhausted, codes.PermissionDenied,
			codes.InvalidArgument, codes.Unimplemented, codes.NotFound, codes.Internal,
		}).Draw(t, "code")}
		switch rapid.IntRange(0, 4).Draw(t, "kind") {
		case 0:
			f.Lost = true
		case 1:
			f.Cut = true
		case 2:
			f.Broken = rapid.IntRange(1, 3).Draw(t, "messages")
		}
		return f
	})
}

func measure(ctx context.Context, col *Collection, s subject.Subject) subject.Receipt {
	var m subject.Measurement
	measured := func(n int64, err error) subject.Count {
		if err != nil {
			return subject.Unmeasured()
		}
		return subject.Measured(n)
	}
	before, err := col.Count(ctx, s)
	m.Before, m.CountErr = measured(before, err), err
	deleted, err := col.Delete(ctx, s)
	m.Deleted, m.DeleteErr = measured(deleted, err), err
	remaining, err := col.Count(ctx, s)
	m.Remaining, m.RecountErr = measured(remaining, err), err
	return subject.Judge(subject.Label{}, subject.Times{}, m, func(_ error, otherwise subject.Reason) subject.Reason { return otherwise })
}
