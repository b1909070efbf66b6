package lockkeeper

import (
	"context"
	"slices"
)

// A link is one hold that a context is inside of, and those around it. Holds
// that were only made inside the same hold are not in the chain: goroutines that
// share a context would otherwise share what each of them locks.
type link struct {
	claim *claim
	up    *link
}

// lineContext carries the holds that it is inside of.
type lineContext struct {
	context.Context
	link *link
}

// lineKey asks a context for the holds of one client: those of several clients
// may be nested.
type lineKey struct{ client *Client }

func (l lineContext) Value(key any) any {
	if k, ok := key.(lineKey); ok && k.client == l.link.claim.client {
		return l.link
	}
	return l.Context.Value(key)
}

// inherit finds the holds that cl is made inside of: those of the context, or the
// one that WithInside names and those around it. The innermost that is still held
// is what the engine is told.
func (c *Client) inherit(ctx context.Context, cl *claim) {
	up, _ := ctx.Value(lineKey{c}).(*link)
	named := cl.want.Inside
	if up == nil && named == (Ref{}) {
		return
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

// inside reports whether ref is one of the holds of the chain, or one that they
// were made inside of.
func (l *link) inside(ref Ref) bool {
	for ; l != nil; l = l.up {
		if l.claim.ref() == ref || l.claim.want.Inside == ref {
			return true
		}
	}
	return false
}

// reenter gives cl another handle of a hold that it is made inside of and that
// covers all its targets, if there is one: neither a claim nor an exchange is needed
// then. A priority above that of the hold raises it.
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
	raise := cl.prioritise && cl.want.Priority > host.want.Priority
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

// covering is the outermost hold that cl is made inside of and that covers all
// its targets: the one that lasts longest.
func (c *Client) covering(cl *claim) (host *claim) {
	for l := cl.first.up; l != nil; l = l.up {
		if c.check(l.claim); l.claim.covers(cl.want.Targets) {
			host = l.claim
		}
	}
	return host
}

// covers reports whether whoever holds cl has all the targets already. Permits
// are never counted: each asks for units of its own.
func (cl *claim) covers(targets []Target) bool {
	return cl.phase == granted && cl.live > 0 && !slices.ContainsFunc(targets, func(t Target) bool {
		return !slices.ContainsFunc(cl.status.Grants, func(g Grant) bool {
			return g.Path.Covers(t.Path) &&
				(g.Mode == ModeExclusive && !cl.status.Converting && cl.wants(g.Path) == ModeExclusive ||
					g.Mode == ModeShared && t.Mode == ModeShared)
		})
	})
}

// wants is the mode in which cl wants the path by now: what is being downgraded
// is not exclusive any more, whatever the engine has said so far.
func (cl *claim) wants(p Path) Mode {
	for _, t := range cl.want.Targets {
		if t.Path == p {
			return t.Mode
		}
	}
	return 0
}

// needsExclusive reports whether shared targets would not do for what cl asks.
func (cl *claim) needsExclusive() bool {
	return slices.ContainsFunc(cl.want.Targets, func(t Target) bool { return t.Mode != ModeShared })
}
