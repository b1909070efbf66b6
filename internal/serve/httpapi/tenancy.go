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

// A claim made over HTTP has a session of its own, in which it is the only one. The
// session's id says what a server must know to renew it, so that any server can.
const (
	theClaim  = 1
	madeHere  = "http-"
	withKey   = "key-"           // after madeHere, the TTL and a dash: the id comes from an Idempotency-Key
	roundTrip = 10 * time.Second // an engine that has not answered by then is taken for unreachable
	mostTries = 60               // of one operation, when other servers of the same claim come between
	longest   = time.Second      // to wait before the next
)

// A tenancy is a claim made over HTTP, as a server of it sees it. Several servers
// may serve one claim at a time: each names it whenever it takes the session over
// from another one, so none ends it.
type tenancy struct {
	engine  lockkeeper.Engine
	memory  *memory
	owner   string // the identity
	session string
	ttl     time.Duration
}

// newSession makes the id of a session. With a key, the same key has the same id.
func newSession(ttl time.Duration, key string) string {
	text := strings.ToLower(rand.Text())
	if key != "" {
		sum := sha256.Sum256([]byte(key))
		text = withKey + strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:20]))
	}
	return madeHere + spell(ttl) + "-" + text
}

// spell writes a TTL exactly, in the largest unit that does.
func spell(d time.Duration) string {
	if d%time.Second == 0 {
		return fmt.Sprintf("%ds", d/time.Second)
	}
	return fmt.Sprintf("%dns", d)
}

// tenancyOf finds the TTL in a claim's name. It refuses claims that were not made
// over HTTP: to act for their sessions would take them from those that made them.
func (c *call) tenancyOf(ref lockkeeper.Ref) (*tenancy, error) {
	rest, ok := strings.CutPrefix(ref.Session, madeHere)
	written, _, found := strings.Cut(rest, "-")
	ttl, err := time.ParseDuration(written)
	s := lockkeeper.Session{ID: ref.Session, TTL: ttl}
	if ok && found && err == nil && ref.ID == theClaim && spell(ttl) == written && s.Check(false) == nil {
		return c.tenancy(ref.Session, ttl), nil
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), roundTrip)
	defer cancel()
	switch st, err := look(ctx, c.engine(), ref); {
	case err != nil:
		return nil, err
	case st.State == 0:
		return nil, unknown(ref)
	}
	return nil, &lockkeeper.Error{Err: lockkeeper.ErrDenied, Detail: fmt.Sprintf(
		"claim %s was not made by a POST /v1/claims of yours: who made it renews and releases it; an operator may revoke it",
		ref)}
}

func (c *call) tenancy(session string, ttl time.Duration) *tenancy {
	return &tenancy{engine: c.engine(), memory: c.api.claims, owner: c.pass.Name(), session: session, ttl: ttl}
}

func (t *tenancy) ref() lockkeeper.Ref { return lockkeeper.Ref{Session: t.session, ID: theClaim} }

// keyed reports whether the client can ask for the claim without knowing its name.
func (t *tenancy) keyed() bool {
	_, text, _ := strings.Cut(strings.TrimPrefix(t.session, madeHere), "-")
	return strings.HasPrefix(text, withKey)
}

// A tidings is what the engine said of a claim, and when it was asked.
type tidings struct {
	lockkeeper.Status
	asked   time.Time     // for the status
	renewed time.Time     // when the last renewal was sent; zero: none
	ttl     time.Duration // that it promised
	key     lockkeeper.Key
}

// errAgain: another server of the same claim came between two exchanges.
var errAgain = errors.New("another server of the same claim came between")

// claim opens the session, or finds it open, and makes the claim, or finds it made
// (R16). What it got to is told also with an error.
func (t *tenancy) claim(ctx context.Context, want lockkeeper.Want) (now tidings, err error) {
	err = t.repeat(ctx, func(ctx context.Context) error {
		known, found := t.memory.recall(t.owner, t.session)
		if now, err = t.refresh(ctx, known, found, want.Label); err != nil {
			return err
		}
		return t.send(ctx, &now, want)
	})
	return now, err
}

