package access

import "github.com/lockkeeper/lockkeeper"

// Engine is the gate's engine itself, without rules and without identities. It is for
// what follows it once for many passes, and asks each what it shows.
func (g *Gate) Engine() lockkeeper.Engine { return g.engine }

// Shows is a status of the gate's engine as the pass's engine would list it at this
// moment; false if it would not, and when the pass is withdrawn.
func (p *Pass) Shows(st lockkeeper.Status) (lockkeeper.Status, bool) {
	r, err := p.admission.current()
	if err != nil {
		return lockkeeper.Status{}, false
	}
	e := guarded{pass: *p}
	if name := p.admission.name; name != "" {
		e.names.prefix = name + ":"
	}
	if !e.sees(r, &st) {
		return lockkeeper.Status{}, false
	}
	return e.names.status(st), true
}
