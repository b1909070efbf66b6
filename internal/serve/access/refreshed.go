package access

import (
	"sync"
	"time"
)

// smallest is the number of sessions at which the first sweep is worth its cost.
const smallest = 64

// refreshed has the sessions that live by their TTL alone, without a connection: those of names
// and of claims made over HTTP. It records the end of each TTL, counted from the last attach or
// renewal that the gate permitted.
type refreshed struct {
	mu      sync.Mutex           // guards all below
	until   map[string]time.Time // by the engine's id of the session
	sweepAt int
}

// note records a session that was attached or renewed, if it lives by its TTL alone. The gate
// recognises renewals only of sessions that it attached.
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

// Refreshed reports whether a session that outlives its processes was attached or renewed through
// this gate within its TTL: its client may have no other way to the engine. The id is that at the
// engine.
func (g *Gate) Refreshed(session string) bool {
	g.refreshed.mu.Lock()
	defer g.refreshed.mu.Unlock()
	return time.Now().Before(g.refreshed.until[session])
}
