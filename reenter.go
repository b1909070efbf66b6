package lockkeeper

import (
	"context"
	"slices"
)

// lineContext carries the line of work of a hold. A claim made under it by the
// same client finds there the first claim of that line.
type lineContext struct {
	context.Context
	root *claim
}

// lineKey asks a context for the line of work within one client: holds of
// several clients may be nested.
type lineKey struct{ client *Client }

func (l lineContext) Value(key any) any {
	if k, ok := key.(lineKey); ok && k.client == l.root.client {
		return l.root
	}
	return l.Context.Value(key)
}

// inherit finds the line of work to which cl belongs: that of the hold in whose
// context it is made, or the one that WithOwner names.
func (c *Client) inherit(ctx context.Context, cl *claim) {
	if named := cl.want.Owner; named != (Ref{}) {
		cl.owner = named
		c.mu.Lock()
		if known := c.find(named); known != nil {
			cl.root = known.root
		} else if root, _ := ctx.Value(lineKey{c}).(*claim); root != nil && root.owner == named {
			cl.root = root
		}
		c.mu.Unlock()
		return
	}
	if root, _ := ctx.Value(lineKey{c}).(*claim); root != nil {
		cl.root, cl.owner = root, root.owner
		cl.want.Owner = root.owner
		return
	}
	cl.owner = cl.ref()
}

// reenter gives cl another handle of a hold of its own line of work that covers
// all its targets, if there is one: neither a claim nor an exchange is needed
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
	h := &Hold{claim: host, base: ctx, exclusive: cl.needsExclusive()}
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

// covering is a hold of cl's line of work that covers all its targets.
func (c *Client) covering(cl *claim) *claim {
	if c.check(cl.root); cl.root.covers(cl.want.Targets) {
		return cl.root
	}
	for _, k := range slices.Clone(cl.root.kin) {
		if c.check(k); k.covers(cl.want.Targets) {
			return k
		}
	}
	return nil
}

// covers reports whether whoever holds cl has all the targets already. Permits
// are never counted: each asks for units of its own.
func (cl *claim) covers(targets []Target) bool {
	return cl.phase == granted && cl.live > 0 && !slices.ContainsFunc(targets, func(t Target) bool {
		return !slices.ContainsFunc(cl.status.Grants, func(g Grant) bool {
			return g.Path.Covers(t.Path) &&
				(g.Mode == ModeExclusive && !cl.status.Converting && cl.wants(g.Path) == ModeExclusive || g.Mode == ModeShared && t.Mode == ModeShared)
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
