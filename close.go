package lockkeeper

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"
)

// closeBound bounds calls without a context of their own.
func (c *Client) closeBound() time.Duration { return min(5*time.Second, c.retryBound()) }

// Close leaves the session and closes the engine, unless [SharedEngine] was given. It releases all
// holds, whose contexts end with the reason Released; all waits fail with the reason Cancelled;
// later calls are refused. Close returns when the client's goroutine has ended and the engine has
// acknowledged, or with an ErrUnavailable after 5 s, or after the TTL if that is shorter; then the
// session ends with its TTL. If the engine has restarted, Close first attaches the session, without
// its claims. A second Close waits for the first and returns nil.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		<-c.left
		return nil
	}
	c.closed = true
	defer close(c.left)
	c.mu.Unlock()
	c.closeSlots() // from now on all that it holds are claims
	d := c.endAll()
	var left error
	if d.key != nil || len(d.claims) > 0 {
		left = d.leave()
	}
	if !c.keepsEngine {
		if err := c.engine.Close(); err != nil && left == nil {
			left = err
		}
	}
	if left != nil {
		return wrap("close", "", left)
	}
	return nil
}

// endAll ends all claims in this client, which is closed, and all its calls of the engine. It returns what
// is left to do at the engine.
func (c *Client) endAll() *departure {
	c.mu.Lock()
	if c.ticker != nil {
		c.ticker.Stop()
	}
	d := &departure{client: c, lapsed: c.lapses(), claims: make(map[uint64]bool)}
	if c.resumes && c.lease.Alive {
		for _, all := range []map[uint64]*claim{c.claims, c.unfinished} {
			for id := range all {
				d.claims[id] = true
			}
		}
	}
	for _, cl := range c.claims {
		if cl.phase == granted {
			cl.first.finish(handleReleased)
			for _, h := range cl.more {
				h.finish(handleReleased)
			}
		}
		why := cl.refused(Cancelled, nil)
		why.Detail = "the client is closed"
		c.endClaim(cl, why, false)
	}
	clear(c.unfinished)
	running, attaching := c.running, c.attaching
	c.quit()
	c.unlock()
	if running {
		<-c.stopped
	}
	if attaching != nil {
		// The attaching goroutine finds the client closed, and sets unleft. Its call has the deadline
		// of every call of the engine.
		<-attaching
	}
	c.mu.Lock()
	defer c.unlock()
	d.key, d.epoch = cmp.Or(c.key.Swap(nil), c.unleft), c.epoch
	return d
}

// A departure ends the session of a closed client at the engine. The engine refuses the client's key after a
// restart, though it still has the claims. The client has no key if it lost the answer to its latest Attach.
// In both cases the departure attaches the session, and leaves it. That Attach names no claims, so it ends
// them all (R19): none is granted or kept, even if the Leave gets lost.
//
//	          refused                     refused: the epoch is another one
//	leave ───────────────→ attach ─────────────────────────────────────────→ list
//	  ↑                     │  ↑                                              │ │
//	  └─────── new key ─────┘  └─ a claim: only this client named it ─────────┘ └─ none: they have ended
type departure struct {
	client *Client
	key    *Key            // nil: the session is not attached
	epoch  uint64          // as the engine stated it last
	lapsed []Lapse         // to be reported
	claims map[uint64]bool // those that the engine may still have
}

// leave ends the session within closeBound.
func (d *departure) leave() error {
	ctx, cancel := context.WithTimeout(context.Background(), d.client.closeBound())
	defer cancel()
	for try := 0; ; try++ {
		err := d.tryLeave(ctx)
		if err == nil || isRefusal(err) {
			return err
		}
		timer := time.NewTimer(backoff(try))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return unavailable(err, ctx)
		}
	}
}

// tryLeave does one try of leave.
func (d *departure) tryLeave(ctx context.Context) error {
	if d.key != nil {
		err := d.end(ctx)
		if !errors.Is(err, ErrSession) || len(d.claims) == 0 {
			return ignoreEnded(err)
		}
		d.key = nil
	}
	err := d.attach(ctx)
	if present := presentEpoch(err); present != 0 {
		kept, listed := d.isKept(ctx)
		if listed != nil || !kept {
			return listed
		}
		d.epoch = present
		err = d.attach(ctx)
	}
	if err != nil {
		return err
	}
	return ignoreEnded(d.end(ctx))
}

// ignoreEnded returns nil if err says that the session has ended.
func ignoreEnded(err error) error {
	if errors.Is(err, ErrSession) {
		return nil
	}
	return err
}

// end leaves the session under its key. It first reports each lapse, once, so that the claim ends for
// the reason of its lapse.
func (d *departure) end(ctx context.Context) error {
	lapsed := d.lapsed
	d.lapsed = nil
	for _, l := range lapsed {
		if d.client.engine.End(ctx, *d.key, Ending{Kind: Lapsed, Lapse: l}) != nil {
			break // leaving is more urgent
		}
	}
	return d.client.engine.End(ctx, *d.key, Ending{Kind: Leave})
}

// attach attaches the session, which ends its claims.
func (d *departure) attach(ctx context.Context) error {
	s := d.client.session
	s.Epoch, s.Lapsed = d.epoch, d.lapsed
	lease, err := d.client.engine.Attach(ctx, s, nil)
	if err == nil {
		d.key, d.epoch, d.lapsed, d.claims = &lease.Key, lease.Key.Epoch, nil, nil
	}
	return err
}

// isKept reports whether the engine still has one of the claims. If it has none although the session is open
// under an unknown epoch, another client has taken the session over, which must keep its claims; or an
// earlier Attach of this departure has arrived.
func (d *departure) isKept(ctx context.Context) (bool, error) {
	for s, err := range d.client.engine.List(ctx, Query{Session: d.client.session.ID, Brief: true}) {
		if errors.Is(err, ErrUnsupported) {
			err = &Error{Err: ErrUnavailable, Detail: "the session was attached meanwhile, by this client or by another one"}
		}
		if err != nil {
			return false, err
		}
		live := s.State == Held || s.State == Waiting
		if live && !s.Lapsed && s.Ref.Session == d.client.session.ID && d.claims[s.Ref.ID] {
			return true, nil
		}
	}
	return false, nil
}

// lapses returns the lapses of claims that the client still has to end at the engine, sorted by
// reason and end.
func (c *Client) lapses() (all []Lapse) {
	for _, cl := range c.unfinished {
		if cl.phase == over && cl.lapse.Reason != NoReason {
			all = append(all, cl.lapse)
		}
	}
	slices.SortFunc(all, func(a, b Lapse) int {
		return cmp.Or(cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.EndsAt, b.EndsAt), cmp.Compare(a.ID, b.ID))
	})
	return all
}
