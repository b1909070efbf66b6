package enginetest

import (
	"errors"

	"github.com/lockkeeper/lockkeeper"
)

// R19: only a client that knows the epoch of an open session can take the session over.
var epochChecks = []check{
	{"R19/an attach that comes after its successor changes nothing", 0, func(w *world) {
		p, other := w.peer("one"), w.peer("other")
		first := p.key.Epoch
		named := p.hold(exclusive("named")).Ref.ID
		p.attach(named)
		since := p.hold(exclusive("since")).Ref.ID
		other.hold(exclusive("taken"))
		waits := p.queue(exclusive("taken"))
		p.attachesLate(0)
		p.attachesLate(first)
		p.attachesLate(p.key.Epoch + 1) // no client had that epoch
		p.stays(named, lockkeeper.Held)
		p.stays(since, lockkeeper.Held)
		p.stays(waits, lockkeeper.Waiting)
		other.refused(exclusive("since"))
		other.release(other.last - 1)
		// p still gets the notifications
		p.renewalShows(waits, "granted", func(s lockkeeper.Status) bool { return s.State == lockkeeper.Held })
		if lease := p.renew(); lease.Key != p.key {
			w.Errorf("renewed %+v, attached %+v", lease.Key, p.key)
		}
	}},
	{"R19/an attach of which the answer was lost", 0, func(w *world) {
		p := w.peer("one")
		id := p.hold(exclusive("db")).Ref.ID
		p.session.Named, p.session.Epoch = []uint64{id}, p.key.Epoch
		_, err := p.engine.Attach(w.ctx(), p.session, p.notify)
		w.ok(err)
		p.key.Epoch = p.attachesLate(p.key.Epoch, id) // a repetition
		p.attach(id)
		p.stays(id, lockkeeper.Held)
		p.renew()
	}},
	{"R19/a session is taken over on purpose", 0, func(w *world) {
		p := w.peer("one")
		kept, dropped := p.hold(exclusive("kept")).Ref.ID, p.hold(exclusive("dropped")).Ref.ID
		heir := &peer{
			world:   w,
			engine:  w.handle(),
			session: p.session,
			wants:   p.wants,
			last:    p.last,
			wakeup:  make(chan struct{}, 1),
		}
		heir.notes.of = make(map[uint64]lockkeeper.Status)
		heir.key.Epoch = heir.attachesLate(0, kept)
		// Of several servers, one that did not have the session yet may have taken the epoch of this attach.
		if heir.key.Epoch < p.key.Epoch {
			w.Errorf("the answer has epoch %d, the attach had %d", heir.key.Epoch, p.key.Epoch)
		}
		heir.attach(kept)
		if heir.key.Epoch <= p.key.Epoch {
			w.Errorf("epoch %d after %d", heir.key.Epoch, p.key.Epoch)
		}
		_, err := p.engine.Renew(w.ctx(), p.key)
		w.is(err, lockkeeper.ErrSession)
		heir.stays(kept, lockkeeper.Held)
		heir.waitEnded(dropped, lockkeeper.Superseded)
	}},
	{"R19/what is not open is opened under any epoch", 0, func(w *world) {
		p := w.peer("one")
		p.hold(exclusive("db"))
		old := p.key.Epoch
		p.leave()
		p.key.Epoch = old + 1000
		p.attach()
		if p.key.Epoch <= old {
			w.Errorf("epoch %d after %d", p.key.Epoch, old)
		}
		w.free(exclusive("db"))
	}},
}

// attachesLate attaches p's session again with an epoch that is not the session's. The engine must
// refuse that. attachesLate returns the epoch in the refusal.
func (p *peer) attachesLate(follows uint64, named ...uint64) uint64 {
	p.Helper()
	s := p.session
	s.Named, s.Epoch = named, follows
	lease, err := p.engine.Attach(p.ctx(), s, nil)
	p.is(err, lockkeeper.ErrSession)
	var e *lockkeeper.Error
	if !errors.As(err, &e) || e.Epoch == 0 || e.Epoch == follows {
		p.Fatalf("attaching after epoch %d: %v, %+v; want a refusal that tells the present epoch", follows, lease, err)
	}
	return e.Epoch
}
