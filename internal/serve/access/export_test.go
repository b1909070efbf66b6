package access

import (
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/limits"
)

// Usage is what counts for the identity, once what is over has been swept.
func (g *Gate) Usage(name string) (claims, waiting, sessions, paths int) {
	i := g.ledger.Identity(name)
	i.Remembered()
	return i.Used(limits.Claims), i.Used(limits.Waiting), i.Used(limits.Sessions), i.Used(limits.Paths)
}

// Seats is how many sessions and claims of the identity are kept in memory.
func (g *Gate) Seats(name string) (seats, claims int) { return g.ledger.Identity(name).Remembered() }

// Total is what all identities together have.
func (g *Gate) Total() (claims, sessions int) {
	return g.ledger.Used(limits.Claims), g.ledger.Used(limits.Sessions)
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
