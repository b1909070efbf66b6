package httpapi

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

const (
	stateSessions = "terraform-"          // how the ids of their sessions begin
	stateClaim    = 1                     // the one claim of such a session
	stateTries    = 16                    // of one request, when a repeat of it comes between
	stateMoment   = 20 * time.Millisecond // to wait at most before the next
	stateBound    = 10 * time.Second      // an engine that has not answered by then is taken for unreachable
)

// states are Terraform's locks of an engine: exclusive, and named by the ID that
// Terraform gives each. Path and ID name the session, so a repeat finds it, on any
// server of the engine.
type states struct{ engine lockkeeper.Engine }

// stateRef is the claim of one lock.
func stateRef(path lockkeeper.Path, id string) lockkeeper.Ref {
	h := sha256.Sum256([]byte(string(path) + "\n" + id)) // neither has control characters
	return lockkeeper.Ref{Session: stateSessions + strings.ToLower(base32.HexEncoding.EncodeToString(h[:20])),
		ID: stateClaim}
}

// errBetween: a repeat of the same request came between two exchanges.
var errBetween = errors.New("another request for the same lock came between")

// Lock takes the path, or tells who is in the way. A repeat with the same ID finds
// what it has. What nobody is told of, since ctx has ended, is given back.
func (s states) lock(ctx context.Context, path lockkeeper.Path, info lockInfo,
	ttl time.Duration) (taken []lockkeeper.Blocker, err error) {
	want := lockkeeper.Want{
		ID: stateClaim, Targets: []lockkeeper.Target{{Path: path, Mode: lockkeeper.ModeExclusive}}, Label: info.label(),
	}
	if err := s.engine.Guarantees().Refuse(&want); err != nil {
		return nil, err
	}
	ref := stateRef(path, info.ID)
	err = again(ctx, func(ctx context.Context) (err error) {
		taken, err = s.tryLock(ctx, ref, want, ttl)
		return err
	})
	return taken, err
}

// tryLock is one try of lock.
func (s states) tryLock(ctx context.Context, ref lockkeeper.Ref, want lockkeeper.Want,
	ttl time.Duration) ([]lockkeeper.Blocker, error) {
	was, err := s.look(ctx, ref)
	if err != nil {
		return nil, err
	}
	key, now, err := s.attach(ctx, ref, want.Label, ttl)
	if err != nil {
		return nil, err
	}
	if now.State != 0 {
		was = now // a repeat was faster: what it claimed since the look, the lease tells
	}
	if was.State == lockkeeper.Ended {
		// The engine remembers that the id has ended. A new session has no past.
		if err := s.leave(ctx, key); err != nil {
			return nil, err
		}
		return nil, errBetween
	}
	st, err := s.engine.Claim(ctx, key, want)
	switch {
	case err == nil && st.State == lockkeeper.Held && (was.State == lockkeeper.Held || ctx.Err() == nil):
		return nil, nil
	case err == nil && was.State == lockkeeper.Held:
		return nil, errBetween // revoked just now
	case was.State == lockkeeper.Held:
		return nil, err // not ours to give back: a repeat has it
	}
	// Nobody would release what nobody was told of. If a repeat has attached since,
	// this key is an old one, and does it no harm.
	gone := s.leave(context.WithoutCancel(ctx), key)
	switch {
	case err != nil:
		return nil, err
	case st.State == lockkeeper.Held:
		return nil, &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Cause: context.Cause(ctx)}
	case st.Reason != lockkeeper.TimedOut:
		return nil, &lockkeeper.Error{
			Err:     lockkeeper.ErrNotAcquired,
			Reason:  st.Reason,
			Detail:  st.Text,
			Blocked: st.Blockers,
		}
	}
	if gone != nil && !errors.Is(gone, lockkeeper.ErrSession) {
		return nil, gone
	}
	if len(st.Blockers) == 0 {
		return nil, errBetween // it was released just now
	}
	return st.Blockers, nil
}

// unlock releases the lock with that ID. If there is none, it tells what became of
// it, as an ErrLost, or who has the path now; if nobody has, that is as it should be.
func (s states) unlock(ctx context.Context, path lockkeeper.Path, id string) (taken []lockkeeper.Blocker, err error) {
	ref := stateRef(path, id)
	err = again(ctx, func(ctx context.Context) error {
		st, err := s.look(ctx, ref)
		if err != nil {
			return err
		}
		if st.State == lockkeeper.Held {
			// Should this process die before it leaves, the TTL goes on as before.
			key, now, err := s.attach(ctx, ref, st.Label, lockkeeper.MinTTL)
			if err != nil {
				return err
			}
			if now.State == lockkeeper.Ended {
				return errBetween
			}
			return s.leave(ctx, key)
		}
		if st.State == lockkeeper.Ended && st.Reason != lockkeeper.Released {
			return &lockkeeper.Error{Op: "unlock", Path: path, Err: lockkeeper.ErrLost, Reason: st.Reason, Detail: st.Text}
		}
		b, err := s.holder(ctx, path)
		if b != nil {
			taken = []lockkeeper.Blocker{*b}
		}
		return err
	})
	return taken, err
}

