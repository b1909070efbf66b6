package table

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/lockkeeper/lockkeeper"
)

// Restore makes the table that a snapshot describes. It refuses with an error
// a snapshot that no table can have made.
func Restore(snap Snapshot) (*Table, error) {
	t := New()
	if err := t.Load(snap); err != nil {
		return nil, err
	}
	return t, t.Check()
}

// Load brings the table up to records that another copy of it changed: the
// counters, and each session, claim, freeze and pace in snap as it is there. After an
// error the table is of no use any more. Nothing that is loaded counts as changed for [Table.Changes].
func (t *Table) Load(snap Snapshot) error {
	tracking := t.tracking
	t.tracking = false
	defer func() { t.tracking = tracking }()
	asks := t.unlinkAsks()
	t.setCounters(snap.Counters)
	for i := range snap.Sessions {
		t.loadSession(&snap.Sessions[i])
	}
	for i := range snap.Claims { // all of them first: what one has now another may have had
		delete(asks, snap.Claims[i].Ref)
		t.unload(snap.Claims[i].Ref)
	}
	for i := range snap.Claims {
		r := &snap.Claims[i]
		if r.State == lockkeeper.Ended {
			t.loadEnded(r)
		} else if err := t.loadClaim(r); err != nil {
			return err
		}
		if len(r.Asks) > 0 && r.State == lockkeeper.Held {
			asks[r.Ref] = r.Asks
		}
	}
	for i := range snap.Freezes {
		t.loadFreeze(&snap.Freezes[i])
	}
	for i := range snap.Paces {
		t.loadPace(&snap.Paces[i])
	}
	t.forgetPaces()
	t.linkAsks(asks)
	t.events, t.touched, t.arrivals, t.doubtful = t.events[:0], t.touched[:0], t.arrivals[:0], t.doubtful[:0]
	for _, n := range t.lines() {
		n.touched = 0
	}
	t.suspect, t.outdated, t.takers, t.insidePass = false, nil, nil, 0
	for _, n := range t.changedAt {
		n.changed = 0
	}
	t.changedAt = t.changedAt[:0]
	return nil
}

func (t *Table) setCounters(c Counters) {
	t.now, t.fences, t.tickets, t.epochs, t.changes = c.Now, c.Fences, c.Tickets, c.Epochs, c.Changes
}

// unlinkAsks takes all asks apart, and returns them by the claims that are asked.
func (t *Table) unlinkAsks() map[lockkeeper.Ref][]AskRecord {
	asks := make(map[lockkeeper.Ref][]AskRecord)
	for c := range t.thieves { // order does not matter: all of them
		for v := range c.asking { // order does not matter: all of them
			if _, done := asks[v.ref]; !done {
				asks[v.ref] = v.record().Asks
				v.asks = nil
			}
		}
		clear(c.asking)
	}
	return asks
}

// linkAsks is the reverse of unlinkAsks. Asks by or of claims that are no more are dropped.
func (t *Table) linkAsks(asks map[lockkeeper.Ref][]AskRecord) {
	for ref, records := range asks { // order does not matter: each claim's asks are sorted
		v := t.find(ref)
		for _, r := range records {
			if c := t.find(r.By); c != nil && v != nil && len(v.held) > 0 && len(c.wanted) > 0 {
				v.asks = append(v.asks, ask{by: c, end: r.End})
				c.askFor(v, r.End)
			}
		}
		if v != nil {
			v.sortAsks()
		}
	}
	for c := range t.thieves { // order does not matter: each has its own timer
		t.reschedule(c)
	}
}

func (t *Table) find(ref lockkeeper.Ref) *claim {
	if s := t.sessions[ref.Session]; s != nil {
		return s.claims[ref.ID]
	}
	return nil
}

func (t *Table) loadSession(r *SessionRecord) {
	s := t.sessions[r.ID]
	if r.Closed {
		if s != nil {
			for _, c := range s.byID() {
				t.unload(c.ref)
			}
			t.schedule.set(&s.due, forever)
			t.setResumed(s, true)
			delete(t.sessions, r.ID)
		}
		t.ghosts = slices.DeleteFunc(t.ghosts, func(g *tombstone) bool { return g.ref.Session == r.ID })
		return
	}
	if s == nil {
		s = &session{id: r.ID, resumed: true, claims: make(map[uint64]*claim)}
		s.due.session = s
		t.sessions[r.ID] = s
	}
	if s.epoch != r.Epoch {
		s.answered = 0
	}
	t.setResumed(s, true)
	s.label, s.ttl, s.epoch, s.deadline = r.Label, r.TTL, r.Epoch, r.Deadline
	s.promise, s.leases, s.heard = r.Promise, r.Leases, r.Heard
	t.setResumed(s, r.Resumed)
	t.heed(s, r.Answered)
	t.schedule.set(&s.due, s.deadline)
	t.forget(s)
}

