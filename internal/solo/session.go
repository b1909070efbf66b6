package solo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// ClaimID is the id of the claim of every Session.
const ClaimID = 1

// RoundTrip bounds one try of an operation. An engine that has not answered by then counts as
// unreachable.
const RoundTrip = 10 * time.Second

const (
	maxTries     = 60              // of one operation
	longestPause = time.Second     // between two of them
	cleanupTime  = 5 * time.Second // for all tries of a cleanup
	cleanupTries = 3
	cleanupPause = 250 * time.Millisecond
)

// ErrAgain means that another process used the session between two exchanges of an operation. Do
// repeats the operation.
var ErrAgain = errors.New("another process used the session meanwhile")

// A Session is one process's view of a session with one claim. It is a value without state of its
// own: the engine has the state, and the Cache has keys.
type Session struct {
	Engine lockkeeper.Engine // may be nil if only Do is used
	ID     string
	Rivals string // the other users of the session, in the error of Do: "other requests for this claim"
	Cache  *Cache // nil: every operation attaches the session
	Owner  string // of the entry in Cache: the identity that the engine acts for
}

// An Observation is an answer of the engine about a session.
type Observation struct {
	lockkeeper.Status               // of its claim; the State is 0 if the answer did not contain the claim
	At                time.Time     // when Status was requested; its durations count from then
	Renewed           time.Time     // when the renewal was sent; zero if there was none
	TTL               time.Duration // that the renewal promised
	Key               lockkeeper.Key
}

// Gone reports whether a status shows no live claim: the claim is unknown or has ended.
func Gone(st lockkeeper.Status) bool { return st.State == 0 || st.State == lockkeeper.Ended }

// Refused reports whether err is a refusal: it is certain that the operation had no effect.
func Refused(err error) bool {
	return errors.Is(err, lockkeeper.ErrInvalid) || errors.Is(err, lockkeeper.ErrDenied) ||
		errors.Is(err, lockkeeper.ErrUnsupported)
}

// Ref names the claim.
func (s *Session) Ref() lockkeeper.Ref { return lockkeeper.Ref{Session: s.ID, ID: ClaimID} }

// Do repeats try until no other process has used the session meanwhile. Each try has RoundTrip, so
// that a silent engine is noticed; an engine that answers out of memory is never silent.
func (s *Session) Do(ctx context.Context, try func(context.Context) error) error {
	prompt := s.Engine != nil && s.Engine.Guarantees().Prompt
	for n := range maxTries {
		bounded, cancel := ctx, context.CancelFunc(func() {})
		if !prompt {
			bounded, cancel = context.WithTimeout(ctx, RoundTrip)
		}
		err := try(bounded)
		cancel()
		if err != ErrAgain && !errors.Is(err, lockkeeper.ErrSession) {
			return err
		}
		// A try needs two exchanges in a row. Random pauses that grow with the number of tries make
		// that likely, however slow the engine is.
		if err := Pause(ctx, mathrand.N(min(longestPause, time.Millisecond<<min(n, 10)))); err != nil {
			return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Cause: err}
		}
	}
	return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable,
		Detail: fmt.Sprintf("%s used it at the same time, %d times: ask again", s.Rivals, maxTries)}
}

// Pause waits for d. If ctx ends before, it returns the cause.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Look returns the status of a claim with its position; the State is 0 if the engine does not know
// the claim. It renews nothing.
func Look(ctx context.Context, e lockkeeper.Engine, ref lockkeeper.Ref) (lockkeeper.Status, error) {
	for st, err := range e.List(ctx, lockkeeper.Query{Ref: ref}) {
		return st, err
	}
	return lockkeeper.Status{}, nil
}

// Look is [Look] for the session's claim.
func (s *Session) Look(ctx context.Context) (lockkeeper.Status, error) {
	return Look(ctx, s.Engine, s.Ref())
}

// Attach opens the session or takes it over. as is its label. epoch is the last epoch that the
// caller knows, 0 if none; if the engine names another one, Attach takes that one over. It returns
// ErrAgain if the present epoch is in the cache: then another request of this process has attached,
// and both can use its key.
func (s *Session) Attach(ctx context.Context, ttl time.Duration, as string, epoch uint64) (Observation, error) {
	return s.attachIf(ctx, ttl, as, epoch, nil)
}

