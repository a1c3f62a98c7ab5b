package wire

import (
	stdjson "encoding/json"
	"errors"
	"strings"
	"testing"
)

// withSources is an answer with these bytes for its sources.
func withSources(sources string) []byte {
	return []byte(`{"status":"erased","receipts":[],"sources":` + sources + `}`)
}

func TestSourcesOfAPeerAreReadWholeOrMarked(t *testing.T) {
	for text, want := range map[string]PeerSources{
		`null`: {}, `[]`: {Given: true},
		`[{"source":"crm","source_ref":"a"},{"source_ref":"b","source":"erp","since":1}]`: {Given: true, Listed: []Source{{"crm", "a"}, {"erp", "b"}}},
		`[{"source":"crm","source_ref":"a"},null]`:                                        {Given: true, Malformed: true, Listed: []Source{{"crm", "a"}}},
		`[null,{"source":"crm"},{"source":"crm","source_ref":"a"}]`:                       {Given: true, Malformed: true, Listed: []Source{{"crm", ""}, {"crm", "a"}}},
		`[["crm","a"]]`:                     {Given: true, Malformed: true},
		`[{"source":"crm"}]`:                {Given: true, Malformed: true, Listed: []Source{{"crm", ""}}},
		`[{"source":7,"source_ref":"a"}]`:   {Given: true, Malformed: true, Listed: []Source{{"", "a"}}},
		`{"source":"crm","source_ref":"a"}`: {Malformed: true}, `"crm"`: {Malformed: true}, `false`: {Malformed: true},
	} {
		got, err := DecodePeer(withSources(text))
		if err != nil || !sameSources(got.Sources, want) {
			t.Errorf("%s read as %+v, %v", text, got.Sources, err)
		}
	}
}

func sameSources(a, b PeerSources) bool {
	if len(a.Listed) != len(b.Listed) || a.Given != b.Given || a.Malformed != b.Malformed {
		return false
	}
	for i := range a.Listed {
		if a.Listed[i] != b.Listed[i] {
			return false
		}
	}
	return true
}

func TestASourceOfAPeerIsNotGuessedAt(t *testing.T) {
	for _, text := range []string{
		`[{"source":"crm","source":"erp","source_ref":"a"}]`, `[{"source":"crm","Source":"erp","source_ref":"a"}]`, `[{"Source":"erp","source_ref":"a"}]`,
		`[{"source":"crm","source_ref":"a","SOURCE_REF":"b"}]`, `[{"ſource":"erp","source":"crm","source_ref":"a"}]`,
	} {
		var broken *MalformedError
		if got, err := DecodePeer(withSources(text)); !errors.As(err, &broken) {
			t.Errorf("%s read as %+v, %v", text, got.Sources, err)
		}
	}
}

// FuzzPeerSources holds what is read to what a decoder of the standard library finds in the same bytes: a list that is
// neither malformed nor refused has every pair, and no other.
func FuzzPeerSources(f *testing.F) {
	for _, seed := range []string{
		`null`, `[]`, `{}`, `"x"`, `[null]`, `[{"source":"crm","source_ref":"a"}]`, `[{"source":"crm","source_ref":"a","new":{"source":"b"}},[]]`,
		`[{"source":"","source_ref":"a"}]`, `[{"source":"\u00e9","source_ref":"a\/b"}]`, `[{"Source":"crm","source":"a","source_ref":"b"}]`, `[],"x":1`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		body := withSources(text)
		got, err := DecodePeer(body)
		if err != nil || len(text) > 5000 { // one that is nested as deep as can be has no room in a batch
			return
		}
		var loose map[string]stdjson.RawMessage
		if err := stdjson.Unmarshal(body, &loose); err != nil {
			t.Fatalf("took what is not a JSON object: %v", err)
		}
		checkSources(t, string(loose["sources"]), got.Sources)
		batch, err := DecodePeerBatch([]byte(`{"results":[` + string(body) + `]}`))
		if err != nil || len(batch.Results) != 1 || !sameSources(batch.Results[0].Sources, got.Sources) {
			t.Fatalf("in a batch read as %+v, %v", batch.Results, err)
		}
	})
}

// checkSources asserts that what was read of these bytes is what is there.
func checkSources(t *testing.T, text string, read PeerSources) {
	t.Helper()
	var items []map[string]stdjson.RawMessage
	isList := strings.HasPrefix(text, "[")
	sound := isList || text == "null"
	if isList {
		sound = stdjson.Unmarshal([]byte(text), &items) == nil
	}
	if read.Given != isList {
		t.Fatalf("%s read as given: %v", text, read.Given)
	}
	var want []Source
	for _, item := range items {
		var source, ref string // "" for what is no text
		_ = stdjson.Unmarshal(item["source"], &source)
		_ = stdjson.Unmarshal(item["source_ref"], &ref)
		sound = sound && source != "" && ref != ""
		want = append(want, Source{Source: source, SourceRef: ref})
		for name := range item {
			for _, field := range []string{"source", "source_ref"} {
				if name != field && strings.EqualFold(name, field) {
					t.Fatalf("%s was read in spite of %q", text, name)
				}
			}
		}
	}
	if read.Malformed == sound {
		t.Fatalf("%s read as malformed: %v", text, read.Malformed)
	}
	if sound && !sameSources(read, PeerSources{Listed: want, Given: isList}) {
		t.Fatalf("%s read as %q, want %q", text, read.Listed, want)
	}
}
