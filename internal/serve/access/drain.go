package access

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
)

// A drain says whether new claims are taken, and counts those on their way to the
// engine.
type drain struct {
	reason   atomic.Pointer[string] // nil: they are taken
	onTheWay atomic.Int64
	once     sync.Once
	settled  chan struct{} // closed when none is on its way that was let pass
}

// enter reports whether a new claim may go to the engine; leave is called once after.
// It counts before it looks, and Drain looks at the count after it has begun, so that
// no claim slips by between the two.
func (d *drain) enter() bool {
	d.onTheWay.Add(1)
	if d.reason.Load() == nil {
		return true
	}
	d.leave()
	return false
}

func (d *drain) leave() {
	if d.onTheWay.Add(-1) == 0 {
		d.settle()
	}
}

// settle takes note that no claim is on its way. While new ones are taken that means
// nothing.
func (d *drain) settle() {
	if d.reason.Load() != nil {
		d.once.Do(func() { close(d.settled) })
	}
}

// Drain has the gate take no new claims from now on; what there is goes on: renewals,
// places, grants, releases, questions, and claims that are asked for again or
// amended. The reason is for people; "" is that an operator asked for it. It reports whether this call began it. Claims
// that were let pass before may still be on their way: see Settled.
func (g *Gate) Drain(reason string) bool {
	reason = cmp.Or(reason, "an operator asked for it") // "" would look as if it did not drain
	began := g.drain.reason.CompareAndSwap(nil, &reason)
	if g.drain.onTheWay.Load() == 0 {
		g.drain.settle()
	}
	return began
}

// Settled waits until the gate drains and the engine has answered every claim that
// was let pass before: from then on the engine has no claim that a list of it does
// not show. The error is ctx's.
func (g *Gate) Settled(ctx context.Context) error {
	select {
	case <-g.drain.settled:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Draining is the reason why no new claims are taken; false if they are.
func (g *Gate) Draining() (reason string, yes bool) {
	if p := g.drain.reason.Load(); p != nil {
		return *p, true
	}
	return "", false
}
