package intake

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/semaphore"
	"pgregory.net/rapid"

	"recount/internal/stores"
	"recount/internal/suppression"
	"recount/internal/suppression/suppressiontest"
	"recount/internal/wire"
)

// ledger remembers which records it has, as every table does.
type ledger struct {
	mu   sync.Mutex
	have map[string]stores.Row
	t    stores.Table
	fail error
}

func (l *ledger) Append(_ context.Context, rows []stores.Row, _ suppression.Generation) ([]bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail != nil {
		return nil, l.fail
	}
	created := make([]bool, len(rows))
	for i, row := range rows {
		key := fmt.Sprintf("%q %q %q", row[l.t.Index("tenant_id")], row[l.t.Index("source")], row[l.t.Index("source_ref")])
		if _, have := l.have[key]; !have {
			l.have[key], created[i] = row, true
		}
	}
	return created, nil
}

func newIntake(k Kind) (*Intake, *ledger) {
	l := &ledger{have: map[string]stores.Row{}, t: k.Table}
	return &Intake{Kind: k, Guard: &suppression.Guard{Ledger: suppressiontest.NewModel()}, Store: l, Budget: NewBudget()}, l
}

func anyTenant(string) bool { return true }

func event(ref string, change func(map[string]any)) string {
	record := map[string]any{
		"tenant_id": "acme", "identity_id": "alice", "source": "web", "source_ref": ref, "consent_basis": "consent",
		"event_type": "view", "occurred_at": "2026-11-01T10:00:00Z", "payload": map[string]any{"page": "/"},
	}
	if change != nil {
		change(record)
	}
	line, _ := json.Marshal(record)
	return string(line)
}

func TestEveryLineIsJudgedByItself(t *testing.T) {
	set := func(field string, value any) func(map[string]any) { return func(r map[string]any) { r[field] = value } }
	drop := func(field string) func(map[string]any) { return func(r map[string]any) { delete(r, field) } }
	tests := []struct{ line, reason string }{
		{event("1", nil), ""},
		{event("2", set("payload", nil)), ""},
		{event("3", set("derived_from", []any{map[string]any{"source": "web", "source_ref": "1"}})), ""},
		{`{broken`, ReasonNotJSON},
		{`[]`, ReasonNotObject},
		{`7`, ReasonNotObject},
		{event("4", nil) + `{}`, ReasonNotJSON},
		{event("5", set("colour", "red")), ReasonUnknownField},
		{event("6", set("Payload", map[string]any{})), ReasonUnknownField},
		{strings.Replace(event("7", nil), `{`, `{"source":"x",`, 1), ReasonDuplicateField},
		{event("8", set("source", 8)), ReasonWrongType},
		{event("9", drop("consent_basis")), ReasonConsentMissing},
		{event("10", set("consent_basis", "")), ReasonConsentMissing},
		{event("11", set("tenant_id", "ACME")), "tenant_id_invalid"},
		{event("12", drop("tenant_id")), "tenant_id_invalid"},
		{event("13", set("identity_id", "..")), "identity_id_invalid"},
		{event("14", drop("source")), "source_invalid"},
		{event("", nil), "source_ref_invalid"},
		{event("15", set("occurred_at", "yesterday")), "occurred_at_invalid"},
		{event("16", set("payload", "text")), "payload_not_object"},
		{strings.Replace(event("16a", nil), `"payload":{"page":"/"}`, `"payload":`+strings.Repeat(`{"a":`, 101)+"1"+strings.Repeat("}", 101), 1), "payload_too_deep"},
		{strings.Replace(event("16b", nil), `"payload":{"page":"/"}`, `"payload":{"page":"[[[{{{\"}]}"}`, 1), ""},
		{event("17", drop("event_type")), "event_type_invalid"},
		{event("18", set("derived_from", []any{map[string]any{"source": "web"}})), "derived_from_invalid"},
		{event("19", set("tenant_id", "globex")), ReasonTenantNotAllowed},
		{event(strings.Repeat("x", 2000), nil), "source_ref_invalid"},
		{`{"x":"` + strings.Repeat("x", MaxLineBytes) + `"}`, ReasonLineTooLong},
		{event("20", nil), ""},
	}
	var body strings.Builder
	want := wire.IntakeResponse{}
	for i, test := range tests {
		body.WriteString(test.line + "\n\n") // blank lines are passed over, and counted
		if test.reason == "" {
			want.Accepted++
			continue
		}
		want.RejectedTotal++
		want.Rejected = append(want.Rejected, wire.Rejected{Line: 2*i + 1, Reason: test.reason})
	}
	in, _ := newIntake(Events())
	got, err := in.Take(t.Context(), func(tenant string) bool { return tenant != "globex" }, strings.NewReader(body.String()), true)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("got  %v\nwant %v", got, want)
	}
}

