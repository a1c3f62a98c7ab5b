package storetest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"recount/internal/stores"
	"recount/internal/subject"
)

// Lookalikes are identities that a store which compares anything but bytes would take for one another, or for a
// pattern, a number or a piece of its own query language. All differ.
func Lookalikes() []string {
	long := strings.Repeat("x", subject.MaxIdentityBytes-1)
	return []string{
		"\u00e9", "e\u0301", // é, composed and decomposed
		"alice", "Alice", "ALICE", "alice ", " alice", "alice\u00a0", "ali ce", "alice\u200b",
		"007", "7", "7.0", "+7", "07", "0", "-0", "00", "1e3", "1000", "0x7", "true", "null", "NULL", "nil",
		"%", "_", "a%", "a_", "ab", "*", "?", "[a-z]", "^a", ".a", "...", "\\", "a\\b",
		"'", `"`, "`", "''", "' OR '1'='1", "a'; DROP TABLE events; --", "$1", "@id", ":id", "?1", "{}", "[]",
		"🙂", "🙃", "👩‍👩‍👧", long + "y", long + "z", long, strings.Repeat("é", subject.MaxIdentityBytes/2),
		"a/b", "a%2Fb", "a%252Fb", "a%2fb", "a+b", "a b", "a#b", "a?b", "a:b", "a:erase", "person-email:a@x.io:erase",
		"__name__", "__id1__", "\ufb01", "fi", "\u212b", "\u00c5", "A\u030a", "ß", "ss", "SS", "ẞ", "K", "k", "\u212a",
		"I", "i", "İ", "ı", "σ", "ς", "Σ", "acme", "acme|alice", "ⅷ", "VIII",
	}
}

func testCounts(t *testing.T, b *bench) {
	alice, bob := who(t, "alice"), who(t, "bob")
	b.wantCount(t, alice, 0)
	b.seed(t, b.row(tenant, "alice"), b.row(tenant, "alice"), b.row(tenant, "bob"))
	b.wantCount(t, alice, 2)
	b.wantCount(t, bob, 1)
	b.seed(t, b.row(tenant, "alice"))
	b.wantCount(t, alice, 3)
	b.wantCount(t, who(t, "nobody"), 0)
}

func testLookalikes(t *testing.T, b *bench) {
	ids := Lookalikes()
	rows := make([]stores.Row, len(ids))
	for i, id := range ids {
		rows[i] = b.row(tenant, id)
	}
	b.seed(t, rows...)
	for _, id := range ids {
		b.wantCount(t, who(t, id), 1)
	}
	for i, id := range ids {
		if i%2 == 0 {
			b.delete(t, who(t, id))
		}
	}
	for i, id := range ids {
		b.wantCount(t, who(t, id), int64(i%2))
	}
	b.wantPhysical(t, int64(len(ids)/2))
}

func testTenants(t *testing.T, b *bench) {
	b.seed(t, b.row(tenant, "alice"), b.row(otherTenant, "alice"), b.row(otherTenant, "alice"))
	b.wantCount(t, whoIn(t, tenant, "alice"), 1)
	b.wantCount(t, whoIn(t, otherTenant, "alice"), 2)
	b.wantCount(t, whoIn(t, "acm", "alice"), 0)
	b.delete(t, whoIn(t, tenant, "alice"))
	b.wantCount(t, whoIn(t, tenant, "alice"), 0)
	b.wantCount(t, whoIn(t, otherTenant, "alice"), 2)
}

func testDeletes(t *testing.T, b *bench) {
	alice, bob := who(t, "alice"), who(t, "bob")
	b.delete(t, alice) // of an unknown subject
	b.seed(t, b.row(tenant, "alice"), b.row(tenant, "alice"), b.row(tenant, "bob"))
	b.delete(t, alice)
	b.wantCount(t, alice, 0)
	b.wantCount(t, bob, 1)
	b.wantPhysical(t, 1)
	b.delete(t, alice)
	b.wantCount(t, alice, 0)
	b.wantCount(t, bob, 1)

	b.seed(t, b.row(tenant, "alice")) // whoever returns is a new row, not a ghost
	b.wantCount(t, alice, 1)
	b.delete(t, alice)
	b.wantCount(t, alice, 0)
	b.wantPhysical(t, 1)
}

// testManyRows erases a subject whose rows fill more than one page, statement or batch of any backend.
func testManyRows(t *testing.T, b *bench) {
	const n = 1300
	rows := make([]stores.Row, n)
	for i := range rows {
		rows[i] = b.row(tenant, "alice", "alice")
		if i%2 == 1 {
			rows[i] = b.row(tenant, "alice", "bob")
		}
	}
	b.seed(t, append(rows, b.row(tenant, "carol"))...)
	b.wantCount(t, who(t, "alice"), n)
	b.delete(t, who(t, "alice"))
	b.wantCount(t, who(t, "alice"), 0)
	b.wantCount(t, who(t, "bob"), 0)
	b.wantCount(t, who(t, "carol"), 1)
	b.wantPhysical(t, 1)
}

