package firestore

import (
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/codes"

	"recount/internal/stores/firestore/firestoretest"
	"recount/internal/subject"
)

// family1 is a document that a writer adds something below at the moment in which it is deleted: after the listing that
// found nothing, before the delete. then decides what fails afterwards.
func family1(t *testing.T, then func(method string) (firestoretest.Fault, bool)) (*bench, *Collection) {
	t.Helper()
	b := newBench(t)
	b.direct.put(t, "users/1", fields{"tenant": "acme", "id": "alice"})
	col := b.proxied.collection(t, users())
	var written atomic.Bool
	b.Decide(func(method string) (firestoretest.Fault, bool) {
		if method == "BatchWrite" && written.CompareAndSwap(false, true) {
			b.direct.put(t, "users/1/orders/late", fields{"total": 3})
			return firestoretest.Fault{}, false
		}
		if !written.Load() {
			return firestoretest.Fault{}, false
		}
		return then(method)
	})
	return b, col
}

func TestWhatIsWrittenBelowADocumentWhileItIsDeletedGoesToo(t *testing.T) {
	b, col := family1(t, func(string) (firestoretest.Fault, bool) { return firestoretest.Fault{}, false })
	erase(t, col, who(t, "acme", "alice"))
	wantBelow(t, b.direct, "users/1", 0)
}

func TestWhenNobodyCanLookBelowADeletedDocumentTheErasureFailed(t *testing.T) {
	_, col := family1(t, func(method string) (firestoretest.Fault, bool) {
		return firestoretest.Fault{Code: codes.Unavailable}, method == "RunQuery"
	})
	_, err := col.Delete(t.Context(), who(t, "acme", "alice"))
	wantReason(t, err, subject.ReasonBackendBusy) // not "not yet", which a recount of 0 would turn into erased
}