// unload takes a claim out without a trace, or the memory of an ended one.
func (t *Table) unload(ref lockkeeper.Ref) {
	t.ghosts = slices.DeleteFunc(t.ghosts, func(g *tombstone) bool { return g.ref == ref })
	s := t.sessions[ref.Session]
	if s == nil {
		return
	}
	if s.ended[ref.ID] != nil {
		delete(s.ended, ref.ID)
		s.endings = slices.DeleteFunc(s.endings, func(tomb *tombstone) bool { return tomb.ref == ref })
	}
	if c := s.claims[ref.ID]; c != nil {
		t.unlink(c, false)
	}
}

func (t *Table) loadEnded(r *ClaimRecord) {
	tomb := &tombstone{
		ref: r.Ref, inside: r.Want.Inside, thawed: r.Thawed, at: r.Ended, forget: r.Forget, kept: true, revision: r.Want.Revision, change: r.Change, fence: r.Fence, reason: r.Reason,
		text: r.Text, grants: r.Grants, label: r.Want.Label, priority: r.Want.Priority, ghost: r.Ghost, known: r.Known,
	}
	if s := t.sessions[r.Ref.Session]; s != nil && tomb.forget > t.now && !(tomb.known && tomb.ref.ID < s.answered) {
		s.remember(tomb)
		if n := len(s.endings); n > 1 && s.endings[n-2].at > tomb.at { // ids mostly end in their order
			slices.SortStableFunc(s.endings, func(a, b *tombstone) int { return int(a.at - b.at) })
		}
	}
	if tomb.ghost > t.now {
		t.ghosts = append(t.ghosts, tomb)
	}
}

func (t *Table) loadClaim(r *ClaimRecord) error {
	s := t.sessions[r.Ref.Session]
	if s == nil {
		return fmt.Errorf("claim %s: its session is not there", r.Ref)
	}
	if err := r.Want.Check(); err != nil {
		return fmt.Errorf("claim %s: %w", r.Ref, err)
	}
	c := &claim{
		ref: r.Ref, session: s, want: r.Want, grants: slices.Clone(r.Grants), ticket: r.Ticket, fence: r.Fence, change: r.Change,
		changed: r.Changed, arrived: r.Arrived, granted: r.Granted, bound: r.Bound, quiet: r.Quiet, told: r.Told, toldIn: r.ToldIn, believed: cmp.Or(r.Believed, r.Told),
		unconfirmed: r.Unconfirmed, overdue: r.Overdue, undone: r.Reason, text: r.Text,
	}
	c.want.Targets = slices.Clone(r.Want.Targets)
	c.due.claim, c.due.at = c, forever
	if r.Operator != nil {
		c.operator = &operatorAsk{Label: r.Operator.Label, end: r.Operator.End}
	}
	if r.Lapse != nil {
		c.lapse = &lapse{end: r.Lapse.End, reason: r.Lapse.Reason, text: r.Lapse.Text}
	}
	s.claims[r.Ref.ID] = c
	t.nest(c)
	if r.State == lockkeeper.Held {
		if err := t.loadHeld(c, r); err != nil {
			return err
		}
	}
	if r.State == lockkeeper.Waiting || r.Converting {
		c.wanted = t.places(c, nil)
		t.enterLine(c)
	}
	t.reschedule(c)
	return nil
}

// loadHeld makes c hold what r says.
func (t *Table) loadHeld(c *claim, r *ClaimRecord) error {
	wanted := c.want.Targets
	c.want.Targets = make([]lockkeeper.Target, len(r.Grants))
	for i, g := range r.Grants {
		c.want.Targets[i] = g.Target
	}
	c.held = t.places(c, nil)
	c.want.Targets = wanted
	for i := range c.held {
		t.hold(&c.held[i])
	}
	for _, g := range c.grants {
		if g.Slot == 0 {
			continue
		}
		if n := t.nodes[g.Path]; g.Slot < 0 || g.Slot > g.Limit || n == nil || !n.slots.occupy(g.Slot) {
			return fmt.Errorf("claim %s: slot %d of %s can't be its", c.ref, g.Slot, g.Path)
		}
	}
	if c.want.Lasts > 0 {
		t.lasting++
	}
	return nil
}

func (t *Table) loadPace(r *PaceRecord) {
	if p := t.paces.of[r.Path]; r.Forgotten {
		t.forgetPace(r.Path)
	} else if p != nil {
		t.paces.set(p, r.Pace, r.At)
	} else {
		t.paces.add(r.Path, r.Pace, r.At)
	}
}

func (t *Table) loadFreeze(r *FreezeRecord) {
	for _, f := range t.freezes {
		if f.path == r.Path {
			t.freezes = slices.DeleteFunc(t.freezes, func(g *freeze) bool { return g == f })
			t.schedule.set(&f.due, forever)
			break
		}
	}
	if !r.Ended {
		f := &freeze{path: r.Path, by: r.By, Label: r.Label, since: r.Since, until: r.Until}
		f.due.freeze, f.due.at = f, forever
		t.freezes = append(t.freezes, f)
		slices.SortFunc(t.freezes, func(a, b *freeze) int {
			if a.path < b.path {
				return -1
			}
			return 1
		})
		t.schedule.set(&f.due, f.until)
	}
	t.refreeze()
}
