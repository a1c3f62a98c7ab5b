package memory

import "recount/internal/subject"

// derivations finds records by what they were derived from. Most records derive from nothing, and cost nothing here.
type derivations struct {
	parents  map[recordKey][]subject.Source
	children map[subject.Source]map[recordKey]bool
}

func newDerivations() derivations {
	return derivations{parents: map[recordKey][]subject.Source{}, children: map[subject.Source]map[recordKey]bool{}}
}

func (d derivations) add(child recordKey, parents []subject.Source) {
	if len(parents) == 0 {
		return
	}
	d.parents[child] = parents
	for _, p := range parents {
		if d.children[p] == nil {
			d.children[p] = map[recordKey]bool{}
		}
		d.children[p][child] = true
	}
}

func (d derivations) remove(child recordKey) {
	parents, known := d.parents[child]
	if !known {
		return
	}
	delete(d.parents, child)
	for _, p := range parents {
		delete(d.children[p], child)
		if len(d.children[p]) == 0 {
			delete(d.children, p)
		}
	}
}

// of answers what derives from the parents.
func (d derivations) of(parents []subject.Source) ([]subject.Derivation, error) {
	var out []subject.Derivation
	for _, p := range parents {
		for child := range d.children[p] {
			s, err := child.asSource()
			if err != nil {
				return nil, err
			}
			out = append(out, subject.Derivation{Parent: p, Child: s})
		}
	}
	return out, nil
}

func (k recordKey) asSource() (subject.Source, error) {
	s, err := subject.NewSource(k.tenant.Value(), k.source.Value(), k.ref)
	if err != nil {
		return s, &subject.Fault{Reason: subject.ReasonSourceInvalid, Cause: err}
	}
	return s, nil
}
