package enginetest

import (
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// R12: the network may lose an answer that the engine sent.
var ackChecks = []check{
	{"R12/told the end but not known to have heard, so unconfirmed", stealing, func(w *world) {
		victim, t := w.listener("victim"), w.peer("thief")
		victim.hold(exclusive("db"))
		t.queueAs(taker(1, time.Second, exclusive("db")))
		victim.renew() // its answer may have been lost
		victim.renew()
		if s := t.waitGranted(t.last); !s.Unconfirmed {
			w.Error("the victim has not acknowledged its end, but the grant is confirmed")
		}
	}},
	{"R12/known to have heard the end, so confirmed", stealing, func(w *world) {
		victim, t := w.listener("victim"), w.peer("thief")
		victim.hold(exclusive("db"))
		t.queueAs(taker(1, 2*time.Second, exclusive("db")))
		victim.acknowledgeUntil(t.grantedNow(t.last))
		if s := t.waitGranted(t.last); s.Unconfirmed {
			w.Error("the victim has acknowledged its end, but the grant is unconfirmed")
		}
	}},
	{"R12/leases are numbered through all epochs", 0, func(w *world) {
		p := w.listener("one")
		last := p.lease.Number
		for _, lease := range []lockkeeper.Lease{p.renew(), p.attach(), p.renew()} {
			if lease.Number <= last {
				w.Errorf("lease %d after lease %d", lease.Number, last)
			}
			last = lease.Number
		}
	}},
}

// acknowledgeUntil renews and acknowledges every lease until c is closed.
func (p *peer) acknowledgeUntil(c <-chan struct{}) {
	p.Helper()
	end := time.After(p.maxWait())
	for {
		p.key.Acked = p.renew().Number
		select {
		case <-c:
			return
		case <-time.After(20 * time.Millisecond):
		case <-end:
			p.Fatalf("nothing happened while %s was renewed", p.session.As)
		}
	}
}

// listener attaches a session that acknowledges leases. The check ends if leases have no numbers.
func (w *world) listener(name string) *peer {
	w.Helper()
	p := w.peer(name)
	if p.lease.Number == 0 {
		w.Skip("the engine does not track acknowledgements")
	}
	p.key.Acked = p.lease.Number
	return p
}
