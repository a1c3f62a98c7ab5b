package storetest

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"recount/internal/stores"
	"recount/internal/subject"
)

// walk reads every page and answers the row ids in order.
func (b *bench) walk(t *testing.T, r subject.Reader, s subject.Subject, limit int, between func(page int)) []string {
	t.Helper()
	var ids []string
	cursor := ""
	for page := 0; ; page++ {
		if page > 500 {
			t.Fatalf("paging does not end")
		}
		got, err := r.Read(bounded(t), s, cursor, limit)
		if err != nil {
			t.Fatalf("Read, page %d: %v", page, err)
		}
		if len(got.Rows) > limit {
			t.Fatalf("page %d has %d rows, the limit is %d", page, len(got.Rows), limit)
		}
		for _, row := range got.Rows {
			id, ok := row[stores.RowIDColumn].(string)
			if !ok {
				t.Fatalf("a row without its %s", stores.RowIDColumn)
			}
			ids = append(ids, id)
		}
		if got.Next == "" {
			return ids
		}
		wantBlindCursor(t, got.Next, s.Identity(), "suite", "ref-")
		cursor = got.Next
		if between != nil {
			between(page)
		}
	}
}

// wantBlindCursor searches a cursor for secrets, as it stands and decoded.
func wantBlindCursor(t *testing.T, cursor string, secrets ...string) {
	t.Helper()
	forms := []string{cursor}
	for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		if d, err := enc.DecodeString(cursor); err == nil {
			forms = append(forms, string(d))
		}
	}
	if d, err := hex.DecodeString(cursor); err == nil {
		forms = append(forms, string(d))
	}
	for _, form := range forms {
		if containsAny(form, secrets...) {
			t.Fatalf("the cursor %q shows what it points at", cursor)
		}
	}
}

// containsAny leaves out what is so short that it turns up by chance.
func containsAny(text string, secrets ...string) bool {
	return slices.ContainsFunc(secrets, func(s string) bool { return len(s) > 3 && strings.Contains(text, s) })
}

const reader = "alice-the-reader"

func (b *bench) seedReader(t *testing.T, n int) []string {
	t.Helper()
	var rows []stores.Row
	var ids []string
	for i := range n {
		row := b.row(tenant, reader)
		if i%3 == 1 && len(b.table.Identities) > 1 {
			row = b.row(tenant, "bob", reader)
		}
		if i%3 == 2 && len(b.table.Identities) > 1 {
			row = b.row(tenant, reader, reader)
		}
		rows = append(rows, row, b.row(tenant, "bob"), b.row(otherTenant, reader))
		ids = append(ids, b.rowID(row))
	}
	b.seed(t, rows...)
	return ids
}

func (b *bench) rowID(row stores.Row) string {
	id, _ := row[columnIndex(b.table, stores.RowIDColumn)].(string)
	return id
}

func testPages(t *testing.T, b *bench) {
	r, ok := b.store.(subject.Reader)
	if !ok {
		return
	}
	alice := who(t, reader)
	if got := b.walk(t, r, alice, 10, nil); len(got) != 0 {
		t.Fatalf("an empty store showed %d rows", len(got))
	}
	want := b.seedReader(t, 23)
	slices.Sort(want)
	var first []string
	for _, limit := range []int{1, 2, 7, 22, 23, 24, 1000} {
		got := b.walk(t, r, alice, limit, nil)
		if first == nil {
			first = got
		}
		if !slices.Equal(got, first) {
			t.Errorf("the order of the rows changed with a limit of %d", limit)
		}
		sorted := slices.Sorted(slices.Values(got))
		if !slices.Equal(sorted, want) {
			t.Errorf("limit %d: %d rows, want each of %d once", limit, len(got), len(want))
		}
	}
}

func testPagesMove(t *testing.T, b *bench) {
	r, ok := b.store.(subject.Reader)
	if !ok {
		return
	}
	alice := who(t, reader)
	want := b.seedReader(t, 12)
	got := b.walk(t, r, alice, 3, func(page int) {
		if page == 0 {
			b.seed(t, b.row(tenant, reader), b.row(tenant, reader))
			b.delete(t, who(t, "carol"))
		}
	})
	seen := map[string]int{}
	for _, id := range got {
		seen[id]++
	}
	for _, id := range want {
		if seen[id] != 1 {
			t.Errorf("a row that was there all the time was shown %d times", seen[id])
		}
	}
	got = b.walk(t, r, alice, 3, func(page int) {
		if page == 0 {
			b.delete(t, alice)
		}
	})
	if len(got) > 3 {
		t.Errorf("rows were shown after their erasure")
	}
}

