package grab_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/testmode"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/grab"
)

// wire is a connection to an engine. fate decides for each exchange whether the request arrives,
// and whether the answer does.
type wire struct {
	lockkeeper.Engine
	fate func() (arrives, answered bool)
	lost func() // if not nil, is called when an answer is lost
}

// loses records that an answer is lost.
func (w *wire) loses() error {
	if w.lost != nil {
		w.lost()
	}
	return errLost
}

var errLost = &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: "lost on the way"}

// exchange makes one call, as fate decides.
func exchange[T any](w *wire, do func() (T, error)) (answer T, err error) {
	arrives, answered := w.fate()
	if arrives {
		answer, err = do()
	}
	if !answered {
		var none T
		return none, w.loses()
	}
	return answer, err
}

func (w *wire) Attach(ctx context.Context, s lockkeeper.Session, notify func([]lockkeeper.Status)) (lockkeeper.Lease,
	error) {
	return exchange(w, func() (lockkeeper.Lease, error) { return w.Engine.Attach(ctx, s, notify) })
}

func (w *wire) Claim(ctx context.Context, k lockkeeper.Key, want lockkeeper.Want) (lockkeeper.Status, error) {
	return exchange(w, func() (lockkeeper.Status, error) { return w.Engine.Claim(ctx, k, want) })
}

func (w *wire) End(ctx context.Context, k lockkeeper.Key, e lockkeeper.Ending) error {
	_, err := exchange(w, func() (struct{}, error) { return struct{}{}, w.Engine.End(ctx, k, e) })
	return err
}

func (w *wire) List(ctx context.Context, q lockkeeper.Query) iter.Seq2[lockkeeper.Status, error] {
	if arrives, answered := w.fate(); !arrives || !answered {
		return func(yield func(lockkeeper.Status, error) bool) { yield(lockkeeper.Status{}, w.loses()) }
	}
	return w.Engine.List(ctx, q)
}

// TestProcessDiesAtEachExchange kills a caller at each exchange, before or after the request
// arrived. The claim that it leaves ends by itself, after its TTL or the For of the request, and
// another caller of the same name can continue it.
func TestProcessDiesAtEachExchange(t *testing.T) {
	long := grab.Request{As: "me", Targets: []lockkeeper.Target{exclusive("db")}, Terms: grab.Terms{For: time.Hour}}
	usual := long
	usual.For = 0
	operations := map[string]func(p *grab.Reservations, ctx context.Context) error{
		"grab":     func(p *grab.Reservations, ctx context.Context) error { _, err := p.Grab(ctx, usual); return err },
		"grab for": func(p *grab.Reservations, ctx context.Context) error { _, err := p.Grab(ctx, long); return err },
		"renew": func(p *grab.Reservations, ctx context.Context) error {
			_, err := p.Renew(ctx, long.Name(), long.Terms)
			return err
		},
		"release": func(p *grab.Reservations, ctx context.Context) error {
			_, err := p.Release(ctx, long.Name())
			return err
		},
	}
	before := map[string]func(w *world){
		"nothing": func(*world) {},
		"held":    func(w *world) { w.ok("me", "db") },
		"waits":   func(w *world) { w.ok("other", "db"); w.wait(1, "me", "db"); w.released(1, "other", "db") },
		"revoked": func(w *world) { w.ok("me", "db"); w.revoke("me", "db") },
	}
	for what, do := range operations {
		for was, prepare := range before {
			for _, arrives := range []bool{false, true} {
				died := true
				for at := 1; died; at++ {
					inMemory(t, func(w *world) {
						prepare(w)
						n := 0
						dying := grab.New(&wire{Engine: w.engines[0], fate: func() (bool, bool) {
							n++
							return n < at || n == at && arrives, n < at
						}})
						err := do(dying, w.ctx())
						died = n >= at
						if died && !errors.Is(err, lockkeeper.ErrUnavailable) {
							w.Fatalf("%s when it was %s, dead at exchange %d: %v", what, was, at, err)
						}
						label := fmt.Sprintf("%s when it was %s, dead at exchange %d, arrived: %v", what, was, at, arrives)
						w.leavesNothing(label, what == "grab for" || what == "renew")
					})
				}
			}
		}
	}
}

