// Package model implements the rules of Lockkeeper a second time, to be read beside the documentation
// of package table: plain slices, everything computed again after each step, one function for one
// rule. It is slow. The random tests compare the table with it, command by command.
//
// It was written from the rules alone, without the source of the table.
package model

import (
	"cmp"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// forever is an instant that never comes.
const forever = lockkeeper.Forever

// Model is a table as the rules describe it. It is not safe for concurrent use.
type Model struct {
	now       time.Duration
	sessions  []*session     // open ones
	claims    []*claim       // live ones: waiting, held, or both (a conversion)
	ended     []*claim       // ended ones that still answer their end (R16)
	unacked   []*unackedHold // unacknowledged holders (R12)
	freezes   []*freeze      // one for each frozen path
	thawed    []*freeze      // ended ones that still answer their end
	asks      []ask          // live ones (R10)
	past      []endedHold    // every hold that ended (R9)
	holdTimes []holdTime     // estimates of how long holds last (R17)
	events    []table.Event

	epoch, ticket, fence uint64 // the last that was drawn
}

type session struct {
	id         string
	epoch      uint64
	ttl        time.Duration
	end        time.Duration // of its TTL (R11)
	promise    time.Duration // what its last answer promised (R12)
	resuming   bool          // since a restart (R19)
	leases     uint64        // the number of the latest
	acked      uint64        // the latest lease that it acknowledged (R12)
	lowestOpen uint64        // its low-water mark (R16)
}

type claim struct {
	ref    lockkeeper.Ref
	want   lockkeeper.Want // the latest that was accepted
	ticket uint64

	wish    []lockkeeper.Target // what it waits for; nil: it doesn't wait
	arrived time.Duration       // when it began to wait, conversions apart
	bound   time.Duration       // when it gives up waiting (R8)

	held        []lockkeeper.Target // what it holds; nil: it was never granted
	grants      []lockkeeper.Grant  // the same, as it was granted
	granted     time.Duration       // first grant
	fence       uint64
	unconfirmed bool              // R12
	undone      lockkeeper.Reason // why the latest conversion came to nothing
	operator    *operatorAsk      // R18
	lapse       *lapse            // R12
	statedEnd   time.Duration     // the end that its last answer stated (R12)
	stated      []statement       // the ends that its holder may rely on
	asked       asked             // what it was asked after the last step

	reason lockkeeper.Reason // why it ended
	forget time.Duration     // when its end is forgotten (R16)
	brief  bool              // it ended in the step in which it came
}

// statement is an end that an answer stated for a hold. lease is 0 for the answer to a claim.
type statement struct {
	lease uint64
	end   time.Duration
}

// operatorAsk is a revocation that is under way (R18).
type operatorAsk struct {
	end time.Duration
	by  lockkeeper.Label
}

// lapse is the end of a lapsed hold (R12).
type lapse struct {
	end    time.Duration
	reason lockkeeper.Reason
}

type unackedHold struct {
	*claim
	until time.Duration
}

type freeze struct {
	ref    lockkeeper.Ref
	want   lockkeeper.Want
	path   lockkeeper.Path
	since  time.Duration
	end    time.Duration
	reason lockkeeper.Reason // why it ended
	forget time.Duration     // when its end is forgotten
}

type endedHold struct {
	held []lockkeeper.Target
	end  time.Duration
}

// New is a table without sessions at time 0.
func New() *Model { return &Model{} }

// Events are those of the last Step, in order.
func (m *Model) Events() []table.Event { return m.events }

// Now is the engine's time.
func (m *Model) Now() time.Duration { return m.now }

// Step lets time pass until the command and then does it (R20).
func (m *Model) Step(c *table.Command) (table.Reply, error) {
	m.events = nil
	at := max(c.At, m.now)
	for {
		due := m.nextDue()
		if due > at {
			break
		}
		m.now = due
		m.instant()
	}
	m.now = at
	m.forgetEnded()
	return m.do(c)
}

// nextDue is the earliest instant after now at which the rules name an event.
func (m *Model) nextDue() time.Duration {
	next := forever
	consider := func(t time.Duration) {
		if t > m.now {
			next = min(next, t)
		}
	}
	for _, s := range m.sessions {
		consider(s.end)
	}
	for _, f := range m.freezes {
		consider(f.end)
	}
	for _, a := range m.asks {
		consider(a.end)
	}
	for _, c := range m.claims {
		if c.waits() {
			consider(c.bound)
			consider(m.quietUntil(c))
		}
		if c.holds() {
			consider(c.overdueAsk())
			consider(c.overdueEnd())
			consider(c.operatorEnd())
			consider(c.lapsedEnd())
		}
	}
	return next
}

// instant does what falls due now, in the order of R20, but that holds end before
// waits: a conversion whose hold ends has nothing left to be undone.
func (m *Model) instant() {
	m.forgetEnded()
	for _, s := range slices.Clone(m.sessions) {
		if s.end <= m.now {
			m.endSession(s)
		}
	}
	for _, c := range byRef(m.holders()) {
		switch {
		case c.operatorEnd() <= m.now:
			m.end(c, lockkeeper.Revoked)
		case c.overdueEnd() <= m.now:
			m.end(c, lockkeeper.Overdue)
		case c.lapsedEnd() <= m.now:
			m.end(c, c.lapse.reason)
		}
	}
	for _, c := range m.queue() {
		if c.bound <= m.now {
			m.giveUp(c, lockkeeper.TimedOut)
		}
	}
	for _, f := range slices.Clone(m.freezes) {
		if f.end <= m.now {
			m.endFreeze(f, lockkeeper.Expired)
		}
	}
	m.settle()
}

// forgetEnded forgets ends whose time has passed; none while its holder is unacknowledged (R16).
func (m *Model) forgetEnded() {
	m.unacked = slices.DeleteFunc(m.unacked, func(g *unackedHold) bool { return g.until <= m.now })
	m.ended = slices.DeleteFunc(m.ended, func(c *claim) bool {
		return (c.forget <= m.now || m.knownToSession(c)) &&
			!m.isUnacked(c)
	})
	m.thawed = slices.DeleteFunc(m.thawed, func(f *freeze) bool { return f.forget <= m.now })
}

func (m *Model) isUnacked(c *claim) bool {
	return slices.ContainsFunc(m.unacked, func(g *unackedHold) bool { return g.claim == c })
}

func (m *Model) event(e table.Event) {
	e.At = m.now
	m.events = append(m.events, e)
}

func (m *Model) session(id string) *session {
	for _, s := range m.sessions {
		if s.id == id {
			return s
		}
	}
	return nil
}

func (m *Model) claim(ref lockkeeper.Ref) *claim {
	for _, c := range m.claims {
		if c.ref == ref {
			return c
		}
	}
	return nil
}

// byRef puts claims into the order of session and id.
func byRef(claims []*claim) []*claim {
	claims = slices.Clone(claims)
	slices.SortFunc(claims, func(a, b *claim) int {
		return cmp.Or(cmp.Compare(a.ref.Session, b.ref.Session), cmp.Compare(a.ref.ID, b.ref.ID))
	})
	return claims
}

func (c *claim) waits() bool      { return c.wish != nil }
func (c *claim) holds() bool      { return c.held != nil }
func (c *claim) converting() bool { return c.waits() && c.holds() }

// after is t plus d, or never if d is never.
func after(t, d time.Duration) time.Duration {
	if d == forever || t == forever {
		return forever
	}
	return t + d
}
