package observe

import (
	"context"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// countingGroup is a counting engine that is a lockkeeper.GroupCommitter. A call lasts until its
// commit is finished.
type countingGroup struct {
	*counting
	group lockkeeper.GroupCommitter
}

// BeginOpen implements lockkeeper.GroupCommitter.
func (c *countingGroup) BeginOpen(ctx context.Context, s lockkeeper.Session, w lockkeeper.Want,
	notify func([]lockkeeper.Status)) (lockkeeper.Lease, lockkeeper.Commit, error) {
	at := time.Now()
	lease, commit, err := c.group.BeginOpen(ctx, s, w, notify)
	return lease, c.begun(opOpen, at, commit, err), err
}

// BeginClaim implements lockkeeper.GroupCommitter.
func (c *countingGroup) BeginClaim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status,
	lockkeeper.Commit, error) {
	at := time.Now()
	st, commit, err := c.group.BeginClaim(ctx, k, w)
	return st, c.begun(opClaim, at, commit, err), err
}

// BeginRenew implements lockkeeper.GroupCommitter.
func (c *countingGroup) BeginRenew(ctx context.Context, k lockkeeper.Key) (lockkeeper.Lease, lockkeeper.Commit, error) {
	at := time.Now()
	lease, commit, err := c.group.BeginRenew(ctx, k)
	return lease, c.begun(opRenew, at, commit, err), err
}

// BeginEnd implements lockkeeper.GroupCommitter.
func (c *countingGroup) BeginEnd(ctx context.Context, k lockkeeper.Key, e lockkeeper.Ending) (lockkeeper.Commit,
	error) {
	at := time.Now()
	commit, err := c.group.BeginEnd(ctx, k, e)
	return c.begun(opEnd, at, commit, err), err
}

// BeginLeave implements lockkeeper.GroupCommitter.
func (c *countingGroup) BeginLeave(ctx context.Context, k lockkeeper.Key, id uint64) (lockkeeper.Status,
	lockkeeper.Commit, error) {
	at := time.Now()
	st, commit, err := c.group.BeginLeave(ctx, k, id)
	return st, c.begun(opEnd, at, commit, err), err
}

// begun counts a call that began at that time, unless the engine left it to the plain method. It
// returns the commit to finish; nil if there is none.
func (c *countingGroup) begun(o op, at time.Time, commit lockkeeper.Commit, err error) lockkeeper.Commit {
	if err == lockkeeper.ErrNotBegun {
		return nil
	}
	if n := c.calls.of[o].n.Add(1); n%c.every != 0 {
		at = time.Time{}
	}
	if commit == nil {
		c.end(o, at, err)
		return nil
	}
	return &countedCommit{commit, c.counting, o, at, err}
}

// countedCommit counts the answer of one call.
type countedCommit struct {
	lockkeeper.Commit
	counting *counting
	op       op
	began    time.Time
	refused  error // the decision, if it is a refusal
}

// Finish implements lockkeeper.Commit.
func (c *countedCommit) Finish() error {
	err := c.Commit.Finish()
	answer := err
	if answer == nil {
		answer = c.refused
	}
	c.counting.end(c.op, c.began, answer)
	return err
}
