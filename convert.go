package lockkeeper

import (
	"context"
	"slices"
)

// Amend changes the priority of a hold ([WithPriority]), which can only rise. Upgrade and Downgrade
// change its mode. A change that the engine does not allow is refused with [ErrInvalid].
func (h *Hold) Amend(ctx context.Context, requests ...Request) error {
	if err := h.Err(); err != nil {
		return renameOp("amend", err)
	}
	cl := h.full()
	_, err := cl.client.amend(ctx, cl, "amend", func(d *demand) {
		before := slices.Clone(d.want.Targets)
		d.add(requests)
		if !slices.Equal(before, d.want.Targets) {
			d.wrong.addf("the targets of a hold can't be amended: Upgrade and Downgrade change its mode")
		}
	})
	return err
}

// Upgrade makes a hold of shared targets exclusive. It waits as [Client.Lock] does, ahead of every
// other waiting claim. The hold stays shared meanwhile, and also if the upgrade fails. If ctx ends,
// the upgrade is undone, even if the engine grants it at that moment. A successful upgrade has a
// new fence. A hold that is exclusive already stays so.
func (h *Hold) Upgrade(ctx context.Context, requests ...Request) error {
	cl := h.lock()
	err, mode := h.over(), cl.mode()
	h.unlock()
	switch {
	case err != nil:
		return renameOp("upgrade", err)
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

// awaitUpgrade waits until the conversion with that revision is granted or undone.
func (h *Hold) awaitUpgrade(ctx context.Context, revision uint64) error {
	cl := h.full()
	c := cl.client
	for {
		h.lock()
		s := &cl.status
		switch {
		case h.state != handleLive:
			err := h.over()
			h.unlock()
			return renameOp("upgrade", err)
		case ctx.Err() != nil:
			err := cl.gaveUp(ctx)
			h.unlock()
			c.undo(h, revision)
			return renameOp("upgrade", err)
		case s.Revision >= revision && !s.Converting && cl.mode() == ModeExclusive &&
			cl.want.Targets[0].Mode == ModeExclusive:
			h.exclusive = true
			h.unlock()
			return nil
		case s.Revision >= revision && !s.Converting:
			why := s.Reason
			if why == NoReason {
				why = Cancelled // another amendment withdrew the upgrade
			}
			err := cl.refused(why, nil)
			h.unlock()
			return renameOp("upgrade", err)
		}
		changed := cl.watch()
		h.unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// undo takes back the upgrade with that revision; if the engine granted it meanwhile, undo
// downgrades it. It works in the background unless the engine answers out of memory.
func (c *Client) undo(h *Hold, revision uint64) {
	cl := h.full()
	c.mu.Lock()
	if cl.neededBeside(h) || cl.phase != granted || revision == 0 || cl.want.Revision != revision {
		c.unlock()
		return // another handle needs it exclusive, or the claim ended, was refused or was amended since
	}
	d := cl.draft()
	d.setModes(ModeShared)
	cl.revision++
	d.want.Revision = cl.revision
	cl.want, cl.resend = d.want, true
	c.unfinished[cl.id] = cl
	if !c.prompt {
		c.wakeWorker()
	}
	c.unlock()
	if c.prompt {
		c.finishClaim(cl)
	}
}

// Downgrade makes a hold of exclusive targets shared at once. The hold keeps its fence. It is
// refused with [ErrInvalid] while another handle of the claim needs it exclusive. A hold that is
// shared already stays so.
func (h *Hold) Downgrade(ctx context.Context) error {
	cl := h.lock()
	err, mode := h.over(), cl.mode()
	h.unlock()
	switch {
	case err != nil:
		return renameOp("downgrade", err)
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
	h.lock()
	h.exclusive = false
	h.unlock()
	return nil
}

// needed reports whether this handle relies on the claim being exclusive.
func (h *Hold) needed() bool { return h.state == handleLive && h.exclusive }

// neededBeside reports whether a handle other than h relies on cl being exclusive.
func (cl *claim) neededBeside(h *Hold) bool {
	return h != cl.first && cl.first.needed() ||
		slices.ContainsFunc(cl.more, func(o *Hold) bool { return o != h && o.needed() })
}

// mode returns the mode in which all targets of cl are held; 0 if modes differ, or if there are
// permits.
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

// draft returns a copy of what cl wants, to be amended. It leaves out an upgrade that was undone.
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

// amend sends the want of cl with a change, as a higher revision, and returns that revision when
// the engine has answered. Amendments of one claim are sent one after the other. The client repeats
// one without an answer in the background.
func (c *Client) amend(ctx context.Context, cl *claim, op string, change func(*demand)) (uint64, error) {
	c.mu.Lock()
	if cl.amendSlot == nil {
		cl.amendSlot = make(chan struct{}, 1)
	}
	c.mu.Unlock()
	select {
	case cl.amendSlot <- struct{}{}:
		defer func() { <-cl.amendSlot }()
	case <-ctx.Done():
	}
	c.mu.Lock()
	if c.expireClaim(cl); cl.phase == over {
		defer c.unlock()
		return 0, renameOp(op, cl.endError())
	}
	if ctx.Err() != nil {
		defer c.unlock()
		return 0, renameOp(op, cl.gaveUp(ctx))
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
	cl.inFlight++
	c.unlock()

	if err = c.send(caller{Context: ctx}, cl, d.want, c.retryBound()); err == nil {
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
		c.unfinished[cl.id] = cl
		c.wakeWorker()
	}
	return d.want.Revision, wrap(op, cl.path, err)
}
