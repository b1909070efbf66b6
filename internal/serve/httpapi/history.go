package httpapi

import (
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// maxHistoryBytes bounds a history, beside maxPast.
const maxHistoryBytes = 4 << 20

// A History keeps the latest changes of all claims, so that a stream with past=true shows what happened
// before anybody looked. The watch of the metrics, which follows the engine anyway, reports them. It is safe for
// concurrent use.
type History struct {
	mu     sync.Mutex // guards all below
	since  time.Time  // the history has all changes from then on; zero: nobody reports changes
	latest latest
}

func newHistory() *History {
	return &History{latest: latest{most: maxPast, mostBytes: maxHistoryBytes}}
}

// Begin says that changes are reported from now on, and that some may have been missed before.
func (h *History) Begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.since, h.latest = time.Now(), latest{most: maxPast, mostBytes: maxHistoryBytes}
}

// Changed reports a change. The history keeps what st points to.
func (h *History) Changed(st *lockkeeper.Status) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.latest.add(st) > 0 {
		h.since = h.latest.ring[h.latest.oldest].at
	}
}

// all returns the changes, the oldest first, and since when they are complete.
func (h *History) all() (events []event, since time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.latest.last(h.latest.count), h.since
}

// past returns the changes up to the mark m of the feed that the server remembers, the oldest first, and
// since when they are complete. The history may be a little behind the feed.
func (a *API) past(m mark) (events []event, since time.Time) {
	events, since = a.history.all()
	followed, followedSince := a.feed.until(m, maxPast)
	if since.IsZero() || followedSince.Before(since) {
		return followed, followedSince
	}
	known := make(map[subject]bool, len(events))
	for i := range events {
		known[subjectOf(&events[i].Status)] = true
	}
	for i := range followed {
		if !known[subjectOf(&followed[i].Status)] {
			events = append(events, followed[i])
		}
	}
	return events, since
}