func TestASingleRecordIsJudgedLikeALine(t *testing.T) {
	in, l := newIntake(Events())
	for body, want := range map[string]wire.IntakeResponse{
		event("1", nil):                {Accepted: 1, Rejected: []wire.Rejected{}},
		"\n" + event("2", nil) + " \n": {Accepted: 1, Rejected: []wire.Rejected{}},
		`{"source":"x","source":"x"}`:  {RejectedTotal: 1, Rejected: []wire.Rejected{{Line: 1, Reason: ReasonDuplicateField}}},
		`null`:                         {RejectedTotal: 1, Rejected: []wire.Rejected{{Line: 1, Reason: "tenant_id_invalid"}}},
		event("3", func(r map[string]any) { delete(r, "consent_basis") }): {RejectedTotal: 1, Rejected: []wire.Rejected{{Line: 1, Reason: ReasonConsentMissing}}},
	} {
		got, err := in.Take(t.Context(), anyTenant, strings.NewReader(body), false)
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: got %v %v, want %v", body, got, err, want)
		}
	}
	for _, body := range []string{"", "{", event("4", nil) + event("5", nil)} {
		if _, err := in.Take(t.Context(), anyTenant, strings.NewReader(body), false); !errors.Is(err, ErrNotJSON) {
			t.Errorf("%.20q: %v", body, err)
		}
	}
	if _, err := in.Take(t.Context(), anyTenant, strings.NewReader(strings.Repeat(" ", MaxLineBytes+1)), false); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a long record: %v", err)
	}
	if len(l.have) != 2 {
		t.Errorf("%d rows", len(l.have))
	}
}

func TestSendingABodyAgainMakesDuplicatesOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		refs := rapid.SliceOf(rapid.StringMatching(`[a-c]{1,2}`)).Draw(t, "refs")
		different := map[string]bool{}
		var body strings.Builder
		for _, ref := range refs {
			different[ref] = true
			body.WriteString(event(ref, nil) + "\n")
		}
		in, l := newIntake(Events())
		first, err1 := in.Take(context.Background(), anyTenant, strings.NewReader(body.String()), true)
		second, err2 := in.Take(context.Background(), anyTenant, strings.NewReader(body.String()), true)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		if first.Accepted != len(different) || first.Duplicates != len(refs)-len(different) || second.Duplicates != len(refs) || len(l.have) != len(different) {
			t.Fatalf("%d refs, %d different: %+v then %+v", len(refs), len(different), first, second)
		}
	})
}

func TestAProbabilisticIdentityIsRefusedAndTheArmIsAFunctionOfTheUnit(t *testing.T) {
	in, l := newIntake(Holdouts())
	line := func(ref, kind string) string {
		return fmt.Sprintf(`{"tenant_id":"acme","identity_id":"alice","source":"s","source_ref":%q,"consent_basis":"c","experiment":"e","identity_kind":%q}`, ref, kind)
	}
	got, err := in.Take(t.Context(), anyTenant, strings.NewReader(line("1", "deterministic")+"\n"+line("2", "probabilistic")+"\n"+line("3", "")), true)
	if err != nil || got.Accepted != 1 || fmt.Sprint(got.Rejected) != "[{2 "+ReasonProbabilistic+"} {3 identity_kind_invalid}]" {
		t.Fatalf("%v %+v", err, got)
	}
	for _, row := range l.have {
		if row[in.Kind.Table.Index("assignment")] != string(Assign("e", "acme", "alice")) {
			t.Error("the row's arm is not that of the unit")
		}
	}
	held := 0
	for i := range 10000 {
		if Assign("e", "acme", fmt.Sprint(i)) == Holdout {
			held++
		}
	}
	if held < 850 || held > 1150 {
		t.Errorf("%d of 10000 are held out", held)
	}
}

func TestEveryKindFillsEveryColumnOfItsTable(t *testing.T) {
	own := map[string]string{
		"events": `"event_type":"v","occurred_at":"2026-11-01T10:00:00.123456789Z"`, "scores": `"model_version":"m","score":0.5,"features":{"a":1}`,
		"edges": `"related_id":"bob","relation":"knows"`, "holdouts": `"experiment":"e","identity_kind":"deterministic"`,
		"outcomes": `"experiment":"e","metric":"m","value":1`,
	}
	for _, k := range []Kind{Events(), Scores(), Edges(), Holdouts(), Outcomes()} {
		in, l := newIntake(k)
		body := `{"tenant_id":"acme","identity_id":"alice","source":"s","source_ref":"r","consent_basis":"c",` + own[k.Name] + `}`
		if got, err := in.Take(t.Context(), anyTenant, strings.NewReader(body), false); err != nil || got.Accepted != 1 {
			t.Errorf("%s: %v %+v", k.Name, err, got)
		}
		for _, row := range l.have {
			if len(row) != len(k.Table.Columns) {
				t.Fatalf("%s: %d values for %d columns", k.Name, len(row), len(k.Table.Columns))
			}
			for i, c := range k.Table.Columns {
				var ok bool
				switch c.Kind {
				case stores.Text:
					_, ok = row[i].(string)
				case stores.Real:
					_, ok = row[i].(float64)
				case stores.Instant:
					at, is := row[i].(time.Time)
					ok = is && at.Location() == time.UTC
				case stores.JSON:
					text, is := row[i].(string)
					ok = row[i] == nil && c.Nullable || is && json.Valid([]byte(text))
				}
				if !ok {
					t.Errorf("%s.%s holds %#v", k.Name, c.Name, row[i])
				}
			}
		}
	}
}

