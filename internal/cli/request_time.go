package cli

import (
	"fmt"
	"math"
	"time"

	"recount/internal/wire"
)

// day is how deadlines are told.
const day = 24 * time.Hour

// daysLeft is how many whole days there are; below 0 when none are.
func daysLeft(due, now time.Time) int { return int(math.Floor(due.Sub(now).Hours() / 24)) }

// clockOf says how a request stands with its time.
func clockOf(r wire.Request, now time.Time) string {
	switch left := daysLeft(r.DueAt, now); {
	case over(r.State) && r.ClosedAt != nil:
		if r.ClosedAt.After(r.DueAt) {
			return "ended " + span(r.ClosedAt.Sub(r.DueAt)) + " too late"
		}
		return "ended " + moment(*r.ClosedAt)
	case over(r.State):
		return "ended"
	case left < 0:
		return "overdue by " + span(now.Sub(r.DueAt))
	case left == 0:
		return "due in " + span(r.DueAt.Sub(now))
	default:
		return "due in " + plural(left, "day")
	}
}

// span is a time between two moments, in its largest unit.
func span(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(max(d, 0).Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 2*day:
		return fmt.Sprintf("%d h", int(d.Hours()))
	default:
		return plural(int(d/day), "day")
	}
}

// parseMoment reads a date, which begins at 0:00 UTC, or a time of RFC 3339.
func parseMoment(flag, text string) (time.Time, error) {
	if at, err := time.Parse(time.DateOnly, text); err == nil {
		return at, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, usagef("%s is a date such as 2026-03-01, or a time such as 2026-03-01T09:30:00Z", flag)
	}
	return at.UTC(), nil
}

func momentOf(t *time.Time) string {
	if t == nil {
		return ""
	}
	return moment(*t)
}
