package lockkeeper

import (
	"context"
	"time"
)

// A client takes plain locks by the slots of its engine, if that is a [SlotGranter]. Such a lock is a
// Hold and its Slot, in one piece of memory, and nothing else: the client has no claim for it, and
// does not lock its mutex. It gets a claim when the engine moves it out of its slot: when somebody
// else's claim meets it, or when the program wants more of the hold than to release it. A slot is
// never used again, so a hold that was released stays released whatever happens to its path.

// An openedSlots are the slots of the client's session.
type openedSlots struct {
	Slots
	owner *SlotOwner
}

// openSlots opens the slots of the session, after an Attach with that key. attach calls it before
// anybody else has the key: a lock that found the key and no slots would be a claim, and its path
// would have no slots until nobody wants it.
func (c *Client) openSlots(k Key) *openedSlots {
	if c.granter == nil {
		return nil
	}
	owner := &SlotOwner{Moved: c.slotMoved, client: c}
	opened := c.granter.OpenSlots(k, c.session.Label, owner)
	if opened == nil {
		return nil
	}
	return &openedSlots{opened, owner}
}

// closeSlots makes all plain locks ordinary claims, and takes no more plain locks. The caller must not
// hold c.mu.
func (c *Client) closeSlots() {
	if opened := c.slots.Swap(nil); opened != nil {
		opened.Close()
	}
}

// takePlain takes the path by a slot. It returns nothing if the caller must make a claim.
func (c *Client) takePlain(ctx context.Context, op, path string, wait time.Duration) (*Hold, error) {
	if c.granter == nil || ctx.Err() != nil {
		return nil, nil
	}
	opened := c.slots.Load()
	if opened == nil {
		if _, err := c.attachedFor(caller{Context: ctx}, 0); err != nil {
			return nil, nil // the claim finds out why
		}
		if opened = c.slots.Load(); opened == nil {
			return nil, nil
		}
	}
	first := wait
	if wait != 0 && ctx.Done() != nil {
		if _, bounded := ctx.Deadline(); bounded {
			first = 0 // if the path is free, the time until the deadline does not matter
		}
	}
	if ctx != context.Background() && ctx.Value(enclosingKey{c}) != nil {
		return nil, nil
	}
	s := &Slot{ID: c.ids.Add(1), Owner: opened.owner}
	s.hold.slot, s.hold.base, s.hold.exclusive = s, ctx, true
	state := opened.Take(s, Path(path), first)
	if state == SlotEmpty && first != wait {
		state = opened.Take(s, Path(path), untilDeadline(ctx))
	}
	switch state {
	case SlotHeld:
		return &s.hold, nil
	case SlotWaiting:
		return c.awaitPlain(ctx, op, s)
	}
	return nil, nil
}

// untilDeadline returns the bound of a wait under a context with a deadline, as [demand.bound] does.
func untilDeadline(ctx context.Context) time.Duration {
	deadline, _ := ctx.Deadline()
	if left := time.Until(deadline); left <= MaxDuration {
		return max(left, time.Nanosecond)
	}
	return Forever
}

// awaitPlain waits until s is held. At its deadline it moves a slot that still waits: the engine then
// ends the claim by its bound, and names the blockers.
func (c *Client) awaitPlain(ctx context.Context, op string, s *Slot) (*Hold, error) {
	w := s.Wait
	if ending := ctx.Done(); ending == nil {
		<-w.Ready
	} else {
		select {
		case <-w.Ready:
		case <-ending:
		}
	}
	if err := ctx.Err(); err != nil {
		if err == context.DeadlineExceeded && w.Bound != Forever && s.State() == SlotWaiting {
			s.Owner.Slots.Move(s)
		}
		if s.Owner.Slots.Give(s) != SlotMoved {
			cl := c.newClaim(op)
			cl.path = s.Path()
			return nil, cl.gaveUp(ctx)
		}
	} else {
		w.Received.Store(true)
		if s.State() != SlotMoved {
			return &s.hold, nil
		}
	}
	cl := s.hold.full()
	c.mu.Lock()
	cl.op = op
	c.unlock()
	return c.await(c.callerOf(ctx), cl, true)
}

// slotMoved is called by the engine, with its mutex locked, when it moves a claim out of its slot.
func (c *Client) slotMoved(s *Slot, st Status) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cl := &claim{client: c, op: "lock", id: s.ID, path: s.Path(), sent: true, answered: true}
	cl.inline[0] = Target{Path: s.Path(), Mode: ModeExclusive}
	cl.want = Want{ID: s.ID, Targets: cl.inline[:1], Wait: Forever, Label: c.session.Label}
	cl.first = &s.hold
	cl.epoch, cl.known, cl.status = c.epoch, true, st
	cl.phase = inLine
	if st.State == Waiting && st.Left < MaxDuration { // it has the bound of its context's deadline
		cl.want.Wait, cl.byContext = max(st.Left, time.Nanosecond), true
		cl.begin(time.Now())
	}
	if st.State == Held {
		cl.phase, cl.live, cl.delivered = granted, 1, s.delivered()
	}
	s.hold.claim = cl
	c.claims[cl.id] = cl
}

// full returns the claim of the handle. It moves a plain lock out of its slot first.
func (h *Hold) full() *claim {
	s := h.slot
	if s == nil {
		return h.claim
	}
	c := s.Owner.client
	c.mu.Lock()
	cl := h.claim
	c.mu.Unlock()
	if cl != nil {
		return cl
	}
	s.Owner.Slots.Move(s)
	c.mu.Lock()
	defer c.mu.Unlock()
	if h.claim == nil { // it was released in its slot
		h.claim = &claim{client: c, op: "lock", id: s.ID, path: s.Path(), phase: over, first: h}
		h.claim.status = Status{Fence: s.Fence, Grants: s.grants()}
		h.state = handleReleased
	}
	return h.claim
}

// grants returns what the claim of s is granted.
func (s *Slot) grants() []Grant {
	return []Grant{{Target: Target{Path: s.Path(), Mode: ModeExclusive}}}
}

// client returns the client of the handle.
func (h *Hold) client() *Client {
	if h.slot != nil {
		return h.slot.Owner.client
	}
	return h.claim.client
}

// plain reports whether the handle is a plain lock in its slot, held or released; over says which.
func (h *Hold) plain() (over, plain bool) {
	if h.slot == nil {
		return false, false
	}
	state := h.slot.State()
	return state == SlotOver, state != SlotMoved
}

// released returns the error of a plain lock that was released.
func (s *Slot) released(op string) *Error {
	return &Error{Op: op, Path: s.Path(), Err: ErrNotHeld, Reason: Released}
}
