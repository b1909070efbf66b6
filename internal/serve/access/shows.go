package access

import "github.com/lockkeeper/lockkeeper"

// Engine returns the gate's engine itself, without rules and identities. A caller that follows it
// once for many passes asks each pass with Shows.
func (g *Gate) Engine() lockkeeper.Engine { return g.engine }

// Shows returns a status of the gate's engine as the engine of the pass would list it now; false if
// it would not list it, or if the pass is withdrawn.
func (p *Pass) Shows(st lockkeeper.Status) (lockkeeper.Status, bool) {
	r, err := p.admission.current()
	if err != nil {
		return lockkeeper.Status{}, false
	}
	e := guarded{pass: *p}
	if name := p.admission.name; name != "" {
		e.names.prefix = name + ":"
	}
	if !r.sees(e.names, &st) {
		return lockkeeper.Status{}, false
	}
	return e.names.status(st), true
}
