package verify

import (
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// fields are the members of one JSON object. Each getter notes in bad that a member is not of its kind: null, a missing
// member and a value of another kind are never taken for a zero value.
type fields struct {
	members map[string]jsontext.Value
	bad     bool
}

// parseObject reads one JSON object with nothing behind it, and no member twice.
func parseObject(raw []byte) *fields {
	f := &fields{}
	if err := json.Unmarshal(raw, &f.members); err != nil || f.members == nil {
		f.bad = true
	}
	return f
}

// parseExactly reads one JSON object that has these members and no others.
func parseExactly(raw []byte, names ...string) *fields {
	f := parseObject(raw)
	f.check(len(f.members) == len(names))
	for _, name := range names {
		_, there := f.members[name]
		f.check(there)
	}
	return f
}

// check notes that something does not hold.
func (f *fields) check(holds bool) {
	if !holds {
		f.bad = true
	}
}

func (f *fields) null(name string) bool { return f.members[name].Kind() == 'n' }

// text is a string, which may be empty.
func (f *fields) text(name string) string { return f.unquoted(f.members[name]) }

// texts is an array of strings.
func (f *fields) texts(name string) []string {
	var texts []string
	for _, raw := range f.list(name) {
		texts = append(texts, f.unquoted(raw))
	}
	return texts
}

func (f *fields) unquoted(raw jsontext.Value) string {
	if raw.Kind() != '"' {
		f.bad = true
		return ""
	}
	text, err := jsontext.AppendUnquote(nil, raw)
	f.check(err == nil)
	return string(text)
}

// id is a string that is not empty.
func (f *fields) id(name string) string {
	text := f.text(name)
	f.check(text != "")
	return text
}

// oneOf is one of some words.
func (f *fields) oneOf(name string, words ...string) string {
	text := f.text(name)
	for _, word := range words {
		if text == word {
			return text
		}
	}
	f.bad = true
	return text
}

// count is an integer in its plain form that is not negative.
func (f *fields) count(name string) int64 {
	raw := string(f.members[name])
	n, err := strconv.ParseInt(raw, 10, 64)
	f.check(err == nil && n >= 0 && strconv.FormatInt(n, 10) == raw)
	return n
}

// countOrNull is a count, or nil for null.
func (f *fields) countOrNull(name string) *int64 {
	if f.null(name) {
		return nil
	}
	n := f.count(name)
	return &n
}

// time is a time of RFC 3339 in UTC, written with a Z.
func (f *fields) time(name string) time.Time {
	text := f.text(name)
	at, err := time.Parse(time.RFC3339, text)
	f.check(err == nil && timeForm(text))
	return at
}

// timeForm holds a time against RFC 3339 digit by digit: package time also takes an hour of one digit, and a comma.
func timeForm(text string) bool {
	const form = "0000-00-00T00:00:00"
	rest, ended := strings.CutSuffix(text, "Z")
	if !ended || len(rest) < len(form) {
		return false
	}
	for i := range len(form) {
		digit := rest[i] >= '0' && rest[i] <= '9'
		if (form[i] == '0') != digit || (!digit && rest[i] != form[i]) {
			return false
		}
	}
	fraction, dotted := strings.CutPrefix(rest[len(form):], ".")
	return dotted == (fraction != "") && strings.Trim(fraction, "0123456789") == ""
}

// timeOrNull is a time, or nil for null.
func (f *fields) timeOrNull(name string) *time.Time {
	if f.null(name) {
		return nil
	}
	at := f.time(name)
	return &at
}

// truth is a bool.
func (f *fields) truth(name string) bool {
	kind := f.members[name].Kind()
	f.check(kind == 't' || kind == 'f')
	return kind == 't'
}

// list is an array, its elements not yet read.
func (f *fields) list(name string) []jsontext.Value {
	raw := f.members[name]
	if raw.Kind() != '[' {
		f.bad = true
		return nil
	}
	var list []jsontext.Value
	f.check(json.Unmarshal(raw, &list) == nil)
	return list
}

// lowerHex reports whether a text is that many hex digits, in lower case.
func lowerHex(text string, digits int) bool {
	return len(text) == digits && strings.Trim(text, "0123456789abcdef") == ""
}
