package httpapi

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/solo"
)

// A claim made over HTTP is the only claim of its session. The id of the session contains the TTL,
// which a server needs to renew it, so any server can: "http-30s-k3x9q2ab".
const (
	httpPrefix = "http-"
	keyPrefix  = "key-" // after httpPrefix, the TTL and a dash: the rest is a hash of an Idempotency-Key
)

// A claimSession is the session of a claim made over HTTP, as one request uses it. Several servers
// and several requests may use it at the same time.
type claimSession struct {
	solo.Session
	ttl time.Duration
}

// An observation is what the engine said of a claim, and when it was asked.
type observation = solo.Observation

// newSessionID returns a session id for a new claim. The same key has the same id.
func newSessionID(ttl time.Duration, key string) string {
	id := append(appendTTL(append(make([]byte, 0, 64), httpPrefix...), ttl), '-')
	text := rand.Text()
	if key != "" {
		id = append(id, keyPrefix...)
		sum := sha256.Sum256([]byte(key))
		text = base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:20])
	}
	return string(append(id, strings.ToLower(text)...))
}

// appendTTL writes a TTL exactly, in the largest unit that is exact.
func appendTTL(b []byte, d time.Duration) []byte {
	if d%time.Second == 0 {
		return append(strconv.AppendInt(b, int64(d/time.Second), 10), 's')
	}
	return append(strconv.AppendInt(b, int64(d), 10), "ns"...)
}

// sessionOf returns the session of a claim. It refuses claims that were not made over HTTP: acting
// for their sessions would displace the programs that use them.
func (c *call) sessionOf(ref lockkeeper.Ref) (*claimSession, error) {
	rest, ok := strings.CutPrefix(ref.Session, httpPrefix)
	text, _, found := strings.Cut(rest, "-")
	ttl, err := time.ParseDuration(text)
	s := lockkeeper.Session{ID: ref.Session, TTL: ttl}
	exact := found && err == nil && string(appendTTL(nil, ttl)) == text
	if ok && exact && ref.ID == solo.ClaimID && s.Check(false) == nil {
		return c.session(ref.Session, ttl), nil
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), solo.RoundTrip)
	defer cancel()
	switch st, err := solo.Look(ctx, c.engine(), ref); {
	case err != nil:
		return nil, err
	case st.State == 0:
		return nil, unknownClaim(ref)
	}
	return nil, &lockkeeper.Error{Err: lockkeeper.ErrDenied, Detail: fmt.Sprintf(
		"claim %s was not made by a POST /v1/claims of yours: the program that made it renews and releases it; "+
			"an operator may revoke it", ref)}
}

func (c *call) session(id string, ttl time.Duration) *claimSession {
	return &claimSession{ttl: ttl, Session: solo.Session{
		Engine: c.engine(), ID: id, Cache: c.api.sessions, Owner: c.pass.Name(),
		Rivals: "other requests for this claim",
	}}
}

// keyed reports whether the id comes from an Idempotency-Key, so that the client can ask for the
// claim without knowing its id.
func (s *claimSession) keyed() bool {
	_, text, _ := strings.Cut(strings.TrimPrefix(s.ID, httpPrefix), "-")
	return strings.HasPrefix(text, keyPrefix)
}

// claim opens the session and makes the claim, or finds it made (R16). With an error, the
// observation shows how far it came.
func (s *claimSession) claim(ctx context.Context, want lockkeeper.Want) (o observation, err error) {
	err = s.Do(ctx, func(ctx context.Context) error {
		var ok bool
		if o, ok, err = s.OpenClaim(ctx, s.ttl, want); ok {
			return err
		}
		if o, err = s.Open(ctx, s.ttl, want.As); err != nil {
			return err
		}
		return s.send(ctx, &o, want)
	})
	return o, err
}

// send makes or amends the claim and updates o.
func (s *claimSession) send(ctx context.Context, o *observation, want lockkeeper.Want) error {
	at := time.Now()
	st, err := s.Claim(ctx, o.Key, want)
	if err == nil {
		o.Status, o.At = st, at
	}
	return err
}