func testSeveralColumns(t *testing.T, b *bench) {
	if len(b.table.Identities) < 2 {
		return
	}
	alice, bob, carol := who(t, "alice"), who(t, "bob"), who(t, "carol")
	b.seed(t,
		b.row(tenant, "alice", "alice"), // both ends
		b.row(tenant, "alice", "bob"),
		b.row(tenant, "bob", "alice"),
		b.row(tenant, "bob", "carol"),
		b.row(otherTenant, "bob", "alice"))
	b.wantCount(t, alice, 3)
	b.wantCount(t, bob, 3)
	b.wantCount(t, carol, 1)
	b.delete(t, alice)
	b.wantCount(t, alice, 0)
	b.wantCount(t, bob, 1)
	b.wantCount(t, carol, 1)
	b.wantCount(t, whoIn(t, otherTenant, "alice"), 1)
	b.wantPhysical(t, 2)
}

func testCancelled(t *testing.T, b *bench) {
	alice := who(t, "alice-who-must-not-be-named")
	b.seed(t, b.row(tenant, alice.Identity()))
	ctx, cancel := context.WithCancel(bounded(t))
	cancel()
	_, err := b.store.Count(ctx, alice)
	wantError(t, "Count", err, alice)
	_, err = b.store.Delete(ctx, alice)
	wantError(t, "Delete", err, alice)
	if r, ok := b.store.(subject.Reader); ok {
		_, err = r.Read(ctx, alice, "", 10)
		wantError(t, "Read", err, alice)
	}
	if batch, ok := b.store.(subject.Batch); ok {
		_, err = batch.Counts(ctx, []subject.Subject{alice})
		wantError(t, "Counts", err, alice)
		_, err = batch.DeleteAll(ctx, []subject.Subject{alice})
		wantError(t, "DeleteAll", err, alice)
	}
	if a, ok := b.store.(stores.Appender); ok {
		_, err = a.Append(ctx, []stores.Row{b.row(tenant, alice.Identity())}, 0)
		wantError(t, "Append", err, alice)
	}
	b.wantCount(t, alice, 1)
	if atomic, ok := b.store.(subject.Atomic); ok {
		measured := atomic.Erase(ctx, []subject.Subject{alice})
		if len(measured) != 1 {
			t.Fatalf("Erase answered %d measurements for 1 subject", len(measured))
		}
		if verdict(measured[0]) == subject.Erased && b.count(t, alice) != 0 {
			t.Errorf("Erase measured zero, and the row is still there")
		}
	}
}

func testBatch(t *testing.T, b *bench) {
	batch, ok := b.store.(subject.Batch)
	if !ok {
		return
	}
	const n = 1000
	subjects := make([]subject.Subject, n)
	var rows []stores.Row
	for i := range n {
		id := fmt.Sprintf("person-%d", i)
		subjects[i] = who(t, id)
		for range i % 7 % 3 {
			rows = append(rows, b.row(tenant, id))
		}
	}
	rows = append(rows, b.row(tenant, "bob"), b.row(otherTenant, "person-1"))
	pairs := 0
	if len(b.table.Identities) > 1 { // rows that name two of the batch, however it is cut into statements
		for pairs = range 40 {
			rows = append(rows, b.row(tenant, fmt.Sprintf("person-%d", pairs), fmt.Sprintf("person-%d", n-1-pairs)))
		}
		pairs++
	}
	b.seed(t, rows...)
	counts, err := batch.Counts(bounded(t), subjects)
	if err != nil || len(counts) != n {
		t.Fatalf("Counts answered %d numbers for %d subjects, %v", len(counts), n, err)
	}
	for i, got := range counts {
		want := int64(i % 7 % 3)
		if i < pairs || i >= n-pairs {
			want++
		}
		if got != want {
			t.Fatalf("Counts[%d] = %d, want %d", i, got, want)
		}
	}
	if _, err := batch.DeleteAll(bounded(t), subjects); err != nil {
		t.Fatalf("DeleteAll: %v", err)
	}
	counts, err = batch.Counts(bounded(t), append(subjects[:n-3:n-3], subjects[1], who(t, "bob"), subjects[1]))
	if err != nil || len(counts) != n {
		t.Fatalf("Counts answered %d numbers for %d subjects, %v", len(counts), n, err)
	}
	for i, got := range counts {
		want := int64(0)
		if i == n-2 {
			want = 1
		}
		if got != want {
			t.Fatalf("after DeleteAll, Counts[%d] = %d, want %d", i, got, want)
		}
	}
	b.wantCount(t, whoIn(t, otherTenant, "person-1"), 1)
	testBatchEdges(t, b, batch)
}

func testBatchEdges(t *testing.T, b *bench, batch subject.Batch) {
	t.Helper()
	alice, bob := who(t, "alice"), who(t, "bob")
	counts, err := batch.Counts(bounded(t), nil)
	if err != nil || len(counts) != 0 {
		t.Errorf("Counts of no subjects = %v, %v", counts, err)
	}
	if _, err := batch.DeleteAll(bounded(t), nil); err != nil {
		t.Errorf("DeleteAll of no subjects: %v", err)
	}
	b.wantCount(t, bob, 1)
	b.seed(t, b.row(tenant, "alice", "bob"), b.row(tenant, "alice"))
	counts, err = batch.Counts(bounded(t), []subject.Subject{alice, bob, alice, who(t, "nobody")})
	wantBob := int64(len(b.table.Identities)) // the row of before, and that which names both
	if err != nil || len(counts) != 4 || counts[0] != 2 || counts[1] != wantBob || counts[2] != 2 || counts[3] != 0 {
		t.Errorf("Counts = %v, %v, want [2 %d 2 0]", counts, err, wantBob)
	}
}
