package access

import (
	"context"

	"github.com/lockkeeper/lockkeeper"
)

// guardedStarter is the engine of one pass if the gate's engine is a lockkeeper.Starter. It leaves rare
// calls, which look at claims before or report acts afterwards, to the plain methods.
type guardedStarter struct {
	guarded
	starter lockkeeper.Starter
}

// StartClaim implements lockkeeper.Starter. The claim is in flight until its answer, so Gate.Settled waits for it.
func (e *guardedStarter) StartClaim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want,
	answer func(lockkeeper.Status, error)) bool {
	drain := &e.pass.admission.gate.drain
	if w.Freeze > 0 || !drain.enter() {
		return false
	}
	started := e.startClaim(ctx, k, w, func(st lockkeeper.Status, err error) {
		answer(st, err)
		drain.leave()
	})
	if !started {
		drain.leave()
	}
	return started
}

func (e *guardedStarter) startClaim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want,
	answer func(lockkeeper.Status, error)) bool {
	if e.passes() {
		return e.starter.StartClaim(ctx, k, w, answer)
	}
	key, r, err := e.key(k)
	if err == nil && !r.open {
		err = e.permits(r, key, &w)
	}
	if err != nil {
		answer(lockkeeper.Status{}, err)
		return true
	}
	ctx = e.as(ctx, r)
	if e.usage == nil {
		return e.starter.StartClaim(ctx, key, w, answer)
	}
	session, err := e.usage.Claiming(k, &w, &r.limits)
	if err != nil { // a quota does not refuse an existing claim, so Claim looks
		return false
	}
	started := e.starter.StartClaim(ctx, key, w, func(st lockkeeper.Status, err error) {
		session.Claimed(k, w.ID, &st, err)
		answer(e.names.status(st), e.names.err(err))
	})
	if !started {
		session.Claimed(k, w.ID, &lockkeeper.Status{}, lockkeeper.ErrNotBegun)
	}
	return started
}

// StartEnd implements lockkeeper.Starter.
func (e *guardedStarter) StartEnd(ctx context.Context, k lockkeeper.Key, ending lockkeeper.Ending,
	answer func(error)) bool {
	switch ending.Kind {
	case lockkeeper.Release:
		if e.passes() {
			return e.starter.StartEnd(ctx, k, ending, answer)
		}
	case lockkeeper.Revoke, lockkeeper.Thaw:
		return false
	}
	key, r, err := e.key(k)
	if err != nil {
		answer(err)
		return true
	}
	counts := e.ending(k.Session)
	started := e.starter.StartEnd(e.as(ctx, r), key, ending, func(err error) {
		e.ended(counts, key, ending, err)
		answer(e.names.err(err))
	})
	if !started {
		e.ended(counts, key, ending, lockkeeper.ErrNotBegun)
	}
	return started
}
