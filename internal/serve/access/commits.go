package access

import (
	"context"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/limits"
)

// guardedGroup is the engine of one pass if the gate's engine is a lockkeeper.GroupCommitter. It
// leaves rare calls, which look at claims before or report acts afterwards, to the plain methods.
type guardedGroup struct {
	guarded
	group lockkeeper.GroupCommitter
}

// BeginOpen implements lockkeeper.GroupCommitter. The pass must be allowed the claim before the session
// begins. A session or a claim beyond a quota may exist already, so the plain methods look.
func (e *guardedGroup) BeginOpen(ctx context.Context, s lockkeeper.Session, w lockkeeper.Want,
	notify func([]lockkeeper.Status)) (lockkeeper.Lease, lockkeeper.Commit, error) {
	drain := &e.pass.admission.gate.drain
	if w.Freeze > 0 || !drain.enter() {
		return lockkeeper.Lease{}, nil, lockkeeper.ErrNotBegun
	}
	defer drain.leave() // a list shows a claim that has begun
	own := s.ID
	r, err := e.pass.enter()
	if err == nil && !r.open {
		if s.ID, err = e.session(r, &s); err == nil {
			err = e.permits(r, lockkeeper.Key{Session: s.ID}, &w)
		}
	}
	if err != nil {
		return lockkeeper.Lease{}, nil, err
	}
	alone := s.Outlive
	s.Outlive = true // the session must outlive this process, because its client does
	if e.usage == nil {
		lease, commit, err := e.group.BeginOpen(ctx, s, w, notify)
		e.attached(&s, &lease, alone, err)
		return lease, commit, err
	}
	o, err := e.usage.Opening(own, s.TTL, &w, &r.limits)
	if err != nil {
		return lockkeeper.Lease{}, nil, lockkeeper.ErrNotBegun
	}
	lease, commit, err := e.group.BeginOpen(ctx, s, w, e.notified(own, notify))
	e.attached(&s, &lease, alone, err)
	if commit == nil {
		o.Opened(&lease, err)
	} else {
		commit = &openCommit{commit, o, lease, err}
	}
	return e.names.lease(lease), commit, e.names.err(err)
}

// openCommit counts the answer to BeginOpen.
type openCommit struct {
	lockkeeper.Commit
	opening limits.Opening
	lease   lockkeeper.Lease
	refused error // the decision, if it is a refusal
}

// Finish implements lockkeeper.Commit.
func (c *openCommit) Finish() error {
	err := c.Commit.Finish()
	c.opening.Opened(&c.lease, either(err, c.refused))
	return err
}

// BeginClaim implements lockkeeper.GroupCommitter.
func (e *guardedGroup) BeginClaim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status,
	lockkeeper.Commit, error) {
	drain := &e.pass.admission.gate.drain
	if w.Freeze > 0 || !drain.enter() {
		return lockkeeper.Status{}, nil, lockkeeper.ErrNotBegun
	}
	defer drain.leave() // a list shows a claim that has begun
	if e.passes() {
		return e.group.BeginClaim(ctx, k, w)
	}
	key, r, err := e.key(k)
	if err == nil && !r.open {
		err = e.permits(r, key, &w)
	}
	if err != nil {
		return lockkeeper.Status{}, nil, err
	}
	if e.usage == nil {
		return e.group.BeginClaim(ctx, key, w)
	}
	session, err := e.usage.Claiming(k, &w, &r.limits)
	if err != nil { // a quota does not refuse an existing claim, so Claim looks
		return lockkeeper.Status{}, nil, lockkeeper.ErrNotBegun
	}
	st, commit, err := e.group.BeginClaim(ctx, key, w)
	if commit == nil {
		session.Claimed(k, w.ID, &st, err)
	} else {
		commit = &claimCommit{commit, session, k, w.ID, st, err}
	}
	return e.names.status(st), commit, e.names.err(err)
}

// claimCommit counts the answer to a claim.
type claimCommit struct {
	lockkeeper.Commit
	session *limits.Session
	key     lockkeeper.Key
	id      uint64
	status  lockkeeper.Status
	refused error // the decision, if it is a refusal
}

// Finish implements lockkeeper.Commit.
func (c *claimCommit) Finish() error {
	err := c.Commit.Finish()
	c.session.Claimed(c.key, c.id, &c.status, either(err, c.refused))
	return err
}

