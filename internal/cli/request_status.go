package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"

	"recount/internal/subject"
)

const (
	redrawEvery = 500 * time.Millisecond
	maxMissed   = 60 // answers in a row that may be missing while a request is followed
)

type statusCmd struct {
	requestID
	Watch bool `help:"Follow the request until it is over or has failed, through pending stores and missing approvals."`
}

// Help is shown below the flags.
func (statusCmd) Help() string {
	return `On a terminal a request that is running is followed until it is closed, pending or failed. The coordinator goes on whether anybody
looks or not.

Exit codes: 0 closed, 3 still open or pending, 4 failed, rejected, cancelled, or closed without having searched the identifier strings.`
}

// Run shows the request, and answers the exit code of its state.
func (c *statusCmd) Run(ctx context.Context, s *session) error {
	a, err := c.begin(s)
	if err != nil {
		return err
	}
	r, err := a.fetch(ctx, c.ID)
	if err != nil {
		return fmt.Errorf("the request could not be read: %w", err)
	}
	return a.watch(ctx, r, c.Watch)
}

// watch shows a request, follows it where there is something to follow, and answers the exit code of its state.
func (a *admin) watch(ctx context.Context, r shown, patient bool) error {
	w := &watcher{admin: a, patient: patient, said: map[string]string{}}
	last, err := w.follow(ctx, r)
	switch {
	case interrupted(ctx):
		a.note("Stopped looking. The request goes on by itself: recount status %s", r.ID)
		return exit(exitInterrupted)
	case err != nil:
		return fmt.Errorf("the request can't be followed any more, and goes on by itself: %w", err)
	case a.json:
		if err := a.writeRaw(last.raw); err != nil {
			return err
		}
	default:
		w.draw(a.statusLines(last.Request, time.Now()), true)
		if steps := nextSteps(last.Request, time.Now()); len(steps) > 0 {
			a.say("")
			a.next(last.Request)
		}
	}
	return exitForState(last.State)
}

// watcher follows one request.
type watcher struct {
	*admin
	patient bool              // goes on while the request waits for something
	drawn   int               // lines that stand above the cursor and are drawn over
	said    map[string]string // without a terminal: what was said last, by stage
}

// ended reports whether there is nothing to follow, or not any more.
func (w *watcher) ended(state string) bool {
	switch {
	case over(state), state == stateFailed:
		return true
	case w.patient:
		return false
	case w.live && !w.json:
		return state != stateApproved && state != stateRunning
	default:
		return true
	}
}

// follow asks for the request again and again until there is nothing more to see.
func (w *watcher) follow(ctx context.Context, r shown) (shown, error) {
	missed := 0
	for !w.ended(r.State) {
		switch {
		case w.json:
		case w.live:
			w.draw(w.statusLines(r.Request, time.Now()), false)
		default:
			w.tell(r)
		}
		pause := redrawEvery
		for {
			sleep(ctx, pause)
			if interrupted(ctx) {
				return r, nil
			}
			now, err := w.fetch(ctx, r.ID)
			if err == nil {
				r, missed = now, 0
				break
			}
			if missed++; missed > maxMissed || !passing(err) {
				return r, err
			}
			var later *callError
			if errors.As(err, &later) {
				pause = max(redrawEvery, later.retryAfter)
			}
		}
	}
	return r, nil
}

// passing reports whether an error may be gone at the next try.
func passing(err error) bool {
	var failed *callError
	if !errors.As(err, &failed) {
		return false
	}
	switch failed.reason {
	case subject.ReasonPeerUnreachable, subject.ReasonPeerTimeout, subject.ReasonPeerUnavailable:
		return true
	default:
		return failed.retryAfter > 0
	}
}

// tell says what has changed, line by line, where nothing can be drawn over.
func (w *watcher) tell(r shown) {
	at := time.Now().UTC().Format("15:04:05")
	say := func(what, now string) {
		if w.said[what] != now {
			w.say("%s  %s: %s", at, what, now)
		}
		w.said[what] = now
	}
	say("request", printable(r.State)+withDetail(r.StateDetail))
	for _, st := range r.Stages {
		if st.Status != "waiting" {
			say("stage "+printable(st.Name), printable(st.Status)+withDetail(st.Detail))
		}
	}
	for _, o := range r.Stores {
		say("store "+printable(o.Cell)+"/"+printable(o.Store), fmt.Sprintf("%s, %s of %s left", printable(o.Status), number(o.Remaining), number(o.Before)))
	}
}

// draw prints lines, over those that it printed before. While more are to come, they are no more and no wider than the
// terminal has room for: one that wraps could not be drawn over.
func (w *watcher) draw(lines []string, last bool) {
	var out strings.Builder
	if w.drawn > 0 {
		_, _ = fmt.Fprintf(&out, "\x1b[%dA\r", w.drawn)
	}
	if last && w.drawn > 0 {
		out.WriteString("\x1b[J")
	}
	if width, height := w.size(); !last {
		if height > 2 && len(lines) >= height {
			lines = append(lines[:height-2:height-2], w.paint(faint, "  …"))
		}
		for i, line := range lines {
			lines[i] = "\x1b[2K" + text.Trim(line, max(width-1, 1))
		}
	}
	out.WriteString(strings.Join(lines, "\n") + "\n")
	if !last {
		out.WriteString("\x1b[J")
	}
	_, _ = fmt.Fprint(w.out, out.String())
	w.drawn = len(lines)
}