// renew gives the claim its whole TTL again, and never makes one. If the claim is over, the error
// says why, as far as that is known.
func (s *claimSession) renew(ctx context.Context) (o observation, err error) {
	err = s.Do(ctx, func(ctx context.Context) error {
		o, err = s.renewOnce(ctx)
		return err
	})
	return o, err
}

func (s *claimSession) renewOnce(ctx context.Context) (observation, error) {
	o, err := s.Renew(ctx, s.ttl)
	if err == nil {
		err = s.over(o.Status)
	}
	return o, err
}

// amend renews the claim and changes it.
func (s *claimSession) amend(ctx context.Context, asked *amendment) (o observation, err error) {
	err = s.Do(ctx, func(ctx context.Context) error {
		if o, err = s.renewOnce(ctx); err != nil {
			return err
		}
		want := s.Wanted()
		if want.ID == 0 || want.Revision != o.Revision {
			want = wantOf(&o.Status)
		}
		want.Revision = o.Revision
		if want, err = asked.apply(want); err != nil {
			return err
		}
		return s.send(ctx, &o, want)
	})
	return o, err
}

// locate adds the position and the blockers of a waiting claim to o.
func (s *claimSession) locate(ctx context.Context, o *observation) error {
	if o.Position != 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, solo.RoundTrip)
	defer cancel()
	o.At = time.Now()
	var err error
	o.Status, err = s.Look(ctx)
	return err
}

// abandon ends a claim that its client does not know of, whether or not ctx has ended.
func (s *claimSession) abandon(ctx context.Context) {
	if k := s.CachedKey(); k.Epoch != 0 {
		_ = s.Discard(ctx, k)
	}
}

// release ends the claim. If it was over before, the error says so. The session of a keyed claim
// remembers the end for its TTL, so that a late repeat of the request that made the claim does not
// make it again.
func (s *claimSession) release(ctx context.Context) error {
	var remember time.Duration
	if s.keyed() {
		remember = s.ttl
	}
	return s.Do(ctx, func(ctx context.Context) error {
		if remember == 0 {
			if st, ok, err := s.LeaveClaim(ctx); ok {
				return cmp.Or(err, s.over(st))
			}
		}
		st, err := s.Look(ctx)
		if err == nil && st.State != 0 {
			err = s.Release(ctx, st, remember)
		}
		if err != nil {
			return err
		}
		return s.over(st)
	})
}

// over returns the error of a claim that is over: an ErrLost if it was held, an ErrNotHeld if the
// engine does not know it, else an ErrNotAcquired. It returns nil for a live claim.
func (s *claimSession) over(st lockkeeper.Status) error {
	if st.State != 0 && st.State != lockkeeper.Ended {
		return nil
	}
	e := &lockkeeper.Error{
		Err:      lockkeeper.ErrLost,
		Reason:   st.Reason,
		Detail:   st.Text,
		Blocked:  st.Blockers,
		Position: st.Position,
		ETA:      st.ETA,
	}
	switch {
	case st.State == 0:
		return unknownClaim(s.Ref())
	case st.Reason == lockkeeper.Deadlock:
		e.Err = lockkeeper.ErrDeadlock
	case st.Fence == 0 && !endedHeld(st.Reason):
		e.Err = lockkeeper.ErrNotAcquired
	}
	return e
}

// endedHeld reports whether a claim that ended for the reason was held, or its client ended it. An engine may
// have forgotten the fence.
func endedHeld(why lockkeeper.Reason) bool {
	switch why {
	case lockkeeper.Cancelled, lockkeeper.Released, lockkeeper.Yielded, lockkeeper.Stolen, lockkeeper.Overdue:
		return true
	}
	return false
}

// unknownClaim returns the error of a claim that the engine does not know.
func unknownClaim(ref lockkeeper.Ref) error {
	return &lockkeeper.Error{
		Err:    lockkeeper.ErrNotHeld,
		Detail: "there is no claim " + quoted(ref.String()) + ": it never was, was released, or was not renewed in time",
	}
}
