package keeper

import (
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// When slots move into the table. The caller of all functions of this file holds the mutex, and calls
// them before the step that they are for.

// beforeClaim moves what the claim w of key's session may meet or see.
func (k *Keeper) beforeClaim(key lockkeeper.Key, w *lockkeeper.Want) {
	if k.slots.nodes == nil {
		return
	}
	k.slots.version++ // this claim may make paths used
	if ss := k.slots.sessions[key.Session]; ss != nil {
		ss.claimed = max(ss.claimed, w.ID)
	}
	if w.Freeze > 0 {
		k.moveAll()
		return
	}
	k.moveRef(lockkeeper.Ref{Session: key.Session, ID: w.ID})
	if w.Inside != (lockkeeper.Ref{}) {
		k.moveRef(w.Inside)
	}
	for i := range w.Targets {
		path := w.Targets[i].Path
		k.moveMeeting(path)
		if n := k.slots.nodes[path]; n != nil && n.lasts.changed {
			k.flushHoldTimes([]lockkeeper.Path{path})
		}
	}
}

// beforeEnd moves what the ending e by key's session names.
func (k *Keeper) beforeEnd(key lockkeeper.Key, e *lockkeeper.Ending) {
	switch e.Kind {
	case lockkeeper.Leave:
		if ss := k.slots.sessions[key.Session]; ss != nil && ss.epoch == key.Epoch {
			k.closeSlots(key.Session)
		}
	case lockkeeper.Revoke:
		k.moveRef(e.Ref)
	case lockkeeper.Lapsed:
		k.moveRef(lockkeeper.Ref{Session: key.Session, ID: e.Lapse.ID})
	default:
		k.moveRef(lockkeeper.Ref{Session: key.Session, ID: e.ID})
	}
}

// beforeList moves what q selects. While somebody watches, there are no slots.
func (k *Keeper) beforeList(q *lockkeeper.Query) {
	switch {
	case k.slots.live == 0:
	case q.Follow:
		k.moveAll()
	case q.Ref != (lockkeeper.Ref{}):
		k.moveRef(q.Ref)
	case q.Session != "":
		k.moveSession(q.Session)
	case q.Meets != "" && q.Meets != lockkeeper.Root:
		k.moveMeeting(q.Meets)
	default:
		k.moveAll()
	}
}

// moveRef moves the slot that has the claim ref, if one has.
func (k *Keeper) moveRef(ref lockkeeper.Ref) {
	ss := k.slots.sessions[ref.Session]
	if ss == nil || len(ss.all) == 0 || ref.ID > ss.highest || k.table.Live(ref) {
		return
	}
	for i, s := range slices.Backward(ss.all) {
		if s.ID == ref.ID {
			k.moveSlots(nodeOf(s))
			return
		}
		if len(ss.all)-i == mostWalked {
			k.moveSession(ref.Session) // so that each of them is walked past a few times at most
			return
		}
	}
}

// moveSession moves the slots of a session.
func (k *Keeper) moveSession(id string) {
	if ss := k.slots.sessions[id]; ss != nil {
		var ns []*slotNode
		for _, s := range ss.all {
			ns = append(ns, nodeOf(s))
		}
		k.moveSlots(ns...)
	}
}

// closeSlots moves the slots of a session, which gets none any more.
func (k *Keeper) closeSlots(id string) {
	k.moveSession(id)
	if ss := k.slots.sessions[id]; ss != nil {
		ss.open = false
		delete(k.slots.sessions, id)
	}
}

// moveMeeting moves the slots that meet a claim of the path: at it, above it and below it.
func (k *Keeper) moveMeeting(path lockkeeper.Path) {
	if k.slots.live == 0 {
		return
	}
	for above := range path.Ancestors() {
		if n := k.slots.nodes[above]; n != nil && n.holder != nil {
			k.moveSlots(n)
		}
	}
	n := k.slots.nodes[path]
	if n == nil {
		return
	}
	ns := []*slotNode{n}
	if n.below > 0 {
		for _, m := range k.slots.nodes { // order does not matter: Load sorts
			if m != n && m.holder != nil && path.Covers(m.Path) {
				ns = append(ns, m)
			}
		}
	}
	k.moveSlots(ns...)
}

// moveAll moves all slots.
func (k *Keeper) moveAll() {
	ns := make([]*slotNode, 0, k.slots.held)
	for _, n := range k.slots.nodes { // order does not matter: Load sorts
		if n.holder != nil {
			ns = append(ns, n)
		}
	}
	k.moveSlots(ns...)
}

// moveSlots moves all slots of some nodes into the table, and tells their owners. It is the only way
// from a slot to the table.
func (k *Keeper) moveSlots(ns ...*slotNode) {
	snap := table.Snapshot{Counters: k.table.Counters()}
	var all []*lockkeeper.Slot
	for _, n := range ns {
		if n.lasts.changed {
			snap.HoldTimes = append(snap.HoldTimes, n.lasts.record(n.Path))
		}
		if n.holder == nil {
			continue
		}
		all = append(all, n.holder)
		for s := n.head; s != nil; s = s.Wait.Next {
			all = append(all, s)
		}
		n.holder, n.head, n.tail = nil, nil, nil
		n.shy = k.slots.shyness
		n.occupy(-1)
		k.slots.held--
	}
	if len(all) == 0 && len(snap.HoldTimes) == 0 {
		return
	}
	for _, s := range all {
		snap.Claims = append(snap.Claims, k.recordOf(s))
	}
	snap.Counters = k.table.Counters() // recordOf has drawn numbers
	k.slots.version++
	if err := k.table.Load(snap); err != nil {
		// The claims of slots are valid, and so are their sessions. If they were not, going on could
		// grant a second holder.
		panic("keeper: a slot does not fit into the table: " + err.Error())
	}
	k.slots.live -= len(all)
	for _, s := range all {
		k.leaveSlot(s)
	}
}

// leaveSlot tells the owner of s that its claim is in the table now.
func (k *Keeper) leaveSlot(s *lockkeeper.Slot) {
	ss, was := sessionOf(s), s.State()
	ss.unlink(s)
	if s.Wait != nil {
		s.Wait.Prev, s.Wait.Next = nil, nil
	}
	s.SetState(lockkeeper.SlotMoved)
	st, _ := k.table.Status(lockkeeper.Ref{Session: ss.id, ID: s.ID})
	st.Age = max(st.Age, 0) // the table's time may be that of its latest step
	ss.owner.Moved(s, st)
	if was == lockkeeper.SlotWaiting {
		s.Wait.Ready <- struct{}{}
	}
}

// sessionOf returns the session of a slot.
func sessionOf(s *lockkeeper.Slot) *slotSession { return s.Owner.Slots.(*slotSession) }

// recordOf returns the claim of s as the table records it.
func (k *Keeper) recordOf(s *lockkeeper.Slot) table.ClaimRecord {
	ss := sessionOf(s)
	target := lockkeeper.Target{Path: s.Path(), Mode: lockkeeper.ModeExclusive}
	r := table.ClaimRecord{
		Ref:   lockkeeper.Ref{Session: ss.id, ID: s.ID},
		State: lockkeeper.Waiting,
		Want: lockkeeper.Want{
			ID: s.ID, Targets: []lockkeeper.Target{target}, Wait: lockkeeper.Forever, Label: ss.label,
		},
		Grants: []lockkeeper.Grant{{Target: target}},
		Ticket: s.Ticket, Change: k.table.DrawChange(), Changed: s.Since, Arrived: s.Since,
		Bound: lockkeeper.Forever, Quiet: s.Since, StatedEnd: lockkeeper.Forever,
	}
	if s.State() == lockkeeper.SlotWaiting && s.Wait.Bound != lockkeeper.Forever {
		r.Want.Wait, r.Bound = s.Wait.Bound-s.Since, s.Wait.Bound
	}
	if s.State() == lockkeeper.SlotHeld {
		r.State, r.Fence, r.Granted = lockkeeper.Held, s.Fence, s.Since
	}
	return r
}

// A holdTime is the table's estimate of how long holds of a path last (R17), as it is while the path
// is in slots. The table has it again before it has a claim of the path.
type holdTime struct {
	lasts   time.Duration
	at      time.Duration
	known   bool // lasts is the table's, or there is none
	there   bool
	changed bool   // the table does not have it
	seen    uint32 // holds that ended while nobody waited for the path
}

// To count a hold the keeper reads the clock, a tenth of a free lock's time. So of the holds of a path
// that end while nobody waits, the first countAll count, since the table had the estimate, and then
// one of each countOneOf. The estimate moves by a quarter of the difference each time, as always.
const countAll, countOneOf = 64, 8

// due reports whether a hold counts that ends while nobody waits for its path.
func (h *holdTime) due() bool {
	h.seen++
	return h.seen <= countAll || h.seen%countOneOf == 0
}

// add counts one more hold, which ended at now.
func (h *holdTime) add(t *table.Table, path lockkeeper.Path, lasted, now time.Duration) {
	if !h.known {
		h.lasts, h.there = t.HoldTime(path)
		h.known = true
	}
	if h.there {
		h.lasts += (lasted - h.lasts) / 4
	} else {
		h.lasts, h.there = lasted, true
	}
	h.at, h.changed = now, true
}

// record returns the estimate for the table, which has the only copy from then on.
func (h *holdTime) record(path lockkeeper.Path) table.HoldTimeRecord {
	r := table.HoldTimeRecord{Path: path, Estimate: h.lasts, At: h.at}
	*h = holdTime{}
	return r
}

// flushHoldTimes gives the table the estimates of some paths. The time of the table is that of its
// latest step, so an estimate may not be from later.
func (k *Keeper) flushHoldTimes(paths []lockkeeper.Path) {
	if len(paths) == 0 {
		return
	}
	snap := table.Snapshot{Counters: k.table.Counters()}
	for _, path := range paths {
		r := k.slots.nodes[path].lasts.record(path)
		r.At = min(r.At, snap.Counters.Now)
		snap.HoldTimes = append(snap.HoldTimes, r)
	}
	if err := k.table.Load(snap); err != nil {
		panic("keeper: a hold time does not fit into the table: " + err.Error())
	}
}
