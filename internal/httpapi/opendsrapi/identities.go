package opendsrapi

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"recount/internal/subject"
)

// DefaultIdentities is what ParseIdentities reads blank text as.
const DefaultIdentities = "controller_customer_id={value}"

const (
	typeEmail   = "email"
	placeholder = "{value}"
)

var identityType = regexp.MustCompile(`^[a-z0-9_]{1,64}$`)

// Identity says which person id is meant by an identity of a type: {value} in the template stands for its value.
type Identity struct{ Type, Template string }

// Identities are those that requests may name, in the order in which they are shown.
type Identities []Identity

// ParseIdentities reads "controller_customer_id={value},email=person-email:{value}". Blank text is DefaultIdentities. The error
// names every fault by the number of its item, with how to mend it.
func ParseIdentities(text string) (Identities, error) {
	if strings.TrimSpace(text) == "" {
		text = DefaultIdentities
	}
	var known Identities
	var faults []error
	for i, item := range strings.Split(text, ",") {
		kind, template, hasTemplate := strings.Cut(strings.TrimSpace(item), "=")
		fault := func(problem string) { faults = append(faults, fmt.Errorf("identity %d of the list %s", i+1, problem)) }
		if !hasTemplate {
			fault("is not type=template: write controller_customer_id={value}, or take the comma away")
			continue
		}
		if !identityType.MatchString(kind) {
			fault("has a bad type: write 1 to 64 of a-z, 0-9 and _, as OpenDSR does")
		} else if known.template(kind) != "" {
			fault("has a type that is listed before: keep one")
		}
		if strings.Count(template, placeholder) != 1 {
			fault("does not have {value} exactly once in its template")
		} else if subject.CheckIdentity(strings.Replace(template, placeholder, "x", 1)) != nil {
			fault("has a template that makes no person id: " + subject.ErrIdentity.Error())
		}
		known = append(known, Identity{Type: kind, Template: template})
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return known, nil
}

// template is that of a type, "" for a type that is not known.
func (known Identities) template(kind string) string {
	i := slices.IndexFunc(known, func(k Identity) bool { return k.Type == kind })
	if i < 0 {
		return ""
	}
	return known[i].Template
}

// types are the names of all types, for a message.
func (known Identities) types() string {
	names := make([]string, len(known))
	for i, k := range known {
		names[i] = k.Type
	}
	return strings.Join(names, ", ")
}

// person is the person id that an identity means. An address is taken in lower case, as far as it is ASCII, and is otherwise
// left as it is.
func (known Identities) person(kind, value string) string {
	if kind == typeEmail {
		value = lowerASCII(value)
	}
	return strings.Replace(known.template(kind), placeholder, value, 1)
}

// lowerASCII leaves letters alone that are not ASCII: Unicode folds some of them into ASCII ones.
func lowerASCII(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + ('a' - 'A')
		}
		return r
	}, text)
}
