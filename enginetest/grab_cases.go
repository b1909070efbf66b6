package enginetest

import (
	"errors"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// Cases T3: tests and deployments share a database, and a clean-up takes the whole of it.
var grabCases = []check{
	{"T3/case T3.1 the whole and its parts", trees | fifo, func(w *world) {
		a, b, c, d := w.peer("A"), w.peer("B"), w.peer("C"), w.peer("D")
		a.hold(exclusive("mydatabase/mytest"))
		b.hold(exclusive("mydatabase/yourtest"))
		c.queue(exclusive("mydatabase"))
		d.queue(exclusive("mydatabase/third")) // behind C
		a.release(a.last)
		c.stays(c.last, lockkeeper.Waiting)
		b.release(b.last)
		c.waitGranted(c.last)
		d.stays(d.last, lockkeeper.Waiting)
		c.release(c.last)
		d.waitGranted(d.last)
	}},
	{"T3/case T3.2 a session of many", trees | fifo, func(w *world) {
		// One session for each person and request, as in the recorded one.
		me, you, charly := w.peer("me"), w.peer("you"), w.peer("charly")
		me.hold(exclusive("lunch"))
		lunch := me.last
		me.queue(exclusive("lunch/1"))
		you.queue(exclusive("lunch"))
		youLunch := you.last
		you.queue(exclusive("lunch/2"))
		youPart := you.last
		charly.queue(exclusive("lunch/2"))
		charlyPart := charly.last
		me.hold(exclusive("dinner"))
		you.queue(exclusive("dinner"))
		charly.queue(exclusive("lunch"))
		you.stays(youLunch, lockkeeper.Waiting) // a repetition keeps its position
		you.release(youPart)
		charly.stays(charlyPart, lockkeeper.Waiting)
		me.release(lunch)
		// My lunch/1 came before your lunch.
		me.waitGranted(2)
		you.stays(youLunch, lockkeeper.Waiting)
		charly.stays(charlyPart, lockkeeper.Waiting)
		charly.release(charlyPart)
		me.release(2)
		you.waitGranted(youLunch)
	}},
	{"T3/case T3.6e and flaw F3.5 who cancels separates nobody", trees | fifo, func(w *world) {
		a, z, y, v := w.peer("W"), w.peer("Z"), w.peer("Y"), w.peer("V")
		a.hold(exclusive("a/1"))
		z.queue(exclusive("a"))
		y.queue(exclusive("a/2"))
		z.release(z.last)
		y.waitGranted(y.last)
		v.hold(exclusive("a/3"))
	}},
	{"T3/case T3.6c a stranger's release", 0, func(w *world) {
		holder, stranger := w.peer("holder"), w.peer("stranger")
		holder.hold(exclusive("db"))
		w.is(stranger.end(lockkeeper.Ending{Kind: lockkeeper.Release, ID: holder.last}), lockkeeper.ErrNotHeld)
		forged := holder.key
		forged.Session = stranger.session.ID
		if err := stranger.engine.End(w.ctx(), forged, lockkeeper.Ending{Kind: lockkeeper.Release,
			ID: holder.last}); err == nil {
			w.Error("a forged key is accepted")
		}
		holder.stays(holder.last, lockkeeper.Held)
		stranger.refused(exclusive("db"))
	}},
	{"T3/case T3.6j inside one's own hold", deadlocks | trees, func(w *world) {
		c := w.client("me")
		lunch, err := c.Lock(w.ctx(), "lunch")
		w.ok(err)
		part, err := c.Lock(w.within(lunch), "lunch/1") // covered by the outer hold: granted at once
		w.ok(err)
		w.ok(part.Release(w.ctx()))
		deep, err := c.Lock(w.ctx(), "dinner/1")
		w.ok(err)
		_, err = c.Lock(w.within(deep), "dinner") // not covered, and blocked by the outer hold
		w.is(err, lockkeeper.ErrDeadlock)
		w.is(err, lockkeeper.ErrNotAcquired)
		w.ok(deep.Err())
		w.ok(deep.Release(w.ctx()))
		w.ok(lunch.Release(w.ctx()))
	}},
}

// Flaws F3: known flaws of hierarchical locks with leases.
var grabFlaws = []check{
	{"F3/flaw F3.1 a claim expires as a whole", trees | fifo, func(w *world) {
		a, dying, z, y := w.peer("W"), w.renewedPeer("X", w.shortTTL()), w.peer("Z"), w.peer("Y")
		a.hold(exclusive("a/w"))
		dying.hold(exclusive("a/b"))
		z.queue(exclusive("a"))
		y.queue(exclusive("a/b"))
		dying.dies()
		w.sleep(w.shortTTL() + 100*time.Millisecond)
		dying.attach() // it comes back without claims
		dying.queue(exclusive("a/b"))
		a.release(a.last)
		z.waitGranted(z.last)
		z.release(z.last)
		y.waitGranted(y.last)
		y.release(y.last)
		dying.waitGranted(dying.last)
	}},
	{"F3/flaw F3.3 who lapsed is told, never silently put at the end", 0, func(w *world) {
		dying, next := w.renewedPeer("lapsed", w.shortTTL()), w.peer("next")
		id := dying.hold(exclusive("db")).Ref.ID
		next.queue(exclusive("db"))
		dying.dies()
		next.waitGranted(next.last)
		_, err := dying.engine.Claim(w.ctx(), dying.key, dying.wants[id])
		w.is(err, lockkeeper.ErrSession) // the same request does not queue again
		dying.sessionGone()
		next.release(next.last)
		w.free(exclusive("db"))
	}},
	{"F3/flaw F3.4 and case T3.6f odd words are only names", 0, func(w *world) {
		p := w.peer("__proto__")
		for _, name := range []string{"__proto__", "toString", "constructor", "op=release", "1e400", "NaN"} {
			p.hold(exclusive(name))
		}
		_, err := p.send(lockkeeper.Want{Targets: []lockkeeper.Target{exclusive("../../etc")}})
		w.isInvalid("../../etc", err, trees)
	}},
	{"F3/flaw F3.6 expiry by a deadline, and told at once", 0, func(w *world) {
		dying, next := w.peerFor("dying", w.shortTTL()), w.worker("next", nil)
		dying.hold(exclusive("db"))
		began := w.now()
		h, err := next.lockAs(0)
		w.ok(err)
		w.between("granted", w.now()-began, 0, w.shortTTL())
		w.ok(h.giveBack(w.ctx()))
	}},
	{"F3/flaw F3.7 a request in several lines is one", many | trees | fifo, func(w *world) {
		one, two := w.peer("one"), w.peer("two")
		one.hold(exclusive("a/1"))
		two.queue(exclusive("a/1"), exclusive("b/1"))
		w.peer("three").refused(exclusive("b"))
		one.release(one.last)
		two.waitGranted(two.last)
	}},
	{"F3/flaw F3.9 a caller who does not know a session can't act for it", 0, func(w *world) {
		p := w.peer("one")
		p.hold(exclusive("db"))
		for _, k := range []lockkeeper.Key{{Session: p.session.ID}, {Session: p.session.ID, Epoch: p.key.Epoch + 1},
			{Session: p.key.Session + " ", Epoch: p.key.Epoch}} {
			_, err := p.engine.Renew(w.ctx(), k)
			w.is(err, lockkeeper.ErrSession)
			if err := p.engine.End(w.ctx(), k, lockkeeper.Ending{Kind: lockkeeper.Leave}); err != nil &&
				!errors.Is(err, lockkeeper.ErrSession) {
				w.Error(err)
			}
		}
		p.stays(p.last, lockkeeper.Held)
	}},
	{"F3/flaw F3.11 an end is an end", maxHold, func(w *world) {
		p, next := w.peer("one"), w.peer("next")
		began := w.now()
		p.holdAs(lockkeeper.Want{Targets: []lockkeeper.Target{exclusive("db")}, MaxHold: 300 * time.Millisecond})
		next.waitGranted(next.request(lockkeeper.Want{Targets: []lockkeeper.Target{exclusive("db")}, Wait: forever}))
		w.between("granted", w.now()-began, 300*time.Millisecond, 300*time.Millisecond) // no TTL is added
	}},
	// F3.2: no call takes a time from the caller. Case T3.6c is the attempt of a stranger.
	// F3.5: case T3.6e.
	// F3.8: cases T3.6h and T3.6j; rule R2 for the explicit shared mode.
	// F3.10: concerns the flags of the command, which have types.
	// F3.12: servers drain, engines do not: see package access and lk drain.
}
