package erasure

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"

	"recount/internal/wire"
)

// idsPerLine bounds a line of a program.
const idsPerLine = 500

// step is one line of a program: coordinates of one target in one store, and no content.
type step struct {
	V       int                `json:"v"`
	Cell    string             `json:"cell"`
	Store   string             `json:"store"`
	Ref     string             `json:"subject_ref"`
	SaltID  string             `json:"salt_id"`
	RowIDs  []string           `json:"row_ids"`
	Sources []wire.KeyedSource `json:"sources"`
}

// saltID says which salt made the references.
const saltID = "intent_subject_salt"

// program writes down where the rows are that the cells which are covered are about to lose. What is retained is not in it: a
// program may be carried out again.
func program(r *request, found survey, covered []string) ([]byte, error) {
	var body bytes.Buffer
	for _, p := range found.places {
		if !slices.Contains(covered, p.Cell) || isExcluded(r, p.name()) {
			continue
		}
		for _, c := range p.coordinates {
			ids, sources := c.RowIDs, c.Sources
			for first := true; first || len(ids)+len(sources) > 0; first = false {
				n, m := min(len(ids), idsPerLine), min(len(sources), idsPerLine)
				line, err := json.Marshal(step{
					V: 1, Cell: p.Cell, Store: p.Store, Ref: c.ref, SaltID: saltID, RowIDs: ids[:n], Sources: sources[:m],
				}, json.FormatNilSliceAsNull(false))
				if err != nil {
					return nil, fmt.Errorf("writing a program: %w", err)
				}
				body.Write(append(line, '\n'))
				ids, sources = ids[n:], sources[m:]
			}
		}
	}
	return body.Bytes(), nil
}