// either returns the error of a commit, or the decision.
func either(failed, refused error) error {
	if failed != nil {
		return failed
	}
	return refused
}

// BeginRenew implements lockkeeper.GroupCommitter.
func (e *guardedGroup) BeginRenew(ctx context.Context, k lockkeeper.Key) (lockkeeper.Lease, lockkeeper.Commit, error) {
	key, _, err := e.key(k)
	if err != nil {
		return lockkeeper.Lease{}, nil, err
	}
	c := renewCommit{engine: &e.guarded, name: k.Session, key: key}
	if e.usage != nil {
		c.session, c.generation = e.usage.Renewing(k.Session)
	}
	c.lease, c.Commit, c.refused = e.group.BeginRenew(ctx, key)
	lease, refused := e.names.lease(c.lease), e.names.err(c.refused)
	if c.Commit == nil {
		c.settled(nil)
		return lease, nil, refused
	}
	return lease, &c, refused
}

// renewCommit counts the answer to a renewal.
type renewCommit struct {
	lockkeeper.Commit
	engine     *guarded
	session    *limits.Session
	generation uint64
	name       string         // of the session, as the identity names it
	key        lockkeeper.Key // of the session, as the engine names it
	lease      lockkeeper.Lease
	refused    error // the decision, if it is a refusal
}

// Finish implements lockkeeper.Commit.
func (c *renewCommit) Finish() error {
	err := c.Commit.Finish()
	c.settled(err)
	return err
}

func (c *renewCommit) settled(failed error) {
	err := either(failed, c.refused)
	if c.engine.usage != nil {
		c.engine.usage.Renewed(c.session, c.name, c.generation, &c.lease, err)
	}
	if err == nil {
		c.engine.pass.admission.gate.refreshed.note(c.key.Session, c.lease.TTL, false)
	}
}

// BeginEnd implements lockkeeper.GroupCommitter.
func (e *guardedGroup) BeginEnd(ctx context.Context, k lockkeeper.Key, ending lockkeeper.Ending) (lockkeeper.Commit,
	error) {
	switch ending.Kind {
	case lockkeeper.Release:
		if e.passes() {
			return e.group.BeginEnd(ctx, k, ending)
		}
	case lockkeeper.Revoke, lockkeeper.Thaw:
		return nil, lockkeeper.ErrNotBegun
	}
	key, _, err := e.key(k)
	if err != nil {
		return nil, err
	}
	c := endCommit{engine: &e.guarded, counts: e.ending(k.Session), key: key, ending: ending}
	c.Commit, c.refused = e.group.BeginEnd(ctx, key, ending)
	if c.Commit == nil {
		c.settled(nil)
		return nil, e.names.err(c.refused)
	}
	return &c, e.names.err(c.refused)
}

// BeginLeave implements lockkeeper.GroupCommitter.
func (e *guardedGroup) BeginLeave(ctx context.Context, k lockkeeper.Key, id uint64) (lockkeeper.Status,
	lockkeeper.Commit, error) {
	key, _, err := e.key(k)
	if err != nil {
		return lockkeeper.Status{}, nil, err
	}
	c := endCommit{
		engine: &e.guarded,
		counts: e.ending(k.Session),
		key:    key,
		ending: lockkeeper.Ending{Kind: lockkeeper.Leave},
	}
	var st lockkeeper.Status
	st, c.Commit, c.refused = e.group.BeginLeave(ctx, key, id)
	if c.Commit == nil {
		c.settled(nil)
		return e.names.status(st), nil, e.names.err(c.refused)
	}
	later := c // so that c stays on the stack if there is no commit
	return e.names.status(st), &later, e.names.err(c.refused)
}

// endCommit counts the answer to an ending of the session's own.
type endCommit struct {
	lockkeeper.Commit
	engine  *guarded
	counts  begun
	key     lockkeeper.Key // of the session, as the engine names it
	ending  lockkeeper.Ending
	refused error // the decision, if it is a refusal
}

// Finish implements lockkeeper.Commit.
func (c *endCommit) Finish() error {
	err := c.Commit.Finish()
	c.settled(err)
	return err
}

func (c *endCommit) settled(failed error) {
	c.engine.ended(c.counts, c.key, c.ending, either(failed, c.refused))
}
