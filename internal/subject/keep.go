package subject

import (
	"slices"
	"strings"
)

// anyKept names all stores of a cell in Target.Keep.
const anyKept = "*"

// Keeps reports whether the target leaves a store of a cell alone.
func (t Target) Keeps(cell, store string) bool { return slices.Contains(t.Keep, cell+"/"+store) }

// KeepsAll reports whether the target leaves a whole cell alone.
func (t Target) KeepsAll(cell string) bool { return t.Keeps(cell, anyKept) }

// KeptIn are the names of the stores of a cell that the target leaves alone.
func (t Target) KeptIn(cell string) (stores []string) {
	for _, place := range t.Keep {
		if c, store, ok := strings.Cut(place, "/"); ok && c == cell {
			stores = append(stores, store)
		}
	}
	return stores
}
