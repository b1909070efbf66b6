package observe

import (
	"context"
	"time"
)

// How much a watch follows as it happens, and how long it lets more come together
// when that is exceeded. To be woken for each change costs a busy engine's machine
// more than the change itself.
const (
	asItHappens = 1000 // changes a second, and as many at once
	gathering   = 5 * time.Millisecond
)

// A hurry tells whether a change may be taken in as it happens.
type hurry struct {
	spare float64   // changes that may be taken in at once
	at    time.Time // when that was so; zero: never
}

// spend takes one change, and reports whether there was one to spare.
func (h *hurry) spend(now time.Time) bool {
	h.spare = min(asItHappens, h.spare+now.Sub(h.at).Seconds()*asItHappens)
	if h.at.IsZero() {
		h.spare = asItHappens
	}
	h.at = now
	if h.spare < 1 {
		return false
	}
	h.spare--
	return true
}

// rest waits for d, or until ctx ends.
func rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
