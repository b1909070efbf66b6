package lockkeeper

import (
	"context"
	"time"
)

// A Pending is a claim that waits while its program does something else. It keeps its ticket as
// long as the client lives. The program must wait for it or cancel it: the engine grants it even if
// nobody calls Wait, and it then holds its targets. It is safe for concurrent use.
type Pending struct {
	claim *claim
	again *Hold // if an enclosing hold covers the claim: another handle of that hold
}

// Enqueue makes a claim and returns when the claim is in line. The context bounds only that. A
// claim with [WithWait] fails when its wait is over; if it does not wait at all, Enqueue fails.
func (c *Client) Enqueue(ctx context.Context, requests ...Request) (*Pending, error) {
	cl := c.newClaim("enqueue")
	cl.add(requests)
	if err := c.prepare(ctx, cl); err != nil {
		return nil, err
	}
	if cl.first.up != nil {
		if h, err := c.reenter(ctx, cl); err != nil {
			return nil, err
		} else if h != nil {
			return &Pending{claim: h.claim, again: h}, nil
		}
	}
	cl.first.base, cl.first.exclusive = ctx, cl.needsExclusive()
	cl.begin(time.Now())
	by := c.callerOf(ctx)
	if err := c.start(by, cl); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.unlock()
	if cl.phase == over {
		return nil, cl.endError()
	}
	return &Pending{claim: cl}, nil
}

// Ref names the claim.
func (p *Pending) Ref() Ref { return p.claim.ref() }

// Wait waits until the claim is granted. The context bounds this call only: if it ends first, the
// error matches ErrNotAcquired and the context's, and the claim keeps its ticket, so that the
// program can call Wait again. Every call returns the same hold.
func (p *Pending) Wait(ctx context.Context) (*Hold, error) {
	if p.again != nil {
		return p.again, nil
	}
	by := p.claim.client.callerOf(ctx)
	return p.claim.client.await(by, p.claim, false)
}

// Status asks the engine for the state of the claim: its position, its blockers, and about how long
// it will wait.
func (p *Pending) Status(ctx context.Context) (Status, error) {
	c := p.claim.client
	if err := c.usable("status", p.claim.path); err != nil {
		return Status{}, err
	}
	for s, err := range c.engine.List(ctx, Query{Ref: p.Ref()}) {
		if err != nil {
			return Status{}, wrap("status", p.claim.path, err)
		}
		return s, nil
	}
	return Status{}, wrap("status", p.claim.path, ErrNotHeld)
}

// Amend changes a waiting claim: its priority, which can only rise, and the limits of its permits,
// named by their paths. The claim keeps its ticket.
func (p *Pending) Amend(ctx context.Context, requests ...Request) error {
	_, err := p.claim.client.amend(ctx, p.claim, "amend", func(d *demand) { d.add(requests) })
	return err
}

// Cancel ends the claim, and releases it if it is granted already. It returns when the engine has
// confirmed the end; the claim is never granted after that. If the engine does not answer within a
// second, Cancel returns an ErrUnavailable, and the client goes on ending the claim in the
// background. A Wait in progress returns at once. Cancel does not touch a hold that Wait has
// returned: it returns ErrInvalid then. For a claim that has ended it returns nil.
func (p *Pending) Cancel() error {
	if p.again != nil {
		return p.again.Close()
	}
	cl := p.claim
	c := cl.client
	c.mu.Lock()
	c.expireClaim(cl)
	switch {
	case cl.phase == over:
		c.unlock()
		return nil
	case cl.delivered:
		c.unlock()
		return wrap("cancel", cl.path, Invalid("it is granted and given out: release the hold"))
	}
	cl.result = cl.refused(Cancelled, nil)
	cl.first.finish(handleLost)
	if len(cl.more) > 0 { // other handles are in use: the last of them releases the claim
		cl.delivered = true
		cl.live--
		c.unlock()
		return nil
	}
	c.forget(cl)
	ctx, cancel := context.WithTimeout(outliving(context.Background()), confirmBound)
	defer cancel()
	if err := c.endForGood(ctx, cl); err != nil {
		return unconfirmed(&Error{Op: "cancel", Path: cl.path}, err)
	}
	return nil
}
