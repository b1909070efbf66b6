package table

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/lockkeeper/lockkeeper"
)

// Restore makes the table that a snapshot describes. It returns an error if no table can have made
// the snapshot.
func Restore(snap Snapshot) (*Table, error) {
	t := New()
	if err := t.Load(snap); err != nil {
		return nil, err
	}
	return t, t.Check()
}

// Load replaces the counters, and each session, claim, freeze and hold time that snap lists, by the
// record in snap. Other parts stay. snap usually has the changes of another copy of the table.
// After an error the table must not be used. [Table.Changes] does not report loaded records.
func (t *Table) Load(snap Snapshot) error {
	tracking := t.tracking
	t.tracking = false
	defer func() { t.tracking = tracking }()
	t.setCounters(snap.Counters)
	links := links{asks: make(map[lockkeeper.Ref][]AskRecord), thieves: make(map[lockkeeper.Ref]struct{})}
	for i := range snap.Sessions {
		t.loadSession(&snap.Sessions[i], &links)
	}
	for i := range snap.Claims { // before any load: a record may need a slot or entry of another claim
		t.unload(snap.Claims[i].Ref, &links)
	}
	for i := range snap.Freezes {
		t.loadFreeze(&snap.Freezes[i])
	}
	if err := t.loadClaims(snap.Claims, &links); err != nil {
		return err
	}
	if len(snap.Freezes) > 0 {
		t.refreeze()
	}
	for i := range snap.HoldTimes {
		t.loadHoldTime(&snap.HoldTimes[i])
	}
	t.evictHoldTimes()
	t.linkAsks(&links)
	t.dropStep()
	t.packEndings(false)
	return nil
}

// dropStep clears the pending work of a step, because the loaded table is settled.
func (t *Table) dropStep() {
	for _, n := range t.touched {
		n.touched = 0
	}
	for _, n := range t.changedNodes {
		n.changed = 0
	}
	t.events, t.touched, t.arrivals, t.maybeHopeless = t.events[:0], t.touched[:0], t.arrivals[:0], t.maybeHopeless[:0]
	t.deadlockSuspected, t.staleThieves, t.changedNodes, t.takers, t.insidePass = false, nil, t.changedNodes[:0], nil, 0
}

func (t *Table) setCounters(c Counters) {
	t.now, t.fences, t.tickets, t.epochs, t.changes = c.Now, c.Fences, c.Tickets, c.Epochs, c.Changes
}

// links has the asks to restore after the load of all claims, and the thieves whose asks change.
type links struct {
	asks    map[lockkeeper.Ref][]AskRecord // by the claim that is asked
	thieves map[lockkeeper.Ref]struct{}
}

// unlinkAsks removes the asks of c and by c, and records them in l.
func (t *Table) unlinkAsks(c *claim, l *links) {
	remove := func(v *claim) {
		if len(v.asks) > 0 {
			l.asks[v.ref()] = v.record().Asks
		}
		t.withdrawAll(v)
	}
	remove(c)
	for v := range maps.Clone(c.asking) { // order does not matter: all of them
		remove(v)
	}
}

// linkAsks is the reverse of unlinkAsks. It drops asks whose thief or holder no longer exists.
func (t *Table) linkAsks(l *links) {
	for ref, records := range l.asks { // order does not matter: each claim's asks are sorted
		v := t.find(ref)
		for _, r := range records {
			l.thieves[r.By] = struct{}{}
			if c := t.find(r.By); c != nil && v != nil && v.holds && c.waits {
				v.own().asks = append(v.asks, ask{by: c, end: r.End})
				c.askFor(v, r.End)
			}
		}
		if v != nil {
			v.sortAsks()
		}
	}
	for ref := range l.thieves { // order does not matter: each has its own timer
		if c := t.find(ref); c != nil {
			t.reschedule(c)
		}
	}
}

func (t *Table) find(ref lockkeeper.Ref) *claim {
	if s := t.sessions[ref.Session]; s != nil {
		return s.claim(ref.ID)
	}
	return nil
}

