package erasure

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/google/uuid"

	"recount/internal/subject"
	"recount/internal/wire"
)

// followMost and followRounds bound the derived items that are looked for: more than anybody approves, further than anybody
// computes.
const (
	followMost   = 50_000
	followRounds = 32
)

// follow adds to a survey, place by place, how many rows derive from the targets, in whatever cell and whoever they belong
// to: an erasure takes them too. It touches nothing.
func (s *Service) follow(ctx context.Context, all []subject.Target, found *survey) {
	found.open = map[string]subject.Reason{}
	var people []subject.Target
	own := map[subject.Source]bool{}
	for _, t := range all {
		if t.AboutPerson() {
			people = append(people, t)
		}
		for _, one := range t.Sources {
			own[one] = true
		}
	}
	maps.Copy(own, s.lead(ctx, people, found.open))
	derived := map[subject.Source]bool{}
	frontier := own
	for rounds := 0; len(frontier) > 0; rounds++ {
		if rounds == followRounds || len(derived) > followMost {
			found.open[s.Cells[0].Name()] = subject.ReasonSourcesOpen // there is more: what is counted is the least
			break
		}
		next := map[subject.Source]bool{}
		for one := range s.lead(ctx, s.asTargets(frontier), found.open) {
			if !own[one] && !derived[one] {
				derived[one], next[one] = true, true
			}
		}
		frontier = next
	}
	for chunk := range slices.Chunk(s.asTargets(derived), wire.MaxBatch) {
		for _, p := range s.survey(ctx, chunk, false).places {
			found.addDerived(p)
		}
	}
}

// lead asks every cell where the targets lead, one step far. What a cell can't say is noted.
func (s *Service) lead(ctx context.Context, targets []subject.Target, open map[string]subject.Reason) map[subject.Source]bool {
	leads := map[subject.Source]bool{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, cell := range s.Cells {
		wg.Go(func() {
			for chunk := range slices.Chunk(targets, wire.MaxBatch) {
				found, err := cell.Follow(ctx, uuid.NewString(), chunk)
				mu.Lock()
				if err != nil {
					open[cell.Name()] = subject.ReasonOf(err)
				}
				for _, sources := range found {
					for _, one := range sources {
						leads[one] = true
					}
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return leads
}

func (s *Service) asTargets(sources map[subject.Source]bool) []subject.Target {
	out := make([]subject.Target, 0, len(sources))
	for one := range sources {
		out = append(out, subject.Target{Tenant: one.Tenant(), Sources: []subject.Source{one}, Ref: one.Ref(s.Salt)})
	}
	return out
}

// addDerived adds what one place holds of derived items.
func (v *survey) addDerived(p *place) {
	for _, own := range v.places {
		if own.name() == p.name() {
			own.Derived = plus(own.Derived, p.Count)
			return
		}
	}
}
