package grab_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/grab"
)

// TestWaitGivesBack: a wait that fails ends its claim, so that it delays no others.
func TestWaitGivesBack(t *testing.T) {
	onEachEngine(t, func(w *world) {
		w.ok("holder", "db")
		a, err := w.process().Wait(w.ctx(), w.request("me", "db"), 50*time.Millisecond, nil)
		if err != nil || a.State != lockkeeper.Ended || a.Reason != lockkeeper.TimedOut || a.Position != 1 ||
			len(a.Blockers) != 1 {
			w.Errorf("got %+v (%v), want it timed out in place 1, and who was in the way", a, err)
		}
		ctx, cancel := context.WithCancel(w.Context())
		defer cancel()
		a, err = w.process().Wait(ctx, w.request("me", "db"), time.Hour, func(grab.Answer) { cancel() })
		if !errors.Is(err, lockkeeper.ErrNotAcquired) || a.State != lockkeeper.Ended || a.Reason != lockkeeper.Cancelled {
			w.Errorf("got %+v (%v), want it cancelled", a, err)
		}
		w.wait(1, "next", "db")
		w.released(1, "holder", "db")
		w.ok("next", "db")
	})
}

// TestWaitGrantedAtTheEnd: Wait returns a claim that the engine granted before the bound, even if
// no notification of the grant has arrived.
func TestWaitGrantedAtTheEnd(t *testing.T) {
	inMemory(t, func(w *world) {
		w.ok("holder", "db")
		go func() {
			w.pass(9 * time.Second)
			w.released(1, "holder", "db")
		}()
		a, err := grab.New(deaf{w.engines[0]}).Wait(w.ctx(), w.request("me", "db"), 10*time.Second, nil)
		if err != nil || a.State != lockkeeper.Held || a.Fence == 0 {
			w.Errorf("got %+v (%v), want it held", a, err)
		}
	})
}

// slowAttach is an engine that calls arrives before each attach, which fails if that is false.
type slowAttach struct {
	lockkeeper.Engine
	arrives func() bool
}

func (e slowAttach) Attach(ctx context.Context, s lockkeeper.Session,
	notify func([]lockkeeper.Status)) (lockkeeper.Lease, error) {
	if !e.arrives() {
		return lockkeeper.Lease{}, &lockkeeper.Error{Err: lockkeeper.ErrUnavailable}
	}
	return e.Engine.Attach(ctx, s, notify)
}

// TestWaitSurvivesASlowStart: if the first attach of a Wait takes longer than the TTL, as over a connection
// that has to be made, the claim waits and is granted all the same.
func TestWaitSurvivesASlowStart(t *testing.T) {
	inMemory(t, func(w *world) {
		w.ok("holder", "db")
		released := make(chan struct{})
		go func() {
			defer close(released)
			w.pass(10 * time.Second)
			w.released(1, "holder", "db")
		}()
		attaches := 0
		e := slowAttach{w.engines[0], func() bool {
			if attaches++; attaches == 1 {
				w.pass(2500 * time.Millisecond)
			}
			return true
		}}
		r := w.request("me", "db")
		r.TTL = 2 * time.Second
		a, err := grab.New(e).Wait(w.ctx(), r, time.Minute, nil)
		if err != nil || a.State != lockkeeper.Held || w.clock() > 11*time.Second {
			w.Errorf("after %s: got %s (%v), want it held", w.clock(), a.State, err)
		}
		<-released
	})
}

// TestWaitThatCannotRenewGivesBack: a Wait that could not renew in time counts its claim as ended before
// the engine does, and ends it there.
func TestWaitThatCannotRenewGivesBack(t *testing.T) {
	inMemory(t, func(w *world) {
		w.ok("holder", "db")
		r := w.request("me", "db")
		r.TTL = 20 * time.Second
		deadline := r.TTL - lockkeeper.Margin(r.TTL)
		e := slowAttach{w.engines[0], func() bool { return w.clock() == 0 || w.clock() >= deadline }}
		a, err := grab.New(e).Wait(w.ctx(), r, time.Minute, nil)
		if !errors.Is(err, lockkeeper.ErrUnavailable) || a.State != 0 || w.clock() != deadline {
			w.Errorf("after %s: got %s (%v), want that the engine was unreachable, after %s", w.clock(), a.State, err, deadline)
		}
		if n := w.listed(); n != 1 {
			w.Errorf("%d claims, want that of the holder alone", n)
		}
	})
}

