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
// Invariants: a claim holds, or waits, or does both while it converts. It has an entry for each of its
// targets, and further ones for those that it converts to. While it waits, it also has intents.
//
// There may be a million claims, so a claim has only what nearly each of them needs. Its targets are
// in its entries (see targets and grants), and what few need is in its cold part.
type claim struct {
	id     uint64   // the session's number for it
	want   *terms   // its session, and what it asks for as last accepted, without the targets and the label
	label  label    //
	one    [1]entry // of its target, if it has one; see entries
	*wait           // &noWait for most claims that are held; see ownWait
	*cold           // &plain for most claims; see own
	ticket uint64   // order in the queue (R4), also the age of a wait (R15)
	fence  uint64   // 0 until granted
	change uint64   // Table.changes at its latest change; see changed

	arrived time.Duration
	granted time.Duration // for the first time
	pass    uint32        // the latest value of Table.passes with which an algorithm marked it as visited
	holds   bool          // it is held, perhaps converting
	waits   bool          // it waits for its first grant, or converts
	queued  bool          // its wanted entries and intents are in the queues of their nodes
	frozen  bool          // a freeze forbids its targets, so it is in no queue; it is in Table.frozen
}

// wait is the part of a claim that only claims need that wait, or that time changes.
type wait struct {
	few  [2]entry // intents of most claims; see intents
	many *[]entry // intents, if they are more
	due  *timer   // the next instant at which time changes it; nil if there was none yet; see reschedule
}

// noWait is the wait of claims that have none. All tables share it, so nobody may change it.
var noWait wait

// intents returns the intents on the ancestors of the targets. They are in the queues there unless the
// claim is frozen.
func (w *wait) intents() []entry {
	switch {
	case w.many != nil:
		return *w.many
	case w.few[0].node == nil:
		return nil
	case w.few[1].node == nil:
		return w.few[:1]
	}
	return w.few[:]
}

// bound returns when the wait ends; forever if never.
func (w *wait) bound() time.Duration {
	if w.due == nil {
		return forever
	}
	return w.due.bound
}

// ownWait returns c's wait for a change; c gets one of its own if it has none.
func (t *Table) ownWait(c *claim) *wait {
	if c.wait == &noWait {
		c.wait = t.newWait(c)
	}
	return c.wait
}

// ownTimer returns c's timer for a change; c gets one if it has none.
func (t *Table) ownTimer(c *claim) *timer {
	w := t.ownWait(c)
	if w.due == nil {
		w.due = &timer{at: forever, bound: forever, claim: c}
	}
	return w.due
}

// setBound sets what bound returns.
func (t *Table) setBound(c *claim, at time.Duration) {
	if c.bound() != at {
		t.ownTimer(c).bound = at
	}
}

// dropWait drops c's wait if there is nothing in it.
func (t *Table) dropWait(c *claim) {
	if w := c.wait; w != &noWait && w.intents() == nil && w.bound() == forever && (w.due == nil || w.due.index == 0) {
		c.wait = &noWait
		t.spareWait(w)
	}
}

// terms are what a claim asks for beside its targets, and its session. They are never changed, because
// claims share them.
type terms struct {
	session      *session
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
			session:  s,
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
	changed    time.Duration // the instant of its latest change, if it is not that of its arrival or grant; see changedAt
	overdue    bool          // its longest hold has passed
	isThief    bool          // it is in Table.thieves
	unsure     bool          // an unacknowledged holder may have relied on what it was granted (R12)

	targets  []entry // of its targets, if it has several; see entries
	converts []entry // of the targets that it converts to

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
var plain = cold{quietFrom: unset, changed: unset, stated: forever, unackedEnd: forever}

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

// changedAt returns the instant of c's latest change.
func (c *claim) changedAt() time.Duration {
	if c.changed == unset {
		return max(c.arrived, c.granted)
	}
	return c.changed
}

// setChanged sets what changedAt returns.
func (c *claim) setChanged(at time.Duration) {
	if at == max(c.arrived, c.granted) {
		at = unset
	}
	if c.changed != at {
		c.own().changed = at
	}
}

func (c *claim) session() *session { return c.want.session }

func (c *claim) ref() lockkeeper.Ref { return lockkeeper.Ref{Session: c.session().id, ID: c.id} }

// entries returns the entries of the targets that c holds, or waits for if it holds nothing.
func (c *claim) entries() []entry {
	if c.targets != nil {
		return c.targets
	}
	return c.one[:]
}

// held returns the entries that c holds. They are in the held lists of their nodes.
func (c *claim) held() []entry {
	if c.holds {
		return c.entries()
	}
	return nil
}

// wanted returns the entries of the targets that c waits for. They are in the queues of their nodes
// unless c is frozen.
func (c *claim) wanted() []entry {
	switch {
	case c.converts != nil:
		return c.converts
	case c.waits:
		return c.entries()
	}
	return nil
}

// pending yields all entries with which c waits: its intents and the entries that it wants.
func (c *claim) pending() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		intents := c.intents()
		for i := range intents {
			if !yield(&intents[i]) {
				return
			}
		}
		wanted := c.wanted()
		for i := range wanted {
			if !yield(&wanted[i]) {
				return
			}
		}
	}
}

// requested yields c's targets as last accepted, in the order of the request.
func (c *claim) requested() iter.Seq[lockkeeper.Target] {
	return func(yield func(lockkeeper.Target) bool) {
		entries := c.converts
		if entries == nil {
			entries = c.entries()
		}
		for i := range entries {
			target := entries[i].target()
			if c.refused != 0 {
				target.Mode = c.refused
			}
			if !yield(target) {
				return
			}
		}
	}
}

// several reports whether c has more than one target.
func (c *claim) several() bool { return len(c.targets) > 1 }

// request returns c's request as last accepted.
func (c *claim) request() lockkeeper.Want {
	m := c.want
	return lockkeeper.Want{
		ID: c.id, Revision: m.Revision, Inside: m.Inside, Targets: slices.Collect(c.requested()), Priority: m.Priority,
		Wait: m.Wait, WriterPolicy: m.WriterPolicy, Quiet: m.Quiet, Steal: m.Steal, After: m.After, AfterTTL: m.AfterTTL,
		MaxHold: m.MaxHold, Grace: m.Grace, Expected: m.Expected, Label: c.label.unpack(),
	}
}

// grants returns what c holds, or waits for if it holds nothing. The targets must still be in its entries.
func (c *claim) grants() []lockkeeper.Grant {
	if c.permits != nil {
		return c.permits
	}
	entries := c.entries()
	grants := make([]lockkeeper.Grant, len(entries))
	for i := range entries {
		grants[i].Target = entries[i].target()
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

func (c *claim) ended() bool      { return !c.holds && !c.waits }
func (c *claim) waiting() bool    { return !c.holds && c.waits }
func (c *claim) converting() bool { return c.holds && c.waits }

// soft reports whether c waits as a soft claim; a conversion never does.
func (c *claim) soft() bool { return c.want.WriterPolicy == lockkeeper.Soft && !c.holds }

func (c *claim) steals() bool { return c.want.Steal != lockkeeper.NoSteal }

// class is the first part of R4's order.
func (c *claim) class() int {
	switch {
	case c.holds:
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
	if o := strings.Compare(c.session().id, d.session().id); o != 0 {
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
	if c.want.MaxHold > 0 && c.holds {
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
	if c.want.Expected == 0 || !c.holds {
		return 0
	}
	return min(c.granted+c.want.Expected, c.enforcedEnd())
}