// send sends a want under the key of now, and takes in the answer. What the want
// has is not changed by anybody from here on.
func (t *tenancy) send(ctx context.Context, now *tidings, want lockkeeper.Want) error {
	key := now.key
	if known, found := t.memory.recall(t.owner, t.session); found && known.key.Epoch == key.Epoch {
		key.Acked = known.heard
	}
	asked := time.Now()
	st, err := t.engine.Claim(ctx, key, want)
	if err != nil {
		return err
	}
	now.Status, now.asked = st, asked
	t.memory.note(t.owner, t.session, func(r *remembered) {
		if want.Revision >= r.want.Revision && want.Revision == st.Revision {
			r.want = want
		}
		r.change = max(r.change, st.Change)
	})
	return nil
}

// refresh renews the session by the key that is known, or attaches it.
func (t *tenancy) refresh(ctx context.Context, known remembered, found bool, label lockkeeper.Label) (tidings, error) {
	if found {
		now, err := t.renewBy(ctx, known)
		if !errors.Is(err, lockkeeper.ErrSession) {
			return now, err
		}
	}
	return t.attach(ctx, known.key.Epoch, t.ttl, label)
}

// renewBy renews the session by a key.
func (t *tenancy) renewBy(ctx context.Context, known remembered) (tidings, error) {
	key := known.key
	key.Acked = known.heard
	sent := time.Now()
	lease, err := t.engine.Renew(ctx, key)
	if err != nil {
		return tidings{}, err
	}
	return t.leased(lease, sent), nil
}

// attach opens the session or takes it over, naming its claim. epoch is the one
// that is known, 0 if none. Every key before is refused from then on.
func (t *tenancy) attach(ctx context.Context, epoch uint64, ttl time.Duration, label lockkeeper.Label) (tidings,
	error) {
	s := lockkeeper.Session{
		ID:      t.session,
		TTL:     ttl,
		Named:   []uint64{theClaim},
		Epoch:   epoch,
		Outlive: true,
		Label:   lockkeeper.Label{As: label.As},
	}
	sent := time.Now()
	lease, err := t.engine.Attach(ctx, s, nil)
	if epoch := presentEpoch(err); epoch != 0 {
		if known, _ := t.memory.recall(t.owner, t.session); known.key.Epoch == epoch {
			return tidings{}, errAgain // another request has it: both may use its key
		}
		s.Epoch, sent = epoch, time.Now()
		lease, err = t.engine.Attach(ctx, s, nil)
	}
	if err != nil {
		return tidings{}, err
	}
	now := t.leased(lease, sent)
	if now.State == 0 {
		// Of a new session nothing was told that could have been lost. From here on the
		// engine counts on what the client shows to have heard, and on nothing else.
		t.memory.note(t.owner, t.session, func(r *remembered) {
			if r.number == lease.Number {
				r.heard = lease.Number
			}
		})
	}
	return now, nil
}

// presentEpoch is the session's epoch that a refused Attach tells; 0 if err is no such refusal.
func presentEpoch(err error) uint64 {
	var e *lockkeeper.Error
	if errors.As(err, &e) && e.Err == lockkeeper.ErrSession {
		return e.Epoch
	}
	return 0
}

// leased takes in a lease. The State is 0 if it tells nothing of the claim.
func (t *tenancy) leased(lease lockkeeper.Lease, sent time.Time) tidings {
	now := tidings{asked: sent, renewed: sent, ttl: lease.TTL, key: lease.Key}
	for i := range lease.Claims {
		if lease.Claims[i].Ref.ID == theClaim {
			now.Status = lease.Claims[i]
		}
	}
	t.memory.note(t.owner, t.session, func(r *remembered) {
		if r.key.Epoch > lease.Key.Epoch || r.key.Epoch == lease.Key.Epoch && r.number > lease.Number {
			return // somebody took it over, or renewed it, meanwhile
		}
		r.key, r.number = lockkeeper.Key{Session: lease.Key.Session, Epoch: lease.Key.Epoch}, lease.Number
		if now.State != 0 {
			r.change = max(r.change, now.Change)
		}
	})
	return now
}

