package grab_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/grab"
)

// TestClaimEndsWithItsTTL: a claim that is not repeated ends after its TTL, waiting or held, and
// not before; repeats keep a claim alive.
func TestClaimEndsWithItsTTL(t *testing.T) {
	inMemory(t, func(w *world) {
		w.ok("holder", "db")
		w.wait(1, "dead", "db")
		w.wait(2, "alive", "db")
		for range 3 {
			w.pass(grab.DefaultTTL * 4 / 10)
			w.ok("holder", "db")
			w.renews("alive", "db")
		}
		w.wait(1, "alive", "db") // dead is gone, its place too
		w.expired("dead", "db")
		w.pass(grab.DefaultTTL - time.Millisecond)
		w.wait(1, "alive", "db")
		w.pass(time.Millisecond)
		w.ok("alive", "db")
		w.expired("holder", "db") // never queued again
		w.released(0, "holder", "db")
		w.released(1, "alive", "db")
		if n := w.listed(); n != 0 {
			w.Errorf("%d claims are left", n)
		}
	})
}

// TestGrantedWhileNobodyLooked: a claim that is granted between two calls is held for the rest of
// its TTL, and the next call says so.
func TestGrantedWhileNobodyLooked(t *testing.T) {
	onEachEngine(t, func(w *world) {
		w.ok("holder", "db")
		w.wait(1, "sleeper", "db")
		w.wait(2, "next", "db")
		w.released(1, "holder", "db")
		if a, err := w.process().Look(w.ctx(), w.name("sleeper", "db")); err != nil || a.State != lockkeeper.Held {
			w.Errorf("it looks %s (%v), want held", a.State, err)
		}
		w.wait(1, "next", "db")
		w.ok("sleeper", "db")
	})
}

// TestLook: Look neither renews nor makes a claim.
func TestLook(t *testing.T) {
	inMemory(t, func(w *world) {
		look := func(state lockkeeper.State, place int) {
			w.Helper()
			a, err := w.process().Look(w.ctx(), w.name("me", "db"))
			if state == 0 && a.State == lockkeeper.Ended && a.Reason == lockkeeper.Expired {
				return // the engine still knows
			}
			if err != nil || a.State != state || a.Position != place {
				w.Errorf("looks %s in place %d (%v), want %s in place %d", a.State, a.Position, err, state, place)
			}
		}
		look(0, 0)
		w.ok("holder", "db")
		look(0, 0)
		w.wait(1, "me", "db")
		w.pass(grab.DefaultTTL / 2)
		look(lockkeeper.Waiting, 1)
		w.ok("holder", "db")
		w.pass(grab.DefaultTTL / 2)
		look(0, 0)
	})
}

// TestFor: a hold with a long For needs no repeats, and no repeat makes it shorter, whatever its
// terms.
func TestFor(t *testing.T) {
	inMemory(t, func(w *world) {
		long := w.request("me", "db")
		long.For = 10 * time.Hour
		w.ok("holder", "db")
		if a := w.waits(1, long); a.TTL != grab.DefaultTTL {
			w.Errorf("its place has a TTL of %s, want %s", a.TTL, grab.DefaultTTL)
		}
		w.released(1, "holder", "db")
		if a := w.oks(long); a.TTL != 10*time.Hour {
			w.Errorf("held for %s, want 10h", a.TTL)
		}
		w.pass(time.Hour)
		if a := w.ok("me", "db"); a.TTL != 9*time.Hour {
			w.Errorf("another call says %s, want 9h", a.TTL)
		}
		short := w.request("me", "db")
		short.TTL = time.Second
		w.oks(short)
		w.renews("me", "db")
		w.pass(9*time.Hour - time.Second)
		w.wait(1, "next", "db")
		if a := w.oks(long); a.TTL != 10*time.Hour { // granted again
			w.Errorf("held for %s, want 10h", a.TTL)
		}
		w.pass(10*time.Hour - time.Millisecond)
		w.wait(1, "next", "db")
		w.pass(time.Millisecond)
		w.ok("next", "db")
		w.released(1, "next", "db")
		brief := w.request("me", "db")
		brief.For = 2 * time.Second // shorter than the usual TTL
		w.oks(brief)
		w.pass(2 * time.Second)
		w.ok("next", "db")
	})
}

