package lockkeeper

import (
	"context"
	"slices"
)

// A link is an innermost hold that encloses a context, and the links to the holds around it. A hold
// that another goroutine took under the same context is not in the chain: otherwise goroutines that
// share a context would share their locks.
type link struct {
	claim *claim
	up    *link
}

// nestedContext carries the holds that enclose it.
type nestedContext struct {
	context.Context
	link *link
}

// enclosingKey is the context key for the enclosing holds of one client. Holds of several clients
// may be nested.
type enclosingKey struct{ client *Client }

func (l nestedContext) Value(key any) any {
	if k, ok := key.(enclosingKey); ok && k.client == l.link.claim.client {
		return l.link
	}
	return l.Context.Value(key)
}

// findEnclosing finds the holds that enclose cl: those of the context, or the hold that WithInside
// names and those around it. The want names the innermost one that is still held.
func (c *Client) findEnclosing(ctx context.Context, cl *claim) {
	up, _ := ctx.Value(enclosingKey{c}).(*link)
	named := cl.want.Inside
	if up == nil && named == (Ref{}) {
		return
	}
	if named.Session == c.session.ID && c.slots.Load() != nil {
		for range c.engine.List(ctx, Query{Ref: named, Brief: true}) { // moves it out of its slot, if it is in one
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if named != (Ref{}) && !up.inside(named) {
		if known := c.find(named); known != nil {
			cl.first.up = &link{known, known.first.up}
		}
		return
	}
	cl.first.up = up
	for l := up; l != nil; l = l.up {
		if l.claim.phase == granted && l.claim.live > 0 {
			cl.want.Inside = l.claim.ref()
			return
		}
	}
}

// inside reports whether ref is one of the holds of the chain, or encloses one.
func (l *link) inside(ref Ref) bool {
	for ; l != nil; l = l.up {
		if l.claim.ref() == ref || l.claim.want.Inside == ref {
			return true
		}
	}
	return false
}

// reenter returns another handle of an enclosing hold that covers all targets of cl; nil if there
// is none. That needs no claim, and no call of the engine unless cl has a higher priority, to which
// reenter raises the hold.
func (c *Client) reenter(ctx context.Context, cl *claim) (*Hold, error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, wrap(cl.op, cl.path, errClosed)
	}
	host := c.covering(cl)
	if host == nil {
		c.unlock()
		return nil, nil
	}
	h := &Hold{claim: host, base: ctx, up: cl.first.up, exclusive: cl.needsExclusive()}
	host.more = append(host.more, h)
	host.live++
	raise := cl.prioritizes && cl.want.Priority > host.want.Priority
	c.unlock()
	if !raise {
		return h, nil
	}
	priority := cl.want.Priority
	_, err := c.amend(ctx, host, cl.op, func(d *demand) {
		d.want.Priority = max(d.want.Priority, priority)
	})
	if err != nil {
		h.Close()
		return nil, err
	}
	return h, nil
}

// covering returns the outermost enclosing hold that covers all targets of cl: it lasts longest.
func (c *Client) covering(cl *claim) (host *claim) {
	for l := cl.first.up; l != nil; l = l.up {
		if c.expireClaim(l.claim); l.claim.covers(cl.want.Targets) {
			host = l.claim
		}
	}
	return host
}

// covers reports whether the hold cl covers all targets. It never covers permits: each request for
// permits takes units of its own.
func (cl *claim) covers(targets []Target) bool {
	return cl.phase == granted && cl.live > 0 && !slices.ContainsFunc(targets, func(t Target) bool {
		return !slices.ContainsFunc(cl.status.Grants, func(g Grant) bool {
			return g.Path.Covers(t.Path) &&
				(g.Mode == ModeExclusive && !cl.status.Converting && cl.wants(g.Path) == ModeExclusive ||
					g.Mode == ModeShared && t.Mode == ModeShared)
		})
	})
}

// wants returns the mode in which cl wants the path now. A path that is being downgraded is no
// longer exclusive, whatever the engine has reported so far.
func (cl *claim) wants(p Path) Mode {
	for _, t := range cl.want.Targets {
		if t.Path == p {
			return t.Mode
		}
	}
	return 0
}

// needsExclusive reports whether cl asks for more than shared targets.
func (cl *claim) needsExclusive() bool {
	return slices.ContainsFunc(cl.want.Targets, func(t Target) bool { return t.Mode != ModeShared })
}
