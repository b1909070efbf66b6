package table

import (
	"slices"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// endClaim ends c for good: for that reason, or for the one for which it lapsed.
func (t *Table) endClaim(c *claim, reason lockkeeper.Reason, text string) *tombstone {
	if c.lapse != nil {
		reason, text = c.lapse.reason, c.lapse.text
	}
	t.stopStealing(c)
	t.withdrawAll(c)
	if len(c.held) > 0 {
		t.learn(c, reason)
	}
	t.unlink(c, true)
	t.suspect = t.suspect || t.erratic()
	c.ended, c.reason, c.text = true, reason, text
	t.note(c, Ended, reason)
	return t.bury(c)
}

// unlink takes c out of everything that knows it but its asks. If it ends, those
// whom it stood in the way of may go.
func (t *Table) unlink(c *claim, ends bool) {
	if c.want.Lasts > 0 && len(c.held) > 0 {
		t.lasting--
	}
	if c.isThief {
		t.forgetThief(c)
	}
	if len(c.wanted) > 0 {
		t.leaveLine(c, ends)
		t.unwant(c)
	}
	if len(c.held) > 0 {
		t.dropHeld(c, ends)
	}
	t.unnest(c)
	t.schedule.set(&c.due, forever)
	delete(c.session.claims, c.ref.ID)
	t.outdateInside(c.ref)
}

// giveUp ends c's wait: a waiting claim ends, a conversion is undone (R14).
func (t *Table) giveUp(c *claim, reason lockkeeper.Reason, text string) {
	if c.waiting() {
		evidence := tombstone{blockers: t.blockers(c)}
		if reason == lockkeeper.TimedOut {
			evidence.place, evidence.eta = t.placeOf(c), t.estimate(c)
		}
		tomb := t.endClaim(c, reason, text)
		tomb.blockers, tomb.place, tomb.eta = evidence.blockers, evidence.place, evidence.eta
		return
	}
	t.stopStealing(c)
	t.leaveLine(c, true)
	t.unwant(c)
	t.suspect = t.suspect || t.erratic()
	c.bound, c.undone, c.text = forever, reason, text
	t.note(c, Undone, reason)
	t.reschedule(c)
}

// endForced ends a hold that its holder did not give back: it leaves a ghost if
// the holder may not know yet (R12). by is who ends it, if that is a claim or an operator.
func (t *Table) endForced(c *claim, reason lockkeeper.Reason, by lockkeeper.Label) {
	ghost := min(c.session.promise, c.countedOn())
	if c.lapse != nil {
		ghost = 0
	}
	held := len(c.held) > 0
	tomb := t.endClaim(c, reason, words(by))
	if held && ghost > t.now {
		tomb.ghost, tomb.kept = ghost, true
		t.ghosts = append(t.ghosts, tomb)
	}
}

// words are what an end is told with: who ended it, and what they said.
func words(by lockkeeper.Label) string { return (&lockkeeper.Asked{Label: by}).Words() }

// bury remembers c, which ended, for one TTL of its session (R16).
func (t *Table) bury(c *claim) *tombstone {
	tomb := t.newTombstone()
	*tomb = tombstone{
		ref: c.ref, inside: c.want.Inside, at: t.now, revision: c.want.Revision, change: c.change, fence: c.fence, reason: c.reason,
		text: c.text, grants: c.grants, label: c.want.Label, priority: c.want.Priority,
		known: bySession(c.reason),
	}
	c.tomb = tomb
	t.spent = append(t.spent, c)
	t.buried = append(t.buried, tomb)
	t.retain(c.session, tomb)
	t.markEnded(tomb)
	return tomb
}

// bySession reports whether a claim that ended so was ended by its own session.
func bySession(r lockkeeper.Reason) bool {
	return r == lockkeeper.Released || r == lockkeeper.Yielded || r == lockkeeper.Cancelled
}

// retain keeps a tombstone for a TTL; a session without TTL has no lost answers,
// and one that knows of the end and sends the claim no more needs none.
func (t *Table) retain(s *session, tomb *tombstone) {
	if s.ttl == 0 || tomb.known && tomb.ref.ID < s.answered {
		return
	}
	tomb.forget = tomb.at + s.ttl
	s.remember(tomb)
}

func (s *session) remember(tomb *tombstone) {
	tomb.kept = true
	if s.ended == nil {
		s.ended = make(map[uint64]*tombstone)
	}
	s.ended[tomb.ref.ID] = tomb
	s.endings = append(s.endings, tomb)
}

// heed notes that s begins no claim with an id below answered any more, and forgets
// what was remembered only for such (R16).
func (t *Table) heed(s *session, answered uint64) {
	if answered <= s.answered {
		return
	}
	from := s.answered
	s.answered = answered
	t.markSession(s)
	if answered-from <= uint64(len(s.ended)) {
		for id := from; id < answered; id++ {
			t.forgetKnown(s, s.ended[id])
		}
	} else {
		for id, tomb := range s.ended { // order does not matter: each is forgotten by itself
			if id < answered {
				t.forgetKnown(s, tomb)
			}
		}
	}
	if s.idle > len(s.endings)/2 {
		s.endings = slices.DeleteFunc(s.endings, func(tomb *tombstone) bool { return tomb.forget <= t.now })
		s.idle = 0
	}
}

// forgetKnown forgets an end of which its session knows; tomb may be nil.
func (t *Table) forgetKnown(s *session, tomb *tombstone) {
	if tomb != nil && tomb.known {
		delete(s.ended, tomb.ref.ID)
		tomb.forget = t.now
		s.idle++
	}
}

// remembered is what is remembered of a claim of s that ended: for a TTL, and as
// long as its holder may not know; nil if nothing.
func (t *Table) remembered(s *session, id uint64) *tombstone {
	if tomb := s.ended[id]; tomb != nil && tomb.forget > t.now {
		return tomb
	}
	for _, g := range t.ghosts {
		if g.ref.ID == id && g.ref.Session == s.id && g.ghost > t.now {
			return g
		}
	}
	return nil
}

// forget drops the tombstones of s whose time has passed.
func (t *Table) forget(s *session) {
	n := 0
	for n < len(s.endings) && s.endings[n].forget <= t.now {
		if s.ended[s.endings[n].ref.ID] == s.endings[n] {
			delete(s.ended, s.endings[n].ref.ID)
		}
		n++
	}
	if n > 0 {
		s.endings = slices.Delete(s.endings, 0, n)
	}
	if len(t.ghosts) > 0 {
		t.ghosts = slices.DeleteFunc(t.ghosts, func(g *tombstone) bool { return g.ghost <= t.now })
	}
}

// layGhosts ends the doubt about ghosts of s that pick selects: their holder knows.
func (t *Table) layGhosts(session string, pick func(id uint64) bool) bool {
	before := len(t.ghosts)
	t.ghosts = slices.DeleteFunc(t.ghosts, func(g *tombstone) bool {
		if g.ref.Session != session || !pick(g.ref.ID) {
			return false
		}
		g.ghost = 0
		t.markEnded(g)
		return true
	})
	return len(t.ghosts) != before
}

// meetsGhost reports whether what c holds is incompatible with a hold that was
// forced to end and whose holder may not know it yet (R12).
func (t *Table) meetsGhost(c *claim) bool {
	if len(t.ghosts) == 0 {
		return false
	}
	for _, want := range c.grants {
		units := 0 // permits of the path that ghosts may still use
		for _, g := range t.ghosts {
			for _, target := range g.grants {
				switch {
				case g.ghost <= t.now:
				case incompatible(target.Target, want.Target):
					return true
				case target.Path == want.Path:
					units += target.Units
				}
			}
		}
		if units > 0 && t.nodes[want.Path].units+units > want.Limit {
			return true
		}
	}
	return false
}

// incompatible reports whether two targets can't be held at once, their units aside (R3).
func incompatible(a, b lockkeeper.Target) bool {
	k, intentA := kindOf(a.Mode)
	l, intentB := kindOf(b.Mode)
	switch {
	case a.Path == b.Path:
		return conflicts[k].has(l)
	case a.Path.Covers(b.Path):
		return conflicts[k].has(intentB)
	case b.Path.Covers(a.Path):
		return conflicts[l].has(intentA)
	}
	return false
}

// endSession ends s and all its claims.
func (t *Table) endSession(s *session, held, waiting lockkeeper.Reason) {
	t.layGhosts(s.id, func(uint64) bool { return true })
	claims := s.byID()
	reasons := make([]lockkeeper.Reason, len(claims)) // by what stands before any of them ends
	for i, c := range claims {
		switch reasons[i] = held; {
		case c.waiting():
			reasons[i] = waiting
		case held == lockkeeper.Released:
			reasons[i] = t.releaseReason(c)
		}
	}
	for i, c := range claims {
		t.endClaim(c, reasons[i], "")
	}
	for _, tomb := range s.endings {
		tomb.forget = t.now // what is remembered of ended claims goes with their session
	}
	t.schedule.set(&s.due, forever)
	t.setResumed(s, true) // it has to no longer
	delete(t.sessions, s.id)
	t.markClosed(s)
}

// releaseReason is released, or yielded if c was asked to.
func (t *Table) releaseReason(c *claim) lockkeeper.Reason {
	if len(c.asks) > 0 || c.operator != nil || c.overdue {
		return lockkeeper.Yielded
	}
	return lockkeeper.Released
}

// A freeze forbids new grants in a subtree until it ends (R18).
type freeze struct {
	path lockkeeper.Path
	by   lockkeeper.Ref
	lockkeeper.Label
	since time.Duration
	until time.Duration
	due   timer
}

// forbids reports whether an exclusive hold of f's path would be in c's way.
func (f *freeze) forbids(targets []lockkeeper.Target) bool {
	for _, target := range targets {
		if f.path.Covers(target.Path) || (target.Path.Covers(f.path) && target.Mode != lockkeeper.ModePermits) {
			return true
		}
	}
	return false
}

// forbidden is the freeze that forbids what c wants for the longest; nil if none does.
func (t *Table) forbidden(c *claim) *freeze {
	var longest *freeze
	for _, f := range t.freezes {
		if f.forbids(c.want.Targets) && (longest == nil || f.until > longest.until) {
			longest = f
		}
	}
	return longest
}

// beginFreeze begins or replaces a freeze.
func (t *Table) beginFreeze(f *freeze) {
	i, found := slices.BinarySearchFunc(t.freezes, f.path, func(f *freeze, p lockkeeper.Path) int {
		return strings.Compare(string(f.path), string(p))
	})
	if found {
		t.thaw(t.freezes[i], lockkeeper.Superseded)
	}
	t.freezes = slices.Insert(t.freezes, i, f)
	f.due.freeze = f
	t.schedule.set(&f.due, f.until)
	t.markFreeze(f)
	t.events = append(t.events, Event{At: t.now, Kind: Froze, Ref: f.by, Path: f.path})
	t.refreeze()
}

// thaw ends a freeze, and remembers its id for its session.
func (t *Table) thaw(f *freeze, reason lockkeeper.Reason) {
	t.freezes = slices.DeleteFunc(t.freezes, func(g *freeze) bool { return g == f })
	t.schedule.set(&f.due, forever)
	t.markFreeze(f)
	if s := t.sessions[f.by.Session]; s != nil && !slices.ContainsFunc(t.freezes, func(g *freeze) bool { return g.by == f.by }) {
		t.changes++
		tomb := &tombstone{ref: f.by, thawed: true, at: t.now, change: t.changes, reason: reason, label: f.Label, grants: freezeGrants(f)}
		t.retain(s, tomb)
		t.markEnded(tomb)
	}
	t.events = append(t.events, Event{At: t.now, Kind: Thawed, Ref: f.by, Reason: reason, Path: f.path})
	t.refreeze()
}

func freezeGrants(f *freeze) []lockkeeper.Grant {
	return []lockkeeper.Grant{{Target: lockkeeper.Target{Path: f.path, Mode: lockkeeper.ModeExclusive}}}
}

// refreeze brings who stands in line up to date after a change of the freezes.
func (t *Table) refreeze() {
	frozen := slices.Clone(t.frozen)
	sortClaims(frozen)
	for _, c := range frozen {
		if t.forbidden(c) == nil {
			t.frozen = remove(t.frozen, c)
			c.frozen = false
			t.line(c)
			t.mark(c)
			if c.isThief {
				t.outdated = append(t.outdated, c)
			}
		} else {
			t.doubtful = append(t.doubtful, c)
		}
	}
	if len(t.freezes) > 0 {
		t.freezeLine()
	}
}

// freezeLine takes claims out of the lines that a freeze forbids by now.
func (t *Table) freezeLine() {
	var caught []*claim
	for _, n := range t.lines() {
		n.line.all(func(p *place) bool {
			if p == &p.claim.wanted[0] && t.forbidden(p.claim) != nil {
				caught = append(caught, p.claim)
			}
			return true
		})
	}
	t.suspect = t.suspect || t.erratic()
	for _, c := range caught {
		t.leaveLine(c, true)
		c.frozen = true
		t.frozen = append(t.frozen, c)
		t.doubtful = append(t.doubtful, c)
		if c.isThief {
			t.outdated = append(t.outdated, c)
		}
		t.mark(c)
	}
}
