package verify

import (
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"
)

// book is a ledger of some lines.
func book(n int) []string {
	lines := make([]string, n)
	for i := range lines {
		lines[i] = recordLine(i, []string{"execute:intent", "close:outcome"}[i%2])
	}
	return lines
}

func text(lines ...string) string {
	if len(lines) == 0 {
		return ""
	}
	return strings.Join(lines, "\n") + "\n"
}

func TestAGoodLedgerIsCounted(t *testing.T) {
	i := newIssuer(t, "recount-test")
	for _, size := range []int{0, 1, 2, 3, 7, 8, 9, 300} {
		lines := book(size)
		forest := planted(t, lines...)
		for _, covered := range []int64{0, int64(size) / 2, int64(size)} {
			checkpoint := i.checkpoint(t, forest, covered)
			for torn, tail := range map[bool]string{false: "", true: `{"v":1,"entry_id":"to`} {
				r, err := Ledger(iotest.HalfReader(strings.NewReader(text(lines...)+tail)), []byte(checkpoint), i.keys)
				must(t, err)
				if r.Entries != int64(size) || r.Covered != covered || r.Torn != torn || r.ByMethod["gdpr_subject"] != int64(size) ||
					r.ByPhase["execute:intent"] != int64(size+1)/2 || r.ByPhase["close:outcome"] != int64(size)/2 {
					t.Errorf("%d lines, %d covered: %+v", size, covered, r)
				}
			}
		}
	}
}

func TestNoChangedByteOfACoveredLinePasses(t *testing.T) {
	i := newIssuer(t, "recount-test")
	lines := book(20)
	checkpoint := []byte(i.checkpoint(t, planted(t, lines...), 20))
	good := text(lines...)
	random := rand.New(rand.NewPCG(3, 4))
	for range 1000 {
		bad := []byte(good)
		at := random.IntN(len(bad))
		bad[at] ^= byte(1 + random.IntN(255))
		_, err := Ledger(strings.NewReader(string(bad)), checkpoint, i.keys)
		refused(t, err, ReasonTampered, ReasonMalformed, ReasonTruncated)
	}
}

func TestALedgerThatIsNotTheSignedOneIsRefused(t *testing.T) {
	i, foreign := newIssuer(t, "recount-test"), newIssuer(t, "recount-test")
	lines := book(9)
	forest := planted(t, lines...)
	checkpoint := i.checkpoint(t, forest, 7)
	swapped := append(append([]string{}, lines[1], lines[0]), lines[2:]...)
	tampered := append([]string{}, lines...)
	tampered[3] = strings.Replace(lines[3], `"acme"`, `"acm3"`, 1)
	for name, c := range map[string]struct{ reason, body, checkpoint string }{
		"a tampered line":           {ReasonTampered, text(tampered...), checkpoint},
		"two lines swapped":         {ReasonTampered, text(swapped...), checkpoint},
		"a line left out":           {ReasonTampered, text(lines[1:]...), checkpoint},
		"a line twice":              {ReasonTampered, text(append([]string{lines[0]}, lines...)...), checkpoint},
		"a cut tail":                {ReasonTruncated, text(lines[:6]...), checkpoint},
		"nothing":                   {ReasonTruncated, "", checkpoint},
		"the last covered one torn": {ReasonTruncated, strings.TrimSuffix(text(lines[:7]...), "\n"), checkpoint},
		"a checkpoint of a key":     {ReasonCheckpoint, text(lines...), foreign.checkpoint(t, forest, 7)},
		"a checkpoint of a number":  {ReasonCheckpoint, text(lines...), strings.Replace(checkpoint, "\n7\n", "\n6\n", 1)},
		"no checkpoint":             {ReasonCheckpoint, text(lines...), ""},
		"a signed list of zeros":    {ReasonCheckpoint, text(lines...), i.sign(t, "recount erasure ledger v1\n0\n"+strings.Repeat("B", 42)+"A=\n")},
		"a number with a zero":      {ReasonCheckpoint, text(lines...), i.sign(t, strings.Replace(checkpoint[:strings.Index(checkpoint, "\n\n")+1], "\n7\n", "\n07\n", 1))},
		"a certificate":             {ReasonCheckpoint, text(lines...), i.sign(t, "recount certificate v1\n7\nx\n")},
		"a long checkpoint":         {ReasonCheckpoint, text(lines...), strings.Repeat("x", 1<<20)},
	} {
		_, err := Ledger(strings.NewReader(c.body), []byte(c.checkpoint), i.keys)
		if err == nil {
			t.Errorf("%s passes", name)
			continue
		}
		refused(t, err, c.reason)
	}
}

