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
