package keeper

import (
	"context"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// Evidence says why a claim waits: position, estimate, reasons, blockers. The keeper computes it
// when a reader takes the claim's status: for that claim alone, and once for all its readers.
//
// The cost of a position can grow with the queue, and the keeper serves no other call during the
// computation. So a list stops after mostLooks visits to other claims. It computes the rest of its
// evidence as a watch does: one claim at a time, within an allowance of visits. Only readers of
// evidence wait for the allowance.

// evidence is the computed evidence of one claim. publisher.explaining guards it.
type evidence struct {
	known   bool
	full    lockkeeper.Status // with the evidence, if current
	current bool              // the claim had not changed since the change when full was computed
	commit  *Commit           // the keeper may send full when this is safe; nil: at once
}

// allowance is the number of claims that the keeper may still visit for evidence. It grows with
// time. publisher.mu guards it.
type allowance struct {
	left int // below 0 after the last computation visited more claims than were left
	at   time.Duration
}

// Bounds of evidence. A visit to a claim takes some 10 to 60 ns.
const (
	mostLooks     = 20_000                // visits at once
	lookTime      = 500 * time.Nanosecond // the allowance grows by one visit in this time
	mostExplained = 128                   // claims that wait together for one commit
)

// refill adds the visits allowed since the last call, and reports whether any are left.
func (a *allowance) refill(now time.Duration) bool {
	looks := (now - a.at) / lookTime
	a.at += looks * lookTime
	if looks >= time.Duration(mostLooks-a.left) {
		a.left = mostLooks
	} else {
		a.left += int(looks)
	}
	return a.left > 0
}

// wait returns the time until one visit is allowed.
func (a *allowance) wait() time.Duration { return time.Duration(1-a.left) * lookTime }

// waits reports whether st waits, so that it has evidence.
func waits(st *lockkeeper.Status) bool { return st.State == lockkeeper.Waiting || st.Converting }

// explain computes the evidence of c, and returns how many claims it visited for that. The caller
// holds the mutex.
func (p *publisher) explain(c *change) (looks int) {
	before := p.table.Counted()
	st, found := p.table.Explain(c.status.Ref)
	c.known, c.full, c.current = true, st, found && st.Change == c.status.Change
	return p.table.Counted() - before
}

// deliver yields changes, with evidence unless q is brief, and reports whether the caller wants
// more. If a waiting claim has changed again meanwhile, deliver omits it when q follows, because
// the later change will come; otherwise it yields the earlier status without evidence.
func (p *publisher) deliver(ctx context.Context, q lockkeeper.Query, changes []*change, yield statusFunc) bool {
	if q.Sees != nil {
		changes = slices.DeleteFunc(changes, func(c *change) bool { return !q.Sees(&c.status) })
	}
	for some := range slices.Chunk(changes, mostExplained) {
		if !q.Brief {
			if err := p.explainAll(ctx, q.Follow, some); err != nil {
				if !q.Follow || ctx.Err() == nil {
					yield(lockkeeper.Status{}, err)
				}
				return false
			}
		}
		for _, c := range some {
			st := &c.status
			if !q.Brief && waits(st) {
				if c.current {
					st = &c.full
				} else if q.Follow {
					continue
				}
			}
			if q.Follow && ctx.Err() != nil || !yield(*st, nil) {
				return false
			}
		}
	}
	return true
}

// explainAll computes the evidence of the waiting claims among changes, and waits until all of it
// is safe.
func (p *publisher) explainAll(ctx context.Context, follows bool, changes []*change) error {
	for _, c := range changes {
		if waits(&c.status) {
			if err := p.explainOne(ctx, c); err != nil {
				return err
			}
		}
	}
	for _, c := range changes {
		safe := p.safeToList
		if follows {
			safe = p.waitSafe // a watch waits even while the log is stuck
		}
		if err := safe(ctx, c.commit); err != nil {
			return err
		}
	}
	return nil
}

// explainOne computes the evidence of c, unless another reader has.
func (p *publisher) explainOne(ctx context.Context, c *change) error {
	select {
	case p.explaining <- struct{}{}:
		defer func() { <-p.explaining }()
	case <-ctx.Done():
		return unavailable(context.Cause(ctx))
	}
	for !c.known {
		wait, err := p.tryExplain(c)
		if err != nil {
			return err
		}
		if wait == 0 {
			break
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return unavailable(context.Cause(ctx))
		}
	}
	return nil
}

// tryExplain computes the evidence of c, or returns the time until the allowance permits it.
func (p *publisher) tryExplain(c *change) (wait time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return 0, unavailable(errClosed)
	case p.record.broken != nil:
		return 0, p.record.broken
	case !p.allowance.refill(p.clock()):
		return p.allowance.wait(), nil
	}
	p.allowance.left -= p.explain(c)
	c.commit = p.record.latest
	return 0, nil
}
