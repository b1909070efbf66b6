package access

import (
	"sync"
	"time"
)

// smallest is how many sessions make it worth to look which have ended.
const smallest = 64

// refreshed are the sessions that no connection stands for, since they live by their
// TTL alone: a name's, or those of claims made over HTTP. Each is kept with the end of
// its TTL, counted from when the gate last let it be attached or renewed.
type refreshed struct {
	mu      sync.Mutex           // guards all below
	until   map[string]time.Time // by the engine's id of the session
	sweepAt int
}

// note keeps a session that was attached or renewed, if it is one of those. Of a
// renewal the gate knows only what it attached.
func (r *refreshed) note(session string, ttl time.Duration, attached bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.until[session]; !known && !attached {
		return
	}
	now := time.Now()
	if r.until == nil {
		r.until, r.sweepAt = make(map[string]time.Time), smallest
	}
	if len(r.until) >= r.sweepAt {
		for id, until := range r.until {
			if !until.After(now) {
				delete(r.until, id)
			}
		}
		r.sweepAt = 2*len(r.until) + smallest
	}
	if until := now.Add(ttl); until.After(r.until[session]) {
		r.until[session] = until
	}
}

// forget drops a session that was left.
func (r *refreshed) forget(session string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.until, session)
}

// Refreshed reports whether a session that outlives its processes, by its id at the
// engine, was attached or renewed through this gate within its TTL: who has it may
// know no other way to the engine.
func (g *Gate) Refreshed(session string) bool {
	g.refreshed.mu.Lock()
	defer g.refreshed.mu.Unlock()
	return time.Now().Before(g.refreshed.until[session])
}