// TestWaitThatCannotRenewLeavesAHold: what a Wait counts as ended was granted meanwhile, and another process of the
// name knows that: it is no longer this Wait's to end.
func TestWaitThatCannotRenewLeavesAHold(t *testing.T) {
	inMemory(t, func(w *world) {
		w.ok("holder", "db")
		r := w.request("me", "db")
		r.TTL = 20 * time.Second
		deadline := r.TTL - lockkeeper.Margin(r.TTL)
		e := slowAttach{w.engines[0], func() bool { return w.clock() == 0 || w.clock() >= deadline }}
		ended := make(chan error, 1)
		go func() {
			_, err := grab.New(e).Wait(w.ctx(), r, time.Minute, nil)
			ended <- err
		}()
		w.pass(time.Second)
		w.wait(1, "me", "db")
		w.pass(deadline - 2*time.Second)
		w.released(1, "holder", "db")
		held := w.ok("me", "db")
		if err := <-ended; !errors.Is(err, lockkeeper.ErrUnavailable) {
			w.Errorf("the wait that was cut off: %v", err)
		}
		a, err := w.process().Look(w.ctx(), w.name("me", "db"))
		if err != nil || a.State != lockkeeper.Held || a.Fence != held.Fence {
			w.Errorf("it is %s with fence %d (%v), want it held with fence %d", a.State, a.Fence, err, held.Fence)
		}
	})
}

// TestWaitInterruptedAtEachExchange interrupts a Wait at each exchange, before or after the request
// arrived. Wait ends the claim that it made, and no claim that the name had before.
func TestWaitInterruptedAtEachExchange(t *testing.T) {
	before := map[string]func(w *world) uint64{
		"nothing": func(w *world) uint64 { w.ok("other", "db"); return 0 },
		"waits":   func(w *world) uint64 { w.ok("other", "db"); return w.wait(1, "me", "db").Ticket },
		"held":    func(w *world) uint64 { return w.ok("me", "db").Ticket },
	}
	for was, prepare := range before {
		for _, arrives := range []bool{false, true} {
			reached := true
			for at := 1; reached && at < 20; at++ {
				inMemory(t, func(w *world) {
					ticket := prepare(w)
					ctx, cancel := context.WithCancel(w.ctx())
					defer cancel()
					n := 0
					p := grab.New(deaf{&wire{Engine: w.engines[0], lost: cancel, fate: func() (bool, bool) {
						n++
						return n != at || arrives, n != at
					}}})
					_, err := p.Wait(ctx, w.request("me", "db"), time.Second, nil)
					reached = n >= at
					label := fmt.Sprintf("it was %s, interrupted at exchange %d, arrived: %v (%v)", was, at, arrives, err)
					a, err := w.process().Look(w.ctx(), w.name("me", "db"))
					if err != nil {
						w.Fatal(err)
					}
					if a.Ticket != ticket {
						w.Errorf("%s: it has ticket %d, want %d", label, a.Ticket, ticket)
					}
				})
			}
		}
	}
}

// TestNameWaitsForItsOwnHold: Wait reports that a name waits for a hold of its own at other paths,
// and returns at once. Another session with the same label is another owner.
func TestNameWaitsForItsOwnHold(t *testing.T) {
	onEachEngine(t, func(w *world) {
		c := lockkeeper.New(w.engine(), lockkeeper.SessionLabel(lockkeeper.Label{As: "me"}))
		hold, err := c.Lock(w.ctx(), "a")
		if err != nil {
			w.Fatal(err)
		}
		if a := w.wait(1, "me", "a"); a.OwnHolds != nil {
			w.Errorf("a client of that name: it waits for itself at %v", a.OwnHolds)
		}
		hold.Close()
		w.released(1, "me", "a")
		w.ok("me", "b", "a")
		want := w.paths("a", "b")
		if a := w.wait(1, "me", "a"); !slices.Equal(a.OwnHolds, want) {
			w.Errorf("waits for itself at %v, want %v", a.OwnHolds, want)
		}
		w.released(1, "me", "a")
		if a := w.wait(1, "you", "a"); a.OwnHolds != nil {
			w.Errorf("another name: it waits for itself at %v", a.OwnHolds)
		}
		w.released(1, "you", "a")
		a, err := w.process().Wait(w.ctx(), w.request("me", "a/x"), time.Hour, nil)
		if err != nil || a.State != lockkeeper.Ended || !slices.Equal(a.OwnHolds, want) {
			w.Errorf("got %+v (%v), want that it waits for itself, at once", a, err)
		}
	})
}
