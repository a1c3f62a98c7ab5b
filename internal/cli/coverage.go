package cli

import (
	"context"
	"fmt"
	"net/http"

	"golang.org/x/sync/errgroup"

	"recount/internal/wire"
)

type coverageCmd struct{}

// Help is shown below the flags.
func (coverageCmd) Help() string {
	return `Every cell compares the live schema of its databases with the tables that its stores cover. A suspect is a column whose
name looks like a person's key and that no store counts by: either a store is missing, or the column is harmless.

Exits 0 when there are none, 1 when there are (for CI), 4 when a cell can't be asked.`
}

// coverage is what one cell found.
type coverage struct {
	Cell     string         `json:"cell"`
	Status   string         `json:"status"` // "surveyed", "failed"
	Suspects []wire.Suspect `json:"suspects"`
	Detail   string         `json:"detail"`
}

// Run asks everybody at once.
func (coverageCmd) Run(ctx context.Context, s *session) error {
	everyone := s.everyone()
	found := make([]coverage, len(everyone))
	var group errgroup.Group
	for i, t := range everyone {
		group.Go(func() error {
			found[i] = s.coverage(ctx, t)
			return nil
		})
	}
	_ = group.Wait() // no error is possible
	if interrupted(ctx) {
		return exit(exitInterrupted)
	}
	if said, err := s.askHealth(ctx, s.coordinator); err == nil { // where it fails, the coordinator's own survey has failed too
		for _, name := range s.withoutAddress(said.CascadePeers) {
			found = append(found, coverage{Cell: name, Status: "failed", Detail: errNoAddress.Error(), Suspects: []wire.Suspect{}})
		}
	}
	suspects, failed := 0, 0
	for _, c := range found {
		suspects += len(c.Suspects)
		if c.Status != "surveyed" {
			failed++
		}
	}
	status, code := "covered", error(nil)
	switch {
	case failed > 0:
		status, code = "failed", exit(exitFailed)
	case suspects > 0:
		status, code = "suspects", exit(exitSuspects)
	}
	if s.json {
		if err := s.writeJSON(summary[coverage]{Status: status, Cells: found}); err != nil {
			return err
		}
		return code
	}
	s.showCoverage(found, suspects, failed)
	return code
}

func (s *session) coverage(ctx context.Context, t target) coverage {
	c := coverage{Cell: t.name, Status: "failed", Suspects: []wire.Suspect{}}
	got, err := s.call.get(ctx, t, "/v1/intent/coverage")
	if err == nil && got.code != http.StatusOK {
		err = got.refusal()
	}
	if err == nil {
		c.Suspects, err = readCoverage(got.body, t.name)
	}
	if err != nil {
		c.Detail, c.Suspects = err.Error(), []wire.Suspect{}
		return c
	}
	c.Status = "surveyed"
	return c
}

// readCoverage reads a cell's answer. A missing list is no empty one.
func readCoverage(body []byte, cell string) ([]wire.Suspect, error) {
	var said struct {
		Cell     wire.PeerText   `json:"cell"`
		Suspects *[]wire.Suspect `json:"suspects"`
	}
	if err := decodeLoosely(body, &said); err != nil || said.Suspects == nil {
		return nil, fmt.Errorf("the answer is not JSON of the contract")
	}
	if string(said.Cell) != cell {
		return nil, fmt.Errorf("another cell answers there, by the name of %q", printable(string(said.Cell)))
	}
	out := []wire.Suspect{}
	for _, found := range *said.Suspects {
		out = append(out, wire.Suspect{Table: printable(found.Table), Column: printable(found.Column)})
	}
	return out, nil
}

func (s *session) showCoverage(found []coverage, suspects, failed int) {
	rows := [][]string{}
	for _, c := range found {
		for _, one := range c.Suspects {
			rows = append(rows, []string{c.Cell, one.Table, one.Column})
		}
	}
	if len(rows) > 0 {
		s.table([]column{{title: "CELL"}, {title: "TABLE"}, {title: "COLUMN"}}, rows)
		s.say("")
	}
	for _, c := range found {
		if c.Detail != "" {
			s.say("  %s: %s", s.paint(bold, c.Cell), c.Detail)
		}
	}
	switch {
	case failed > 0:
		s.say("%s %s could not be asked: what is not covered there is not known.", s.good(false), plural(failed, "cell"))
	case suspects > 0:
		s.say("%s %s may hold people and no store answers for it. Add a store to the cell's file, or rename what is harmless.",
			s.good(false), plural(suspects, "column"))
	default:
		s.say("%s %s surveyed: every column that looks like a person's key belongs to a store.", s.good(true), plural(len(found), "cell"))
	}
}
