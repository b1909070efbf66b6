package remote

import (
	"slices"
	"sync"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// hearings are whom to tell of what becomes of each session. They have a mutex of
// their own, which is not held while somebody is told.
type hearings struct {
	mu    sync.Mutex
	of    map[string]*hearing
	asked uint64 // attaches that were begun
	swept int    // how many sessions were left when they were last swept
}

// A hearing is who hears of one session. What is refused changes nothing, and hints
// may come before the answer, so who asks is told beside who has the session.
type hearing struct {
	notify func([]lockkeeper.Status) // of the latest attach that was granted; nil if nobody is told
	number uint64                    // of that attach; 0 if there was none
	epoch  uint64                    // that it gave
	ttl    time.Duration             // as the latest lease of it said
	seen   time.Time                 // when that was answered
	asking []*func([]lockkeeper.Status)
}

// ask has notify told of the session, until what it returns is called: with the lease
// if the attach was granted, else with nil.
func (hs *hearings) ask(session string, notify func([]lockkeeper.Status)) (answered func(*lockkeeper.Lease)) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.asked++
	number := hs.asked
	h := hs.of[session]
	if h == nil {
		h = new(hearing)
		hs.of[session] = h
	}
	mine := &notify
	h.asking = append(h.asking, mine)
	return func(lease *lockkeeper.Lease) {
		hs.mu.Lock()
		defer hs.mu.Unlock()
		h.asking = slices.DeleteFunc(h.asking, func(other *func([]lockkeeper.Status)) bool { return other == mine })
		switch {
		case lease != nil && number > h.number:
			h.notify, h.number, h.epoch, h.ttl, h.seen = notify, number, lease.Key.Epoch, lease.TTL, time.Now()
			hs.sweep()
		case h.number == 0 && len(h.asking) == 0:
			delete(hs.of, session)
		}
	}
}

// renewed notes that the session lives.
func (hs *hearings) renewed(lease *lockkeeper.Lease) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if h := hs.of[lease.Key.Session]; h != nil && h.epoch == lease.Key.Epoch {
		h.ttl, h.seen = lease.TTL, time.Now()
	}
}

// left forgets the session.
func (hs *hearings) left(session string) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if h := hs.of[session]; h != nil && len(h.asking) > 0 {
		h.notify, h.number = nil, 0
	} else {
		delete(hs.of, session)
	}
}

// sweep forgets the sessions that nobody has renewed for so long that they must have
// ended, when there are twice as many as those that were left the last time.
func (hs *hearings) sweep() {
	if len(hs.of) < 2*hs.swept+smallSweep {
		return
	}
	for session, h := range hs.of {
		if len(h.asking) == 0 && time.Since(h.seen) > 2*h.ttl {
			delete(hs.of, session)
		}
	}
	hs.swept = len(hs.of)
}

const smallSweep = 64

// those are who is to be told of a session.
func (hs *hearings) those(session string) []func([]lockkeeper.Status) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return hs.of[session].all(nil)
}

// everybody is who is to be told of any session.
func (hs *hearings) everybody() (all []func([]lockkeeper.Status)) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for _, h := range hs.of {
		all = h.all(all)
	}
	return all
}

// all adds those who hear.
func (h *hearing) all(to []func([]lockkeeper.Status)) []func([]lockkeeper.Status) {
	if h == nil {
		return to
	}
	if h.notify != nil {
		to = append(to, h.notify)
	}
	for _, notify := range h.asking {
		if *notify != nil {
			to = append(to, *notify)
		}
	}
	return to
}

// clear forgets all sessions.
func (hs *hearings) clear() {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	clear(hs.of)
}
