package lockkeeper

import (
	"context"
	"slices"
)

// Amend changes what may be changed of a hold: its priority ([WithPriority]),
// which is never lowered. Its mode changes by Upgrade and Downgrade. What the
// engine can't change is refused with [ErrInvalid].
func (h *Hold) Amend(ctx context.Context, requests ...Request) error {
	if err := h.Err(); err != nil {
		return wrapAs("amend", err)
	}
	_, err := h.claim.client.amend(ctx, h.claim, "amend", func(d *demand) {
		before := slices.Clone(d.want.Targets)
		d.add(requests)
		if !slices.Equal(before, d.want.Targets) {
			d.wrong.addf("the targets of a hold can't be amended: Upgrade and Downgrade change its mode")
		}
	})
	return err
}

// Upgrade makes a hold of shared targets exclusive. It waits as [Client.Lock]
// does, ahead of every other waiting claim, and remains held shared meanwhile,
// and when it fails: when ctx ends it is undone, also if it is granted in that
// moment. With success Fence is a new one. What is exclusive already stays so.
func (h *Hold) Upgrade(ctx context.Context, requests ...Request) error {
	cl := h.use()
	err, mode := h.over(), cl.mode()
	h.done()
	switch {
	case err != nil:
		return wrapAs("upgrade", err)
	case mode == 0:
		return wrap("upgrade", cl.path, Invalid("only a hold of shared targets alone can be upgraded"))
	}
	var revision uint64
	if mode == ModeShared {
		revision, err = cl.client.amend(ctx, cl, "upgrade", func(d *demand) {
			d.want.Wait = Forever
			d.add(requests)
			d.setModes(ModeExclusive)
			d.bound(ctx)
		})
		if err != nil {
			cl.client.undo(h, revision)
			return err
		}
	}
	return h.awaitUpgrade(ctx, revision)
}

