package access

import (
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// Usage is what counts for the identity, once what is over has been swept.
func (g *Gate) Usage(name string) (claims, waiting, sessions, paths int) {
	g.mu.RLock()
	a := g.accounts[name]
	g.mu.RUnlock()
	if a == nil {
		return 0, 0, 0, 0
	}
	a.makeRoom()
	return int(a.claimed.n.Load()), int(a.waiting.n.Load()), int(a.sessions.n.Load()), int(a.used.n.Load())
}

// Seats is how many sessions and claims the identity's account has in mind.
func (g *Gate) Seats(name string) (seats, claims int) {
	g.mu.RLock()
	a := g.accounts[name]
	g.mu.RUnlock()
	a.mu.RLock()
	defer a.mu.RUnlock()
	for _, s := range a.seats {
		s.mu.Lock()
		claims += len(s.claims)
		s.mu.Unlock()
	}
	return len(a.seats), claims
}

// Total is what all identities together have.
func (g *Gate) Total() (claims, sessions int) {
	return int(g.totals.claims.n.Load()), int(g.totals.sessions.n.Load())
}

// NameInAndOut is what the identity calls the engine's session, and what the engine
// is asked for when the identity says that.
func NameInAndOut(identity, session string) (out, in string) {
	n := names{prefix: identity + separator}
	out = n.out(session)
	return out, n.in(out)
}

// Allows is whether rules that give who those paths allow name to lock at.
func Allows(who, paths []string, name string, at lockkeeper.Path) bool {
	p := compile(&Policy{Rules: []Rule{{Who: who, May: []Verb{Lock}, Paths: paths}}})
	r := p.rightsOf(name, time.Time{})
	return r != nil && r.allows(Lock, at)
}

// Elapse has the credential of the pass expire, as when the clock jumps ahead.
func (p *Pass) Elapse() {
	r := *p.admission.rights.Load()
	r.expires = time.Unix(1, 0)
	p.admission.rights.Store(&r)
}
