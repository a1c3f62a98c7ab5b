package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"recount/internal/wire"
)

type healthCmd struct{}

// Help is shown below the flags.
func (healthCmd) Help() string {
	return `Asks /health, which says what a service is, and /ready, which asks its stores. Exits 4 when a service is down or not
ready, answers under another name, or when the coordinator lacks the address of a peer (cascade_peers_configured).`
}

// summary is the JSON of a command that asks everybody.
type summary[T any] struct {
	Status string `json:"status"`
	Cells  []T    `json:"cells"`
}

// health is how one service is.
type health struct {
	Cell   string `json:"cell"`
	URL    string `json:"url"`
	Up     bool   `json:"up"`
	Ready  bool   `json:"ready"`
	Detail string `json:"detail"`

	Version                string             `json:"version"`
	Stores                 []wire.HealthStore `json:"stores"`
	GraphJournal           string             `json:"graph_journal,omitzero"`
	CascadePeersConfigured *bool              `json:"cascade_peers_configured,omitzero"`
	CascadePeers           map[string]bool    `json:"cascade_peers,omitzero"`
}

// good reports whether an erasure can count on the service.
func (h health) good() bool {
	return h.Up && h.Ready && (h.CascadePeersConfigured == nil || *h.CascadePeersConfigured)
}

// Run asks everybody at once.
func (healthCmd) Run(ctx context.Context, s *session) error {
	everyone := s.everyone()
	found := make([]health, len(everyone))
	var group errgroup.Group
	for i, t := range everyone {
		group.Go(func() error {
			found[i] = s.health(ctx, t)
			return nil
		})
	}
	_ = group.Wait() // no error is possible
	if interrupted(ctx) {
		return exit(exitInterrupted)
	}
	for _, name := range s.withoutAddress(found[0].CascadePeers) {
		found = append(found, health{Cell: name, Detail: errNoAddress.Error(), Stores: []wire.HealthStore{}})
	}
	bad := slices.ContainsFunc(found, func(h health) bool { return !h.good() })
	if s.json {
		status := "ok"
		if bad {
			status = "failed"
		}
		if err := s.writeJSON(summary[health]{Status: status, Cells: found}); err != nil {
			return err
		}
	} else {
		s.showHealth(found, bad)
	}
	if bad {
		return exit(exitFailed)
	}
	return nil
}

// health asks one service.
func (s *session) health(ctx context.Context, t target) health {
	h := health{Cell: t.name, URL: t.base.String(), Stores: []wire.HealthStore{}}
	said, err := s.askHealth(ctx, t)
	if err != nil {
		h.Detail = err.Error()
		return h
	}
	h.Up, h.Version = true, printable(said.Version)
	for _, store := range said.Stores {
		h.Stores = append(h.Stores, wire.HealthStore{Store: printable(store.Store), Backend: printable(store.Backend)})
	}
	h.GraphJournal, h.CascadePeers = printable(said.GraphJournal), said.CascadePeers
	if t.name == coordinatorCell {
		configured := said.CascadePeersConfigured != nil && *said.CascadePeersConfigured
		h.CascadePeersConfigured = &configured
	}
	got, err := s.call.get(ctx, t, "/ready")
	switch {
	case err != nil:
		h.Detail = err.Error()
	case got.code != http.StatusOK:
		h.Detail = "not ready: " + got.refusal().Error()
	default:
		h.Ready = true
	}
	return h
}

var errNoAddress = errors.New("the coordinator knows this cell, and --cell gives no address for it")

// withoutAddress are the peers that the coordinator knows and nobody gave an address for: they hold data too.
func (s *session) withoutAddress(peers map[string]bool) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(peers)) {
		if !slices.ContainsFunc(s.cells, func(t target) bool { return t.name == name }) {
			out = append(out, printable(name))
		}
	}
	return out
}

// askHealth reads /health, and refuses an answer that is another cell's.
func (s *session) askHealth(ctx context.Context, t target) (wire.Health, error) {
	got, err := s.call.get(ctx, t, "/health")
	if err != nil {
		return wire.Health{}, err
	}
	if got.code != http.StatusOK {
		return wire.Health{}, got.refusal()
	}
	var said wire.Health
	if err := decodeLoosely(got.body, &said); err != nil {
		return wire.Health{}, fmt.Errorf("what answers there is no cell: its /health is not JSON of the contract")
	}
	if said.Cell != t.name {
		return wire.Health{}, fmt.Errorf("another cell answers there, by the name of %q", printable(said.Cell))
	}
	return said, nil
}

func (s *session) showHealth(found []health, bad bool) {
	rows := [][]string{}
	for _, h := range found {
		state := "down"
		switch {
		case h.Up && h.Ready:
			state = "ready"
		case h.Up:
			state = "up, not ready"
		}
		if h.Up && h.Ready {
			state = s.paint(green, state)
		} else {
			state = s.paint(red, state)
		}
		names := make([]string, len(h.Stores))
		for i, store := range h.Stores {
			names[i] = store.Store + s.paint(faint, " ("+store.Backend+")")
		}
		rows = append(rows, []string{s.good(h.Up && h.Ready), h.Cell, state, strings.Join(names, ", "), h.Version, h.URL})
	}
	s.table([]column{
		{title: ""}, {title: "CELL"}, {title: "STATE"}, {title: "STORES"}, {title: "VERSION", spare: true}, {title: "URL", spare: true},
	}, rows)
	s.say("")
	for _, h := range found {
		if h.Detail != "" {
			s.say("  %s: %s", s.paint(bold, h.Cell), h.Detail)
		}
		if h.CascadePeersConfigured != nil {
			s.showPeers(h)
		}
		if h.GraphJournal != "" {
			s.say("  graph_journal: %s", h.GraphJournal)
		}
		if h.GraphJournal == "off" {
			s.say("    The graph lives in one instance's memory: it is lost at a restart. Rows of an earlier journal stay until")
			s.say("    `recount journal purge` empties it.")
		}
	}
	if bad {
		s.say("%s Not everything is well: an erasure would be failed, not erased.", s.good(false))
		return
	}
	s.say("%s All %s are ready.", s.good(true), plural(len(found), "service"))
}

func (s *session) showPeers(h health) {
	peers := []string{}
	for name, set := range h.CascadePeers {
		peers = append(peers, fmt.Sprintf("%s %s", printable(name), s.good(set)))
	}
	slices.Sort(peers)
	line := fmt.Sprintf("  cascade_peers_configured: %t", *h.CascadePeersConfigured)
	if len(peers) > 0 {
		line += "  (" + strings.Join(peers, ", ") + ")"
	}
	s.say("%s", line)
}
