package cli

import (
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"
)

// progressBar is drawn on a terminal while a batch runs. A nil one draws nothing.
type progressBar struct {
	writer  progress.Writer
	tracker *progress.Tracker
	done    chan struct{}
}

// newProgress draws a bar where somebody can see it and there is something to wait for.
func (s *session) newProgress(total int) *progressBar {
	if !s.errTerminal || total < 2 {
		return nil
	}
	w := progress.NewWriter()
	w.SetOutputWriter(s.err)
	w.SetUpdateFrequency(100 * time.Millisecond)
	w.SetTrackerLength(30)
	w.SetStyle(progress.StyleBlocks)
	w.Style().Visibility = progress.StyleVisibility{ETA: true, Percentage: true, Time: true, Tracker: true, Value: true}
	if s.errIsColours {
		w.Style().Colors = progress.StyleColorsExample
	}
	p := &progressBar{
		writer: w, tracker: &progress.Tracker{Message: "Erasing", Total: int64(total)}, done: make(chan struct{}),
	}
	w.AppendTracker(p.tracker)
	go func() {
		defer close(p.done)
		w.Render()
	}()
	return p
}

func (p *progressBar) add(n int) {
	if p != nil {
		p.tracker.Increment(int64(n))
	}
}

// stop draws the last state and leaves the terminal to what follows.
func (p *progressBar) stop() {
	if p == nil {
		return
	}
	if !p.tracker.IsDone() {
		p.tracker.MarkAsErrored()
	}
	for { // a Stop before the first drawing is lost
		p.writer.Stop()
		select {
		case <-p.done:
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}