type endless struct {
	line []byte
	left int
	at   int
}

func (e *endless) Read(p []byte) (int, error) {
	if e.left <= 0 {
		return 0, io.EOF
	}
	n := copy(p, e.line[e.at:])
	e.at = (e.at + n) % len(e.line)
	e.left -= n
	return n, nil
}

func TestABodyOfAnySizeIsReadInBoundedMemory(t *testing.T) {
	size := 1 << 28
	if testing.Short() {
		size = 1 << 26
	}
	in, _ := newIntake(Events())
	line := []byte(event("same", func(r map[string]any) { r["payload"] = map[string]any{"x": strings.Repeat("y", 64<<10)} }) + "\n")
	peak := make(chan uint64, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		var most uint64
		var m runtime.MemStats
		for ctx.Err() == nil {
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapAlloc)
			time.Sleep(10 * time.Millisecond)
		}
		peak <- most
	}()
	got, err := in.Take(t.Context(), anyTenant, &endless{line: line, left: size}, true)
	stop()
	if err != nil || got.Accepted != 1 || got.Duplicates < size/len(line)-2 {
		t.Fatalf("%v %+v", err, got)
	}
	if most := <-peak; most > 96<<20 {
		t.Fatalf("%d MiB of heap for a body of %d MiB", most>>20, size>>20)
	}
}

func TestAStoreThatFailsIsAnErrorAndABrokenBodyKeepsWhatWasRead(t *testing.T) {
	in, l := newIntake(Events())
	l.fail = errors.New("full")
	if _, err := in.Take(t.Context(), anyTenant, strings.NewReader(event("1", nil)), true); !errors.Is(err, l.fail) {
		t.Errorf("got %v", err)
	}
	l.fail = nil
	broken := errors.New("connection reset")
	_, err := in.Take(t.Context(), anyTenant, io.MultiReader(strings.NewReader(event("1", nil)+"\n"), failing{broken}), true)
	if !errors.Is(err, broken) || len(l.have) != 1 {
		t.Errorf("%v, %d rows", err, len(l.have))
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func FuzzALineIsTakenOrRejectedAndNeverQuoted(f *testing.F) {
	f.Add([]byte(event("1", nil)))
	f.Add([]byte(`{"tenant_id":"acme"}`))
	f.Add([]byte("\xff{}"))
	f.Fuzz(func(t *testing.T, line []byte) {
		if bytes.ContainsAny(line, "\n") {
			return
		}
		for _, k := range []Kind{Events(), Scores(), Edges(), Holdouts(), Outcomes()} {
			row, _, reason := k.parse(line, time.Now())
			if (row == nil) == (reason == "") {
				t.Fatalf("row %v, reason %q", row, reason)
			}
			if row != nil && len(row) != len(k.Table.Columns) {
				t.Fatalf("%d values", len(row))
			}
		}
	})
}

// stalling sends some lines and the beginning of another, and then nothing until it is let go.
type stalling struct {
	data  []byte
	letGo chan struct{}
}

func (s *stalling) Read(p []byte) (int, error) {
	if len(s.data) == 0 {
		<-s.letGo
		return 0, io.EOF
	}
	n := copy(p, s.data)
	s.data = s.data[n:]
	return n, nil
}

func TestCallersWhoStallHoldLittleHoweverManyTheyAre(t *testing.T) {
	in, l := newIntake(Events())
	in.Budget = &Budget{rows: semaphore.NewWeighted(2 << 20), lines: semaphore.NewWeighted(4)}
	big := func(ref string) string {
		return event(ref, func(r map[string]any) { r["payload"] = map[string]any{"x": strings.Repeat("y", 900<<10)} })
	}
	body := []byte(big("1") + "\n" + big("2")[:880<<10])
	letGo := make(chan struct{})
	var wg sync.WaitGroup
	for range 96 {
		wg.Go(func() {
			if _, err := in.Take(t.Context(), anyTenant, &stalling{data: body, letGo: letGo}, true); err != nil {
				t.Error(err)
			}
		})
	}
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		l.mu.Lock()
		n := len(l.have)
		l.mu.Unlock()
		if n == 1 {
			break
		}
	}
	time.Sleep(time.Second)
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if held := m.HeapAlloc >> 20; held > 90 { // 96 buffers of 256 KiB, 4 long lines, 2 MiB of rows; 96 long lines would be 150
		t.Errorf("%d MiB are held for 96 callers who stall", held)
	}
	close(letGo)
	wg.Wait()
}
