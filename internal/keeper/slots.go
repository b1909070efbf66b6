package keeper

import (
	"math"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// A keeper without a log keeps plain claims (lockkeeper.SlotGranter) in slots, apart from its table. A
// slot costs a tenth of a claim in the table, and its release hands the path to the next waiter
// without a step.
//
// The invariant: claims that could meet are all in slots, or all in the table. Claims in slots meet
// only on one and the same path. So each grant sees everything that is in its way, and there are never
// two holders:
//
//	           takeSlot: table.Unused(path), and nothing else in slots meets it
//	no claim ────────────────────────────────────────────────────────────────────> slot
//	   │                                                                             │
//	   │ table.Claim, after all slots that it meets were moved       move, and only move
//	   └──────────────────────────────> table <──────────────────────────────────────┘
//
// All of this happens with the mutex of the keeper locked, in which also each step of the table
// happens, so nothing comes between a look and the grant that relies on it. takeSlot relies on an
// earlier look if the table has had no new claim since: slots.version changes with each command Claim
// and with each move, and a table in which claims only end can only become less used.
//
// A slot moves, with all slots of its path, before any command that may meet or see it: a claim that
// meets its path, an amendment or an ending of it, an attach, renewal or departure of its session, a
// list that selects it, a freeze of anything, a claim inside it, and the end of the keeper. A waiter
// moves its slot at the bound of its wait, so that the table ends the claim and names the blockers. If
// the path is granted to it just before, it gives the slot back. While anybody watches, there are no
// slots. Moved claims keep their ids, tickets, fences and times, so the table orders them as if they
// had come to it at first. A path that was moved stays with the table for a while, so that a mixed use
// does not move to and fro.
type slots struct {
	nodes    map[lockkeeper.Path]*slotNode // with every ancestor of a node
	last     *slotNode                     // in nodes: the one that was looked up last; or nil
	sessions map[string]*slotSession       // those with slots, by id
	version  uint64                        // rises with every change that may make a path used in the table
	live     int                           // claims in slots
	held     int                           // nodes with a holder
	sweepAt  int                           // number of nodes at which idle ones are dropped
	shyness  int                           // a moved path's slotNode.shy
	waits    []*lockkeeper.SlotWait        // to be used again: mostWaits at most
}

// A slotNode is a path that a slot has or had, or an ancestor of one.
type slotNode struct {
	lockkeeper.SlotPlace // Node is this one
	parent               *slotNode
	below                int              // held paths below it
	holder               *lockkeeper.Slot // nil: nobody waits either
	head, tail           *lockkeeper.Slot // waiters, in the order of R4: one priority, so by ticket
	looked               uint64           // slots.version at which the table had nothing that meets the path
	shy                  int              // so many claims of the path go to the table before one may have a slot
	lasts                holdTime
}

const (
	shyness    = 32      // so many claims of a moved path go to the table although it is unused there
	mostIdle   = 1024    // nodes without a claim that are kept in any case
	mostSlots  = 1 << 20 // claims in slots; a session can have so many beyond table.MaxClaims
	mostWaits  = 64      // waits that are kept for the next waiters
	mostWalked = 64      // slots of a session in which one is searched, before all of them are moved
)

// A slotSession is a session that may have slots.
type slotSession struct {
	keeper  *Keeper
	id      string
	epoch   uint64
	label   lockkeeper.Label
	owner   *lockkeeper.SlotOwner
	open    bool
	all     []*lockkeeper.Slot // its slots
	highest uint64             // highest id that had a slot
	claimed uint64             // no claim of the session in the table was made with a higher id
}

// OpenSlots implements lockkeeper.SlotGranter. A session that can expire gets no slots: its renewals
// would have to say what they keep alive.
func (k *Keeper) OpenSlots(key lockkeeper.Key, l lockkeeper.Label, o *lockkeeper.SlotOwner) lockkeeper.Slots {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.log != nil || k.closed || !k.table.Endless(key) {
		return nil
	}
	if k.slots.nodes == nil {
		k.slots.nodes = make(map[lockkeeper.Path]*slotNode)
		k.slots.sessions = make(map[string]*slotSession)
		k.slots.sweepAt, k.slots.version, k.slots.shyness = mostIdle, 1, shyness
	}
	k.closeSlots(key.Session)
	k.arm()
	ss := &slotSession{keeper: k, id: key.Session, epoch: key.Epoch, label: l, owner: o, open: true}
	o.Slots = ss
	if k.table.Claims(key.Session) > 0 {
		ss.claimed = math.MaxUint64
	}
	k.slots.sessions[ss.id] = ss
	return ss
}

// Take implements lockkeeper.Slots.
func (ss *slotSession) Take(s *lockkeeper.Slot, path lockkeeper.Path, wait time.Duration) lockkeeper.SlotState {
	k := ss.keeper
	k.mu.Lock()
	state := k.takeSlot(ss, s, path, wait)
	k.mu.Unlock()
	return state
}

// takeSlot is Take with the mutex locked.
func (k *Keeper) takeSlot(ss *slotSession, s *lockkeeper.Slot, path lockkeeper.Path,
	wait time.Duration) lockkeeper.SlotState {
	if !ss.open || k.watchers.Len() > 0 || k.slots.live >= mostSlots {
		return lockkeeper.SlotEmpty
	}
	n := k.slots.last
	if n == nil || n.Path != path {
		if n = k.slots.nodes[path]; n == nil {
			if !path.Valid() {
				return lockkeeper.SlotEmpty
			}
			n = k.slotNode(path)
		}
		k.slots.last = n
	}
	ref := lockkeeper.Ref{Session: ss.id, ID: s.ID}
	if n.looked != k.slots.version && !k.lookAgain(n) || n.holder != nil && wait == 0 || k.table.Enclosing(ref) ||
		ref.ID <= ss.claimed && k.table.Live(ref) {
		return lockkeeper.SlotEmpty
	}
	state := lockkeeper.SlotWaiting
	if n.holder == nil {
		if n.meets() {
			return lockkeeper.SlotEmpty
		}
		state = lockkeeper.SlotHeld
	}
	s.Place = &n.SlotPlace
	s.Ticket, s.Since = k.table.DrawTicket(), k.clock()
	k.slots.live++
	ss.link(s)
	if state == lockkeeper.SlotHeld {
		n.occupy(1)
		k.slots.held++
		n.holder, s.Fence = s, k.table.DrawFence()
	} else {
		s.Wait = k.makeWait()
		s.Wait.Bound = lockkeeper.Forever
		if wait < lockkeeper.MaxDuration {
			s.Wait.Bound = s.Since + wait
		}
		n.queue(s)
	}
	s.Begin(state)
	return state
}

// makeWait returns a wait that nobody uses.
func (k *Keeper) makeWait() *lockkeeper.SlotWait {
	last := len(k.slots.waits) - 1
	if last < 0 {
		return &lockkeeper.SlotWait{Ready: make(chan struct{}, 1)}
	}
	w := k.slots.waits[last]
	k.slots.waits = k.slots.waits[:last]
	return w
}

// endWait takes the wait from s, whose claim ends in the state was. The wait is used again if its
// Ready receives nothing any more.
func (k *Keeper) endWait(s *lockkeeper.Slot, was lockkeeper.SlotState) {
	w := s.Wait
	s.Wait = nil
	if (was == lockkeeper.SlotWaiting || w.Received.Load()) && len(k.slots.waits) < mostWaits {
		w.Received.Store(false)
		k.slots.waits = append(k.slots.waits, w)
	}
}

// Give implements lockkeeper.Slots.
func (ss *slotSession) Give(s *lockkeeper.Slot) lockkeeper.SlotState {
	k := ss.keeper
	k.mu.Lock()
	was := s.State()
	var next *lockkeeper.Slot
	switch was {
	case lockkeeper.SlotHeld:
		next = k.releaseSlot(s)
	case lockkeeper.SlotWaiting:
		nodeOf(s).unqueue(s)
	default:
		k.mu.Unlock()
		return was
	}
	k.slots.live--
	ss.unlink(s)
	if s.Wait != nil {
		k.endWait(s, was)
	}
	s.SetState(lockkeeper.SlotOver)
	var ready chan struct{}
	if next != nil {
		ready = next.Wait.Ready
	}
	k.mu.Unlock()
	if next != nil {
		ready <- struct{}{}
	}
	return was
}

// releaseSlot ends the hold of s, and grants the path to the first in line: its owner must then be
// told. It returns nil if nobody waits.
func (k *Keeper) releaseSlot(s *lockkeeper.Slot) (next *lockkeeper.Slot) {
	n := nodeOf(s)
	next = n.head
	if next == nil {
		if n.lasts.due() {
			now := k.clock()
			n.lasts.add(k.table, n.Path, now-s.Since, now)
		}
		n.holder = nil
		n.occupy(-1)
		k.slots.held--
		return nil
	}
	now := k.clock()
	n.lasts.add(k.table, n.Path, now-s.Since, now)
	n.unqueue(next)
	next.Since = now
	n.holder, next.Fence = next, k.table.DrawFence()
	next.SetState(lockkeeper.SlotHeld)
	return next
}

// Move implements lockkeeper.Slots.
func (ss *slotSession) Move(s *lockkeeper.Slot) {
	k := ss.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	switch s.State() {
	case lockkeeper.SlotHeld, lockkeeper.SlotWaiting:
		k.moveSlots(nodeOf(s))
		k.arm() // the table ends bounded waits
	}
}

// Close implements lockkeeper.Slots.
func (ss *slotSession) Close() {
	k := ss.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.slots.sessions[ss.id] == ss {
		k.closeSlots(ss.id)
		k.arm()
	}
}

// link adds s to the slots of the session.
func (ss *slotSession) link(s *lockkeeper.Slot) {
	ss.highest = max(ss.highest, s.ID)
	s.Index = len(ss.all)
	ss.all = append(ss.all, s)
}

// unlink is the reverse of link.
func (ss *slotSession) unlink(s *lockkeeper.Slot) {
	end := len(ss.all) - 1
	if last := ss.all[end]; last != s {
		ss.all[s.Index], last.Index = last, s.Index
	}
	ss.all[end] = nil
	ss.all = ss.all[:end]
	if end == 0 && cap(ss.all) > mostIdle {
		ss.all = nil
	}
}

// meets reports whether a slot above or below n is held.
func (n *slotNode) meets() bool {
	if n.below > 0 {
		return true
	}
	for above := n.parent; above != nil; above = above.parent {
		if above.holder != nil {
			return true
		}
	}
	return false
}

// occupy adds by to the held paths below the ancestors of n.
func (n *slotNode) occupy(by int) {
	for above := n.parent; above != nil; above = above.parent {
		above.below += by
	}
}

// nodeOf returns the node of a slot that was taken.
func nodeOf(s *lockkeeper.Slot) *slotNode { return s.Place.Node.(*slotNode) }

// queue puts s at the end of the line of n.
func (n *slotNode) queue(s *lockkeeper.Slot) {
	s.Wait.Prev = n.tail
	if n.tail == nil {
		n.head = s
	} else {
		n.tail.Wait.Next = s
	}
	n.tail = s
}

// unqueue takes s out of the line of n.
func (n *slotNode) unqueue(s *lockkeeper.Slot) {
	w := s.Wait
	if w.Prev == nil {
		n.head = w.Next
	} else {
		w.Prev.Wait.Next = w.Next
	}
	if w.Next == nil {
		n.tail = w.Prev
	} else {
		w.Next.Wait.Prev = w.Prev
	}
	w.Prev, w.Next = nil, nil
}

// lookAgain reports whether a claim of n's path may have a slot, because the table has nothing that
// meets it.
func (k *Keeper) lookAgain(n *slotNode) bool {
	if !k.table.Unused(n.Path) {
		return false
	}
	if n.shy > 0 {
		n.shy--
		return false
	}
	n.looked = k.slots.version
	return true
}

// slotNode makes the node of a path, and those of its ancestors.
func (k *Keeper) slotNode(path lockkeeper.Path) *slotNode {
	if len(k.slots.nodes) >= k.slots.sweepAt {
		k.sweepNodes()
	}
	var n *slotNode
	for above := range path.Ancestors() {
		n = k.childNode(n, above)
	}
	return k.childNode(n, path)
}

func (k *Keeper) childNode(parent *slotNode, path lockkeeper.Path) *slotNode {
	n := k.slots.nodes[path]
	if n == nil {
		n = &slotNode{parent: parent}
		n.Path, n.Node = path, n
		k.slots.nodes[path] = n
	}
	return n
}

// sweepNodes drops all nodes without a claim at or below them, and sets sweepAt so that a sweep costs
// a constant time for each node that was made since the last one.
func (k *Keeper) sweepNodes() {
	var flush []lockkeeper.Path
	for path, n := range k.slots.nodes { // order does not matter: all of them
		if n.holder == nil && n.below == 0 {
			if n.lasts.changed {
				flush = append(flush, path)
			}
		}
	}
	k.flushHoldTimes(flush)
	k.slots.last = nil
	for path, n := range k.slots.nodes { // order does not matter: all of them
		if n.holder == nil && n.below == 0 {
			delete(k.slots.nodes, path)
		}
	}
	k.slots.sweepAt = 2*len(k.slots.nodes) + mostIdle
}
