package replica

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/history"
	"github.com/lockkeeper/lockkeeper/internal/deadlines"
	"github.com/lockkeeper/lockkeeper/table"
)

// A client has one session and one claim at a time. It does what a lockkeeper.Client does: it repeats
// calls whose outcome is unknown, at any machine; renews; and counts its holds as lost at its own
// deadline. It counts by the code of that client, package deadlines. It records what it observes.
//
//	attach ─> ask ─> [wait] ─> hold ─> release ─> ask ...
//	   ^        any of them: deadline passed, session ended, client gone      │
//	   └──────────────────────────────────────────────────────────────────────┘
type client struct {
	*world
	name          string
	clock         clock
	life          int // rises when the client begins a new session: what belongs to the former is dropped
	at            int // number of the machine that it asks next
	key           lockkeeper.Key
	ttl           time.Duration
	lease         deadlines.Session
	claim         *simClaim
	claims        int
	granted       int
	grantedBefore int           // the world became whole
	holdsFor      time.Duration // at most
	waiting       time.Duration // true time since when it wants what it has not got
}

type simClaim struct {
	id     uint64
	name   string // in the history
	want   lockkeeper.Want
	asked  bool // an answer said that it waits
	held   bool
	fence  uint64
	cancel bool
	lapsed bool   // the history has its end
	change uint64 // of the latest status
	ends   deadlines.Ends[lockkeeper.Reason]
}

func newClient(w *world, number int) *client {
	c := &client{world: w, name: fmt.Sprintf("client%d", number), clock: newClock(w)}
	c.random = rand.New(rand.NewPCG(w.random.Uint64(), 3))
	c.clock.world = w
	c.later(w.between(time.Second, 3*time.Second), c.begin)
	return c
}

func (c *client) between(least, most time.Duration) time.Duration {
	return least + time.Duration(c.random.Int64N(int64(most-least)+1))
}

func (c *client) chance(p float64) bool { return c.random.Float64() < p }

// upTo returns a random duration below d.
func (c *client) upTo(d time.Duration) time.Duration { return time.Duration(c.random.Int64N(int64(d))) }

// later does something of this session after d.
func (c *client) later(d time.Duration, do func()) {
	life := c.life
	c.after(d, func() {
		if c.life == life {
			do()
		}
	})
}

// call makes a call at any machine until the outcome is known. done gets the answer, and the own
// clock of when the answered call was sent.
func (c *client) call(cmd func() table.Command, done func(a Answer, sent time.Duration)) {
	m := c.machines[c.at%len(c.machines)]
	sent, answered, life := c.clock.read(), false, c.life
	again := func() {
		c.at = c.random.IntN(len(c.machines))
		pause := deadlines.RetryPause(c.ttl, c.between(10*time.Millisecond, time.Second))
		c.later(pause, func() { c.call(cmd, done) })
	}
	var id CallID
	command := cmd()
	m.input(c.between(0, usualDelay), func(r *Replica) {
		if answered {
			return
		}
		id = r.Call(m.clock.read(), command)
		m.calls[id] = func(a Answer) {
			c.after(c.between(0, usualDelay), func() {
				if answered || c.life != life {
					return
				}
				answered = true
				if errors.Is(a.Err, lockkeeper.ErrUnavailable) {
					c.saw("unavailable: " + cause(a.Err))
					again()
					return
				}
				c.judge.answered(a)
				done(a, sent)
			})
		}
	})
	c.later(deadlines.RoundTrip(c.ttl, c.between(callTimeout/4, callTimeout*2)), func() {
		if !answered {
			answered = true
			c.saw("client timed out")
			m.input(0, func(r *Replica) {
				if m.calls[id] != nil {
					delete(m.calls, id)
					r.Cancel(id)
				}
			})
			again()
		}
	})
}

func cause(err error) string {
	for text, is := range map[string]error{
		"no leader": ErrNoLeader, "unknown": ErrUnknown, "busy": ErrBusy, "stopped": ErrStopped,
	} { // order does not matter: an error has one cause
		if errors.Is(err, is) {
			return text
		}
	}
	return err.Error()
}

