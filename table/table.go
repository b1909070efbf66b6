package table

import (
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// A Table is the state of one engine: sessions, claims, freezes, and the time.
// The zero Table is not ready for use; see [New].
type Table struct {
	now           time.Duration
	fences        uint64 // the last one given (R13)
	tickets       uint64 // the last one drawn (R4)
	epochs        uint64 // the last one given (R19)
	changes       uint64 // the last Status.Change given
	nodes         nodeIndex
	sessions      map[string]*session
	nestedIn      map[lockkeeper.Ref][]*claim // live claims by the hold that they are made in (R15)
	freezes       freezes
	frozen        map[*claim]struct{} // waiting or converting claims that a freeze forbids
	thieves       map[*claim]struct{} // waiting or converting claims that steal
	unacked       unackedHolds        // unacknowledged holders (R12)
	schedule      schedule
	holdTimes     *holdTimes // estimates of how long holds last (R17)
	resuming      int        // sessions with a TTL that have to resume (R19)
	blockingWaits int        // queued claims whose wait keeps holds from being released: a deadlock has one (R15)
	announced     int        // holds with an announced end (R8)
	softWaiters   int        // queued soft claims (R9)
	mixedQueues   int        // nodes where permits wait under different limits (R7)

	// Of the step at hand.
	reply             Reply
	answered          bool // the latest command may have set reply
	events            []Event
	touched           []*node                       // nodes that entries left
	arrivals          []*claim                      // claims to recheck, whatever changed around them
	maybeHopeless     []*claim                      // waits that may have become hopeless (R8)
	endedClaims       []*tombstone                  // claims that ended
	endedByRef        map[lockkeeper.Ref]*tombstone // the first indexed tombstones of endedClaims, by claim
	indexed           int
	deadlockSuspected bool       // there may be a deadlock (R15)
	staleThieves      []*claim   // thieves whose asks need an update
	changedNodes      []*node    // nodes with changes that asks may depend on
	takers            []*claim   // thieves that may take now
	insidePass        uint32     // the pass with which markThievesInside marks; 0: none yet
	passes            uint32     // the last value given to claim.pass
	counted           int        // see Counted
	work              int        // claims, holders, asks and sums visited beside the command's own claim; for tests
	endedRoom         []*claim   // ended claims, whose memory recycle reuses
	unpacked          []*session // their endings have many objects; see packEndings
	due               []*timer   // memory for the timers of one instant
	ready             []*claim   // memory for grantReady
	packing           []byte     // memory for packed ends

	idle       []*node // nodes that have no entries, or had none; a ring
	oldestIdle int     // index in idle, if that is full

	spare    spare
	scratch  *Table // memory for simulateReleases
	tracking bool
	dirty    changeLog
}

// New returns an empty table at time 0.
func New() *Table {
	return &Table{
		sessions:  make(map[string]*session),
		nestedIn:  make(map[lockkeeper.Ref][]*claim),
		thieves:   make(map[*claim]struct{}),
		frozen:    make(map[*claim]struct{}),
		holdTimes: newHoldTimes(),
	}
}

// maxNow is the latest time of an engine: maxNow + lockkeeper.MaxDuration < forever.
const maxNow = 100 * 365 * 24 * time.Hour

// Now returns the engine's time: that of the latest command (R20).
func (t *Table) Now() time.Duration { return t.now }

// Sessions returns the number of open sessions.
func (t *Table) Sessions() int { return len(t.sessions) }

// Resuming reports whether a session with a TTL has to resume: the engine must then record its time
// (R19).
func (t *Table) Resuming() bool { return t.resuming > 0 }

// TTL returns the TTL of a session, 0 without end; false if it is not open.
func (t *Table) TTL(session string) (ttl time.Duration, open bool) {
	s := t.sessions[session]
	if s == nil {
		return 0, false
	}
	return s.ttl, true
}

// Open reports whether the session is open.
func (t *Table) Open(session string) bool { return t.sessions[session] != nil }

// Counted returns the number of claims visited so far to compute positions in the queue, the only
// cost of evidence that has no bound of its own.
func (t *Table) Counted() int { return t.counted }

// Next returns the next instant at which time alone changes the table; false if there is none.
func (t *Table) Next() (time.Duration, bool) {
	at := t.schedule.next()
	return at, at != forever
}

// Events returns the changes of the last Step, in order. They are valid until the next Step.
func (t *Table) Events() []Event { return t.events }

// Step fires the timers until c.At, and then applies c. An error means that the table refused c.
// The table is then as after a Pass at c.At with c.Key: the timers have fired, and LowestOpen and
// Acked of a valid key count.
func (t *Table) Step(c *Command) (Reply, error) {
	t.events = t.events[:0]
	if t.answered {
		t.reply = Reply{}
	}
	t.answered = c.Op == Attach || c.Op == Renew || c.Op == Claim
	t.recycle()
	t.resetPasses()
	if c.At > maxNow {
		return t.reply, lockkeeper.Invalid("time %s is out of range: 0 to %s", c.At, maxNow)
	}
	if at := max(c.At, t.now); c.Alone {
		t.now = at
	} else {
		t.advance(at)
	}
	err := t.apply(c)
	return t.reply, err
}

// mostPasses is the number of passes after which the marks of all claims are reset, before the next step.
// It leaves room for the passes of one step.
const mostPasses = 1 << 31

// resetPasses resets the marks of all claims if there were too many passes.
func (t *Table) resetPasses() {
	if t.passes <= mostPasses {
		return
	}
	t.passes, t.insidePass = 0, 0
	for _, s := range t.sessions { // order does not matter: all of them
		for _, c := range s.claims.all() {
			c.pass = 0
		}
	}
}

// apply executes c, and leaves the answer in t.reply.
func (t *Table) apply(c *Command) error {
	switch c.Op {
	case Pass:
		if s := t.keyed(c.Key); s != nil {
			t.raiseLowestOpen(s, c.Key.LowestOpen)
			t.acknowledge(s, c.Key.Acked)
		}
		return nil
	case Attach:
		return t.attach(&c.Session)
	case Restart:
		t.restart()
		return nil
	case Review:
		t.review()
		return nil
	case Gone:
		if s := t.sessions[c.Key.Session]; s != nil && s.epoch == c.Key.Epoch {
			t.endSession(s, lockkeeper.Expired, lockkeeper.Expired)
			t.settle()
		}
		return nil
	}
	s := t.keyed(c.Key)
	if s == nil {
		return &lockkeeper.Error{Err: lockkeeper.ErrSession, Detail: t.whyKeyFails(t.sessions[c.Key.Session], c.Key)}
	}
	t.forget(s)
	t.raiseLowestOpen(s, c.Key.LowestOpen)
	t.acknowledge(s, c.Key.Acked)
	switch c.Op {
	case Renew:
		t.renew(s)
		return nil
	case Claim:
		return t.claim(s, &c.Want)
	case End:
		return t.end(s, &c.Ending)
	}
	return lockkeeper.Invalid("command %s is unknown", c.Op)
}

// review considers every waiting claim again.
func (t *Table) review() {
	for _, s := range t.sessionsByID() {
		for _, c := range s.byID() {
			if c.waits {
				t.arrivals = append(t.arrivals, c)
				t.maybeHopeless = append(t.maybeHopeless, c)
			}
		}
	}
	for c := range t.thieves { // order does not matter: each asks by itself
		t.staleThieves = append(t.staleThieves, c)
	}
	t.deadlockSuspected = true
	t.settle()
}

// keyed returns the session of k; nil if k is not valid: see whyKeyFails.
func (t *Table) keyed(k lockkeeper.Key) *session {
	if s := t.sessions[k.Session]; s != nil && s.epoch == k.Epoch && s.resumed {
		return s
	}
	return nil
}

// whyKeyFails explains why k is not valid.
func (t *Table) whyKeyFails(s *session, k lockkeeper.Key) string {
	switch {
	case s == nil:
		return "session " + k.Session + " has ended or was never attached"
	case s.epoch != k.Epoch:
		return "session " + k.Session + " was taken over by a later attach"
	}
	return "session " + k.Session + " must resume: the engine was restarted"
}

// advance fires the timers until at, and sets the time to at (R20).
func (t *Table) advance(at time.Duration) {
	for t.schedule.next() <= at {
		t.now = max(t.now, t.schedule.next())
		t.instant()
	}
	t.now = at
}

// instant fires the timers that are due now, in the order of compare, and then settles the table.
func (t *Table) instant() {
	t.due = t.due[:0]
	for t.schedule.next() <= t.now {
		t.due = append(t.due, t.schedule[0])
		t.schedule.set(t.schedule[0], forever)
	}
	slices.SortFunc(t.due, func(a, b *timer) int { return a.compare(b) })
	for _, tm := range t.due {
		switch {
		case tm.session != nil:
			t.endSession(tm.session, lockkeeper.Expired, lockkeeper.Expired)
		case tm.claim != nil && !tm.claim.ended():
			t.fallDue(tm.claim)
		case tm.freeze != nil:
			t.thaw(tm.freeze, lockkeeper.Expired)
		}
	}
	t.settle()
}

// fallDue applies the effects of time on c whose instant has come.
func (t *Table) fallDue(c *claim) {
	switch {
	case c.operator != nil && c.operator.end <= t.now:
		t.endForced(c, lockkeeper.Revoked, c.operator.Label)
		return
	case c.enforcedEnd() <= t.now: // a lapsed claim ends for the reason of its lapse
		t.endForced(c, lockkeeper.Overdue, lockkeeper.Label{})
		return
	case c.waits && c.bound() <= t.now:
		t.giveUp(c, lockkeeper.TimedOut, "")
		if c.ended() {
			return
		}
	}
	if c.holds && c.want.MaxHold > 0 && !c.overdue && c.granted+c.want.MaxHold <= t.now {
		c.own().overdue = true
		t.recordChange(c, AskChanged, lockkeeper.NoReason)
	}
	t.arrivals = append(t.arrivals, c)
	t.takers = append(t.takers, c)
	t.reschedule(c)
}

// reschedule sets c's timer to the next instant at which time alone changes c. The end of an ask is
// in the timer of the thief, not of the holder.
func (t *Table) reschedule(c *claim) {
	at := forever
	if !c.ended() {
		at = c.enforcedEnd()
		if c.waits {
			at = min(at, c.bound(), t.takeAt(c))
			if ready := c.quiet() + c.want.Quiet; c.soft() && ready > t.now {
				at = min(at, ready)
			}
		}
		if c.holds && c.want.MaxHold > 0 && !c.overdue {
			at = min(at, c.granted+c.want.MaxHold)
		}
	}
	t.setDue(c, at)
}

// setDue sets c's timer; forever removes it.
func (t *Table) setDue(c *claim, at time.Duration) {
	if c.due == nil {
		if at == forever {
			return
		}
		t.ownTimer(c)
	}
	t.schedule.set(c.due, at)
}

// dueAt returns the instant of c's timer; forever if it has none.
func (c *claim) dueAt() time.Duration {
	if c.due == nil {
		return forever
	}
	return c.due.at
}

// recordChange gives c a new change number, and adds the event.
func (t *Table) recordChange(c *claim, kind EventKind, reason lockkeeper.Reason) {
	t.changes++
	if c.change = t.changes; c.holds || c.waits {
		c.setChanged(t.now)
	}
	t.mark(c)
	fence := uint64(0)
	if kind == Granted {
		fence = c.fence
	}
	t.events = append(t.events, Event{At: t.now, Kind: kind, Ref: c.ref(), Reason: reason, Fence: fence})
}

// sortClaims puts claims in the order of R4.
func sortClaims(cs []*claim) { slices.SortFunc(cs, (*claim).compare) }

// byID lists the claims of a session by their ids.
func (s *session) byID() []*claim {
	cs := make([]*claim, 0, s.claims.length)
	for _, c := range s.claims.all() {
		cs = append(cs, c)
	}
	return cs
}
