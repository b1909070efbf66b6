package quorum

import (
	"math"
	"time"
)

// never is the time of a timer that is not set.
const never time.Duration = math.MaxInt64

// A timer wakes one claim, session, attempt or errand.
type timer struct {
	at      time.Duration
	index   int // 1 + the place in the heap; 0: it is not set
	order   uint64
	claim   *claim
	session *session
	attempt *attempt
	errand  *errand
}

// timers is a heap of timers, the earliest first. Of equal times the timer set first goes first, so
// that equal inputs lead to equal outputs.
type timers []*timer

func (h timers) less(i, k int) bool {
	return h[i].at < h[k].at || h[i].at == h[k].at && h[i].order < h[k].order
}

func (h timers) swap(i, k int) {
	h[i], h[k] = h[k], h[i]
	h[i].index, h[k].index = i+1, k+1
}

func (h timers) lift(i int) {
	for i > 0 && h.less(i, (i-1)/2) {
		h.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
}

func (h timers) sink(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(h); child++ {
			if h.less(child, least) {
				least = child
			}
		}
		if least == i {
			return
		}
		h.swap(i, least)
		i = least
	}
}

// set sets t to the given time; never: t is not in the heap any more.
func (h *timers) set(t *timer, at time.Duration) {
	t.at = at
	i := t.index - 1
	switch {
	case i < 0 && at == never:
		return
	case i < 0:
		*h = append(*h, t)
		t.index = len(*h)
		h.lift(t.index - 1)
	case at == never:
		last := len(*h) - 1
		h.swap(i, last)
		(*h)[last] = nil
		*h = (*h)[:last]
		t.index = 0
		if i < last {
			h.lift(i)
			h.sink(i)
		}
	default:
		h.lift(i)
		h.sink(t.index - 1)
	}
}