// heard notes that the client has seen an answer that told its claim with this
// change, and so all that the latest lease told, if that told no later one.
func (t *tenancy) heard(change uint64) {
	if _, found := t.memory.recall(t.owner, t.session); !found {
		return
	}
	t.memory.note(t.owner, t.session, func(r *remembered) {
		if change != 0 && change >= r.change {
			r.heard = r.number
		}
	})
}

// renew gives a claim its whole TTL again, and never makes one. If it is over the
// error says so, with the reason if that is known.
func (t *tenancy) renew(ctx context.Context) (now tidings, err error) {
	err = t.repeat(ctx, func(ctx context.Context) error {
		now, err = t.renewOnce(ctx)
		return err
	})
	return now, err
}

// amend has the claim be different, and renews it.
func (t *tenancy) amend(ctx context.Context, asked *amendment) (now tidings, err error) {
	err = t.repeat(ctx, func(ctx context.Context) error {
		if now, err = t.renewOnce(ctx); err != nil {
			return err
		}
		known, _ := t.memory.recall(t.owner, t.session)
		want := known.want
		if want.ID == 0 || want.Revision != now.Revision {
			want = wantOf(&now.Status)
		}
		want.Revision = now.Revision
		if want, err = asked.apply(want); err != nil {
			return err
		}
		return t.send(ctx, &now, want)
	})
	return now, err
}

// placed is now with the place in line and who is in the way.
func (t *tenancy) placed(ctx context.Context, now tidings) (tidings, error) {
	if now.Position != 0 {
		return now, nil
	}
	ctx, cancel := context.WithTimeout(ctx, roundTrip)
	defer cancel()
	asked := time.Now()
	st, err := look(ctx, t.engine, t.ref())
	now.Status, now.asked = st, asked
	return now, err
}

// abandon gives the claim back, since nobody knows of it, with its client's ctx over or not.
func (t *tenancy) abandon(ctx context.Context) {
	known, found := t.memory.recall(t.owner, t.session)
	if !found {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), givingBack)
	defer cancel()
	for try := 0; try < 3; try++ {
		if err := t.leave(ctx, known.key); !errors.Is(err, lockkeeper.ErrUnavailable) || !pause(ctx, retry/4) {
			return
		}
	}
}

func (t *tenancy) renewOnce(ctx context.Context) (tidings, error) {
	known, found := t.memory.recall(t.owner, t.session)
	var now tidings
	err := error(lockkeeper.ErrSession)
	if found {
		now, err = t.renewBy(ctx, known)
	}
	if errors.Is(err, lockkeeper.ErrSession) {
		now, err = t.resume(ctx, known.key.Epoch)
	}
	if err != nil {
		return now, err
	}
	// A lease tells neither what did not change for long, nor places.
	if now.State == 0 || now.State == lockkeeper.Waiting || now.Converting {
		asked := time.Now()
		st, err := look(ctx, t.engine, t.ref())
		if err != nil {
			return now, err
		}
		now.Status, now.asked = st, asked
	}
	return now, t.over(now.Status)
}

// resume takes the session over, if the claim is there.
func (t *tenancy) resume(ctx context.Context, epoch uint64) (tidings, error) {
	st, err := look(ctx, t.engine, t.ref()) // makes no session where none is
	if err == nil {
		err = t.over(st)
	}
	if err != nil {
		return tidings{Status: st}, err
	}
	now, err := t.attach(ctx, epoch, t.ttl, st.Label)
	if err == nil && now.State == 0 {
		// It ended just now, and this session is new. If somebody has begun to claim
		// anew by the same key it is his, and the key of it another one.
		if err := t.leave(ctx, now.key); err != nil && !errors.Is(err, lockkeeper.ErrSession) {
			return now, err
		}
		return now, t.over(now.Status)
	}
	return now, err
}

