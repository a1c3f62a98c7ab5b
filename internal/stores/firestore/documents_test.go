package firestore

import (
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"recount/internal/stores"
	"recount/internal/stores/firestore/firestoretest"
	"recount/internal/stores/storetest"
)

func documentsOf(t *testing.T, c *Client) *Documents {
	t.Helper()
	d, err := c.Documents(t.Context(), "requests")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDocumentsKeepTheirContract(t *testing.T) {
	host := firestoretest.Host(t)
	storetest.Documents(t, func(t *testing.T) func() stores.Documents {
		project := firestoretest.Project()
		return func() stores.Documents { return documentsOf(t, openProject(t, host, project)) }
	})
}

// A change whose answer was lost is known again as this call's own, and not taken for another's.
func TestADocumentsLostAnswerIsNoConflict(t *testing.T) {
	proxy := firestoretest.NewProxy(t)
	docs := documentsOf(t, open(t, proxy.Host()))
	lost := firestoretest.Fault{Method: "Commit", Times: 1, Code: codes.Unavailable, Lost: true}
	d := stores.Document{ID: "d", Tenant: "acme", Open: true, Due: time.Now()}
	proxy.Inject(lost)
	if err := docs.Create(t.Context(), d); err != nil {
		t.Fatalf("create: %v", err)
	}
	if err := docs.Create(t.Context(), d); !errors.Is(err, stores.ErrDocumentExists) {
		t.Errorf("created again: %v", err)
	}
	d.Version = 1
	proxy.Inject(lost)
	d2, err := docs.Update(t.Context(), d)
	if err != nil || d2.Version != 2 {
		t.Fatalf("update: version %d, %v", d2.Version, err)
	}
	if _, err := docs.Update(t.Context(), d); !errors.Is(err, stores.ErrDocumentStale) {
		t.Errorf("updated again: %v", err)
	}
	proxy.Inject(lost)
	if err := docs.Delete(t.Context(), "d"); err != nil {
		t.Errorf("delete: %v", err)
	}
	proxy.Heal()
	proxy.Inject(firestoretest.Fault{Code: codes.PermissionDenied})
	if _, err := docs.Get(t.Context(), "d"); err == nil || errors.Is(err, stores.ErrDocumentNotFound) {
		t.Errorf("a document that can't be read: %v", err)
	}
}