// TestForIsAnnounced: a wait that is shorter than an announced hold fails at once, by the same rule
// as in the engine (R8), and leaves no claim.
func TestForIsAnnounced(t *testing.T) {
	onEachEngine(t, func(w *world) {
		long := w.request("me", "db")
		long.For = time.Hour
		w.oks(long)
		a, err := w.process().Wait(w.ctx(), w.request("hasty", "db"), 10*time.Minute, nil)
		if err != nil || !a.Hopeless || a.State != lockkeeper.Ended || a.Position != 1 || len(a.Blockers) != 1 ||
			a.Blockers[0].As != "me" {
			w.Fatalf("got %+v (%v), want to know at once that the wait is hopeless", a, err)
		}
		w.wait(1, "third", "db") // nothing of hasty is left, nor of its question
		c := lockkeeper.New(w.engine())
		if _, err := c.Lock(w.ctx(), "db", lockkeeper.WithWait(time.Minute)); !errors.Is(err, lockkeeper.TimedOut) {
			w.Errorf("a client's wait: %v, want it timed out", err)
		}
		w.released(1, "me", "db")
		w.ok("third", "db")
	})
}

// TestReleaseAndAgain: after a release a new claim starts without a past, and a late request of the
// old one changes nothing.
func TestReleaseAndAgain(t *testing.T) {
	onEachEngine(t, func(w *world) {
		n := w.name("me", "db")
		w.released(0, "me", "db")
		fence := w.ok("me", "db").Fence
		s := lockkeeper.Session{ID: n.Session(), TTL: time.Minute, Named: []uint64{1}}
		lease, err := w.takesOver(s) // of a process that then stands still
		if err != nil {
			w.Fatal(err)
		}
		w.released(1, "me", "db")
		old := lockkeeper.Want{ID: 1, Targets: []lockkeeper.Target{exclusive("db")}}
		if _, err := w.engine().Claim(w.ctx(), lease.Key, old); !errors.Is(err, lockkeeper.ErrSession) {
			w.Errorf("a late claim: %v, want ErrSession", err)
		}
		w.lost(lockkeeper.NoReason, "me", "db")
		if again := w.ok("me", "db").Fence; again <= fence {
			w.Errorf("fence %d, want one above %d", again, fence)
		}
		for _, e := range []lockkeeper.Ending{{Kind: lockkeeper.Leave}, {Kind: lockkeeper.Release, ID: 1}} {
			if err := w.engine().End(w.ctx(), lease.Key, e); err == nil {
				w.Error("a late release of the old hold is accepted")
			}
		}
		w.renews("me", "db")
	})
}

// TestRevoked: every renewal reports a revoked hold; the next grab reports it once, and queues
// again.
func TestRevoked(t *testing.T) {
	onEachEngine(t, func(w *world) {
		long := w.request("me", "db")
		long.For = time.Hour
		for _, r := range []grab.Request{w.request("me", "db"), long} {
			w.oks(r)
			w.revoke("me", "db")
			w.lost(lockkeeper.Revoked, "me", "db")
			w.lost(lockkeeper.Revoked, "me", "db")
			w.ok("other", "db")
			a := w.waits(1, r)
			w.isLost(a.Lost, lockkeeper.Revoked)
			if a := w.waits(1, r); a.Lost != nil {
				w.Errorf("told twice: %v", a.Lost)
			}
			w.released(1, "other", "db")
			w.released(1, "me", "db")
		}
		w.ok("me", "db")
		w.revoke("me", "db")
		w.released(0, "me", "db")
		if a := w.ok("me", "db"); a.Lost != nil {
			w.Errorf("after a release it is told of the past: %v", a.Lost)
		}
	})
}

// TestGrabAfterRevokeOfLongHold: the engine remembers a long hold that an operator ended by force
// for longer than a short TTL. A later Grab reports that end once, and queues.
func TestGrabAfterRevokeOfLongHold(t *testing.T) {
	inMemory(t, func(w *world) {
		long := w.request("me", "db")
		long.For = time.Hour
		w.oks(long)
		w.renews("me", "db") // with a TTL of a minute, for which its end is remembered
		w.revoke("me", "db")
		w.pass(2 * grab.DefaultTTL)
		w.isLost(w.ok("me", "db").Lost, lockkeeper.Revoked)
	})
}

// TestWait: Wait keeps its claim alive in line, and returns when the holder releases.
func TestWait(t *testing.T) {
	onEachEngine(t, func(w *world) {
		w.ok("holder", "db")
		told := make(chan grab.Answer, 100)
		held := make(chan error, 1)
		go func() {
			a, err := w.process().Wait(w.ctx(), w.request("me", "db"), 20*time.Second, func(a grab.Answer) { told <- a })
			if err == nil && a.State != lockkeeper.Held {
				err = errors.New("it does not hold")
			}
			held <- err
		}()
		if a := <-told; a.Position != 1 || len(a.Blockers) != 1 {
			w.Errorf("told %+v, want place 1 and who is in the way", a)
		}
		start := time.Now()
		w.released(1, "holder", "db")
		if err := <-held; err != nil {
			w.Fatal(err)
		}
		if took := time.Since(start); took > 10*time.Second {
			w.Errorf("woken after %s", took)
		}
	})
}