// over is the error of a claim that is over: an ErrLost if it was held, or is not
// known any more, else an ErrNotAcquired; nil of one that lives.
func (t *tenancy) over(st lockkeeper.Status) error {
	e := &lockkeeper.Error{
		Err:     lockkeeper.ErrLost,
		Reason:  st.Reason,
		Detail:  st.Text,
		Blocked: st.Blockers,
		Place:   st.Position,
		ETA:     st.ETA,
	}
	switch {
	case st.State == 0:
		return unknown(t.ref())
	case st.State != lockkeeper.Ended:
		return nil
	case st.Reason == lockkeeper.Deadlock:
		e.Err = lockkeeper.ErrDeadlock
	case st.Fence == 0 && st.Reason != lockkeeper.Cancelled:
		e.Err = lockkeeper.ErrNotAcquired
	}
	return e
}

// release ends the claim. If it was over before, the error says so. A keyed one
// keeps its session, which remembers the end until its TTL is over, so that a late
// repeat of the request that made it does not make it again.
func (t *tenancy) release(ctx context.Context) error {
	return t.repeat(ctx, func(ctx context.Context) error {
		st, err := look(ctx, t.engine, t.ref()) // makes no session where none is
		if err != nil {
			return err
		}
		if st.State == 0 {
			return unknown(t.ref())
		}
		known, found := t.memory.recall(t.owner, t.session)
		err = lockkeeper.ErrSession
		if found {
			err = t.end(ctx, known.key)
		}
		if errors.Is(err, lockkeeper.ErrSession) {
			// Should it die before the end, the rest of the TTL goes on as before.
			ttl := lockkeeper.MinTTL
			if t.keyed() {
				ttl = t.ttl // for so long the end is remembered
			}
			var now tidings
			if now, err = t.attach(ctx, known.key.Epoch, ttl, st.Label); err != nil {
				return err
			}
			if now.State == 0 { // it ended just now, and this session is new
				err = t.leave(ctx, now.key)
			} else {
				err = t.end(ctx, now.key)
			}
		}
		if err != nil {
			return err
		}
		return t.over(st)
	})
}

// unknown is the error for a claim that there is not.
func unknown(ref lockkeeper.Ref) error {
	return &lockkeeper.Error{
		Err:    lockkeeper.ErrNotHeld,
		Detail: "there is no claim " + quoted(ref.String()) + ": it never was, was released, or was not renewed in time",
	}
}

// end ends the claim under a key.
func (t *tenancy) end(ctx context.Context, key lockkeeper.Key) error {
	if !t.keyed() {
		return t.leave(ctx, key)
	}
	return t.engine.End(ctx, key, lockkeeper.Ending{Kind: lockkeeper.Release, ID: theClaim})
}

// leave ends the session of a key.
func (t *tenancy) leave(ctx context.Context, key lockkeeper.Key) error {
	err := t.engine.End(ctx, key, lockkeeper.Ending{Kind: lockkeeper.Leave})
	if err == nil {
		t.memory.forget(t.owner, t.session, key.Epoch)
	}
	return err
}

// repeat does do until no other server of the claim has come between. Each try has
// a bound, so that an engine that is silent is noticed.
func (t *tenancy) repeat(ctx context.Context, do func(context.Context) error) error {
	for try := range mostTries {
		bounded, cancel := context.WithTimeout(ctx, roundTrip)
		err := do(bounded)
		cancel()
		if err != errAgain && !errors.Is(err, lockkeeper.ErrSession) {
			return err
		}
		// They must not go in step, and all the less the slower the engine is.
		if !pause(ctx, mathrand.N(min(longest, time.Millisecond<<min(try, 10)))) {
			return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Cause: context.Cause(ctx)}
		}
	}
	return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable,
		Detail: fmt.Sprintf("other servers of claim %s came between %d times: ask again", t.ref(), mostTries)}
}

// pause waits for d and reports whether ctx goes on.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// look is how a claim stands, with its place; the State is 0 if it is not known.
func look(ctx context.Context, e lockkeeper.Engine, ref lockkeeper.Ref) (lockkeeper.Status, error) {
	for st, err := range e.List(ctx, lockkeeper.Query{Ref: ref}) {
		return st, err
	}
	return lockkeeper.Status{}, nil
}
