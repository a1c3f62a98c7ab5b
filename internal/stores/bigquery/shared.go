package bigquery

import (
	"context"
	"sync"

	"recount/internal/subject"
)

// maxShared is how many subjects one statement takes.
const maxShared = 1000

// shared lets concurrent calls about single subjects of one tenant share a statement. A call joins the next statement
// and never one that has begun: what it answers was measured after it was asked. At most one statement runs per tenant.
type shared struct {
	life context.Context //nolint:containedctx // a statement outlives the callers that gave up on it
	run  func(ctx context.Context, subjects []subject.Subject) ([]int64, error)

	mu    sync.Mutex
	lanes map[string][]*call // by tenant, those that wait; an entry means that a statement is running
}

type call struct {
	ctx     context.Context //nolint:containedctx // a caller that gave up before its statement began is left out
	subject subject.Subject
	done    chan struct{}
	n       int64
	err     error
}

func newShared(life context.Context, run func(context.Context, []subject.Subject) ([]int64, error)) *shared {
	return &shared{life: life, run: run, lanes: map[string][]*call{}}
}

// do answers the number for one subject.
func (s *shared) do(ctx context.Context, who subject.Subject) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, &failure{"a statement that nobody waits for", err}
	}
	c := &call{ctx: ctx, subject: who, done: make(chan struct{})}
	s.mu.Lock()
	waiting, running := s.lanes[who.Tenant()]
	s.lanes[who.Tenant()] = append(waiting, c)
	s.mu.Unlock()
	if !running {
		go s.drain(who.Tenant())
	}
	select {
	case <-c.done:
		return c.n, c.err
	case <-ctx.Done():
		return 0, &failure{"waiting for a statement", ctx.Err()}
	}
}

// drain runs statements until no call of the tenant waits.
func (s *shared) drain(tenant string) {
	for {
		s.mu.Lock()
		waiting := s.lanes[tenant]
		if len(waiting) == 0 {
			delete(s.lanes, tenant)
			s.mu.Unlock()
			return
		}
		n := min(len(waiting), maxShared)
		s.lanes[tenant] = waiting[n:]
		s.mu.Unlock()
		s.together(waiting[:n])
	}
}

// together runs one statement for the calls that still wait for it.
func (s *shared) together(calls []*call) {
	var subjects []subject.Subject
	position := map[subject.Subject]int{}
	for _, c := range calls {
		if _, ok := position[c.subject]; !ok && c.ctx.Err() == nil {
			position[c.subject] = len(subjects)
			subjects = append(subjects, c.subject)
		}
	}
	var numbers []int64
	var err error
	if len(subjects) > 0 {
		numbers, err = s.safely(subjects)
	}
	for _, c := range calls {
		if i, ok := position[c.subject]; ok && err == nil {
			c.n = numbers[i]
		} else if c.err = err; err == nil {
			c.err = &failure{"waiting for a statement", c.ctx.Err()}
		}
		close(c.done)
	}
}

func (s *shared) safely(subjects []subject.Subject) (numbers []int64, err error) {
	defer func() {
		if recover() != nil {
			err = &subject.Fault{Reason: subject.ReasonPanic}
		}
	}()
	return s.run(s.life, subjects)
}
