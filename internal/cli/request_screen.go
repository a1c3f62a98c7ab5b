package cli

import (
	"fmt"
	"strings"
	"time"

	"recount/internal/wire"
)

// approvalsNeeded is how many people approve a request.
const approvalsNeeded = 2

// barWidth is that of every bar, in columns.
const barWidth = 20

// statusLines is one screen about a request.
func (s *screen) statusLines(r wire.Request, now time.Time) []string {
	var out strings.Builder
	v := *s
	v.out = &out
	v.say("%s %s  %s", v.stateMark(r.State), v.stateWord(r.State), v.paint(faint, r.ID))
	v.statusFields(r, now)
	v.statusStages(r, now)
	v.statusStores(r)
	return strings.Split(strings.TrimRight(out.String(), "\n"), "\n")
}

func (s *screen) statusFields(r wire.Request, now time.Time) {
	s.field("about", fmt.Sprintf("tenant %s, %s, Art. %s; %s, %s, %s", printable(r.TenantID), printable(r.Policy), printable(r.LegalRef),
		plural(r.Persons, "identity id"), plural(r.Identifiers, "identifier string"), plural(r.WholeSources, "whole source")))
	clock := clockOf(r, now)
	switch left := daysLeft(r.DueAt, now); {
	case over(r.State):
	case left < 0:
		clock = s.paint(red, clock)
	case left <= 7:
		clock = s.paint(yellow, clock)
	}
	if r.Extension != nil {
		clock += ", extended"
	}
	s.field("clock", clock+" (due "+moment(r.DueAt)+")")
	if v := r.Verification; v != nil {
		s.field("identity", "verified by "+printable(v.By.Email)+": "+printable(v.Method))
	} else {
		s.field("identity", "not verified yet")
	}
	s.field("approvals", approvalsOf(r, now))
	if r.Hold != nil {
		s.field("hold", s.paint(yellow, printable(r.Hold.Ref)))
	}
	for _, e := range r.Exclusions {
		s.field("retained", printable(e.Store)+" under Art. "+printable(e.Article))
	}
	s.field("detail", printable(r.StateDetail))
	if r.Refusal != nil {
		s.field("reason", printable(r.Refusal.Reason))
	}
	if r.State == statePending && r.NextTryAt != nil {
		again := "tried again in " + span(r.NextTryAt.Sub(now))
		if r.Deadline != nil {
			again += ", until " + moment(*r.Deadline)
		}
		s.field("pending", again)
	}
}

func approvalsOf(r wire.Request, now time.Time) string {
	var by []string
	for _, a := range r.Approvals {
		who := printable(a.By.Email)
		if !now.Before(a.ExpiresAt) && (r.State == stateVerified || r.State == statePreviewed) {
			who += " (expired)"
		}
		by = append(by, who)
	}
	words := fmt.Sprintf("%d of %d", len(by), approvalsNeeded)
	if len(by) > 0 {
		words += ": " + strings.Join(by, ", ")
	}
	return words
}

// statusStages is a bar over the stages, and each of them.
func (s *screen) statusStages(r wire.Request, now time.Time) {
	done, begun, widest := 0, false, 0
	for _, st := range r.Stages {
		if st.Status == "done" || st.Status == "not_applicable" {
			done++
		}
		begun = begun || st.Status != "waiting"
		widest = max(widest, len(st.Name))
	}
	if !begun {
		return
	}
	s.say("")
	s.say("  %s  %s  %d of %d", s.paint(faint, fmt.Sprintf("%-11s", "stages")), s.bar(int64(done), int64(len(r.Stages)), green), done, len(r.Stages))
	for _, st := range r.Stages {
		took := ""
		switch {
		case st.StartedAt != nil && st.FinishedAt != nil:
			took = span(st.FinishedAt.Sub(*st.StartedAt))
		case st.StartedAt != nil && st.Status == "running":
			took = span(now.Sub(*st.StartedAt))
		}
		words := fmt.Sprintf("    %s %-*s  %-14s  %6s", s.stageMark(st.Status), widest, printable(st.Name), printable(strings.ReplaceAll(st.Status, "_", " ")), took)
		if st.Detail != "" {
			words += "  " + s.paint(faint, printable(st.Detail))
		}
		s.say("%s", strings.TrimRight(words, " "))
	}
}

// statusStores is a bar for each store: what is gone of what was there.
func (s *screen) statusStores(r wire.Request) {
	if len(r.Stores) == 0 {
		return
	}
	widest := 0
	for _, o := range r.Stores {
		widest = max(widest, len(o.Cell)+1+len(o.Store))
	}
	s.say("")
	s.say("  %s", s.paint(faint, "stores"))
	for _, o := range r.Stores {
		before, _ := o.Before.Value()
		remaining, measured := o.Remaining.Value()
		gone, all, colour := max(before-remaining, 0), before, green
		if before == 0 && measured && remaining == 0 {
			gone, all = 1, 1
		}
		if !measured {
			gone = 0
		}
		if o.Status != "erased" {
			colour = yellow
		}
		left := number(o.Remaining) + " left"
		if _, counted := o.Before.Value(); counted {
			left = number(o.Remaining) + " of " + number(o.Before) + " left"
		}
		words := fmt.Sprintf("    %s %-*s  %s  %s", s.storeMark(o.Status), widest, printable(o.Cell)+"/"+printable(o.Store),
			s.bar(gone, all, colour), left)
		for _, more := range []string{basisOf(o), printable(o.Detail)} {
			if more != "" {
				words += "  " + s.paint(faint, more)
			}
		}
		s.say("%s", words)
	}
}

func basisOf(o wire.StoreOutcome) string {
	if o.Basis == "" {
		return ""
	}
	return "retained under Art. " + printable(o.Basis)
}

// bar is full when everything is done, and never before.
func (s *screen) bar(done, all int64, colour string) string {
	full := 0
	if all > 0 {
		full = int(float64(barWidth) * float64(min(done, all)) / float64(all))
		if done < all {
			full = min(full, barWidth-1)
		}
	}
	return s.paint(colour, strings.Repeat("█", full)) + s.paint(faint, strings.Repeat("░", barWidth-full))
}

func (s *screen) stateMark(state string) string {
	switch state {
	case stateClosed:
		return s.paint(green, "✓")
	case stateFailed, stateRejected, stateCancelled:
		return s.paint(red, "✗")
	case stateUnverified:
		return s.paint(yellow, "!")
	default:
		return s.paint(yellow, "…")
	}
}

func (s *screen) stageMark(status string) string {
	switch status {
	case "done":
		return s.paint(green, "✓")
	case "not_applicable":
		return s.paint(faint, "–")
	case "running":
		return s.paint(bold, "▸")
	case "pending":
		return s.paint(yellow, "…")
	case "failed":
		return s.paint(red, "✗")
	default:
		return s.paint(faint, "·")
	}
}

func (s *screen) storeMark(status string) string {
	switch status {
	case "erased":
		return s.paint(green, "✓")
	case "pending":
		return s.paint(yellow, "…")
	case "retained_article_17_3":
		return s.paint(yellow, "–")
	default:
		return s.paint(red, "✗")
	}
}
