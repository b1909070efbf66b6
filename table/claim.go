package table

import (
	"cmp"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

const forever = lockkeeper.Forever

// A claim is one request, waiting or held.
//
// Invariants: held is empty exactly while the claim waits for its first grant. wanted is empty
// exactly while the claim waits for nothing. Both have entries while the claim converts.
type claim struct {
	ref     lockkeeper.Ref
	session *session
	want    lockkeeper.Want // as last accepted
	held    []entry         // entries that it holds, in the held lists of the nodes
	wanted  []entry         // entries that it waits for, in the queues of the nodes unless frozen
	grants  []lockkeeper.Grant

	ticket      uint64 // order in the queue (R4), also the age of a wait (R15)
	fence       uint64 // 0 until granted
	change      uint64 // Table.changes at its latest change
	changed     time.Duration
	arrived     time.Duration
	granted     time.Duration // for the first time
	bound       time.Duration // when its wait ends; forever if never
	quiet       time.Duration // start of its quiet period: a conflicting hold ended, or it arrived (R9)
	stated      time.Duration // the end in the last answer to its session (R12)
	statedIn    uint64        // the first lease that stated it, as every answer since then; 0: no lease did
	unackedEnd  time.Duration // the latest end that its holder may rely on, if answers got lost
	unconfirmed bool
	queued      bool              // its wanted entries are in the queues of their nodes
	frozen      bool              // a freeze forbids its targets, so it is in no queue; it is in Table.frozen
	ended       bool              //
	undone      lockkeeper.Reason // why the table gave up its latest conversion
	reason      lockkeeper.Reason // why it ended
	text        string            // explains undone or reason

	asking   map[*claim]time.Duration // end of each ask, by the holder asked; each holder has it in asks
	asks     []ask                    // claims that ask it to yield, in the order of R4
	overdue  bool                     // its longest hold has passed
	operator *operatorAsk             // set from its revocation until the revocation's end
	lapse    *lapse                   // set when it has lapsed

	tomb        *tombstone // set when it ended
	due         timer      // the next instant at which time changes it; see reschedule
	pass        uint64     // the latest value of Table.passes with which an algorithm marked it as visited
	nestedIndex int        // its index in its list in Table.nestedIn, if it is nested (R15)
	isThief     bool       // it is in Table.thieves

	entryRoom [3]entry // memory for the entries of most claims
}

// An ask is one live request to yield (R10).
type ask struct {
	by  *claim
	end time.Duration // when the claim by may take the hold; forever if it only asks
}

// An operatorAsk is a revocation that waits for its end (R18).
type operatorAsk struct {
	lockkeeper.Label
	end time.Duration
}

// A lapse is the end of a lapsed hold (R12).
type lapse struct {
	end    time.Duration
	reason lockkeeper.Reason
	text   string
}

func (c *claim) waiting() bool    { return len(c.held) == 0 && !c.ended }
func (c *claim) converting() bool { return len(c.held) > 0 && len(c.wanted) > 0 }

// soft reports whether c waits as a soft claim; a conversion never does.
func (c *claim) soft() bool { return c.want.WriterPolicy == lockkeeper.Soft && len(c.held) == 0 }

func (c *claim) steals() bool { return c.want.Steal != lockkeeper.NoSteal }

// class is the first part of R4's order.
func (c *claim) class() int {
	switch {
	case len(c.held) > 0:
		return 0 // a conversion
	case c.soft():
		return 2
	}
	return 1
}

// compare is R4, the order of the queue.
func (c *claim) compare(d *claim) int {
	if c == d {
		return 0
	}
	if o := cmp.Compare(c.class(), d.class()); o != 0 {
		return o
	}
	if o := cmp.Compare(d.want.Priority, c.want.Priority); o != 0 {
		return o
	}
	if o := cmp.Compare(c.ticket, d.ticket); o != 0 {
		return o
	}
	return compareRefs(c.ref, d.ref)
}

func (c *claim) before(d *claim) bool { return c.compare(d) < 0 }

func compareRefs(a, b lockkeeper.Ref) int {
	if o := strings.Compare(a.Session, b.Session); o != 0 {
		return o
	}
	return cmp.Compare(a.ID, b.ID)
}

// nested reports whether c's client said that it makes c inside another claim's hold (R15).
func (c *claim) nested() bool { return c.want.Inside != (lockkeeper.Ref{}) }

// enforcedEnd returns the instant at which the engine ends c's hold at the latest, whatever its
// holder does; forever if there is none. It ignores takes, because they depend on the thief.
func (c *claim) enforcedEnd() time.Duration {
	end := forever
	if c.want.MaxHold > 0 && len(c.held) > 0 {
		end = c.granted + c.want.MaxHold + c.want.Grace
	}
	if c.operator != nil {
		end = min(end, c.operator.end)
	}
	if c.lapse != nil {
		end = min(end, c.lapse.end)
	}
	return end
}

// earliestEnd returns the end that answers state to c's holder: the enforced end or the first take
// (R12).
func (c *claim) earliestEnd() time.Duration {
	end := c.enforcedEnd()
	for _, a := range c.asks {
		end = min(end, a.end)
	}
	return end
}

// announcedEnd returns the instant until which c's hold is certain to last; 0 if c announced none
// (R8).
func (c *claim) announcedEnd() time.Duration {
	if c.want.Expected == 0 || len(c.held) == 0 {
		return 0
	}
	return min(c.granted+c.want.Expected, c.enforcedEnd())
}

// A session is the unit of liveness (R11).
type session struct {
	id         string
	label      lockkeeper.Label
	ttl        time.Duration
	epoch      uint64
	deadline   time.Duration // forever for TTL 0
	promise    time.Duration // the deadline that its last lease stated (R12)
	resumed    bool          // a client attached it since the last restart (R19)
	leases     uint64        // the number of the latest lease
	acked      uint64        // the latest lease that it acknowledged; 0: none
	lowestOpen uint64        // its client starts no claim with an id below this (R16)
	claims     map[uint64]*claim
	ended      map[uint64]*tombstone
	endings    []*tombstone // the tombstones in ended, ordered by end; may have forgotten ones
	idle       int          // number of endings that the table forgot early
	due        timer
}

// A tombstone remembers an ended claim, so that the table answers a late repetition of the request
// and never grants it again (R16).
type tombstone struct {
	ref          lockkeeper.Ref
	inside       lockkeeper.Ref
	at           time.Duration
	forget       time.Duration // when the table forgets it
	revision     uint64
	change       uint64
	fence        uint64
	reason       lockkeeper.Reason
	text         string
	grants       []lockkeeper.Grant
	label        lockkeeper.Label
	priority     int
	thawed       bool                 // it stands for an ended freeze, not for a claim
	acked        bool                 // its session knows of the end: it ended the claim, or its first answer said so
	kept         bool                 // it is needed after the step in which the claim ended
	unackedUntil time.Duration        // until then its holder may believe that it still holds (R12); 0: it knows
	blockers     []lockkeeper.Blocker // of a refused claim: the claims and freezes that blocked it
	position     int                  // of a timed-out claim: its position in the queue
	eta          time.Duration        // of a timed-out claim: the estimated rest of its wait; 0 if unknown
}
