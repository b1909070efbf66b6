package quorum

import (
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// asked is a request to the holder to yield, as the client is notified of it.
type asked struct {
	by     lockkeeper.Ref
	label  lockkeeper.Label
	reason lockkeeper.Reason
	end    time.Duration // on the boot clock; never
	from   time.Duration // when the oldest state from which end was computed had been requested
}

// updateAsk determines what c's holder is asked: by the servers, if their ends bring the deadline of
// the hold nearer than the client knows or a majority asks without an end, or because its longest
// hold is over.
func (p *Party) updateAsk(c *claim, now time.Duration) {
	if c.phase != held || c.stopped(now) {
		return
	}
	next := p.serverAsk(c)
	if c.overdue {
		if end := c.overdueEnd(); next == nil || end <= next.end {
			next = &asked{reason: lockkeeper.Overdue, end: end}
		}
	}
	var shown []Micros
	if next != nil && next.reason != lockkeeper.Overdue {
		shown = c.askEnds()
	}
	same := (next == nil) == (c.asked == nil) && slices.Equal(shown, c.shown) &&
		(next == nil || next.by == c.asked.by && next.reason == c.asked.reason && next.label == c.asked.label)
	c.asked = next
	if same {
		return
	}
	c.shown, c.statedIn = shown, 0
	p.touch(c, now)
	if c.answered {
		p.notify(c, now)
	}
}

// stopped reports whether the client may have stopped using c because of the end that it was told. That
// stands then, whatever the servers say: when one of them has ended the vote by the ask, the others
// alone may not show the ask any more, and a client that was paused would take that for its withdrawal.
func (c *claim) stopped(now time.Duration) bool {
	return c.asked != nil && c.asked.end != never && now >= c.asked.end-c.askDrift(now)-lockkeeper.Margin(c.session.ttl)
}

// askEnds returns the ends that the servers state, 0 where there is none.
func (c *claim) askEnds() []Micros {
	ends := make([]Micros, len(c.at))
	for i := range c.at {
		if b := &c.at[i]; b.counts() && b.ask != nil {
			ends[i] = b.ask.End
		}
	}
	return ends
}

// serverAsk returns the ask that the servers make; nil if there is none that counts.
func (p *Party) serverAsk(c *claim) *asked {
	asking, first := 0, -1
	for i := range c.at {
		b := &c.at[i]
		if !b.counts() || b.ask == nil {
			continue
		}
		asking++
		if first < 0 || b.askEnd < c.at[first].askEnd {
			first = i
		}
	}
	if asking == 0 {
		return nil
	}
	promised, end := p.holdDeadline(c)
	if known := c.session.clientEnd; known != 0 {
		promised = min(promised, known) // the promises differ a little from each other: nearer than that counts
	}
	bounded := slices.ContainsFunc(c.at, func(b ballot) bool { return b.counts() && b.askEnd < never })
	switch {
	case bounded && end < promised:
	case asking >= p.majority:
		end = never
	default:
		return nil
	}
	if end == never && bounded && asking >= p.majority {
		// The asks have ends after the present promises: the next renewals would reach them.
		end = p.askDeadline(c)
	}
	a := c.at[first].ask
	by, err := lockkeeper.ParseRef(a.By)
	if err != nil {
		by = lockkeeper.Ref{}
	}
	return &asked{by: by, label: a.Label, reason: a.Reason, end: end, from: c.oldestState()}
}

// oldestState returns when the oldest of the states that c's votes have was requested.
func (c *claim) oldestState() time.Duration {
	oldest := never
	for i := range c.at {
		if b := &c.at[i]; b.counts() {
			oldest = min(oldest, b.stateSent)
		}
	}
	return oldest
}

// asksEndAt reports whether an ask at a server that votes for c ends at that time.
func (c *claim) asksEndAt(end time.Duration) bool {
	return slices.ContainsFunc(c.at, func(b ballot) bool { return b.counts() && b.askEnd == end })
}

// askDrift returns by how much the ends of c's asks may be nearer than computed: the clock of a server may have run
// faster since it stated the end. The client keeps its margin of the time that is left, which does not cover the time
// before.
//
//	age/100    age: the time since the oldest of the states was requested from which the end was computed
func (c *claim) askDrift(now time.Duration) time.Duration {
	if c.asked == nil || c.asked.reason == lockkeeper.Overdue {
		return 0 // the longest hold ends by the clock of this party
	}
	return max(now-c.asked.from, 0) / 100
}

// askDeadline returns the majority-th largest end of the asks alone; never if there is none.
func (p *Party) askDeadline(c *claim) time.Duration {
	var buffer [7]time.Duration
	ends := buffer[:0]
	for i := range c.at {
		if b := &c.at[i]; b.counts() {
			ends = append(ends, b.askEnd)
		}
	}
	return kthLargest(ends, p.majority)
}

// state records that lease number states the ends of c's ask. Without acknowledgements of the client,
// an answered lease counts as acknowledged.
func (p *Party) stateAsk(c *claim, number uint64) {
	if c.asked == nil || c.statedIn != 0 {
		return
	}
	c.statedIn = number
	for i := range c.at {
		b := &c.at[i]
		b.stated = 0
		if b.counts() && b.ask != nil {
			b.stated = b.ask.End
		}
	}
	if !c.session.states {
		c.session.acks = true
	}
}

// acknowledge takes the number of the latest lease that the client has processed.
func (p *Party) acknowledge(s *session, number uint64) {
	if number == 0 || number > s.lease {
		return
	}
	s.states = true
	if number > s.acked {
		s.acked, s.acks = number, true
	}
}

// pushAcks sends the ends of asks that the client knows to the servers that stated them (R12).
func (p *Party) pushAcks(s *session, i int) (more bool) {
	seat := &s.seats[i]
	if seat.acking || !seat.joined || !p.usable(s, i) {
		return true
	}
	var acks []AckRecord
	for _, c := range s.inOrder() {
		if c.phase != held || c.statedIn == 0 || s.states && c.statedIn > s.acked {
			continue
		}
		b := &c.at[i]
		if b.stated != 0 && b.acked != b.stated && b.ask != nil && b.ask.End == b.stated && !b.ask.Acked {
			b.acked = b.stated
			acks = append(acks, AckRecord{ID: c.id, End: b.stated})
		}
	}
	if len(acks) > 0 {
		seat.acking = true
		p.send(i, s, nil, Request{Kind: Ack, Acks: acks})
	}
	return false
}
