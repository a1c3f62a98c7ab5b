package app

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"recount/internal/intake"
)

const (
	// coordinatorCell is the name of the coordinator's own cell on receipts.
	coordinatorCell = "scoring"
	// graphCell serves from memory, behind a journal and a lease.
	graphCell = "graph"
)

// cells are ours, with the kinds of record that each takes in: one table for each kind.
func cells() map[string][]intake.Kind {
	return map[string][]intake.Kind{
		"ingest":        {intake.Events()},
		coordinatorCell: {intake.Scores()},
		graphCell:       {intake.Edges()},
		"causal":        {intake.Holdouts(), intake.Outcomes()},
	}
}

// kindsOf are the kinds of one cell. A cell without any would start, and verify nothing: it is an error.
func kindsOf(name string) ([]intake.Kind, error) {
	kinds := cells()[name]
	if len(kinds) == 0 {
		return nil, fmt.Errorf("no kind of record is known for the cell %q", name)
	}
	return kinds, nil
}

// checkCell says whether CELL names a cell that cmd/cell runs.
func checkCell(name string) error {
	ours := cells()
	delete(ours, coordinatorCell)
	if _, known := ours[name]; !known {
		return fmt.Errorf("CELL: %q is none of %s (the scoring cell is cmd/coordinator)", name, strings.Join(slices.Sorted(maps.Keys(ours)), ", "))
	}
	return nil
}
