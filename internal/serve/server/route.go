package server

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/attached"
)

// A route leads hints about a session to the connection from which it was attached or renewed last.
//
//	attach over c ──→ c ── renewal over d ──→ d ── d ends while c lives ──→ c, which missed hints
//
// A renewal may be old: sent on a connection that the client has left for another one, and read
// late. So when a connection ends, each route goes back to the connection that it displaced.
type route struct {
	server *Server
	conn   atomic.Pointer[conn] // never nil
}

// notify is the engine's callback. It never blocks.
func (r *route) notify(statuses []lockkeeper.Status) {
	r.conn.Load().notify(statuses, r.server.ending.Load())
}

// routes has the route of each session that is attached here, by the name that owned returns.
type routes struct {
	began    time.Time
	mu       sync.Mutex
	sessions attached.Sessions[*route]
}

// owned returns a name for a session of an identity, because two identities may choose the same id.
func owned(identity, session string) string { return identity + "\x00" + session }

// uptime returns the time since the server began.
func (rs *routes) uptime() time.Duration { return time.Since(rs.began) }

// attached adds the route of an attach, unless the session has one of a later attach.
func (rs *routes) attached(at string, r *route, lease *lockkeeper.Lease) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.sessions.Put(at, &attached.Attachment[*route]{
		Epoch: lease.Key.Epoch,
		Order: lease.Key.Epoch,
		TTL:   lease.TTL,
		Until: time.Now().Add(lease.TTL),
		Own:   r,
	})
}

// errElsewhere refuses to renew a session that is attached at another server of the engine, or was
// attached at this one before a restart. Hints about it would go there, so the client must attach it
// here.
var errElsewhere error = &lockkeeper.Error{Err: lockkeeper.ErrSession, Detail: "it is not attached at this server"}

// renewing directs the hints of a session to c before c renews it, because the lease does not
// contain later changes. It reports whether the session is attached here.
func (rs *routes) renewing(k lockkeeper.Key, c *conn) bool {
	at := owned(c.identity, k.Session)
	rs.mu.Lock()
	a := rs.sessions.Get(at)
	if a == nil || a.Epoch != k.Epoch {
		rs.mu.Unlock()
		return false
	}
	rs.sessions.Renew(at, k.Epoch, time.Now().Add(a.TTL))
	r := a.Own
	rs.mu.Unlock()
	if r.conn.Load() != c {
		if former := r.conn.Swap(c); former != c && former.lives() {
			c.displace(r, former)
		}
	}
	return true
}

// maxDisplaced bounds the routes that a connection gives back when it ends.
const maxDisplaced = 16 << 10

// displace records that c took the route r from former.
func (c *conn) displace(r *route, former *conn) {
	c.Lock()
	defer c.Unlock()
	if c.displaced == nil || len(c.displaced) == maxDisplaced {
		c.displaced = make(map[*route]*conn)
	}
	c.displaced[r] = former
}

// restoreRoutes is called when c has ended. It returns the routes that c still has to the
// connections from which c took them, and notifies these of missed hints.
func (c *conn) restoreRoutes() {
	c.Lock()
	displaced := c.displaced
	c.displaced = nil
	c.Unlock()
	for r, former := range displaced {
		if former.lives() && r.conn.CompareAndSwap(c, former) {
			former.miss()
		}
	}
}

// ended removes the route of a session that ended in this epoch.
func (rs *routes) ended(identity string, k lockkeeper.Key) {
	at := owned(identity, k.Session)
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if a := rs.sessions.Get(at); a != nil && a.Epoch == k.Epoch {
		rs.sessions.Remove(at, k.Epoch)
	}
}

// serves reports whether the connection from which a session was attached or renewed last lives. The
// session is named as the engine names it.
func (rs *routes) serves(session string) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	a := rs.sessions.Get(owned("", session))
	if identity, own, found := strings.Cut(session, ":"); a == nil && found { // as package access names it
		a = rs.sessions.Get(owned(identity, own))
	}
	return a != nil && a.Own.conn.Load().lives()
}

// sweep removes the sessions that must have ended by now.
func (rs *routes) sweep(now time.Time) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for at, a := range rs.sessions.Expired(now.Add(-sweepTime)) {
		rs.sessions.Remove(at, a.Epoch)
	}
}

// count returns the number of sessions, some of which may have ended within sweepTime.
func (rs *routes) count() int {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.sessions.Len()
}