// badLines are no records, each for a reason of its own.
func badLines() map[string]string {
	good := recordLine(1, "close:outcome")
	bad := map[string]string{
		"nothing": "", "null": "null", "a list": "[]", "an empty object": "{}", "no JSON": "x", "half": good[:40], "two": good + good, "a comma": good[:len(good)-1] + ",}",
		"a comma in front": "{," + good[1:], "v 2": strings.Replace(good, `"v":1`, `"v":2`, 1), "v 01": strings.Replace(good, `"v":1`, `"v":01`, 1),
		"v true": strings.Replace(good, `"v":1`, `"v":true`, 1), "v as a word": strings.Replace(good, `"v":1`, `"v":"1"`, 1), "no time": strings.Replace(good, `"at_us"`, `"at_ms"`, 1),
		"a time before": strings.Replace(good, `"at_us":1`, `"at_us":-1`, 1), "a member twice": strings.Replace(good, `"v":1`, `"v":1,"v":1`, 1),
		"a member twice, escaped": strings.Replace(good, `"v":1`, `"v":1,"\u0076":1`, 1), "a store twice": strings.Replace(good, `"graph/edges"`, `"ingest/intent_events"`, 1),
		"broken UTF-8": strings.Replace(good, "acme", "ac\xffe", 1), "a control": strings.Replace(good, "acme", "ac\x01e", 1), "a NUL behind": good + "\x00", "an open list": good[:len(good)-1] + `,"a":[1}`,
		"no tenant": strings.Replace(good, `"acme"`, `""`, 1), "a tenant of null": strings.Replace(good, `"acme"`, `null`, 1),
		"too long": good[:len(good)-1] + `,"note":"` + strings.Repeat("x", 1<<16) + `"}`, "far too long": strings.Repeat("x", 3<<20),
	}
	for _, name := range []string{"v", "at_us", "entry_id", "tenant_id", "method", "phase", "request_ref"} {
		bad["without "+name] = strings.Replace(good, `"`+name+`"`, `"other"`, 1)
	}
	return bad
}

func TestAMalformedLineIsRefusedWhereverItIs(t *testing.T) {
	i := newIssuer(t, "recount-test")
	for name, bad := range badLines() {
		for _, at := range []int{0, 2, 4} { // 4 is behind the checkpoint
			lines := book(5)
			lines[at] = bad
			checkpoint := i.checkpoint(t, planted(t, lines...), 3)
			_, err := Ledger(strings.NewReader(text(lines...)), []byte(checkpoint), i.keys)
			if err == nil {
				t.Errorf("%s as line %d passes", name, at)
				continue
			}
			refused(t, err, ReasonMalformed)
		}
	}
}

func TestRecordsInAnotherGoodFormAreTaken(t *testing.T) {
	i := newIssuer(t, "recount-test")
	good := recordLine(1, "close:outcome")
	lines := []string{
		strings.ReplaceAll(good, `,"`, ` , "`), strings.Replace(good, "acme", `\u0061cm\u00e9`, 1), strings.Replace(good, "acme", "acmé", 1),
		strings.Replace(good, `"v":1`, `"v":1,"later":{"a":[],"b":[1,[-2.5e3,null]],"c":true}`, 1), strings.Replace(good, `"phase"`, `"phas\u0065"`, 1),
		good[:len(good)-1] + `,"note":"` + strings.Repeat("x", 1<<16-len(good)-len(`,"note":""`)) + `"}`, // the longest
	}
	r, err := Ledger(strings.NewReader(text(lines...)), []byte(i.checkpoint(t, planted(t, lines...), int64(len(lines)))), i.keys)
	must(t, err)
	if want := map[string]int64{"close:outcome": int64(len(lines))}; !maps.Equal(r.ByPhase, want) {
		t.Errorf("by phase: %v", r.ByPhase)
	}
}