func testForeignCursor(t *testing.T, b *bench) {
	r, ok := b.store.(subject.Reader)
	if !ok {
		return
	}
	b.seedReader(t, 3)
	alice := who(t, reader)
	for _, cursor := range []string{"not a cursor of yours", "!", "%00", "'", "\x00", "../..", reader, strings.Repeat("x", 5000), "é"} {
		page, err := r.Read(bounded(t), alice, cursor, 2)
		if err == nil {
			t.Errorf("cursor %.20q was taken, and showed %d rows", cursor, len(page.Rows))
		}
		wantDiscreet(t, "Read", err, alice)
	}
}

func testReadBack(t *testing.T, b *bench) {
	r, ok := b.store.(subject.Reader)
	if !ok {
		return
	}
	full := b.row(tenant, reader)
	for i, c := range b.table.Columns {
		switch {
		case c.Name == b.table.DerivedFrom:
			full[i] = `[{"source":"crm","source_ref":"<a&b> é🙂"}]`
		case c.Nullable && c.Kind == stores.JSON:
			full[i] = `{"nested":{"list":[1,"zwei",null,true,{"deep":"é🙂"}]},"html":"<a&b>"}`
		case c.Nullable && c.Kind == stores.Real:
			full[i] = 0.1
		}
	}
	empty := b.row(tenant, reader) // what may be null is
	b.seed(t, full, empty)
	page, err := r.Read(bounded(t), who(t, reader), "", 10)
	if err != nil || len(page.Rows) != 2 {
		t.Fatalf("Read answered %d rows, %v, want 2", len(page.Rows), err)
	}
	for _, row := range []stores.Row{full, empty} {
		i := slices.IndexFunc(page.Rows, func(m map[string]any) bool { return m[stores.RowIDColumn] == b.rowID(row) })
		if i < 0 {
			t.Fatalf("a row is missing")
		}
		b.wantSame(t, page.Rows[i], row)
	}
}

// wantSame compares what was shown with what was written: every column under its name, JSON as a value and not as
// text (or a deny-list would not see into it), an instant as RFC 3339.
func (b *bench) wantSame(t *testing.T, shown map[string]any, written stores.Row) {
	t.Helper()
	wantJSONValue(t, shown)
	for i, c := range b.table.Columns {
		got, ok := shown[c.Name]
		if !ok && written[i] != nil {
			t.Errorf("column %s is not shown; shown are %v", c.Name, slices.Sorted(maps.Keys(shown)))
			continue
		}
		switch want := written[i].(type) {
		case time.Time:
			text, _ := got.(string)
			at, err := time.Parse(time.RFC3339Nano, text)
			if err != nil || !at.Equal(want) {
				t.Errorf("column %s = %v, want %s in RFC 3339", c.Name, got, want.Format(time.RFC3339Nano))
			}
		case string:
			if c.Kind != stores.JSON {
				wantEqual(t, c.Name, got, want)
				continue
			}
			var value any
			if err := json.Unmarshal([]byte(want), &value); err != nil {
				t.Fatal(err)
			}
			wantEqual(t, c.Name, got, value)
		default:
			wantEqual(t, c.Name, got, want)
		}
	}
}

func wantEqual(t *testing.T, column string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(plain(t, got), plain(t, want)) {
		t.Errorf("column %s = %#v, want %#v", column, got, want)
	}
}

// plain takes away the freedom that Page leaves in the Go type of a number.
func plain(t *testing.T, v any) any {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatalf("not a JSON value: %v", err)
	}
	var out any
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// wantJSONValue checks that a row holds only the types that Page names.
func wantJSONValue(t *testing.T, v any) {
	t.Helper()
	switch v := v.(type) {
	case nil, bool, string, json.Number, float64, int64:
	case []any:
		for _, e := range v {
			wantJSONValue(t, e)
		}
	case map[string]any:
		for _, e := range v {
			wantJSONValue(t, e)
		}
	default:
		t.Errorf("a row holds a %s", fmt.Sprintf("%T", v))
	}
}
