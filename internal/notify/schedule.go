package notify

import (
	"math/rand/v2"
	"time"
)

// delays are the waits after the first, second, … failed attempt: a little over three days together.
var delays = [...]time.Duration{
	5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour,
	10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
}

// giveUp is the age past which nothing is tried again, whatever is left of the attempts: they may have waited for a
// service that was down. It is more than all delays with their jitter.
const giveUp = 5 * 24 * time.Hour

// Next is when to try a callback again after so many attempts, the first of them made at since and the last failed at
// now: 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 14 h, 20 h and 24 h, each up to a fifth longer. With no attempt made, it is
// now. It answers false when the attempts are used up, or the next would be more than five days after since.
func Next(attempt int, since, now time.Time) (time.Time, bool) {
	if attempt <= 0 {
		return now, true
	}
	if attempt > len(delays) {
		return time.Time{}, false
	}
	delay := delays[attempt-1]
	next := now.Add(delay + rand.N(delay/5+1)) //nolint:gosec // jitter is no secret
	if next.Sub(since) > giveUp {
		return time.Time{}, false
	}
	return next, true
}
