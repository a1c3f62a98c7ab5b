package subject

import "sync"

// Flights lets concurrent erasures of one subject share the work. A caller never joins a flight that has begun: its
// recount could lie before a row that this caller saw acknowledged. Callers that come while one is in the air share the
// next one, so any number of them costs at most two. The zero value is ready.
type Flights struct {
	mu     sync.Mutex
	flying map[Subject]*schedule
}

type schedule struct {
	now, next *flight
}

type flight struct {
	done    chan struct{}
	erasure Erasure
}

// Do answers what came of a run that began after Do was called.
func (f *Flights) Do(s Subject, run func() Erasure) Erasure {
	f.mu.Lock()
	if f.flying == nil {
		f.flying = make(map[Subject]*schedule)
	}
	mine := &flight{done: make(chan struct{})}
	plan, busy := f.flying[s]
	switch {
	case !busy:
		f.flying[s] = &schedule{now: mine}
		f.mu.Unlock()
	case plan.next != nil:
		shared := plan.next
		f.mu.Unlock()
		<-shared.done
		return shared.erasure
	default:
		plan.next = mine
		before := plan.now
		f.mu.Unlock()
		<-before.done // land has made mine the flight that is in the air
	}
	defer f.land(s, mine)
	mine.erasure = run()
	return mine.erasure
}

func (f *Flights) land(s Subject, done *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if plan := f.flying[s]; plan.next != nil {
		plan.now, plan.next = plan.next, nil
	} else {
		delete(f.flying, s)
	}
	close(done.done)
}