// begin begins a new session.
func (c *client) begin() {
	c.life++
	c.key = lockkeeper.Key{Session: fmt.Sprintf("%s-%d", c.name, c.life)}
	c.holdsFor = c.between(0, 2*time.Second)
	c.ttl = cmp.Or(c.profile.ttl, c.between(2*time.Second, 6*time.Second))
	c.claim, c.lease = nil, deadlines.Session{}
	c.attach(0)
}

func (c *client) attach(epoch uint64) {
	c.call(func() table.Command {
		return table.Command{Op: table.Attach, Session: lockkeeper.Session{ID: c.key.Session, TTL: c.ttl, Epoch: epoch}}
	}, func(a Answer, sent time.Duration) {
		var refused *lockkeeper.Error
		switch {
		case errors.As(a.Err, &refused) && refused.Epoch != 0:
			c.attach(refused.Epoch) // the answer to an earlier attach was lost
		case a.Err != nil:
			c.faultf("%s can't attach: %v", c.name, a.Err)
		default:
			c.key = a.Reply.Lease.Key
			c.lease.Extend(sent, a.Reply.Lease.TTL, c.upTo)
			c.renewLater()
			c.watchDeadline()
			c.askLater()
		}
	})
}

func (c *client) renewLater() {
	c.later(c.clock.until(c.lease.RenewAt), func() {
		c.call(func() table.Command { return table.Command{Op: table.Renew, Key: c.key} },
			func(a Answer, sent time.Duration) {
				if a.Err != nil {
					c.refused(a.Err)
					return
				}
				c.lease.Extend(sent, a.Reply.Lease.TTL, c.upTo)
				c.key.Acked = a.Reply.Lease.Number
				c.renewLater()
				for _, st := range a.Reply.Lease.Claims {
					c.look(st, sent)
				}
			})
	})
}

// watchDeadline counts the session as over at the client's own deadline.
func (c *client) watchDeadline() {
	c.later(c.clock.until(c.lease.Deadline()), func() {
		if !c.expire() {
			c.watchDeadline()
		}
	})
}

// expire loses the session if its deadline has passed, and reports whether it has lost it.
func (c *client) expire() bool {
	expired := c.lease.Expire(c.clock.read())
	if expired {
		c.lose("deadline")
	}
	return expired
}

// refused ends the session, which the cluster has ended. No cluster ends a session before its client
// does, unless a leader's clock ran ahead.
func (c *client) refused(err error) {
	if !c.profile.badClocks || !errors.Is(err, lockkeeper.ErrSession) {
		c.faultf("%s is refused %s before its deadline: %v", c.name, c.lease.Deadline()-c.clock.read(), err)
	}
	c.lose("session ended")
}

// lose ends the session, and begins a new one.
func (c *client) lose(why string) {
	c.saw("session lost: " + why)
	c.tracef("%s loses its session: %s", c.name, why)
	switch {
	case c.claim == nil || c.claim.lapsed:
	case c.claim.held:
		c.record(history.Event{Kind: history.Lost, Claim: c.claim.name, Reason: lockkeeper.Expired})
	default:
		c.record(history.Event{Kind: history.Unknown, Claim: c.claim.name})
	}
	c.life++
	c.later(c.between(0, time.Second), c.begin)
}

// vanish ends the client without a word; another one follows it.
func (c *client) vanish() {
	c.tracef("%s is gone", c.name)
	c.record(history.Event{Kind: history.Gone})
	c.life++
	c.later(c.between(0, 5*time.Second), c.begin)
}

func (c *client) record(e history.Event) {
	e.Client = c.name
	c.tracef("%s: %s %s %d %s", c.name, e.Kind, e.Claim, e.Fence, e.Reason)
	c.recorder.Add(e)
}

func (c *client) askLater() { c.later(c.between(0, 100*time.Millisecond), c.ask) }

