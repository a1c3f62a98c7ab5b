package subject

import (
	"slices"
	"strings"
)

// Keeps reports whether the target leaves a store of a cell alone.
func (t Target) Keeps(cell, store string) bool { return slices.Contains(t.Keep, cell+"/"+store) }

// KeepsAll reports whether the target leaves a whole cell alone.
func (t Target) KeepsAll(cell string) bool { return t.Keeps(cell, AnyStore) }

// KeepsStore reports whether the target leaves alone a store of the one cell that its Keep is about.
func (t Target) KeepsStore(store string) bool {
	return slices.ContainsFunc(t.Keep, func(place string) bool { return strings.HasSuffix(place, "/"+store) })
}

// KeptIn are the names of the stores of a cell that the target leaves alone.
func (t Target) KeptIn(cell string) (stores []string) {
	for _, place := range t.Keep {
		if c, store, ok := strings.Cut(place, "/"); ok && c == cell {
			stores = append(stores, store)
		}
	}
	return stores
}