func (t *Table) loadSession(r *SessionRecord, l *links) {
	s := t.sessions[r.ID]
	if r.Closed {
		if s != nil {
			for _, c := range s.byID() {
				t.unload(c.ref(), l)
			}
			t.schedule.set(&s.due, forever)
			t.setResumed(s, true)
			delete(t.sessions, r.ID)
		}
		for _, g := range t.unacked.bySession[r.ID] { // order does not matter: all of them
			t.removeUnacked(g)
		}
		return
	}
	if s == nil {
		s = &session{id: r.ID, resumed: true}
		s.due.session = s
		t.sessions[r.ID] = s
	}
	if s.epoch != r.Epoch {
		s.lowestOpen = 0
	}
	t.setResumed(s, true)
	s.label, s.ttl, s.epoch, s.deadline = r.Label, r.TTL, r.Epoch, r.Deadline
	s.promise, s.leases, s.acked = r.Promise, r.Leases, r.Acked
	t.setResumed(s, r.Resumed)
	t.raiseLowestOpen(s, r.LowestOpen)
	t.schedule.set(&s.due, s.deadline)
	t.forget(s)
}

// unload removes a claim or its tombstone, without events and tombstones of its own.
func (t *Table) unload(ref lockkeeper.Ref, l *links) {
	if g := t.unacked.bySession[ref.Session][ref.ID]; g != nil {
		t.removeUnacked(g)
	}
	s := t.sessions[ref.Session]
	if s == nil {
		return
	}
	s.endings.forget(ref.ID, t.now)
	if c := s.claim(ref.ID); c != nil {
		t.unlinkAsks(c, l)
		t.unlink(c, false)
	}
}

// loadClaims loads all claims. After the last one it queues the waiting claims, in order, and sorts
// the tombstones of each session that needs it, so that it sorts each list once.
func (t *Table) loadClaims(records []ClaimRecord, l *links) error {
	var waiting []*claim
	unsorted := make(map[*session]struct{})
	for i := range records {
		r := &records[i]
		if delete(l.asks, r.Ref); len(r.Asks) > 0 && r.State == lockkeeper.Held {
			l.asks[r.Ref] = r.Asks
		}
		if r.State == lockkeeper.Ended {
			if s := t.loadEnded(r); s != nil {
				unsorted[s] = struct{}{}
			}
			continue
		}
		c, err := t.loadClaim(r)
		if err != nil {
			return err
		}
		if c.waits {
			waiting = append(waiting, c)
		}
	}
	for s := range unsorted { // order does not matter: each by itself
		t.work += s.endings.sort(s, t.now)
		t.unpacked = append(t.unpacked, s)
	}
	sortClaims(waiting)
	for _, c := range waiting {
		t.startWaiting(c)
		t.reschedule(c)
	}
	return nil
}

// loadEnded loads the record of an ended claim. It returns the claim's session if the session's
// tombstones are then out of order.
func (t *Table) loadEnded(r *ClaimRecord) (unsorted *session) {
	s := t.sessions[r.Ref.Session]
	of := s
	if of == nil {
		of = &session{id: r.Ref.Session}
	}
	tomb := &tombstone{
		id:      r.Ref.ID,
		session: of,
		want:    of.termsOf(&r.Want),
		label:   of.labelOf(&r.Want.Label),
		thawed:  r.Thawed,
		at:      r.Ended,
		forget:  r.Forget,
		kept:    true,
		change:  r.Change,
		fence:   r.Fence,
		reason:  r.Reason,
		acked:   r.Acked,
		ended:   &plainEnd,
	}
	tomb.setGrants(r.Grants)
	if r.Text != "" || r.UnackedUntil != 0 {
		own := tomb.own()
		own.text, own.unackedUntil = r.Text, r.UnackedUntil
	}
	if s != nil && tomb.forget > t.now && !(tomb.acked && tomb.id < s.lowestOpen) {
		if !t.remember(s, tomb) { // rare: claims mostly end in the order of their ids
			unsorted = s
		}
	}
	if tomb.unackedUntil > t.now {
		t.addUnacked(tomb)
	}
	return unsorted
}

