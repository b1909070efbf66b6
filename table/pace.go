package table

import (
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// MaxPaces is for how many paths a table remembers how long they are held (R17).
const MaxPaces = 1 << 10

// A pace is how long holds of one path lately lasted.
type pace struct {
	path         lockkeeper.Path
	lasts        time.Duration
	at           time.Duration // when the latest hold that counts ended
	older, newer *pace
}

// paces are all that are remembered, by path, and from the oldest to the newest:
// by the latest end, then by path.
type paces struct {
	of             map[lockkeeper.Path]*pace
	oldest, newest *pace
}

// learn takes in how long c was held, which ends for that reason now.
func (t *Table) learn(c *claim, reason lockkeeper.Reason) {
	switch reason {
	case lockkeeper.Released, lockkeeper.Yielded, lockkeeper.Overdue:
	default:
		return // cut short, or nobody knows when it really ended
	}
	lasted := t.now - c.granted
	for i := range c.want.Targets {
		path := c.want.Targets[i].Path
		if p := t.paces.of[path]; p != nil {
			t.paces.set(p, p.lasts+(lasted-p.lasts)/4, t.now)
		} else {
			t.paces.add(path, lasted, t.now)
		}
		t.markPace(path)
	}
	t.forgetPaces()
}

// add notes the pace of a path that has none.
func (ps *paces) add(path lockkeeper.Path, lasts, at time.Duration) {
	p := &pace{path: path, lasts: lasts, at: at}
	ps.of[path] = p
	ps.link(p)
}

// set changes p.
func (ps *paces) set(p *pace, lasts, at time.Duration) {
	if p == ps.newest && at >= p.at {
		p.lasts, p.at = lasts, at // and stays the newest
		return
	}
	ps.unlink(p)
	p.lasts, p.at = lasts, at
	ps.link(p)
}

// forgetPaces forgets the oldest while there are too many.
func (t *Table) forgetPaces() {
	for len(t.paces.of) > MaxPaces {
		path := t.paces.oldest.path
		t.forgetPace(path)
		t.markPace(path)
	}
}

func (t *Table) forgetPace(path lockkeeper.Path) {
	if p := t.paces.of[path]; p != nil {
		t.paces.unlink(p)
		delete(t.paces.of, path)
	}
}

// link puts p in its place. It is mostly the newest, so the walk is short.
func (ps *paces) link(p *pace) {
	older := ps.newest
	for older != nil && p.before(older) {
		older = older.older
	}
	p.older = older
	if older == nil {
		p.newer, ps.oldest = ps.oldest, p
	} else {
		p.newer, older.newer = older.newer, p
	}
	if p.newer == nil {
		ps.newest = p
	} else {
		p.newer.older = p
	}
}

func (ps *paces) unlink(p *pace) {
	if p.older == nil {
		ps.oldest = p.newer
	} else {
		p.older.newer = p.newer
	}
	if p.newer == nil {
		ps.newest = p.older
	} else {
		p.newer.older = p.older
	}
	p.older, p.newer = nil, nil
}

func (p *pace) before(q *pace) bool {
	if p.at != q.at {
		return p.at < q.at
	}
	return strings.Compare(string(p.path), string(q.path)) < 0
}

// expected is how long a hold of c lasts, as far as is known; 0 if nothing is.
func (t *Table) expected(c *claim) time.Duration {
	length := c.want.Lasts
	if length == 0 {
		for i := range c.want.Targets {
			if p := t.paces.of[c.want.Targets[i].Path]; p != nil {
				length = max(length, p.lasts)
			}
		}
	}
	if c.want.MaxHold > 0 {
		length = min(length, c.want.MaxHold+c.want.Grace)
	}
	return length
}