// want is what the client asks for next.
func (c *client) want() lockkeeper.Want {
	w := lockkeeper.Want{ID: c.claim.id, Targets: c.targets(), Wait: lockkeeper.Forever}
	if c.chance(0.1) {
		w.Wait = 0
	}
	if c.chance(0.1) {
		w.MaxHold, w.Grace = c.between(200*time.Millisecond, 3*time.Second), c.between(0, time.Second)
	}
	if c.network.healed {
		return w // nobody goes before others, so that nobody starves
	}
	w.Priority = c.random.IntN(4)
	exclusive := !slices.ContainsFunc(w.Targets, func(t lockkeeper.Target) bool {
		return t.Mode != lockkeeper.ModeExclusive
	})
	switch kind := c.random.IntN(8); {
	case kind == 0 && exclusive && w.Wait != 0:
		w.WriterPolicy, w.Quiet = lockkeeper.Soft, c.between(0, 500*time.Millisecond)
		w.Wait = c.between(time.Second, 10*time.Second)
	case kind == 1:
		w.Steal = lockkeeper.Ask
	case kind == 2 && c.profile.steals:
		w.Steal, w.After = lockkeeper.Take, c.between(0, 3*time.Second)
	case kind == 3 && c.profile.steals:
		w.Steal, w.AfterTTL = lockkeeper.Take, 1+c.random.IntN(1000)
	}
	return w
}

// targets are what clients ask for: few paths, so that they meet.
func (c *client) targets() []lockkeeper.Target {
	switch c.random.IntN(8) {
	case 0:
		return []lockkeeper.Target{{Path: "a", Mode: lockkeeper.ModeExclusive}}
	case 1:
		return []lockkeeper.Target{{Path: "a", Mode: lockkeeper.ModeShared}}
	case 2:
		return []lockkeeper.Target{{Path: "a/b", Mode: lockkeeper.ModeExclusive}}
	case 3:
		units, limit := 1+c.random.IntN(2), 2+c.random.IntN(3)
		return []lockkeeper.Target{{Path: "p", Mode: lockkeeper.ModePermits, Units: units, Limit: limit}}
	case 4:
		return []lockkeeper.Target{
			{Path: "a/b", Mode: lockkeeper.ModeShared}, {Path: "c", Mode: lockkeeper.ModeExclusive},
		}
	case 5:
		return []lockkeeper.Target{{Path: "c", Mode: lockkeeper.ModeShared}}
	case 6:
		return []lockkeeper.Target{
			{Path: "p", Mode: lockkeeper.ModePermits, Units: 1, Limit: 2}, {Path: "a", Mode: lockkeeper.ModeShared},
		}
	}
	return []lockkeeper.Target{{Path: "c", Mode: lockkeeper.ModeExclusive}}
}

func (c *client) ask() {
	c.claims++
	c.claim = &simClaim{id: uint64(c.claims), name: fmt.Sprintf("%s.%d", c.name, c.claims)}
	mine := c.claim
	c.key.LowestOpen = mine.id // a copy of an earlier request that arrives now makes no claim (R16)
	w := c.want()
	mine.want = w
	c.waiting = c.now
	c.record(history.Event{
		Kind: history.Ask, Claim: mine.name, Targets: w.Targets, Priority: w.Priority, Try: w.Wait == 0,
		Soft: w.WriterPolicy == lockkeeper.Soft,
	})
	c.call(func() table.Command { return table.Command{Op: table.Claim, Key: c.key, Want: w} },
		func(a Answer, sent time.Duration) {
			switch {
			case mine != c.claim:
			case a.Err != nil:
				c.refused(a.Err)
			default:
				c.look(a.Reply.Status, sent)
				if mine == c.claim && !mine.held && c.chance(0.2) {
					c.later(c.between(0, 3*time.Second), func() { c.cancel(mine) })
				}
			}
		})
}

