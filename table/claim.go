package table

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

const forever = lockkeeper.Forever

// A claim is one request, waiting or held.
//
// Invariants: held is empty exactly while the claim waits for its first grant. wanted is empty
// exactly while the claim waits for nothing. Both have entries while the claim converts.
//
// There may be a million claims, so a claim has only what nearly each of them needs. Its targets are
// in its entries (see targets and grants), and what few need is in its cold part.
type claim struct {
	id      uint64 // the session's number for it
	session *session
	want    *terms  // as last accepted, without the targets and the label
	label   label   //
	held    []entry // entries that it holds, in the held lists of the nodes
	wanted  []entry // entries that it waits for, in the queues of the nodes unless frozen
	*cold           // &plain for most claims; see own

	ticket      uint64 // order in the queue (R4), also the age of a wait (R15)
	fence       uint64 // 0 until granted
	change      uint64 // Table.changes at its latest change
	changed     time.Duration
	arrived     time.Duration
	granted     time.Duration // for the first time
	bound       time.Duration // when its wait ends; forever if never
	due         *timer        // the next instant at which time changes it; nil if there was none yet; see reschedule
	pass        uint64        // the latest value of Table.passes with which an algorithm marked it as visited
	unconfirmed bool
	queued      bool              // its wanted entries are in the queues of their nodes
	frozen      bool              // a freeze forbids its targets, so it is in no queue; it is in Table.frozen
	ended       bool              //
	overdue     bool              // its longest hold has passed
	isThief     bool              // it is in Table.thieves
	reason      lockkeeper.Reason // why it ended

	entryRoom [3]entry // memory for the entries of most claims
}

// terms are what a claim asks for beside its targets. They are never changed, because claims share
// them.
type terms struct {
	Revision     uint64
	Inside       lockkeeper.Ref
	Priority     int
	Wait         time.Duration
	WriterPolicy lockkeeper.WriterPolicy
	Steal        lockkeeper.Steal
	Quiet        time.Duration
	After        time.Duration
	AfterTTL     int
	MaxHold      time.Duration
	Grace        time.Duration
	Expected     time.Duration
}

// termsOf returns the terms of w, which are those of the latest claim of s if they are equal.
func (s *session) termsOf(w *lockkeeper.Want) *terms {
	if s.terms == nil || !s.terms.equal(w) {
		s.terms = &terms{
			Revision: w.Revision, Inside: w.Inside, Priority: w.Priority, Wait: w.Wait, WriterPolicy: w.WriterPolicy,
			Steal: w.Steal, Quiet: w.Quiet, After: w.After, AfterTTL: w.AfterTTL, MaxHold: w.MaxHold, Grace: w.Grace,
			Expected: w.Expected,
		}
	}
	return s.terms
}

func (m *terms) equal(w *lockkeeper.Want) bool {
	return m.Revision == w.Revision && m.Inside == w.Inside && m.Priority == w.Priority && m.Wait == w.Wait &&
		m.WriterPolicy == w.WriterPolicy && m.Steal == w.Steal && m.Quiet == w.Quiet && m.After == w.After &&
		m.AfterTTL == w.AfterTTL && m.MaxHold == w.MaxHold && m.Grace == w.Grace && m.Expected == w.Expected
}

// cold is the part of a claim that few claims need.
type cold struct {
	quietFrom  time.Duration     // start of its quiet period if not its arrival; see quiet
	stated     time.Duration     // the end in the last answer to its session (R12)
	statedIn   uint64            // the first lease that stated it, as every answer since then; 0: no lease did
	unackedEnd time.Duration     // the latest end that its holder may rely on, if answers got lost
	refused    lockkeeper.Mode   // the mode of the undone conversion, which its request still has; 0: none
	undone     lockkeeper.Reason // why the table gave up its latest conversion
	text       string            // explains undone or reason
	permits    []lockkeeper.Grant

	asking   map[*claim]time.Duration // end of each ask, by the holder asked; each holder has it in asks
	asks     []ask                    // claims that ask it to yield, in the order of R4
	operator *operatorAsk             // set from its revocation until the revocation's end
	lapse    *lapse                   // set when it has lapsed

	nestedIndex int // its index in its list in Table.nestedIn, if it is nested (R15)
}

// noTerms are those of a freeze.
var noTerms terms

const unset time.Duration = -1

// plain is the cold part of claims that need none. All tables share it, so nobody may change it.
var plain = cold{quietFrom: unset, stated: forever, unackedEnd: forever}

// own returns c's cold part for a change; c gets one of its own if it has none.
func (c *claim) own() *cold {
	if c.cold == &plain {
		c.cold = new(cold)
		*c.cold = plain
	}
	return c.cold
}

// quiet returns the start of c's quiet period: a conflicting hold ended, or c arrived (R9).
func (c *claim) quiet() time.Duration {
	if c.quietFrom == unset {
		return c.arrived
	}
	return c.quietFrom
}

// setUndone records why the table gave up c's latest conversion; NoReason if it did not.
func (c *claim) setUndone(reason lockkeeper.Reason, text string) {
	if c.undone != reason || c.text != text {
		own := c.own()
		own.undone, own.text = reason, text
	}
}

func (c *claim) ref() lockkeeper.Ref { return lockkeeper.Ref{Session: c.session.id, ID: c.id} }

// targets yields c's targets as last accepted, in the order of the request.
func (c *claim) targets() iter.Seq[lockkeeper.Target] {
	return func(yield func(lockkeeper.Target) bool) {
		entries := c.wanted
		if len(entries) == 0 {
			entries = c.held
		}
		for i := range entries {
			if p := &entries[i]; p.kind.ofTarget() {
				target := p.target()
				if c.refused != 0 {
					target.Mode = c.refused
				}
				if !yield(target) {
					return
				}
			}
		}
	}
}

// several reports whether c has more than one target.
func (c *claim) several() bool {
	n := 0
	for i := range c.wanted {
		if c.wanted[i].kind.ofTarget() {
			n++
		}
	}
	for i := range c.held {
		if c.held[i].kind.ofTarget() && len(c.wanted) == 0 {
			n++
		}
	}
	return n > 1
}

// request returns c's request as last accepted.
func (c *claim) request() lockkeeper.Want {
	m := c.want
	return lockkeeper.Want{
		ID: c.id, Revision: m.Revision, Inside: m.Inside, Targets: slices.Collect(c.targets()), Priority: m.Priority,
		Wait: m.Wait, WriterPolicy: m.WriterPolicy, Quiet: m.Quiet, Steal: m.Steal, After: m.After, AfterTTL: m.AfterTTL,
		MaxHold: m.MaxHold, Grace: m.Grace, Expected: m.Expected, Label: c.label.unpack(),
	}
}

// grants returns what c holds, or waits for if it holds nothing.
func (c *claim) grants() []lockkeeper.Grant {
	if c.permits != nil {
		return c.permits
	}
	entries := c.held
	if len(entries) == 0 {
		entries = c.wanted
	}
	n := 0
	for i := range entries {
		if entries[i].kind.ofTarget() {
			n++
		}
	}
	grants := make([]lockkeeper.Grant, 0, n)
	for i := range entries {
		if entries[i].kind.ofTarget() {
			grants = append(grants, lockkeeper.Grant{Target: entries[i].target()})
		}
	}
	return grants
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
	if o := strings.Compare(c.session.id, d.session.id); o != 0 {
		return o
	}
	return cmp.Compare(c.id, d.id)
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