// force ends whatever lock Terraform has of the path: its force-unlock sends no ID.
// Whoever had it may still be at work, so it is revoked, which the engine remembers;
// who may not revoke gives back what is its own. It reports whether it saw a lock.
func (s states) force(ctx context.Context, path lockkeeper.Path, by lockkeeper.Label) (found bool, err error) {
	err = again(ctx, func(ctx context.Context) error {
		b, err := s.holder(ctx, path)
		if err != nil || b == nil {
			return err
		}
		found = true
		denied := s.revoke(ctx, b.Ref, by)
		if !errors.Is(denied, lockkeeper.ErrDenied) && !errors.Is(denied, lockkeeper.ErrUnsupported) {
			return denied
		}
		info, ok := infoOf(b.Label)
		if !ok || stateRef(path, info.ID) != b.Ref {
			return denied
		}
		key, _, err := s.attach(ctx, b.Ref, b.Label, lockkeeper.MinTTL)
		if err != nil {
			return err
		}
		return s.leave(ctx, key)
	})
	return found, err
}

// revoke takes a claim away at once, as an operator, who has a session for that.
func (s states) revoke(ctx context.Context, ref lockkeeper.Ref, by lockkeeper.Label) error {
	operator := lockkeeper.Ref{Session: stateSessions + "force-" + strings.ToLower(rand.Text())}
	key, _, err := s.attach(ctx, operator, by, lockkeeper.MinTTL)
	if err != nil {
		return err
	}
	err = s.engine.End(ctx, key, lockkeeper.Ending{Kind: lockkeeper.Revoke, Ref: ref, Force: true, Label: by})
	_ = s.leave(context.WithoutCancel(ctx), key) // or it ends within its TTL
	return err
}

// holder is the lock that Terraform has of the path; nil if it has none.
func (s states) holder(ctx context.Context, path lockkeeper.Path) (*lockkeeper.Blocker, error) {
	for st, err := range s.engine.List(ctx, lockkeeper.Query{Meets: path, Brief: true}) {
		if err != nil {
			return nil, err
		}
		if st.State != lockkeeper.Held {
			break // holds come first
		}
		_, own, foreign := strings.Cut(st.Ref.Session, ":")
		if !foreign {
			own = st.Ref.Session
		}
		if len(st.Grants) == 1 && st.Grants[0].Path == path && strings.HasPrefix(own, stateSessions) {
			return &lockkeeper.Blocker{
				Ref: st.Ref, Why: lockkeeper.HeldBy, Path: path, Mode: lockkeeper.ModeExclusive, Age: st.Age, Label: st.Label,
			}, nil
		}
	}
	return nil, nil
}

// look is how a claim stands; the State is 0 if the engine does not know it.
func (s states) look(ctx context.Context, ref lockkeeper.Ref) (lockkeeper.Status, error) {
	for st, err := range s.engine.List(ctx, lockkeeper.Query{Ref: ref}) {
		return st, err
	}
	return lockkeeper.Status{}, nil
}

// attach opens the claim's session or takes it over, and tells how the claim stands
// as far as the lease says.
func (s states) attach(ctx context.Context, ref lockkeeper.Ref, label lockkeeper.Label,
	ttl time.Duration) (lockkeeper.Key, lockkeeper.Status, error) {
	session := lockkeeper.Session{
		ID: ref.Session, TTL: ttl, Named: []uint64{ref.ID}, Outlive: true, Label: lockkeeper.Label{As: label.As},
	}
	lease, err := s.engine.Attach(ctx, session, nil)
	var told *lockkeeper.Error
	if errors.As(err, &told) && told.Err == lockkeeper.ErrSession && told.Epoch != 0 {
		session.Epoch = told.Epoch
		lease, err = s.engine.Attach(ctx, session, nil)
	}
	if err != nil {
		return lockkeeper.Key{}, lockkeeper.Status{}, err
	}
	for _, st := range lease.Claims {
		if st.Ref.ID == ref.ID {
			return lease.Key, st, nil
		}
	}
	return lease.Key, lockkeeper.Status{}, nil
}

// leave ends the session of a key.
func (s states) leave(ctx context.Context, k lockkeeper.Key) error {
	ctx, cancel := context.WithTimeout(ctx, stateBound)
	defer cancel()
	return s.engine.End(ctx, k, lockkeeper.Ending{Kind: lockkeeper.Leave})
}

// again does do until no repeat of the same request has come between.
func again(ctx context.Context, do func(context.Context) error) error {
	for range stateTries {
		bounded, cancel := context.WithTimeout(ctx, stateBound)
		err := do(bounded)
		cancel()
		if !errors.Is(err, errBetween) && !errors.Is(err, lockkeeper.ErrSession) {
			return err
		}
		pause := time.NewTimer(mathrand.N(stateMoment)) // they must not go in step
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Cause: context.Cause(ctx)}
		}
	}
	return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable,
		Detail: fmt.Sprintf("other requests for the same lock came between %d times: ask again", stateTries)}
}