// TestWaitKeepsItsPlace: a Wait lasts for many TTLs and gives up at its bound. A claim that the
// name had before keeps its position, also if ctx ends the call.
func TestWaitKeepsItsPlace(t *testing.T) {
	inMemory(t, func(w *world) {
		w.ok("holder", "db")
		r := w.request("me", "db")
		r.TTL = 3 * time.Second
		ticket := w.waits(1, r).Ticket
		keeper, err := w.process().Keep(w.ctx(), w.name("holder", "db"), grab.Terms{}, w.clock)
		if err != nil {
			w.Fatal(err)
		}
		defer keeper.Stop()
		start := time.Now()
		a, err := w.process().Wait(w.Context(), r, 10*time.Minute, nil)
		if err != nil || a.State != lockkeeper.Waiting || a.Position != 1 || a.Ticket != ticket {
			w.Fatalf("got %+v (%v), want its place", a, err)
		}
		if took := time.Since(start); took != 10*time.Minute {
			w.Errorf("gave up after %s", took)
		}
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		a, err = w.process().Wait(ctx, r, time.Hour, nil)
		if !errors.Is(err, lockkeeper.ErrNotAcquired) || !errors.Is(err, context.DeadlineExceeded) || a.Position != 1 {
			w.Errorf("got %+v, %v; want what ended it", a, err)
		}
		w.waits(1, r)
	})
}

// TestWaitEnds: a waiting claim that an operator ends is reported, and Wait does not queue again.
func TestWaitEnds(t *testing.T) {
	onEachEngine(t, func(w *world) {
		for why, end := range map[lockkeeper.Reason]func(){
			lockkeeper.Revoked:   func() { w.revoke("me", "db") },
			lockkeeper.Cancelled: func() { w.released(1, "me", "db") },
		} {
			w.ok("holder", "db")
			told, ended := make(chan grab.Answer, 100), make(chan error, 1)
			go func() {
				_, err := w.process().Wait(w.ctx(), w.request("me", "db"), 20*time.Second, func(a grab.Answer) { told <- a })
				ended <- err
			}()
			<-told
			w.pass(100 * time.Millisecond) // its follower may hear of it first, or not
			end()
			if err := <-ended; !errors.Is(err, lockkeeper.ErrNotAcquired) || !errors.Is(err, why) {
				w.Errorf("got %v, want ErrNotAcquired because of %s", err, why)
			}
			w.released(0, "me", "db")
			w.released(1, "holder", "db")
		}
	})
}

// TestManyAtOnce: eight callers of one name grab at once, and share one hold.
func TestManyAtOnce(t *testing.T) {
	onEachEngine(t, func(w *world) {
		last := uint64(0)
		for round := range 5 {
			var fences [8]uint64
			var all sync.WaitGroup
			for i := range fences {
				all.Go(func() {
					a, err := w.process().Grab(w.ctx(), w.request("me", "db"))
					if err != nil || a.State != lockkeeper.Held {
						w.Errorf("caller %d: %s (%v), want ok", i, a.State, err)
					}
					fences[i] = a.Fence
				})
			}
			all.Go(func() {
				if _, err := w.process().Renew(w.ctx(), w.name("me", "db"), grab.Terms{}); err != nil &&
					!errors.Is(err, lockkeeper.ErrLost) {
					w.Errorf("a renewal meanwhile: %v", err)
				}
			})
			all.Wait()
			for _, f := range fences {
				if f != fences[0] || f <= last {
					w.Fatalf("round %d: fences %v after %d, want one new hold", round, fences, last)
				}
			}
			w.wait(1, "stranger", "db")
			var released [8]int
			for i := range released {
				all.Go(func() {
					n, err := w.process().Release(w.ctx(), w.name("me", "db"))
					if err != nil {
						w.Error(err)
					}
					released[i] = n
				})
			}
			all.Wait()
			sum := 0
			for _, n := range released {
				sum += n
			}
			if sum != 1 {
				w.Errorf("round %d: released %d times, want once", round, sum)
			}
			last = w.ok("stranger", "db").Fence
			w.released(1, "stranger", "db")
		}
	})
}
