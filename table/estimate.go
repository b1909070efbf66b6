package table

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// mostAhead bounds the work of an estimate (R17).
const mostAhead = 1 << 10

// ahead calls f with the claims that count for c's position (R17), in the order of the queue, until
// f returns false. It merges the queues of the nodes, which are already in that order.
func (c *claim) ahead(f func(*claim) bool) {
	var room [8]*entry
	fronts := room[:0]
	for p := range c.pending() {
		for q := range p.queuesAhead() {
			fronts = append(fronts, q.head)
		}
	}
	for len(fronts) > 0 {
		next := fronts[0].claim
		for _, p := range fronts[1:] {
			if p.claim.before(next) {
				next = p.claim
			}
		}
		if !next.before(c) || !f(next) {
			return
		}
		for i := 0; i < len(fronts); {
			if fronts[i].claim == next {
				fronts[i] = fronts[i].next
			}
			if last := len(fronts) - 1; fronts[i] == nil {
				fronts[i], fronts = fronts[last], fronts[:last]
			} else {
				i++
			}
		}
	}
}

// queuesAhead yields the non-empty queues at p's node whose claims count for the position of p's
// claim.
func (p *entry) queuesAhead() iter.Seq[*queue] {
	return func(yield func(*queue) bool) {
		l := p.node.extra
		if l == nil {
			return
		}
		for k := range kindP {
			if q := l.queues[k]; q.first() != nil && conflicts[p.kind].has(k) && !yield(q) {
				return
			}
		}
		limits := l.limits()
		for i := range limits {
			q := &limits[i]
			counts := conflicts[p.kind].has(kindP) || p.kind == kindP && q.limit >= p.limit()
			if q.head != nil && counts && !yield(&q.queue) {
				return
			}
		}
	}
}

// estimate returns how long c will still wait if each hold lasts as long as expected (R17); 0 if
// that is unknown.
func (t *Table) estimate(c *claim) time.Duration {
	if c.frozen || c.soft() || !c.session().resumed {
		return 0
	}
	rest := t.remaining(c)
	turns, count := time.Duration(0), 0
	var last *claim // the last counted claim that wants more than permits
	var longest time.Duration
	c.ahead(func(d *claim) bool {
		if count++; count == 1 {
			rest = max(rest, t.remaining(d))
		}
		length := t.expected(d)
		if rest == forever || length == 0 || count > mostAhead || turns > lockkeeper.MaxDuration {
			rest = forever
			return false
		}
		if d.permitsOnly() {
			turns += d.share(length)
			return true
		}
		if last == nil || last.clashes(d) {
			longest = 0
		}
		turns += max(length-longest, 0)
		last, longest = d, max(length, longest)
		return true
	})
	if rest == forever || rest+turns > lockkeeper.MaxDuration {
		return 0
	}
	return rest + turns
}

func (c *claim) permitsOnly() bool {
	for target := range c.requested() {
		if target.Mode != lockkeeper.ModePermits {
			return false
		}
	}
	return true
}

// share returns length*units/limit of the target of c for which that is most, rounded up: a claim
// with a quarter of the permits delays other claims a quarter of its length. c wants only permits.
func (c *claim) share(length time.Duration) time.Duration {
	most := time.Duration(0)
	for target := range c.requested() {
		units, limit := time.Duration(target.Units), time.Duration(target.Limit)
		most = max(most, length/limit*units+(length%limit*units+limit-1)/limit) // written so that it can't overflow
	}
	return most
}

// clashes reports whether two targets of c and d have incompatible kinds.
func (c *claim) clashes(d *claim) bool {
	for a := range c.requested() {
		for b := range d.requested() {
			if incompatible(a, b) {
				return true
			}
		}
	}
	return false
}

// remaining returns how long current holds will block c; forever if that is unknown.
func (t *Table) remaining(c *claim) time.Duration {
	longest, count := time.Duration(0), 0
	t.passes++
	seen := func(d *claim) bool {
		if d.pass != t.passes {
			d.pass = t.passes
			count++
		}
		return count <= mostAhead
	}
	for p := range c.pending() {
		if !p.node.holders(conflicts[p.kind], func(h *entry) bool {
			if h.claim == c {
				return true
			}
			longest = max(longest, t.timeLeft(h.claim))
			return longest != forever && seen(h.claim)
		}) {
			return forever
		}
		if missing := p.node.units() + p.units() - p.limit(); p.kind == kindP && missing > 0 {
			if longest = max(longest, t.freedAfter(p, missing, seen)); longest == forever {
				return forever
			}
		}
	}
	return longest
}

// freedAfter returns the time after which holders at p's node will have released the missing units;
// forever if that is unknown.
func (t *Table) freedAfter(p *entry, missing int, seen func(*claim) bool) time.Duration {
	type part struct {
		left  time.Duration
		units int
	}
	var parts []part
	if !p.node.holders(kindP.set(), func(h *entry) bool {
		parts = append(parts, part{t.timeLeft(h.claim), h.units()})
		return seen(h.claim)
	}) {
		return forever
	}
	slices.SortFunc(parts, func(a, b part) int { return cmp.Compare(a.left, b.left) })
	for _, part := range parts {
		if missing -= part.units; missing <= 0 {
			return part.left
		}
	}
	return forever
}

// timeLeft returns how long c will still be held: until its expected end, or until askedEnd if that
// is earlier; forever if both are unknown.
func (t *Table) timeLeft(c *claim) time.Duration {
	rest := t.expected(c) - (t.now - c.granted)
	if rest < 0 || t.expected(c) == 0 {
		rest = forever
	}
	if end := c.askedEnd(); end != forever {
		rest = min(rest, max(0, end-t.now))
	}
	return rest
}

// askedEnd returns the earliest instant by which c's holder must yield, or the end of c's lapse if
// that is earlier; forever if there is neither.
func (c *claim) askedEnd() time.Duration {
	end := forever
	if c.operator != nil {
		end = c.operator.end
	}
	if c.overdue {
		end = min(end, c.granted+c.want.MaxHold+c.want.Grace)
	}
	for _, a := range c.asks {
		end = min(end, a.end)
	}
	if c.lapse != nil {
		end = min(end, c.lapse.end)
	}
	return end
}
