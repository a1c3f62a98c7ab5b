package stores

import (
	"errors"

	"github.com/go-json-experiment/json"

	"recount/internal/subject"
)

// Parent is one element of a table's DerivedFrom column, which holds a JSON array of them.
type Parent struct {
	Source    string `json:"source"`
	SourceRef string `json:"source_ref"`
}

var errNoRecord = errors.New("a row does not say whose it is or where it comes from")

// Records is how the rows of a table that is ours are read as records. Its answer is an error for a row that does not
// fit the table; nothing of it is quoted.
func (t Table) Records() func(Row) (subject.Record, error) {
	tenant, source, ref, derived := t.Index(t.Tenant), t.Index(t.Source), t.Index(t.SourceRef), t.Index(t.DerivedFrom)
	identities := make([]int, len(t.Identities))
	for i, column := range t.Identities {
		identities[i] = t.Index(column)
	}
	return func(row Row) (r subject.Record, err error) {
		if len(row) != len(t.Columns) || tenant < 0 {
			return r, errNoRecord
		}
		text := func(at int) string {
			if at < 0 {
				return ""
			}
			value, _ := row[at].(string)
			return value
		}
		if r.Source, err = subject.NewSource(text(tenant), text(source), text(ref)); err != nil {
			return r, errNoRecord
		}
		r.Identities = make([]string, len(identities))
		for i, at := range identities {
			r.Identities[i] = text(at)
		}
		r.Parents, err = ParseParents(text(tenant), text(derived))
		return r, err
	}
}

// ParseParents reads the text of a DerivedFrom column; "" is none.
func ParseParents(tenant, text string) ([]subject.Source, error) {
	if text == "" {
		return nil, nil
	}
	var listed []Parent
	if err := json.Unmarshal([]byte(text), &listed); err != nil {
		return nil, errNoRecord
	}
	parents := make([]subject.Source, len(listed))
	for i, p := range listed {
		var err error
		if parents[i], err = subject.NewSource(tenant, p.Source, p.SourceRef); err != nil {
			return nil, errNoRecord
		}
	}
	return parents, nil
}
