package keeper

import (
	"context"
	"slices"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// Evidence is why a claim waits: place, estimate, reasons, who is in the way. It is found out
// when somebody takes the claim's status, for that claim alone and once for all who take it.
// Telling a place can cost as much as the line is long, and everybody waits meanwhile. So a
// list explains only as much at once as costs little, and the rest, as watchers do, one claim
// at a time, within an allowance of looks at other claims. Only those who want evidence wait
// for that.

// evidence is what is known of why a claim waits. It is guarded by Keeper.explaining.
type evidence struct {
	known   bool
	full    lockkeeper.Status // with the evidence, if the claim has not changed since
	current bool              // it has not
	commit  *Commit           // full may be told when this is safe; nil: at once
}

// allowance is how many claims may still be looked at for evidence. It is guarded by Keeper.mu.
type allowance struct {
	left int // less than 0: more were looked at than there was
	at   time.Duration
}

// Bounds of evidence. To look at a claim takes some 10 to 60 ns.
const (
	mostLooks     = 20_000                // at once
	lookTime      = 500 * time.Nanosecond // there is one more look after this
	mostExplained = 128                   // claims, which wait for one commit together
)

// refill adds what came since the last time, and reports whether there is any.
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

// wait is how long it takes until there is some.
func (a *allowance) wait() time.Duration { return time.Duration(1-a.left) * lookTime }

// waits reports whether there is evidence of st.
func waits(st *lockkeeper.Status) bool { return st.State == lockkeeper.Waiting || st.Converting }

// explain finds out the evidence of c, and returns how many claims it looked at for that. The
// mutex is held.
func (k *Keeper) explain(c *change) (looks int) {
	before := k.table.Counted()
	st, found := k.table.Explain(c.status.Ref)
	c.known, c.full, c.current = true, st, found && st.Change == c.status.Change
	return k.table.Counted() - before
}

// deliver yields changes, with evidence unless q is brief, and reports whether more is wanted.
// A claim that has changed meanwhile is left out if q follows it, since that change comes too;
// else it is told as it was, without evidence.
func (k *Keeper) deliver(ctx context.Context, q lockkeeper.Query, changes []*change, yield statusFunc) bool {
	if q.Sees != nil {
		changes = slices.DeleteFunc(changes, func(c *change) bool { return !q.Sees(&c.status) })
	}
	for some := range slices.Chunk(changes, mostExplained) {
		if !q.Brief {
			if err := k.explainAll(ctx, q.Follow, some); err != nil {
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

// explainAll finds out the evidence of the changes that have some, and waits until all of it
// is safe.
func (k *Keeper) explainAll(ctx context.Context, follows bool, changes []*change) error {
	for _, c := range changes {
		if waits(&c.status) {
			if err := k.explainOne(ctx, c); err != nil {
				return err
			}
		}
	}
	for _, c := range changes {
		safe := k.safeToList
		if follows {
			safe = k.safe // while the log is stuck there is nothing to tell
		}
		if err := safe(ctx, c.commit); err != nil {
			return err
		}
	}
	return nil
}

// explainOne finds out the evidence of c, unless somebody has.
func (k *Keeper) explainOne(ctx context.Context, c *change) error {
	select {
	case k.explaining <- struct{}{}:
		defer func() { <-k.explaining }()
	case <-ctx.Done():
		return unavailable(context.Cause(ctx))
	}
	for !c.known {
		wait, err := k.tryExplain(c)
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

// tryExplain finds out the evidence of c, or says for how long there is no allowance for it.
func (k *Keeper) tryExplain(c *change) (wait time.Duration, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.closed:
		return 0, unavailable(errClosed)
	case k.record.broken != nil:
		return 0, k.record.broken
	case !k.allowance.refill(k.clock()):
		return k.allowance.wait(), nil
	}
	k.allowance.left -= k.explain(c)
	c.commit = k.record.latest
	return 0, nil
}
