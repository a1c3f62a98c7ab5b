package cli

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"recount/internal/subject"
	"recount/internal/wire"
)

const graphCell = "graph"

type journalCmd struct {
	Purge purgeCmd `cmd:"" help:"Empty the graph's journal of a project that is no longer configured."`
}

type purgeCmd struct {
	Project string `required:"" placeholder:"PROJECT" help:"The project whose Firestore holds the journal."`
	Yes     bool   `help:"Don't ask. For scripts."`
}

// Help is shown below the flags.
func (purgeCmd) Help() string {
	return `A journal that was on and is now unset still holds people's edges, and no erasure reaches them. This deletes every edge of
it, everybody's, for good. On a terminal you type the project's name to go on; a script says --yes.`
}

// journalAnswer is what the graph cell says: remaining is its count after the delete.
type journalAnswer struct {
	Cell      wire.PeerText  `json:"cell"`
	Deleted   wire.PeerCount `json:"deleted"`
	Remaining wire.PeerCount `json:"remaining"`
}

// purged is the command's own JSON.
type purged struct {
	Status    string        `json:"status"`
	Project   string        `json:"project"`
	Deleted   subject.Count `json:"deleted"`
	Remaining subject.Count `json:"remaining"`
}

// Run asks first, then the graph cell.
func (c *purgeCmd) Run(ctx context.Context, s *session) error {
	at := slices.IndexFunc(s.cells, func(t target) bool { return t.name == graphCell })
	if at < 0 {
		return usagef("the graph cell has no address: --cell graph=URL")
	}
	if !c.Yes {
		warning := "This deletes every edge in the journal of " + printable(c.Project) + ", everybody's, for good."
		if err := s.confirmWord(ctx, warning, c.Project, "nothing was deleted"); err != nil {
			return err
		}
	}
	got, err := s.call.post(ctx, s.cells[at], "/v1/intent/graph/journal:purge", wire.PurgeRequest{Project: c.Project}, maxAnswer)
	if interrupted(ctx) {
		s.note("Interrupted. A purge that has started goes on; run the command again to see it counted.")
		return exit(exitInterrupted)
	}
	switch {
	case err != nil || got.code == http.StatusOK:
	case got.code == http.StatusNotFound:
		err = fmt.Errorf("HTTP 404: this cell has no journal elsewhere to purge; only a graph cell on Google Cloud has")
	default:
		err = got.refusal()
	}
	var said journalAnswer
	if err == nil && decodeLoosely(got.body, &said) != nil {
		err = fmt.Errorf("the answer is not JSON of the contract")
	}
	if err == nil && said.Cell != graphCell {
		err = fmt.Errorf("another cell answers there, by the name of %q", printable(string(said.Cell)))
	}
	deleted, _ := said.Deleted.Count()
	remaining, _ := said.Remaining.Count()
	if err == nil && !remaining.IsZero() {
		err = fmt.Errorf("the journal was not counted empty after the purge (remaining %s)", remaining)
	}
	if s.json {
		status := "purged"
		if err != nil {
			status = "failed"
		}
		if writeErr := s.writeJSON(purged{status, c.Project, deleted, remaining}); writeErr != nil {
			return writeErr
		}
	}
	switch {
	case err != nil:
		return fmt.Errorf("the journal is not purged: %w", err)
	case !s.json:
		s.say("%s %s: %s deleted, and 0 counted afterwards.", s.good(true), s.paint(bold, "purged"), edges(deleted.Value()))
	}
	return nil
}

func edges(n int64, measured bool) string {
	if !measured {
		return "an unknown number of edges"
	}
	return plural(int(n), "edge")
}