func TestTheScannerTakesNothingThatTheStrictParserRefusesOrReadsElse(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	seeds := append(book(3), recordLine(2, "x")[:100]+`"a":[{"b":1},{"b":2}],`+recordLine(2, "x")[100:])
	for _, bad := range badLines() {
		if len(bad) < 1000 {
			seeds = append(seeds, bad)
		}
	}
	const letters = `{}[],:"0123-.eE \nut` + "\x00\xff"
	for range 30_000 {
		line := []byte(seeds[random.IntN(len(seeds))])
		for range 1 + random.IntN(2) {
			if len(line) == 0 {
				break
			}
			at := random.IntN(len(line))
			switch random.IntN(3) {
			case 0:
				line[at] = letters[random.IntN(len(letters))]
			case 1:
				line = append(line[:at], line[at+1:]...)
			default:
				line = append(line[:at], append([]byte{letters[random.IntN(len(letters))]}, line[at:]...)...)
			}
		}
		agree(t, line)
	}
}

// agree compares the two parsers of a line.
func agree(t *testing.T, line []byte) {
	t.Helper()
	fast := scanner{}
	if !fast.scan(line) {
		return
	}
	strict, ok := parseRecordStrictly(line)
	if fast.found.good() != ok {
		t.Fatalf("the scanner and the strict parser differ about %q", line)
	}
	same := func(a, b []byte) bool { return string(a) == string(b) }
	f := fast.found
	if ok && (f.v != strict.v || f.atUS != strict.atUS || !same(f.entryID, strict.entryID) || !same(f.tenantID, strict.tenantID) ||
		!same(f.method, strict.method) || !same(f.phase, strict.phase) || !same(f.requestRef, strict.requestRef)) {
		t.Fatalf("the scanner reads %q as %+v", line, f)
	}
}

func TestAReadersOwnErrorIsNoRefusal(t *testing.T) {
	i := newIssuer(t, "recount-test")
	lines := book(4)
	broken := errors.New("EIO")
	_, err := Ledger(io.MultiReader(strings.NewReader(text(lines...)), iotest.ErrReader(broken)), []byte(i.checkpoint(t, planted(t, lines...), 4)), i.keys)
	var refusal *Refusal
	if !errors.Is(err, broken) || errors.As(err, &refusal) {
		t.Errorf("%v", err)
	}
}

func TestWhatIsCountedStaysBounded(t *testing.T) {
	counted := tally{}
	for n := range 1000 {
		counted.add([]byte{'a', byte(n), byte(n >> 8)})
	}
	if counts := counted.counts(); len(counts) != maxKinds+1 || counts[other] != 1000-maxKinds {
		t.Errorf("%d kinds, %d others", len(counts), counts[other])
	}
}

func TestTheEndOfAPlainStringIsFoundWhereverItIs(t *testing.T) {
	for b := range 256 {
		plain := b >= 0x20 && b < 0x80 && b != '"' && b != '\\'
		for at := range 20 {
			for _, behind := range []string{"", "\x00", `"`, "\xff!", "!#[]\x7f ~"} {
				line := []byte(strings.Repeat("a#!]~ ", 4)[:at] + string([]byte{byte(b)}) + behind)
				want := at
				if plain {
					want++
					for _, c := range []byte(behind) {
						if c < 0x20 || c >= 0x80 || c == '"' {
							break
						}
						want++
					}
				}
				if got := endOfPlain(line, 0); got != want {
					t.Fatalf("%q ends at %d, not %d", line, got, want)
				}
			}
		}
	}
}
