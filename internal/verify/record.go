package verify

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"strconv"
)

// record is what the verifier needs of a line. The texts may point into the line.
type record struct {
	v, atUS                                      int64
	entryID, tenantID, method, phase, requestRef []byte
}

// good reports whether the members that every record has are there.
func (r *record) good() bool {
	return r.v == 1 && r.atUS > 0 && len(r.entryID) > 0 && len(r.tenantID) > 0 && len(r.method) > 0 && len(r.phase) > 0 && len(r.requestRef) > 0
}

// record reads a line. What the scanner does not know is left to the strict and slower parser, which alone refuses.
func (s *scanner) record(line []byte) (*record, bool) {
	if s.scan(line) && s.found.good() {
		return &s.found, true
	}
	r, ok := parseRecordStrictly(line)
	return &r, ok
}

func parseRecordStrictly(line []byte) (record, bool) {
	f := parseObject(line)
	r := record{
		v: f.count("v"), atUS: f.count("at_us"), entryID: []byte(f.text("entry_id")), tenantID: []byte(f.text("tenant_id")),
		method: []byte(f.text("method")), phase: []byte(f.text("phase")), requestRef: []byte(f.text("request_ref")),
	}
	return r, !f.bad && r.good()
}

const (
	maxNames = 64 // of objects that are open at a time
	maxDepth = 8
)

// scanner reads the JSON that records are written in: no spaces, no escapes, ASCII, whole numbers. It answers false for all
// else, good or not. One is used for many lines.
type scanner struct {
	line  []byte
	at    int
	names [maxNames][]byte // of the objects that are open
	held  int
	found record
}

// endOfPlain is the place of the first byte, from one on, that does not stand for itself in a string: a quote, a backslash, a
// control, or one beyond ASCII. It looks at eight at a time; of several such bytes, the first is found without fault.
func endOfPlain(line []byte, at int) int {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for ; at+8 <= len(line); at += 8 {
		w := binary.LittleEndian.Uint64(line[at:])
		quote, backslash := w^ones*'"', w^ones*'\\'
		odd := w | (w-ones*' ')&^w | (quote-ones)&^quote | (backslash-ones)&^backslash
		if odd &= tops; odd != 0 {
			return at + bits.TrailingZeros64(odd)/8
		}
	}
	for at < len(line) && line[at] >= ' ' && line[at] < 0x80 && line[at] != '"' && line[at] != '\\' {
		at++
	}
	return at
}

// scan reads a line that is one object into found.
func (s *scanner) scan(line []byte) bool {
	s.line, s.at, s.held, s.found = line, 0, 0, record{}
	return s.object(0) && s.at == len(line)
}

func (s *scanner) take(b byte) bool {
	if s.at < len(s.line) && s.line[s.at] == b {
		s.at++
		return true
	}
	return false
}

// text reads a string, and answers it without its quotes.
func (s *scanner) text() ([]byte, bool) {
	if !s.take('"') {
		return nil, false
	}
	from := s.at
	s.at = endOfPlain(s.line, from)
	return s.line[from:s.at], s.take('"')
}

// number reads a whole number without a sign.
func (s *scanner) number() ([]byte, bool) {
	from := s.at
	for s.at < len(s.line) && s.line[s.at] >= '0' && s.line[s.at] <= '9' {
		s.at++
	}
	digits := s.line[from:s.at]
	return digits, len(digits) == 1 || (len(digits) > 1 && digits[0] != '0')
}

// object reads an object; that of depth 0 is the record.
func (s *scanner) object(depth int) bool {
	if depth == maxDepth || !s.take('{') {
		return false
	}
	base := s.held
	for more := !s.take('}'); more; more = !s.take('}') {
		if s.held > base && !s.take(',') {
			return false
		}
		name, ok := s.text()
		if !ok || !s.hold(name, base) || !s.take(':') || !s.member(name, depth) {
			return false
		}
	}
	s.held = base
	return true
}

// hold notes a name, and reports whether it is the first of that name in its object.
func (s *scanner) hold(name []byte, base int) bool {
	if s.held == maxNames {
		return false
	}
	for _, other := range s.names[base:s.held] {
		if bytes.Equal(other, name) {
			return false
		}
	}
	s.names[s.held] = name
	s.held++
	return true
}

// member reads the value of a member, and keeps what is needed.
func (s *scanner) member(name []byte, depth int) bool {
	if depth > 0 {
		return s.value(depth)
	}
	text, number := s.wanted(name)
	switch {
	case text != nil:
		value, ok := s.text()
		*text = value
		return ok
	case number != nil:
		digits, ok := s.number()
		n, err := strconv.ParseInt(string(digits), 10, 64)
		*number = n
		return ok && err == nil
	default:
		return s.value(depth)
	}
}

// wanted says where a member of the record goes, if it is needed.
func (s *scanner) wanted(name []byte) (text *[]byte, number *int64) {
	switch string(name) {
	case "v":
		return nil, &s.found.v
	case "at_us":
		return nil, &s.found.atUS
	case "entry_id":
		return &s.found.entryID, nil
	case "tenant_id":
		return &s.found.tenantID, nil
	case "method":
		return &s.found.method, nil
	case "phase":
		return &s.found.phase, nil
	case "request_ref":
		return &s.found.requestRef, nil
	default:
		return nil, nil
	}
}

// value reads any value of the kinds that records have.
func (s *scanner) value(depth int) bool {
	if s.at == len(s.line) {
		return false
	}
	switch s.line[s.at] {
	case '"':
		_, ok := s.text()
		return ok
	case '{':
		return s.object(depth + 1)
	case '[':
		return s.array(depth + 1)
	default:
		_, ok := s.number()
		return ok
	}
}

func (s *scanner) array(depth int) bool {
	if depth == maxDepth || !s.take('[') {
		return false
	}
	if s.take(']') {
		return true
	}
	for {
		if !s.value(depth) {
			return false
		}
		if s.take(']') {
			return true
		}
		if !s.take(',') {
			return false
		}
	}
}
