package server

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// A route leads hints about a session to the connection from which it was attached
// or renewed last. That can be one that its client has left already, of which what it
// sent is read late: when it ends, it gives the route back to the one before.
type route struct {
	server *Server
	epoch  uint64               // of the attach; 0 until it is answered
	conn   atomic.Pointer[conn] // never nil
	seen   atomic.Int64         // when it was attached or renewed last, in nanoseconds by routes.now
	ttl    time.Duration        // that the attach was promised
}

// tell is the engine's notify. It never blocks.
func (r *route) tell(statuses []lockkeeper.Status) {
	r.conn.Load().tell(statuses, r.server.ending.Load())
}

// routes are those of all sessions that were attached here.
type routes struct {
	began time.Time
	mu    sync.Mutex
	of    map[owned]*route
}

// owned names a session: two identities may have chosen the same id.
type owned struct{ identity, session string }

// now is the time since the server began. It does not jump with the wall clock.
func (rs *routes) now() time.Duration { return time.Since(rs.began) }

// attached notes that the session was attached, unless a later attach is noted.
func (rs *routes) attached(at owned, r *route, lease *lockkeeper.Lease) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if other := rs.of[at]; other != nil && other.epoch > lease.Key.Epoch {
		return
	}
	r.epoch, r.ttl = lease.Key.Epoch, lease.TTL
	r.seen.Store(int64(rs.now()))
	rs.of[at] = r
}

// errElsewhere is told who renews a session that was attached at another server of the
// engine, or at this one in a former life. Hints about it would go there, so it has to
// be attached here.
var errElsewhere error = &lockkeeper.Error{Err: lockkeeper.ErrSession, Detail: "it is not attached at this server"}

// renewing notes that the session is about to be renewed from c: what the renewal
// does not tell must come here. It reports whether the session is attached here.
func (rs *routes) renewing(k lockkeeper.Key, c *conn) bool {
	rs.mu.Lock()
	r := rs.of[owned{c.identity, k.Session}]
	rs.mu.Unlock()
	if r == nil || r.epoch != k.Epoch {
		return false
	}
	r.seen.Store(int64(rs.now()))
	if r.conn.Load() != c {
		if before := r.conn.Swap(c); before != c && before.lives() {
			c.took(r, before)
		}
	}
	return true
}

// mostTaken is how many routes a connection gives back at most.
const mostTaken = 16 << 10

// took keeps from whom c took the route.
func (c *conn) took(r *route, before *conn) {
	c.Lock()
	defer c.Unlock()
	if c.taken == nil || len(c.taken) == mostTaken {
		c.taken = make(map[*route]*conn)
	}
	c.taken[r] = before
}

// giveBack gives the routes that c took, and has still, to the connections before,
// whose clients may have missed hints. c has ended.
func (c *conn) giveBack() {
	c.Lock()
	taken := c.taken
	c.taken = nil
	c.Unlock()
	for r, before := range taken {
		if before.lives() && r.conn.CompareAndSwap(c, before) {
			before.miss()
		}
	}
}

// ended forgets the session's attach of that epoch.
func (rs *routes) ended(identity string, k lockkeeper.Key) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	at := owned{identity, k.Session}
	if r := rs.of[at]; r != nil && r.epoch == k.Epoch {
		delete(rs.of, at)
	}
}

// serves reports whether there is a connection from which the session, by its id at the
// engine, was attached or renewed last.
func (rs *routes) serves(session string) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r := rs.of[owned{"", session}]
	if identity, own, found := strings.Cut(session, ":"); r == nil && found { // as package access names it
		r = rs.of[owned{identity, own}]
	}
	return r != nil && r.conn.Load().lives()
}

// sweep forgets the sessions that must have ended by now.
func (rs *routes) sweep() {
	now := rs.now()
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for at, r := range rs.of {
		if age := now - time.Duration(r.seen.Load()); age > r.ttl+sweepTime {
			delete(rs.of, at)
		}
	}
}

// count is how many sessions there are, of which some may have ended of late.
func (rs *routes) count() int {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return len(rs.of)
}