func (t *Table) loadClaim(r *ClaimRecord) (*claim, error) {
	s := t.sessions[r.Ref.Session]
	if s == nil {
		return nil, fmt.Errorf("claim %s: its session is not there", r.Ref)
	}
	if err := r.Want.Check(); err != nil {
		return nil, fmt.Errorf("claim %s: %w", r.Ref, err)
	}
	c := &claim{
		id:      r.Ref.ID,
		want:    s.termsOf(&r.Want),
		label:   s.labelOf(&r.Want.Label),
		wait:    &noWait,
		cold:    &plain,
		ticket:  r.Ticket,
		fence:   r.Fence,
		change:  r.Change,
		arrived: r.Arrived,
		granted: r.Granted,
	}
	c.setChanged(r.Changed)
	t.setBound(c, r.Bound)
	if r.Unconfirmed || r.Overdue {
		own := c.own()
		own.unsure, own.overdue = r.Unconfirmed, r.Overdue
	}
	c.setPermits(r.Want.Targets)
	if c.permits != nil && r.State == lockkeeper.Held {
		c.permits = slices.Clone(r.Grants)
	}
	c.setUndone(r.Reason, r.Text)
	if r.Quiet != r.Arrived {
		c.own().quietFrom = r.Quiet
	}
	if unacked := cmp.Or(r.UnackedEnd, r.StatedEnd); r.StatedEnd != forever || r.StatedIn != 0 || unacked != forever {
		own := c.own()
		own.stated, own.statedIn, own.unackedEnd = r.StatedEnd, r.StatedIn, unacked
	}
	if r.Operator != nil {
		c.own().operator = &operatorAsk{Label: r.Operator.Label, end: r.Operator.End}
	}
	if r.Lapse != nil {
		c.own().lapse = &lapse{end: r.Lapse.End, reason: r.Lapse.Reason, text: r.Lapse.Text}
	}
	s.claims.put(r.Ref.ID, c)
	t.nest(c)
	if r.State == lockkeeper.Held {
		if err := t.loadHeld(c, r); err != nil {
			return nil, err
		}
	}
	if r.State == lockkeeper.Waiting || r.Converting {
		if c.waits = true; c.holds {
			c.own().converts = t.entries(c, r.Want.Targets, nil)
		} else {
			c.setEntries(t.entries(c, r.Want.Targets, c.one[:0]))
		}
		t.addIntents(c)
	}
	t.reschedule(c)
	return c, nil
}

// loadHeld makes c hold the grants of r.
func (t *Table) loadHeld(c *claim, r *ClaimRecord) error {
	if len(r.Grants) != len(r.Want.Targets) {
		return fmt.Errorf("claim %s: it holds %d targets and wants %d", c.ref(), len(r.Grants), len(r.Want.Targets))
	}
	held := make([]lockkeeper.Target, len(r.Grants))
	for i, g := range r.Grants {
		w := r.Want.Targets[i]
		if held[i] = g.Target; g.Path != w.Path || g.Units != w.Units || g.Limit != w.Limit {
			return fmt.Errorf("claim %s: it holds %s and wants %s", c.ref(), g.Target, w)
		}
	}
	if mode := r.Want.Targets[0].Mode; mode != held[0].Mode && !r.Converting {
		c.own().refused = mode
	}
	c.setEntries(t.entries(c, held, c.one[:0]))
	c.holds = true
	entries := c.held()
	for i := range entries {
		t.hold(&entries[i])
	}
	for _, g := range c.permits {
		if g.Slot == 0 {
			continue
		}
		if n := t.nodes.find(g.Path); g.Slot < 0 || g.Slot > g.Limit || n == nil || !n.slots().occupy(g.Slot) {
			return fmt.Errorf("claim %s: slot %d of %s can't be its", c.ref(), g.Slot, g.Path)
		}
	}
	if c.want.Expected > 0 {
		t.announced++
	}
	return nil
}

func (t *Table) loadHoldTime(r *HoldTimeRecord) {
	if p := t.holdTimes.of[r.Path]; r.Forgotten {
		t.removeHoldTime(r.Path)
	} else if p != nil {
		t.holdTimes.set(p, r.Estimate, r.At)
	} else {
		t.holdTimes.add(r.Path, r.Estimate, r.At)
	}
}

func (t *Table) loadFreeze(r *FreezeRecord) {
	if f := t.freezes.on(r.Path); f != nil {
		t.freezes.remove(f)
		t.schedule.set(&f.due, forever)
	}
	if !r.Ended {
		f := &freeze{path: r.Path, by: r.By, Label: r.Label, since: r.Since, until: r.Until}
		f.due.freeze, f.due.at = f, forever
		t.freezes.add(f)
		t.schedule.set(&f.due, f.until)
	}
}