// awaitUpgrade waits until the conversion of that revision is granted or undone.
func (h *Hold) awaitUpgrade(ctx context.Context, revision uint64) error {
	cl := h.claim
	c := cl.client
	for {
		h.use()
		s := &cl.status
		switch {
		case h.state != handleLive:
			err := h.over()
			h.done()
			return wrapAs("upgrade", err)
		case ctx.Err() != nil:
			err := cl.givenUp(ctx)
			h.done()
			c.undo(h, revision)
			return wrapAs("upgrade", err)
		case s.Revision >= revision && !s.Converting && cl.mode() == ModeExclusive &&
			cl.want.Targets[0].Mode == ModeExclusive:
			h.exclusive = true
			h.done()
			return nil
		case s.Revision >= revision && !s.Converting:
			why := s.Reason
			if why == NoReason {
				why = Cancelled // by another amendment
			}
			err := cl.refused(why, nil)
			h.done()
			return wrapAs("upgrade", err)
		}
		changed := cl.watch()
		h.done()
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// undo takes the upgrade of that revision back, in the background where the
// engine is not in this process; if it was granted meanwhile, it is downgraded.
func (c *Client) undo(h *Hold, revision uint64) {
	cl := h.claim
	c.mu.Lock()
	if cl.neededBeside(h) || cl.phase != granted || revision == 0 || cl.want.Revision != revision {
		c.unlock()
		return // it ended, was refused, or was amended since by somebody else
	}
	d := cl.draft()
	d.setModes(ModeShared)
	cl.revision++
	d.want.Revision = cl.revision
	cl.want, cl.resend = d.want, true
	c.todo[cl.id] = cl
	if !c.near {
		c.kick()
	}
	c.unlock()
	if c.near {
		c.mend(cl)
	}
}

// Downgrade makes a hold of exclusive targets shared, at once; it keeps its
// fence. It is refused with [ErrInvalid] while another handle of the claim needs
// it exclusive. What is shared already stays so.
func (h *Hold) Downgrade(ctx context.Context) error {
	cl := h.use()
	err, mode := h.over(), cl.mode()
	h.done()
	switch {
	case err != nil:
		return wrapAs("downgrade", err)
	case mode == 0:
		return wrap("downgrade", cl.path, Invalid("only a hold of exclusive targets alone can be downgraded"))
	}
	if mode == ModeExclusive {
		_, err = cl.client.amend(ctx, cl, "downgrade", func(d *demand) {
			if cl.neededBeside(h) {
				d.wrong.addf("another handle of this hold needs it exclusive: release that one first")
			}
			d.setModes(ModeShared)
		})
	}
	if err != nil {
		return err
	}
	h.use()
	h.exclusive = false
	h.done()
	return nil
}

// needed reports whether this handle relies on the claim being exclusive.
func (h *Hold) needed() bool { return h.state == handleLive && h.exclusive }

// neededBeside reports whether another handle than h relies on cl being exclusive.
func (cl *claim) neededBeside(h *Hold) bool {
	return h != &cl.first && cl.first.needed() ||
		slices.ContainsFunc(cl.more, func(o *Hold) bool { return o != h && o.needed() })
}

// mode is the mode in which all targets of cl are held; 0 if they differ, or
// are permits.
func (cl *claim) mode() Mode {
	grants := cl.status.Grants
	switch {
	case len(grants) == 0:
		return 0
	case cl.status.Converting:
		return ModeShared
	case grants[0].Mode == ModePermits,
		slices.ContainsFunc(grants, func(g Grant) bool { return g.Mode != grants[0].Mode }):
		return 0
	}
	return grants[0].Mode
}

// draft is a copy of what cl wants, to be amended. An upgrade that was undone is
// not asked for again by it.
func (cl *claim) draft() demand {
	d := demand{want: cl.want, amends: true}
	d.want.Targets = slices.Clone(cl.want.Targets)
	if mode := cl.mode(); cl.phase == granted && mode != 0 && !cl.status.Converting {
		d.setModes(mode)
	}
	return d
}

func (d *demand) setModes(m Mode) {
	for i := range d.want.Targets {
		d.want.Targets[i].Mode = m
	}
}

// amend sends cl's want with a change, as a higher revision, and returns that
// when it is answered. Amendments of one claim are sent one after the other. One
// without an answer is repeated in the background.
func (c *Client) amend(ctx context.Context, cl *claim, op string, change func(*demand)) (uint64, error) {
	c.mu.Lock()
	if cl.turn == nil {
		cl.turn = make(chan struct{}, 1)
	}
	c.mu.Unlock()
	select {
	case cl.turn <- struct{}{}:
		defer func() { <-cl.turn }()
	case <-ctx.Done():
	}
	c.mu.Lock()
	if c.check(cl); cl.phase == over {
		defer c.unlock()
		return 0, wrapAs(op, cl.ending())
	}
	if ctx.Err() != nil {
		defer c.unlock()
		return 0, wrapAs(op, cl.givenUp(ctx))
	}
	old, d := cl.want, cl.draft()
	change(&d)
	cl.revision++
	d.want.Revision = cl.revision
	err := d.check()
	if err == nil {
		err = c.guarantees.Refuse(&d.want)
	}
	if err != nil {
		c.unlock()
		return 0, wrap(op, cl.path, err)
	}
	cl.want, cl.byContext = d.want, d.byContext
	cl.flying++
	c.unlock()

	if err = c.send(caller{Context: ctx}, cl, d.want, c.patience()); err == nil {
		return d.want.Revision, nil
	}
	c.mu.Lock()
	defer c.unlock()
	switch {
	case cl.want.Revision != d.want.Revision || cl.phase == over:
	case isRefusal(err):
		cl.want = old
	default:
		cl.resend = true
		c.todo[cl.id] = cl
		c.kick()
	}
	return d.want.Revision, wrap(op, cl.path, err)
}
