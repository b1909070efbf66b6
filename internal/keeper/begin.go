package keeper

import (
	"context"
	"errors"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// The methods of lockkeeper.GroupCommitter: decisions, with the commits that they wait for. Without
// a log there is no commit.

var _ lockkeeper.GroupCommitter = (*Keeper)(nil)

// BeginOpen implements lockkeeper.GroupCommitter. It applies an Attach and a Claim, and a Leave if the
// table refuses the claim, as separate entries of the log under one hold of the mutex. The commit is
// that of the last entry, so it covers all.
func (k *Keeper) BeginOpen(ctx context.Context, s lockkeeper.Session, w lockkeeper.Want,
	notify func([]lockkeeper.Status)) (lockkeeper.Lease, lockkeeper.Commit, error) {
	err := s.Check(k.guarantees.NoExpiry)
	if err == nil {
		err = w.Check()
	}
	if err == nil {
		err = k.guarantees.Refuse(&w)
	}
	if err == nil {
		err = k.lock(ctx, true)
	}
	if err != nil {
		return lockkeeper.Lease{}, nil, err
	}
	s.Epoch = 0
	lease, attached, commit, err := k.stepAttach(s, notify)
	var claimed *news
	if err == nil {
		lease.Claims, claimed, commit, err = k.stepFirstClaim(lease, w)
	}
	commit = k.unlockDecided(attached, commit, err)
	claimed.deliver()
	later, err := k.decided(commit, err)
	if err != nil {
		lease = lockkeeper.Lease{}
	}
	return lease, later, err
}

// stepFirstClaim applies the claim of BeginOpen, and ends the session if the table refuses it. The
// caller holds the mutex.
func (k *Keeper) stepFirstClaim(lease lockkeeper.Lease, w lockkeeper.Want) ([]lockkeeper.Status, *news, *Commit,
	error) {
	key := lease.Key
	key.Acked = lease.Number
	k.beforeClaim(key, &w)
	k.command.Op, k.command.Key, k.command.Want = table.Claim, key, w
	reply, err := k.table.Step(&k.command)
	news, commit := k.gatherStep("", err)
	if err == nil {
		return append(lease.Claims, reply.Status), news, commit, nil
	}
	k.command.Op, k.command.Ending = table.End, lockkeeper.Ending{Kind: lockkeeper.Leave}
	_, _ = k.table.Step(&k.command) // the key is of the session that has just begun
	k.sessions.Remove(key.Session, key.Epoch)
	_, commit = k.gatherStep(key.Session, nil)
	return nil, news, commit, err
}

// BeginClaim implements lockkeeper.GroupCommitter.
func (k *Keeper) BeginClaim(ctx context.Context, key lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status,
	lockkeeper.Commit, error) {
	var st lockkeeper.Status
	commit, err := k.claim(ctx, &key, &w, &st)
	later, err := k.decided(commit, err)
	if err != nil {
		st = lockkeeper.Status{}
	}
	return st, later, err
}

// BeginRenew implements lockkeeper.GroupCommitter.
func (k *Keeper) BeginRenew(ctx context.Context, key lockkeeper.Key) (lockkeeper.Lease, lockkeeper.Commit, error) {
	lease, commit, err := k.renew(ctx, key)
	later, err := k.decided(commit, err)
	if err != nil {
		lease = lockkeeper.Lease{}
	}
	return lease, later, err
}

// BeginEnd implements lockkeeper.GroupCommitter.
func (k *Keeper) BeginEnd(ctx context.Context, key lockkeeper.Key, e lockkeeper.Ending) (lockkeeper.Commit, error) {
	commit, err := k.end(ctx, key, e)
	return k.decided(commit, err)
}

// BeginLeave implements lockkeeper.GroupCommitter.
func (k *Keeper) BeginLeave(ctx context.Context, key lockkeeper.Key, id uint64) (lockkeeper.Status, lockkeeper.Commit,
	error) {
	if err := k.lock(ctx, false); err != nil {
		return lockkeeper.Status{}, nil, err
	}
	k.beforeEnd(key, &lockkeeper.Ending{Kind: lockkeeper.Leave})
	// What time alone ends, ends before the session leaves: the status shows the reason.
	k.command.Op, k.command.Key = table.Pass, lockkeeper.Key{}
	_, _ = k.table.Step(&k.command) // a Pass is never refused
	passed, _ := k.gatherStep("", nil)
	st, _ := k.table.Status(lockkeeper.Ref{Session: key.Session, ID: id})
	unsafe := st.State == lockkeeper.Ended && k.log != nil && st.Change > k.record.safeChanges
	k.command.Op, k.command.Key, k.command.Ending = table.End, key, lockkeeper.Ending{Kind: lockkeeper.Leave}
	_, err := k.table.Step(&k.command)
	left := ""
	if err == nil {
		left = key.Session
		k.sessions.Remove(left, key.Epoch)
	}
	news, commit := k.gatherStep(left, err)
	k.arm()
	k.mu.Unlock()
	passed.deliver()
	news.deliver()
	switch {
	case err != nil:
		return lockkeeper.Status{}, nil, err
	case !unsafe:
		commit = nil
	}
	later, err := k.decided(commit, nil)
	return st, later, err
}

// decided returns the commit that a decision waits for, nil if that has ended. err is the decision
// if it is a refusal; a commit that has failed takes its place.
func (k *Keeper) decided(commit *Commit, err error) (lockkeeper.Commit, error) {
	if commit == nil {
		return nil, err
	}
	select {
	case <-commit.done:
		if commit.err != nil {
			err = commit.err
		}
		return nil, err
	default:
		k.log.StartCommit()
		return commit, err
	}
}

// Finish implements lockkeeper.Commit. Any number of callers may share a commit.
func (c *Commit) Finish() error {
	select {
	case <-c.done:
		return c.err
	default:
		return unavailable(errNotSafe)
	}
}

var errNotSafe = errors.New("it is not known yet whether the answer will survive a crash")
