package subjectapi

import (
	"net/url"
	"strings"

	"recount/internal/subject"
)

const eraseVerb = ":erase"

// segments are the readings of the part of a path that names a person. Both are still escaped.
type segments struct {
	whole      string // the id, for a method without a verb
	beforeVerb string // the id, in front of the verb
	hasVerb    bool
}

// split looks for the verb in a segment that is still escaped, so that an id's own "%3Aerase" is none. It answers false
// for what is more than one segment.
func split(escaped string) (segments, bool) {
	if strings.Contains(escaped, "/") {
		return segments{}, false
	}
	before, found := strings.CutSuffix(escaped, eraseVerb)
	return segments{whole: escaped, beforeVerb: before, hasVerb: found}, true
}

// decode undoes the escaping, once. A "+" is a plus. Errors: subject.ErrIdentity.
func decode(segment string) (string, error) {
	identity, err := url.PathUnescape(segment)
	if err != nil {
		return "", subject.ErrIdentity // the cause would quote the segment
	}
	return identity, nil
}
