package enginetest

import "github.com/lockkeeper/lockkeeper"

// R16: what a key states to be answered is begun no more, however late it comes.
var answeredChecks = []check{
	{"R16/a claim that arrives long after its end is not made", once, func(w *world) {
		p := w.peerFor("one", shortTTL)
		id := p.hold(exclusive("db")).Ref.ID
		p.release(id)
		p.key.LowestOpen = id + 1
		p.renew()
		p.key.LowestOpen = 0 // what was sent before states less
		for range 4 {
			w.pass(shortTTL / 2)
			p.renew()
		}
		_, err := p.engine.Claim(w.ctx(), p.key, p.wants[id])
		w.is(err, lockkeeper.ErrNotHeld)
		p.release(id) // as its end does: it is over already
		w.free(exclusive("db"))
	}},
	{"R16/what is answered and lives is like any other", 0, func(w *world) {
		p, other := w.peer("one"), w.peer("other")
		held := p.hold(exclusive("db")).Ref.ID
		other.hold(exclusive("taken"))
		waits := p.queue(exclusive("taken"))
		p.key.LowestOpen = waits + 1
		p.renew()
		p.still(held, lockkeeper.Held)
		p.still(waits, lockkeeper.Waiting)
		other.refused(exclusive("db"))
		p.release(held)
		w.free(exclusive("db"))
		other.release(1)
		p.granted(waits)
	}},
	{"R16/what is answered now may be begun under a new epoch", 0, func(w *world) {
		p := w.peer("one")
		id := p.hold(exclusive("db")).Ref.ID
		p.key.LowestOpen = 1 << 40
		p.renew()
		old := p.key
		p.attach(id)
		p.still(id, lockkeeper.Held)
		if s := p.hold(exclusive("other")); s.Ref.ID >= old.LowestOpen {
			w.Errorf("claim %d is none of those below %d", s.Ref.ID, old.LowestOpen)
		}
		_, err := p.engine.Renew(w.ctx(), old) // states it again, under a key of the past
		w.is(err, lockkeeper.ErrSession)
		p.hold(exclusive("third"))
	}},
	{"R16/an end that the session does not know is told though it was answered", operators, func(w *world) {
		p, other := w.peer("one"), w.peer("other")
		id := p.hold(exclusive("db")).Ref.ID
		p.key.LowestOpen = id + 1
		p.renew()
		w.ok(other.end(lockkeeper.Ending{Kind: lockkeeper.Revoke, Ref: p.ref(id), Force: true}))
		p.told(id, "revoked", func(s lockkeeper.Status) bool {
			return s.State == lockkeeper.Ended &&
				s.Reason == lockkeeper.Revoked
		})
		if s := p.status(id); s.State != lockkeeper.Ended || s.Reason != lockkeeper.Revoked {
			w.Errorf("asked again it is %s (%s), want revoked", s.State, s.Reason)
		}
	}},
}
