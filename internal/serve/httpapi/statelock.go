package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/solo"
)

// statePrefix begins the ids of the sessions of state locks.
const statePrefix = "terraform-"

// stateLocks are Terraform's locks of an engine: exclusive, and named by the ID that Terraform
// gives each. The session id is made from path and ID, so a repeat finds the lock, on any server of
// the engine.
type stateLocks struct{ engine lockkeeper.Engine }

// session returns the session of one lock.
func (l stateLocks) session(path lockkeeper.Path, id string) *solo.Session {
	h := sha256.Sum256([]byte(string(path) + "\n" + id)) // neither has control characters
	return &solo.Session{
		Engine: l.engine,
		ID:     statePrefix + strings.ToLower(base32.HexEncoding.EncodeToString(h[:20])),
		Rivals: "other requests for the same lock",
	}
}

// lock takes the path, or returns the claims in the way. A repeat with the same ID finds the lock
// held. If ctx has ended, nobody learns of the lock, so lock gives it back.
func (l stateLocks) lock(ctx context.Context, path lockkeeper.Path, info lockInfo,
	ttl time.Duration) (blocked []lockkeeper.Blocker, err error) {
	want := lockkeeper.Want{
		ID: solo.ClaimID, Targets: []lockkeeper.Target{{Path: path, Mode: lockkeeper.ModeExclusive}}, Label: info.label(),
	}
	if err := l.engine.Guarantees().Refuse(&want); err != nil {
		return nil, err
	}
	s := l.session(path, info.ID)
	err = s.Do(ctx, func(ctx context.Context) (err error) {
		blocked, err = tryLock(ctx, s, want, ttl)
		return err
	})
	return blocked, err
}

// tryLock is one try of lock.
func tryLock(ctx context.Context, s *solo.Session, want lockkeeper.Want, ttl time.Duration) ([]lockkeeper.Blocker,
	error) {
	o, sent, err := s.Obtain(ctx, ttl, want, nil) // the ID is in the session's, so it has no other claim
	if err == nil && o.State == lockkeeper.Held && sent && ctx.Err() != nil {
		err = &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Cause: context.Cause(ctx)}
	}
	switch {
	case err != nil && sent:
		_ = s.Discard(ctx, o.Key) // no client would release it
		return nil, err
	case err != nil, o.State == lockkeeper.Held:
		return nil, err
	case o.Reason != lockkeeper.TimedOut:
		return nil, &lockkeeper.Error{
			Err:     lockkeeper.ErrNotAcquired,
			Reason:  o.Reason,
			Detail:  o.Text,
			Blocked: o.Blockers,
		}
	case len(o.Blockers) == 0:
		return nil, solo.ErrAgain // the blocker has released the path meanwhile
	}
	return o.Blockers, nil
}

// unlock releases the lock with that ID. If there is none, it returns how it ended, as an ErrLost,
// or the lock that the path has now; if there is none, that is no error.
func (l stateLocks) unlock(ctx context.Context, path lockkeeper.Path, id string) (blocked []lockkeeper.Blocker,
	err error) {
	s := l.session(path, id)
	err = s.Do(ctx, func(ctx context.Context) error {
		st, err := s.Look(ctx)
		switch {
		case err != nil:
			return err
		case st.State == lockkeeper.Held:
			return s.Release(ctx, st, 0)
		case st.State == lockkeeper.Ended && st.Reason != lockkeeper.Released:
			return &lockkeeper.Error{Op: "unlock", Path: path, Err: lockkeeper.ErrLost, Reason: st.Reason, Detail: st.Text}
		}
		b, err := l.holder(ctx, path)
		if b != nil {
			blocked = []lockkeeper.Blocker{*b}
		}
		return err
	})
	return blocked, err
}

// force ends any lock that Terraform has of the path: its force-unlock sends no ID. The holder may
// still be at work, so force revokes the lock, which the engine remembers. A caller that may not
// revoke releases its own lock. force reports whether it saw a lock.
func (l stateLocks) force(ctx context.Context, path lockkeeper.Path, by lockkeeper.Label) (found bool, err error) {
	s := &solo.Session{Rivals: "other requests for the same lock"}
	err = s.Do(ctx, func(ctx context.Context) error {
		b, err := l.holder(ctx, path)
		if err != nil || b == nil {
			return err
		}
		found = true
		denied := l.revoke(ctx, b.Ref, by)
		if !errors.Is(denied, lockkeeper.ErrDenied) && !errors.Is(denied, lockkeeper.ErrUnsupported) {
			return denied
		}
		info, ok := infoOf(b.Label)
		if !ok {
			return denied
		}
		own := l.session(path, info.ID)
		if own.Ref() != b.Ref {
			return denied
		}
		st, err := own.Look(ctx)
		if err != nil || solo.Gone(st) {
			return err
		}
		return own.Release(ctx, st, 0)
	})
	return found, err
}

// revoke ends a claim at once, as an operator.
func (l stateLocks) revoke(ctx context.Context, ref lockkeeper.Ref, by lockkeeper.Label) error {
	return solo.Transient(ctx, l.engine, statePrefix+"force-", lockkeeper.MinTTL, by.As,
		func(ctx context.Context, k lockkeeper.Key) error {
			return l.engine.End(ctx, k, lockkeeper.Ending{Kind: lockkeeper.Revoke, Ref: ref, Force: true, Label: by})
		})
}

// holder returns the lock that Terraform has of the path; nil if it has none.
func (l stateLocks) holder(ctx context.Context, path lockkeeper.Path) (*lockkeeper.Blocker, error) {
	for st, err := range l.engine.List(ctx, lockkeeper.Query{Meets: path, Brief: true}) {
		if err != nil {
			return nil, err
		}
		if st.State != lockkeeper.Held {
			break // List yields holds first
		}
		_, own, foreign := strings.Cut(st.Ref.Session, ":")
		if !foreign {
			own = st.Ref.Session
		}
		if len(st.Grants) == 1 && st.Grants[0].Path == path && strings.HasPrefix(own, statePrefix) {
			return &lockkeeper.Blocker{
				Ref: st.Ref, Why: lockkeeper.HeldBy, Path: path, Mode: lockkeeper.ModeExclusive, Age: st.Age, Label: st.Label,
			}, nil
		}
	}
	return nil, nil
}
