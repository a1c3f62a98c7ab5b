package firestore

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	fs "cloud.google.com/go/firestore"

	"recount/internal/stores"
	"recount/internal/stores/firestore/firestoretest"
	"recount/internal/subject"
)

func users() stores.Table {
	return stores.Table{Store: "users", Name: "users", Tenant: "tenant", Identities: []string{"id", "related"}}
}

func usersByName() stores.Table {
	return stores.Table{Store: "users", Name: "users", Tenant: "tenant", Identities: []string{NameColumn}}
}

func who(t testing.TB, tenant, identity string) subject.Subject {
	t.Helper()
	s, err := subject.New(tenant, identity)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (c *Client) put(t testing.TB, path string, fields map[string]any) {
	t.Helper()
	if _, err := c.docs.Doc(path).Set(context.Background(), fields); err != nil {
		t.Fatal(err)
	}
}

func (c *Client) drop(t testing.TB, path string) {
	t.Helper()
	if _, err := c.docs.Doc(path).Delete(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func (c *Client) collection(t testing.TB, table stores.Table) *Collection {
	t.Helper()
	col, err := c.Collection(context.Background(), table)
	if err != nil {
		t.Fatal(err)
	}
	return col
}

func wantCount(t testing.TB, col *Collection, s subject.Subject, want int64) {
	t.Helper()
	if got, err := col.Count(context.Background(), s); err != nil || got != want {
		t.Fatalf("Count = %d, %v, want %d", got, err, want)
	}
}

func erase(t testing.TB, col *Collection, s subject.Subject) int64 {
	t.Helper()
	n, err := col.Delete(context.Background(), s)
	if err != nil {
		t.Fatalf("Delete: %v", err)
	}
	return n
}

type fields = map[string]any

// family is a document with others below it, at three depths and below a phantom, and neighbours with alike names.
func (c *Client) family(t testing.TB) {
	t.Helper()
	c.put(t, "users/1", fields{"tenant": "acme", "id": "alice"})
	c.put(t, "users/1/orders/1", fields{"total": 3})
	c.put(t, "users/1/orders/1/lines/1", fields{"sku": "a"})
	c.put(t, "users/1/gone/1/left/1", fields{"sku": "b"}) // users/1/gone/1 never was
	c.put(t, "users/10", fields{"tenant": "acme", "id": "bob", "related": "alice"})
	c.put(t, "users/10/orders/1", fields{"total": 4})
	c.put(t, "users/11", fields{"tenant": "acme", "id": "bob", "related": "carol"})
	c.put(t, "users/11/orders/1", fields{"total": 5})
	c.put(t, "users/12", fields{"tenant": "globex", "id": "alice"})
	c.put(t, "orders/1", fields{"tenant": "acme", "id": "alice"})
}

func TestWhatIsBelowADocumentIsCountedReadAndErasedWithIt(t *testing.T) {
	c := open(t, firestoretest.Host(t))
	c.family(t)
	col := c.collection(t, users())
	alice, bob := who(t, "acme", "alice"), who(t, "acme", "bob")
	wantCount(t, col, alice, 6)
	wantCount(t, col, bob, 4)

	for _, limit := range []int{1, 2, 5, 6, 100} {
		var paths []string
		for cursor, page := "", 0; page == 0 || cursor != ""; page++ {
			got, err := col.Read(t.Context(), alice, cursor, limit)
			if err != nil || len(got.Rows) > limit {
				t.Fatal(len(got.Rows), err)
			}
			for _, row := range got.Rows {
				paths = append(paths, fmt.Sprint(row[NameColumn]))
			}
			cursor = got.Next
		}
		want := "users/1 users/1/gone/1/left/1 users/1/orders/1 users/1/orders/1/lines/1 users/10 users/10/orders/1"
		if got := strings.Join(paths, " "); got != want {
			t.Errorf("limit %d: read %s, want %s", limit, got, want)
		}
	}

	if n := erase(t, col, alice); n != 6 {
		t.Errorf("deleted %d, want 6", n)
	}
	wantCount(t, col, alice, 0)
	wantCount(t, col, bob, 2)
	wantCount(t, col, who(t, "globex", "alice"), 1)
	wantBelow(t, c, "users/1", 0)
	wantBelow(t, c, "users/10", 0)
	wantBelow(t, c, "users/11", 1)
	if doc, err := c.docs.Doc("orders/1").Get(t.Context()); err != nil || !doc.Exists() {
		t.Error("another collection lost a document")
	}
}

func wantBelow(t testing.TB, c *Client, path string, want int64) {
	t.Helper()
	if n, err := c.countBelow(context.Background(), c.docs.Doc(path)); err != nil || n != want {
		t.Errorf("below %s are %d, %v, want %d", path, n, err, want)
	}
}

func TestMoreThanOneTransactionTakesIsErasedBelowADocument(t *testing.T) {
	c := open(t, firestoretest.Host(t))
	c.put(t, "users/1", fields{"tenant": "acme", "id": "alice"})
	n := int64(1)
	for batch := range 3 {
		err := c.docs.RunTransaction(t.Context(), func(_ context.Context, tx *fs.Transaction) error {
			for i := range 150 {
				n++
				path := fmt.Sprintf("users/1/orders/%d-%d", batch, i)
				if i%3 == 0 {
					path += "/lines/1"
				}
				if err := tx.Set(c.docs.Doc(path), fields{"i": i}); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	col, alice := c.collection(t, users()), who(t, "acme", "alice")
	wantCount(t, col, alice, n)
	if got := erase(t, col, alice); got != n {
		t.Errorf("deleted %d, want %d", got, n)
	}
	wantBelow(t, c, "users/1", 0)
}

func TestAPhantomIsFoundByItsName(t *testing.T) {
	c := open(t, firestoretest.Host(t))
	for _, id := range []string{"alice", "bob", "carol"} {
		c.put(t, "users/"+id, fields{"tenant": "acme"})
		c.put(t, "users/"+id+"/orders/1", fields{"tenant": "acme", "total": 3})
		c.put(t, "users/"+id+"/orders/2", fields{"total": 3})
	}
	c.drop(t, "users/alice") // as a careless program would
	col, alice := c.collection(t, usersByName()), who(t, "acme", "alice")
	wantCount(t, col, alice, 2)
	wantCount(t, col, who(t, "acme", "bob"), 3)
	wantCount(t, col, who(t, "globex", "alice"), 0)
	wantCount(t, col, who(t, "globex", "bob"), 0)
	wantCount(t, col, who(t, "acme", "nobody"), 0)
	wantCount(t, col, who(t, "acme", "users/alice"), 0) // no id of a document
	if page, err := col.Read(t.Context(), alice, "", 10); err != nil || len(page.Rows) != 2 {
		t.Errorf("read %d rows, %v", len(page.Rows), err)
	}
	erase(t, col, who(t, "globex", "alice"))
	erase(t, col, who(t, "globex", "bob"))
	wantBelow(t, c, "users/alice", 2)
	wantBelow(t, c, "users/bob", 2)
	if n := erase(t, col, alice); n != 2 {
		t.Errorf("deleted %d, want 2", n)
	}
	erase(t, col, who(t, "acme", "bob"))
	wantCount(t, col, alice, 0)
	for path, want := range map[string]int64{"users/alice": 0, "users/bob": 0, "users/carol": 2} {
		wantBelow(t, c, path, want)
	}
	counts, err := col.Counts(t.Context(), []subject.Subject{who(t, "acme", "carol"), alice, who(t, "acme", "carol")})
	if err != nil || fmt.Sprint(counts) != "[3 0 3]" {
		t.Errorf("Counts = %v, %v", counts, err)
	}
}

func TestWhatCannotBeToldToBeATenantsIsNeitherCountedAsNothingNorErased(t *testing.T) {
	c := open(t, firestoretest.Host(t))
	col := c.collection(t, usersByName())
	c.put(t, "users/silent/orders/1", fields{"total": 3})
	c.put(t, "users/mixed/orders/1", fields{"tenant": "acme"})
	c.put(t, "users/mixed/orders/2", fields{"tenant": "globex"})
	c.put(t, "users/untold", fields{"name": "x"})
	for _, id := range []string{"silent", "mixed", "untold"} {
		_, err := col.Count(t.Context(), who(t, "acme", id))
		wantReason(t, err, subject.ReasonUnsupported)
		_, err = col.Delete(t.Context(), who(t, "acme", id))
		wantReason(t, err, subject.ReasonUnsupported)
	}
	wantBelow(t, c, "users/silent", 1)
	wantBelow(t, c, "users/mixed", 2)

	c.put(t, "users/silent", fields{"tenant": "acme"}) // the mend
	erase(t, col, who(t, "acme", "silent"))
	wantCount(t, col, who(t, "acme", "silent"), 0)
	wantBelow(t, c, "users/silent", 0)
}

func TestAKeyOfAnotherTypeIsRefusedAtTheStart(t *testing.T) {
	host := firestoretest.Host(t)
	for name, value := range map[string]any{
		"number": 7, "float": 7.5, "boolean": true, "instant": time.Now(), "bytes": []byte("x"), "list": []any{"x"}, "map": fields{"a": "b"},
		"reference": &fs.DocumentRef{Path: "projects/p/databases/(default)/documents/a/b"}, "vector": fs.Vector64{1},
	} {
		for _, field := range []string{"tenant", "id", "related"} {
			t.Run(name+" "+field, func(t *testing.T) {
				c := open(t, host)
				for i := range 3 {
					c.put(t, fmt.Sprintf("users/%d", i), fields{"tenant": "acme", "id": "a", "related": "b"})
				}
				c.put(t, "users/2/users/1", fields{"id": 7}) // of another collection
				c.collection(t, users())
				odd := fields{"tenant": "acme", "id": "a", "related": "b"}
				odd[field] = value
				c.put(t, "users/odd", odd)
				_, err := c.Collection(t.Context(), users())
				if err == nil || !strings.Contains(err.Error(), "field "+field+" holds") {
					t.Errorf("opened, %v", err)
				}
			})
		}
	}
	c := open(t, host)
	c.put(t, "users/1", fields{"tenant": "acme", "id": "a", "related": nil})
	c.put(t, "users/2", fields{"tenant": "acme", "id": ""})
	c.collection(t, users())
}

func TestATableThatCannotBeCountedTrulyIsRefused(t *testing.T) {
	c := open(t, firestoretest.Host(t))
	for want, change := range map[string]func(*stores.Table){
		"case-folded copy":    func(t *stores.Table) { t.Match = stores.MatchCasefold },
		"unknown match":       func(t *stores.Table) { t.Match = "fuzzy" },
		"path of a colle":     func(t *stores.Table) { t.Name = "users/1" },
		"tenant field":        func(t *stores.Table) { t.Tenant = "" },
		"identity field":      func(t *stores.Table) { t.Identities = nil },
		"the only one":        func(t *stores.Table) { t.Identities = []string{"id", NameColumn} },
		`"a..b" is not`:       func(t *stores.Table) { t.Identities = []string{"a..b"} },
		`"id[0]" is not`:      func(t *stores.Table) { t.Identities = []string{"id[0]"} },
		`"~" is not`:          func(t *stores.Table) { t.Tenant = "~" },
		"not the path of a c": func(t *stores.Table) { t.Name = "" },
	} {
		table := users()
		change(&table)
		if _, err := c.Collection(t.Context(), table); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func TestNestedFieldsAndCollectionsAreKeysToo(t *testing.T) {
	c := open(t, firestoretest.Host(t))
	table := users()
	table.Name, table.Tenant, table.Identities = "regions/eu/users", "who.tenant", []string{"who.id"}
	col := c.collection(t, table)
	c.put(t, "regions/eu/users/1", fields{"who": fields{"tenant": "acme", "id": "alice"}})
	c.put(t, "regions/us/users/1", fields{"who": fields{"tenant": "acme", "id": "alice"}})
	c.put(t, "regions/eu/users/1/orders/1", fields{"x": 1})
	wantCount(t, col, who(t, "acme", "alice"), 2)
	if page, err := col.Read(t.Context(), who(t, "acme", "alice"), "", 1); err != nil || len(page.Rows) != 1 || page.Next == "" {
		t.Fatal(page, err)
	} else if page, err = col.Read(t.Context(), who(t, "acme", "alice"), page.Next, 1); err != nil || len(page.Rows) != 1 || page.Next != "" {
		t.Fatal(page, err)
	}
	erase(t, col, who(t, "acme", "alice"))
	wantCount(t, col, who(t, "acme", "alice"), 0)
	if n, err := aggregate(t.Context(), c.docs.Collection("regions/us/users").Query); n != 1 || err != nil {
		t.Error(n, err)
	}
}

func TestWhatIsKeptAfterADeleteIsAnUpperBound(t *testing.T) {
	c := open(t, firestoretest.Host(t))
	now := time.Now()
	until, err := c.collection(t, users()).RecoverableUntil(t.Context(), now)
	if err != nil || until.Sub(now) != 7*24*time.Hour {
		t.Error(until, err)
	}
}

func TestTheEmulatorIsNeverUsedByAccident(t *testing.T) {
	t.Setenv("FIRESTORE_EMULATOR_HOST", "127.0.0.1:1")
	if _, err := Open(t.Context(), Config{Project: "p"}); err == nil {
		t.Error("opened")
	}
	if _, err := Open(t.Context(), Config{EmulatorHost: "127.0.0.1:1"}); err == nil {
		t.Error("opened without a project")
	}
}

func TestSurveyNamesKeysThatNoStoreCovers(t *testing.T) {
	c := open(t, firestoretest.Host(t))
	c.put(t, "users/1", fields{"tenant": "a", "user_id": "x", "email": "e", "profile": fields{"phone": "1", "colour": "red"}})
	c.put(t, "logs/1", fields{"line": "x"})
	c.put(t, "logs/2", fields{"customer": "x", "by_email": fields{"email@x.io": 1}})
	table := users()
	table.Tenant, table.Identities = "tenant", []string{"user_id"}
	got, err := c.Survey(t.Context(), []stores.Table{table})
	want := "[{logs by_email} {logs customer} {users email} {users profile.phone}]"
	if err != nil || fmt.Sprint(got) != want {
		t.Errorf("Survey = %v, %v, want %s", got, err, want)
	}
}

func TestABatchCountsADocumentOncePerSubjectHoweverManyQueriesItTakes(t *testing.T) {
	c := open(t, firestoretest.Host(t))
	col := c.collection(t, users())
	n := col.idsPerQuery() + 1
	subjects := make([]subject.Subject, n)
	for i := range n {
		subjects[i] = who(t, "acme", fmt.Sprintf("person-%d", i))
	}
	c.put(t, "users/1", fields{"tenant": "acme", "id": "person-0", "related": fmt.Sprintf("person-%d", n-1)}) // of two queries
	counts, err := col.Counts(t.Context(), subjects)
	if err != nil || counts[0] != 1 || counts[n-1] != 1 || counts[1] != 0 {
		t.Errorf("Counts = %v, %v", counts, err)
	}
	if _, err := col.DeleteAll(t.Context(), subjects); err != nil {
		t.Error(err)
	}
	wantCount(t, col, subjects[0], 0)
}
