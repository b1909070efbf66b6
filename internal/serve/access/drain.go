package access

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
)

// A drain decides whether new claims are admitted, and counts those in flight to the engine.
//
//	admitting ──Drain──> draining ──no claim in flight──> settled
type drain struct {
	reason   atomic.Pointer[string] // nil: new claims are admitted
	inFlight atomic.Int64
	once     sync.Once
	settled  chan struct{} // closed when it drains and no admitted claim is in flight
}

// enter reports whether a new claim may go to the engine. If so, the caller calls leave once after
// the engine's answer. enter counts the claim before it reads the reason, and Drain sets the reason
// before it reads the count, so no claim escapes both.
func (d *drain) enter() bool {
	d.inFlight.Add(1)
	if d.reason.Load() == nil {
		return true
	}
	d.leave()
	return false
}

func (d *drain) leave() {
	if d.inFlight.Add(-1) == 0 {
		d.settle()
	}
}

// settle closes settled if the gate drains. The caller has seen that no claim is in flight.
func (d *drain) settle() {
	if d.reason.Load() != nil {
		d.once.Do(func() { close(d.settled) })
	}
}

// Drain refuses new claims from now on. Renewals, queue positions, grants, releases, queries, and
// repeated or amended claims go on. The reason is for people; "" stands for a request of an
// operator. Drain reports whether this call began it. Claims admitted before may still be in
// flight: see Settled.
func (g *Gate) Drain(reason string) bool {
	reason = cmp.Or(reason, "an operator asked for it") // "" would look as if it did not drain
	began := g.drain.reason.CompareAndSwap(nil, &reason)
	if g.drain.inFlight.Load() == 0 {
		g.drain.settle()
	}
	return began
}

// Settled waits until the gate drains and the engine has answered every claim admitted before. From
// then on a list of the engine shows all its claims. The error is ctx's.
func (g *Gate) Settled(ctx context.Context) error {
	select {
	case <-g.drain.settled:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Draining returns the reason why the gate refuses new claims; false if it admits them.
func (g *Gate) Draining() (reason string, yes bool) {
	if p := g.drain.reason.Load(); p != nil {
		return *p, true
	}
	return "", false
}
