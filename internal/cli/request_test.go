package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"pgregory.net/rapid"

	"recount/internal/wire"
)

func TestEveryCommandIsKnownByName(t *testing.T) {
	parser, err := kong.New(&command{})
	if err != nil {
		t.Fatal(err)
	}
	var look func(n *kong.Node)
	look = func(n *kong.Node) {
		for _, child := range n.Children {
			if !commandWords[child.Name] {
				t.Errorf("%s would be taken for a value", child.Name)
			}
			look(child)
		}
	}
	look(parser.Model.Node)
}

func TestABarIsFullOnlyWhenAllIsDone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.Int64Range(0, 1<<62).Draw(t, "all")
		done := rapid.Int64Range(0, 1<<62).Draw(t, "done")
		bar := (&screen{}).bar(done, all, green)
		if len([]rune(bar)) != barWidth || (bar == strings.Repeat("█", barWidth)) != (all > 0 && done >= all) {
			t.Fatalf("%d of %d: %q", done, all, bar)
		}
	})
}

func TestTheClockCountsWholeDays(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	ended := now.Add(50 * time.Hour)
	for _, c := range []struct {
		left  time.Duration
		state string
		ended *time.Time
		want  string
	}{
		{12*day + time.Hour, stateRunning, nil, "due in 12 days"},
		{day, stateFiled, nil, "due in 1 day"},
		{23 * time.Hour, stateFiled, nil, "due in 23 h"},
		{-time.Minute, stateFiled, nil, "overdue by 1 min"},
		{-3*day - 1, stateFailed, nil, "overdue by 3 days"},
		{day, stateClosed, &now, "ended 2026-03-01 12:00 UTC"},
		{-time.Hour, stateRejected, &ended, "ended 2 days too late"},
	} {
		if got := clockOf(wire.Request{DueAt: now.Add(c.left), State: c.state, ClosedAt: c.ended}, now); got != c.want {
			t.Errorf("%s: %q, want %q", c.left, got, c.want)
		}
	}
}

func TestARecipientIsReadAsItIsMeant(t *testing.T) {
	for text, want := range map[string]wire.Recipient{
		"mailer=https://x/?a=b!c":        {Name: "mailer", Callback: "https://x/?a=b!c"},
		"p!impossible=no, gone = gone":   {Name: "p", Status: "impossible", Reason: "no, gone = gone"},
		"p!disproportionate=a thousand!": {Name: "p", Status: "disproportionate", Reason: "a thousand!"},
		"p":                              {},
		"=https://x":                     {},
		"p!impossible=":                  {},
		"p!lost=x":                       {},
	} {
		if got, err := parseRecipient(text); got != want || (err == nil) != (want.Name != "") {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}