// TestProcessDiesAfterItExtendedTheHold: a caller extends the session for a long hold just after
// another caller of the same name has released that hold. If it is killed then, no later hold gets
// the long TTL; if it goes on, its own new waiting claim does not get it either.
func TestProcessDiesAfterItExtendedTheHold(t *testing.T) {
	long := grab.Request{As: "me", Targets: []lockkeeper.Target{exclusive("db")}, Terms: grab.Terms{For: time.Hour}}
	promises := func(w *world, meanwhile func(), answered bool) (grab.Answer, error) {
		n := 0
		return grab.New(&wire{Engine: w.engines[0], fate: func() (bool, bool) {
			n++ // attach, claim, attach for long
			if n == 3 {
				meanwhile()
			}
			return n <= 3 || answered, n < 3 || answered
		}}).Grab(w.ctx(), long)
	}
	inMemory(t, func(w *world) {
		if _, err := promises(w, func() { w.released(1, "me", "db") }, false); !errors.Is(err, lockkeeper.ErrUnavailable) {
			w.Fatalf("got %v, want it dead", err)
		}
		if a := w.ok("me", "db"); a.TTL != grab.DefaultTTL {
			w.Errorf("held for %s, want %s", a.TTL, grab.DefaultTTL)
		}
		w.pass(grab.DefaultTTL)
		w.ok("next", "db")
	})
	inMemory(t, func(w *world) {
		other := w.request("other", "db")
		other.For = time.Hour
		a, err := promises(w, func() { w.released(1, "me", "db"); w.oks(other); w.wait(1, "me", "db") }, true)
		if err != nil || a.State != lockkeeper.Waiting || a.TTL != grab.DefaultTTL {
			w.Errorf("%s for %s (%v), want a waiting claim for %s", a.State, a.TTL, err, grab.DefaultTTL)
		}
		w.pass(grab.DefaultTTL)
		w.wait(1, "next", "db")
	})
}

// leavesNothing checks that the claim of a dead caller blocks others no longer than the TTL that it
// asked for, and that another caller of the same name goes on at once.
func (w *world) leavesNothing(label string, long bool) {
	w.Helper()
	most := grab.DefaultTTL
	if long {
		most = time.Hour
	}
	if n := w.listed(); n > 1 {
		w.Fatalf("%s: it left %d claims", label, n)
	}
	if a := w.grabs(w.request("next", "db")); a.State == lockkeeper.Waiting {
		w.ok("me", "db")
		w.pass(most)
		w.oks(w.request("next", "db"))
	}
	w.released(1, "next", "db")
	if n := w.listed(); n != 0 {
		w.Fatalf("%s: %d claims are left", label, n)
	}
	w.ok("me", "db")
}

// TestLostAnswers: a caller repeats each operation until it has an answer. Whichever exchanges are
// lost, the operation takes effect once.
func TestLostAnswers(t *testing.T) {
	for seed := range testmode.Seeds(t, testmode.Pick(50, 2000)) {
		inMemory(t, func(w *world) {
			r := rand.New(rand.NewPCG(seed, 1))
			p := grab.New(&wire{Engine: w.engines[0], fate: func() (bool, bool) {
				arrives := r.IntN(4) > 0
				return arrives, arrives && r.IntN(4) > 0
			}})
			until := func(do func() error) {
				w.Helper()
				for range 1000 {
					if err := do(); err == nil {
						return
					} else if !errors.Is(err, lockkeeper.ErrUnavailable) {
						w.Fatalf("%v\nreplay: %s", err, testmode.Replay(t, seed))
					}
				}
				w.Fatalf("never answered\nreplay: %s", testmode.Replay(t, seed))
			}
			for round := range uint64(5) {
				for range 3 {
					until(func() error {
						a, err := p.Grab(w.ctx(), w.request("me", "db"))
						if err == nil && (a.State != lockkeeper.Held || a.Fence != round+1) {
							w.Fatalf("seed %d: %s with fence %d, want one grant in round %d", seed, a.State, a.Fence, round+1)
						}
						return err
					})
					until(func() error { _, err := p.Renew(w.ctx(), w.name("me", "db"), grab.Terms{}); return err })
				}
				until(func() error { _, err := p.Release(w.ctx(), w.name("me", "db")); return err })
				if n := w.listed(); n != 0 {
					w.Fatalf("seed %d: %d claims after a release", seed, n)
				}
			}
		})
	}
}
