package solo

import (
	"context"
	"errors"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// Open renews the session by its cached key, or attaches it.
func (s *Session) Open(ctx context.Context, ttl time.Duration, as string) (Observation, error) {
	known := s.cached()
	o, err := s.renewByKey(ctx, known)
	if errors.Is(err, lockkeeper.ErrSession) {
		return s.Attach(ctx, ttl, as, known.key.Epoch)
	}
	return o, err
}

// Obtain attaches the session and makes its claim, unless it has one. It reports whether it sent
// the claim; if so and err is not nil, the caller has to [Session.Discard] the key or to accept
// that the claim may live until its TTL ends.
//
// allow, which may be nil, judges a live claim that the session has. If it returns an error, so does
// Obtain, and has renewed nothing. Another process may make another claim meanwhile, so the caller
// has to judge the claim in the observation, too.
//
// If the session's claim is gone, Obtain leaves the session and returns ErrAgain with the ended
// claim. A claim that may not wait and ended at once leaves no session; that is no error.
func (s *Session) Obtain(ctx context.Context, ttl time.Duration, want lockkeeper.Want,
	allow func(lockkeeper.Status) error) (o Observation, sent bool, err error) {
	var look func(context.Context) error
	if allow != nil {
		look = func(ctx context.Context) error {
			st, err := s.Look(ctx)
			if err != nil || Gone(st) {
				return err
			}
			return allow(st)
		}
	}
	o, err = s.attachIf(ctx, ttl, want.As, 0, look)
	if err != nil {
		return o, false, err
	}
	// A session without a claim but with a longer TTL than requested belongs to a hold that has
	// ended. Its TTL cannot be shortened (R11), so no claim is made in it. The engine may remember
	// that hold for longer than the lease reports it.
	stale, tried := o.State == 0 && o.TTL > ttl, false
	switch {
	case stale:
		o.At = time.Now()
		o.Status, err = s.Look(ctx)
	case o.State == 0:
		o.At, sent = time.Now(), true
		o.Status, err = s.Engine.Claim(ctx, o.Key, want)
		tried = o.State == lockkeeper.Ended && want.Wait == 0
	}
	if err == nil && (stale || o.State == lockkeeper.Ended) {
		if err = s.Leave(ctx, o.Key); err == nil && !tried {
			err = ErrAgain
		}
	}
	return o, sent, err
}

// OpenClaim opens the session with its claim by one call of the engine. ok is false if that is not
// possible, and nothing has happened: if a key is in the cache, if the session is open, or if the
// engine has no such call. With an error, the session and the claim may exist all the same if its key
// is in the cache.
func (s *Session) OpenClaim(ctx context.Context, ttl time.Duration, want lockkeeper.Want) (o Observation, ok bool,
	err error) {
	group, able := s.Engine.(lockkeeper.GroupCommitter)
	if !able || s.cached().key.Epoch != 0 {
		return o, false, nil
	}
	sent := time.Now()
	lease, commit, err := group.BeginOpen(ctx, s.attachment(ttl, want.As, 0), want, nil)
	if err == lockkeeper.ErrNotBegun {
		return o, false, nil
	}
	if err == nil { // cached before it is safe, so that the caller can discard it in any case
		o = observation(&lease, sent)
		s.Cache.update(s, func(e *entry) {
			e.lease(&lease, o.Change)
			if e.number == lease.Number {
				e.acked = lease.Number // as the claim has stated
			}
			if want.Revision >= e.want.Revision && want.Revision == o.Revision {
				e.want = want
			}
		})
	}
	failed := settled(ctx, commit)
	switch {
	case failed != nil:
		return o, true, failed
	case errors.Is(err, lockkeeper.ErrSession):
		return o, false, nil
	}
	return o, true, err
}

// settled waits for a commit, which may be nil, until ctx ends, and settles it.
func settled(ctx context.Context, commit lockkeeper.Commit) error {
	if commit == nil {
		return nil
	}
	select {
	case <-commit.Done():
	case <-ctx.Done():
	}
	return commit.Finish()
}

// Claim makes the claim or amends it, and caches want: see [Session.Wanted].
func (s *Session) Claim(ctx context.Context, key lockkeeper.Key, want lockkeeper.Want) (lockkeeper.Status, error) {
	if known := s.cached(); known.key.Epoch == key.Epoch {
		key.Acked = known.acked
	}
	st, err := s.Engine.Claim(ctx, key, want)
	if err != nil {
		return st, err
	}
	s.Cache.update(s, func(e *entry) {
		if want.Revision >= e.want.Revision && want.Revision == st.Revision {
			e.want = want
		}
		e.change = max(e.change, st.Change)
	})
	return st, nil
}

// Renew gives the claim its whole TTL again, and never makes one. If the claim is [Gone], the
// observation shows that, and no session remains that Renew itself has opened. The status has its
// position if the claim waits.
func (s *Session) Renew(ctx context.Context, ttl time.Duration) (Observation, error) {
	known := s.cached()
	o, err := s.renewByKey(ctx, known)
	if !errors.Is(err, lockkeeper.ErrSession) {
		if err != nil {
			return o, err
		}
		return s.Complete(ctx, o)
	}
	st, err := s.Look(ctx) // opens no session
	if err != nil || Gone(st) {
		return Observation{Status: st}, err
	}
	o, err = s.Attach(ctx, ttl, st.As, known.key.Epoch)
	switch {
	case err != nil:
		return o, err
	case o.State == 0:
		// The claim ended just now, and this session is new. ErrSession: another process has
		// attached since, perhaps for a new claim.
		if err = s.Leave(ctx, o.Key); errors.Is(err, lockkeeper.ErrSession) {
			err = nil
		}
		return o, err
	}
	return s.Complete(ctx, o)
}

// renewByKey renews by the cached key. Without one the error is ErrSession.
func (s *Session) renewByKey(ctx context.Context, known entry) (Observation, error) {
	if known.key.Epoch == 0 {
		return Observation{}, lockkeeper.ErrSession
	}
	key := known.key
	key.Acked = known.acked
	sent := time.Now()
	lease, err := s.Engine.Renew(ctx, key)
	if err != nil {
		return Observation{}, err
	}
	return s.observe(lease, sent), nil
}

// Complete adds to o what a lease does not contain: a claim that has not changed for a TTL, and the
// position of a claim that waits. It returns ErrAgain if the engine has another claim by now.
func (s *Session) Complete(ctx context.Context, o Observation) (Observation, error) {
	if o.State == lockkeeper.Ended || o.State == lockkeeper.Held && !o.Converting {
		return o, nil
	}
	at := time.Now()
	st, err := s.Look(ctx)
	if err == nil && o.State == lockkeeper.Waiting && st.Ticket != o.Ticket {
		err = ErrAgain
	}
	if err == nil {
		o.Status, o.At = st, at
	}
	return o, err
}

// LeaveClaim ends the session and returns the status that the claim had before, by one call of the
// engine. ok is false if that is not possible, and nothing has happened: without a key in the cache,
// if another process has attached since, or if the engine has no such call.
func (s *Session) LeaveClaim(ctx context.Context) (st lockkeeper.Status, ok bool, err error) {
	group, able := s.Engine.(lockkeeper.GroupCommitter)
	known := s.cached()
	if !able || known.key.Epoch == 0 {
		return st, false, nil
	}
	st, commit, err := group.BeginLeave(ctx, known.key, ClaimID)
	if err == lockkeeper.ErrNotBegun || errors.Is(err, lockkeeper.ErrSession) {
		return st, false, nil
	}
	if failed := settled(ctx, commit); failed != nil {
		err = failed
	}
	if err == nil {
		s.Cache.forget(s, known.key.Epoch)
	}
	return st, true, err
}

// Release ends the claim st, which Look has returned; if the engine has another claim by now, it
// returns ErrAgain. The session ends with its claim, unless remember is not 0: then it remembers
// the end for that time.
func (s *Session) Release(ctx context.Context, st lockkeeper.Status, remember time.Duration) error {
	end := func(k lockkeeper.Key) error {
		if remember == 0 {
			return s.Leave(ctx, k)
		}
		return s.Engine.End(ctx, k, lockkeeper.Ending{Kind: lockkeeper.Release, ID: ClaimID})
	}
	known := s.cached()
	if known.key.Epoch != 0 {
		if err := end(known.key); !errors.Is(err, lockkeeper.ErrSession) {
			return err
		}
	}
	// With the shortest TTL, the claim does not live longer if this process dies before the end.
	o, err := s.Attach(ctx, max(remember, lockkeeper.MinTTL), st.As, known.key.Epoch)
	switch {
	case err != nil:
		return err
	case o.State == 0: // the claim ended just now, and this session is new
		if err = s.Leave(ctx, o.Key); err == nil {
			err = ErrAgain
		}
		return err
	case o.Ticket != st.Ticket, o.State == lockkeeper.Ended && st.State != lockkeeper.Ended,
		o.State == lockkeeper.Held && st.State == lockkeeper.Waiting: // the caller decides about the hold
		return ErrAgain
	}
	return end(o.Key)
}

// LeaveUnclaimed ends the session as a [Cleanup] if it has no claim. epoch is the one that the
// caller knows: if another process has attached since, nothing happens. It uses a key that is not
// cached, so that no other request of this process claims under it.
func (s *Session) LeaveUnclaimed(ctx context.Context, ttl time.Duration, epoch uint64) {
	if epoch == 0 {
		return // the session was never attached
	}
	_ = Cleanup(ctx, func(ctx context.Context) error {
		if st, err := s.Look(ctx); err != nil || st.State != 0 {
			return err
		}
		lease, _, err := s.attach(ctx, ttl, "", epoch)
		if err != nil || claimOf(&lease).State != 0 {
			return err
		}
		return s.Leave(ctx, lease.Key)
	})
}
