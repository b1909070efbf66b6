package observe

import (
	"context"
	"time"
)

// A watch processes up to asItHappens changes a second one by one, with bursts of as many. Beyond
// that it pauses for gathering between batches, because each wakeup costs more than a change.
const (
	asItHappens = 1000
	gathering   = 5 * time.Millisecond
)

// A rateLimit is a token bucket of asItHappens tokens.
type rateLimit struct {
	spare float64   // tokens left at that time
	at    time.Time // zero: the bucket is full
}

// spend takes one token, and reports whether there was one.
func (h *rateLimit) spend(now time.Time) bool {
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

// sleep returns after d, or when ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