// attachIf is Attach, but asks allow, which may be nil, before it takes a session over. It returns the error of allow,
// and then nothing has changed: an engine refuses an epoch without effect.
func (s *Session) attachIf(ctx context.Context, ttl time.Duration, as string, epoch uint64,
	allow func(context.Context) error) (Observation, error) {
	lease, sent, err := s.attach(ctx, ttl, as, epoch)
	if present := presentEpoch(err); present != 0 {
		if s.cached().key.Epoch == present {
			return Observation{}, ErrAgain
		}
		if allow != nil {
			if err := allow(ctx); err != nil {
				return Observation{}, err
			}
		}
		lease, sent, err = s.attach(ctx, ttl, as, present)
	}
	if err != nil {
		return Observation{}, err
	}
	o := s.observe(lease, sent)
	if o.State == 0 {
		// The first lease of a session reports nothing that a client could miss. From here on the
		// engine relies only on the leases that the client acknowledges (R12).
		s.Cache.update(s, func(e *entry) {
			if e.number == lease.Number {
				e.acked = lease.Number
			}
		})
	}
	return o, nil
}

// attach is one exchange.
func (s *Session) attach(ctx context.Context, ttl time.Duration, as string, epoch uint64) (lockkeeper.Lease, time.Time,
	error) {
	sent := time.Now()
	lease, err := s.Engine.Attach(ctx, s.attachment(ttl, as, epoch), nil)
	return lease, sent, err
}

// attachment returns the session as this process attaches it.
func (s *Session) attachment(ttl time.Duration, as string, epoch uint64) lockkeeper.Session {
	return lockkeeper.Session{
		ID:      s.ID,
		TTL:     ttl,
		Named:   []uint64{ClaimID},
		Epoch:   epoch,
		Outlive: true,
		Label:   lockkeeper.Label{As: as},
	}
}

// presentEpoch returns the epoch that a refused Attach names; 0 if err is no such refusal.
func presentEpoch(err error) uint64 {
	var e *lockkeeper.Error
	if errors.As(err, &e) && e.Err == lockkeeper.ErrSession {
		return e.Epoch
	}
	return 0
}

// observe converts a lease that was requested at sent, and caches its key.
func (s *Session) observe(lease lockkeeper.Lease, sent time.Time) Observation {
	o := observation(&lease, sent)
	s.Cache.update(s, func(e *entry) { e.lease(&lease, o.Change) })
	return o
}

func observation(lease *lockkeeper.Lease, sent time.Time) Observation {
	return Observation{Status: claimOf(lease), At: sent, Renewed: sent, TTL: lease.TTL, Key: lease.Key}
}

// claimOf returns the status of the claim in a lease; the State is 0 if the lease does not have it.
func claimOf(lease *lockkeeper.Lease) lockkeeper.Status {
	for i := range lease.Claims {
		if lease.Claims[i].Ref.ID == ClaimID {
			return lease.Claims[i]
		}
	}
	return lockkeeper.Status{}
}

// Leave ends the session of a key, and its claim.
func (s *Session) Leave(ctx context.Context, k lockkeeper.Key) error {
	err := s.Engine.End(ctx, k, lockkeeper.Ending{Kind: lockkeeper.Leave})
	if err == nil {
		s.Cache.forget(s, k.Epoch)
	}
	return err
}

// Cleanup runs do, which ends a claim or a session, even if ctx has ended. It tries up to
// cleanupTries times while the engine is unavailable. After that, only the TTL ends the session.
func Cleanup(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	for try := 1; ; try++ {
		err := do(ctx)
		if try == cleanupTries || !errors.Is(err, lockkeeper.ErrUnavailable) || Pause(ctx, cleanupPause) != nil {
			return err
		}
	}
}

// Discard leaves the session of a key as a [Cleanup]: it ends everything that was made under this
// key. If another process has attached since, nothing happens.
func (s *Session) Discard(ctx context.Context, k lockkeeper.Key) error {
	return Cleanup(ctx, func(ctx context.Context) error { return s.Leave(ctx, k) })
}

// Transient runs do with the key of a new session, and leaves that session afterwards. The id of
// the session begins with prefix.
func Transient(ctx context.Context, e lockkeeper.Engine, prefix string, ttl time.Duration, as string,
	do func(context.Context, lockkeeper.Key) error) error {
	lease, err := e.Attach(ctx, lockkeeper.Session{
		ID:      prefix + strings.ToLower(rand.Text()),
		TTL:     ttl,
		Outlive: true,
		Label:   lockkeeper.Label{As: as},
	}, nil)
	if err != nil {
		return err
	}
	err = do(ctx, lease.Key)
	_ = Cleanup(ctx, func(ctx context.Context) error {
		return e.End(ctx, lease.Key, lockkeeper.Ending{Kind: lockkeeper.Leave})
	})
	return err
}
