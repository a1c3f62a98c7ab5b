package httpapi

import "time"

// Hurry shortens the end of a life.
func (l *Life) Hurry(softly, firmly time.Duration) { l.softly, l.firmly = softly, firmly }