// look sees what became of the claim, by the answer to a call that was sent at that time.
func (c *client) look(st lockkeeper.Status, sent time.Duration) {
	mine := c.claim
	if mine == nil || st.Ref.ID != mine.id || mine.cancel || st.Change < mine.change {
		return
	}
	mine.change = st.Change
	if st.State == lockkeeper.Held {
		c.countEnds(mine, &st, sent)
	}
	switch {
	case st.State == lockkeeper.Held && c.lapse(mine):
	case st.State == lockkeeper.Held && !mine.held:
		mine.held, mine.fence = true, st.Fence
		c.granted++
		c.waiting = 0
		c.record(history.Event{
			Kind: history.Granted, Claim: mine.name, Fence: st.Fence, Grants: st.Grants, Unconfirmed: st.Unconfirmed,
		})
		c.later(c.between(0, c.holdsFor), func() { c.release(mine) })
	case st.State == lockkeeper.Waiting && !mine.asked:
		mine.asked = true
		c.record(history.Event{Kind: history.Waits, Claim: mine.name})
	case st.State == lockkeeper.Ended && !mine.held:
		c.record(history.Event{Kind: history.Refused, Claim: mine.name, Reason: st.Reason})
		c.claim = nil
		c.askLater()
	case st.State == lockkeeper.Ended && mine.held:
		c.record(history.Event{Kind: history.Lost, Claim: mine.name, Reason: st.Reason})
		c.claim = nil
		c.askLater()
	}
}

// countEnds counts the ends of a hold by the client's own clock, as lockkeeper.Client does.
func (c *client) countEnds(mine *simClaim, st *lockkeeper.Status, sent time.Duration) {
	var yields deadlines.End[lockkeeper.Reason]
	if a := st.Asked; a != nil {
		c.saw("asked to yield: " + a.Reason.String())
		if a.Left != lockkeeper.Forever {
			yields = deadlines.After(sent, a.Left, a.Reason, a.EndsAt)
		}
		if c.chance(0.5) {
			c.later(c.between(0, time.Second), func() { c.release(mine) })
		}
	}
	mine.ends.Answer(st.Change, yields, true)
	if most := mine.want.MaxHold; most > 0 {
		mine.ends.Bound(sent, most+mine.want.Grace-st.Age, lockkeeper.Overdue)
	}
	if end := mine.ends.First(); end.Known() {
		c.later(c.clock.until(end.At), func() { c.lapse(mine) })
	}
}

// lapse ends a hold whose own end has passed, and says so to the engine. It reports whether it has
// passed.
func (c *client) lapse(mine *simClaim) bool {
	end := mine.ends.First()
	if mine != c.claim || mine.cancel || !end.Passed(c.clock.read()) {
		return false
	}
	c.saw("lapsed: " + end.Why.String())
	mine.cancel, mine.lapsed = true, true
	e := history.Event{Kind: history.Lost, Claim: mine.name, Reason: end.Why}
	if !mine.held { // the answer came too late to use the hold
		e = history.Event{Kind: history.Unknown, Claim: mine.name}
	}
	c.record(e)
	l := lockkeeper.Lapse{ID: mine.id, Reason: end.Why, EndsAt: end.EndsAt}
	c.end(lockkeeper.Ending{Kind: lockkeeper.Lapsed, Lapse: l}, func() {})
	return true
}

func (c *client) end(e lockkeeper.Ending, done func()) {
	c.call(func() table.Command { return table.Command{Op: table.End, Key: c.key, Ending: e} },
		func(a Answer, _ time.Duration) {
			if a.Err != nil && !errors.Is(a.Err, lockkeeper.ErrNotHeld) { // it ended a TTL ago: all answers were lost
				c.refused(a.Err)
				return
			}
			done()
			c.claim = nil
			c.askLater()
		})
}

func (c *client) release(mine *simClaim) {
	if mine != c.claim || !mine.held || mine.cancel || c.lapse(mine) {
		return
	}
	mine.cancel = true // what the engine says from now on does not count
	c.record(history.Event{Kind: history.Release, Claim: mine.name})
	c.end(releaseOf(mine), func() { c.record(history.Event{Kind: history.Released, Claim: mine.name}) })
}

func releaseOf(mine *simClaim) lockkeeper.Ending {
	return lockkeeper.Ending{Kind: lockkeeper.Release, ID: mine.id}
}

// cancel gives up a wait.
func (c *client) cancel(mine *simClaim) {
	if mine != c.claim || mine.held || mine.cancel {
		return
	}
	mine.cancel = true
	c.record(history.Event{Kind: history.Cancel, Claim: mine.name})
	c.end(releaseOf(mine), func() { // the claim may have been granted before its end arrived
		c.record(history.Event{Kind: history.Unknown, Claim: mine.name})
	})
}
