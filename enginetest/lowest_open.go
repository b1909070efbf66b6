package enginetest

import "github.com/lockkeeper/lockkeeper"

// R16: the engine does not execute a claim below the low-water mark of its session, however late it
// arrives.
var lowestOpenChecks = []check{
	{"R16/a claim that arrives long after its end is not made", once, func(w *world) {
		p := w.renewedPeer("one", w.shortTTL())
		id := p.hold(exclusive("db")).Ref.ID
		p.release(id)
		p.key.LowestOpen = id + 1
		p.renew()
		p.key.LowestOpen = 0 // a key of an earlier message
		w.sleep(2 * w.shortTTL())
		_, err := p.engine.Claim(w.ctx(), p.key, p.wants[id])
		w.is(err, lockkeeper.ErrNotHeld)
		p.release(id) // like its end: the claim is over already
		w.free(exclusive("db"))
	}},
	{"R16/what is answered and lives is like any other", 0, func(w *world) {
		p, other := w.peer("one"), w.peer("other")
		held := p.hold(exclusive("db")).Ref.ID
		other.hold(exclusive("taken"))
		waits := p.queue(exclusive("taken"))
		p.key.LowestOpen = waits + 1
		p.renew()
		p.stays(held, lockkeeper.Held)
		p.stays(waits, lockkeeper.Waiting)
		other.refused(exclusive("db"))
		p.release(held)
		w.free(exclusive("db"))
		other.release(1)
		p.waitGranted(waits)
	}},
	{"R16/what is answered now may be begun under a new epoch", 0, func(w *world) {
		p := w.peer("one")
		id := p.hold(exclusive("db")).Ref.ID
		p.key.LowestOpen = 1 << 40
		p.renew()
		old := p.key
		p.attach(id)
		p.stays(id, lockkeeper.Held)
		if s := p.hold(exclusive("other")); s.Ref.ID >= old.LowestOpen {
			w.Errorf("claim %d is none of those below %d", s.Ref.ID, old.LowestOpen)
		}
		_, err := p.engine.Renew(w.ctx(), old) // an earlier key
		w.is(err, lockkeeper.ErrSession)
		p.hold(exclusive("third"))
	}},
	{"R16/an end that the session does not know is told though it was answered", revokes, func(w *world) {
		p, other := w.peer("one"), w.peer("other")
		id := p.hold(exclusive("db")).Ref.ID
		p.key.LowestOpen = id + 1
		p.renew()
		w.ok(other.end(lockkeeper.Ending{Kind: lockkeeper.Revoke, Ref: p.ref(id), Force: true}))
		p.renewalShows(id, "revoked", func(s lockkeeper.Status) bool {
			return s.State == lockkeeper.Ended &&
				s.Reason == lockkeeper.Revoked
		})
		if s := p.status(id); s.State != lockkeeper.Ended || s.Reason != lockkeeper.Revoked {
			w.Errorf("asked again it is %s (%s), want revoked", s.State, s.Reason)
		}
	}},
}
