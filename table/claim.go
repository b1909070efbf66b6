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
// Invariants: held is empty exactly while it waits for its first grant; wanted is empty exactly
// while it waits for nothing; both are there while it converts.
type claim struct {
	ref     lockkeeper.Ref
	session *session
	want    lockkeeper.Want // as last accepted
	held    []entry         // what it holds, counted in the nodes
	wanted  []entry         // what it waits for, in the lines of the nodes unless frozen
	grants  []lockkeeper.Grant

	ticket      uint64 // order in the queue (R4), also the age of a wait (R15)
	fence       uint64 // 0 until granted
	change      uint64 // of the table, when it last changed
	changed     time.Duration
	arrived     time.Duration
	granted     time.Duration // for the first time
	bound       time.Duration // when its wait ends; forever if never
	quiet       time.Duration // when a conflicting hold last ended, or it arrived (R9)
	stated      time.Duration // the end in the last answer to its session (R12)
	statedIn    uint64        // the first lease that stated it, since when all answers did; 0: none has
	unackedEnd  time.Duration // the latest end that its holder may rely on, if answers got lost
	unconfirmed bool
	queued      bool              // its wanted places are in the lines of their nodes
	frozen      bool              // a freeze forbids what it wants, so it stands in no line; it is in Table.frozen
	ended       bool              //
	undone      lockkeeper.Reason // why the latest conversion was given up
	reason      lockkeeper.Reason // why it ended
	text        string            // words to either

	asking   map[*claim]time.Duration // end of each ask, by the holder asked; each holder has it in asks
	asks     []ask                    // claims that ask it to yield, in the order of R4
	overdue  bool                     // its longest hold has passed
	operator *operatorAsk             // nil unless revoked and not yet at its end
	lapse    *lapse                   // set when it has lapsed

	tomb        *tombstone // set when it ended
	due         timer      // the next moment at which something becomes of it
	pass        uint64     // the latest look at many claims in which it was marked
	nestedIndex int        // its index in Table.named, if it is made in a hold (R15)
	isThief     bool       // it is in Table.thieves

	entryRoom [3]entry // room for the places of most claims
}

// An ask is one live request to yield (R10).
type ask struct {
	by  *claim
	end time.Duration // when by may take; forever if it only asks
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

// nested reports whether c says that it is made in another claim's hold (R15).
func (c *claim) nested() bool { return c.want.Inside != (lockkeeper.Ref{}) }

// enforcedEnd is when c's hold surely ends, whatever its holder does: forever if it need not.
// Takes are not counted, they depend on the thief.
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

// earliestEnd is the end that answers state to c's holder, takes included (R12).
func (c *claim) earliestEnd() time.Duration {
	end := c.enforcedEnd()
	for _, a := range c.asks {
		end = min(end, a.end)
	}
	return end
}

// announcedEnd is until when c's hold is sure to last; 0 if it is not (R8).
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
	promise    time.Duration // until when its last answer said that it lives (R12)
	resumed    bool          // it was attached since the last restart (R19)
	leases     uint64        // the number of the latest
	acked      uint64        // the latest lease that it acknowledged; 0: none
	lowestOpen uint64        // it begins no claim with an id below this (R16)
	claims     map[uint64]*claim
	ended      map[uint64]*tombstone
	endings    []*tombstone // those of ended, in the order in which they ended
	idle       int          // how many of endings were forgotten before their time
	due        timer
}

// A tombstone remembers an ended claim, so that a late repetition is answered
// and never granted again (R16).
type tombstone struct {
	ref          lockkeeper.Ref
	inside       lockkeeper.Ref
	at           time.Duration
	forget       time.Duration // when it is remembered no longer
	revision     uint64
	change       uint64
	fence        uint64
	reason       lockkeeper.Reason
	text         string
	grants       []lockkeeper.Grant
	label        lockkeeper.Label
	priority     int
	thawed       bool                 // not a claim but a freeze
	acked        bool                 // its session knows of its end: it ended it, or it came in its first step
	kept         bool                 // beyond the step in which it came
	unackedUntil time.Duration        // until when its holder may believe that it holds (R12); 0: it knows
	blockers     []lockkeeper.Blocker // of a refused claim: who stood in the way
	position     int                  // of one that timed out: its position in the queue
	eta          time.Duration        // and for how long it would have waited; 0 if unknown
}
