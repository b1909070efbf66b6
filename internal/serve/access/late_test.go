package access_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
)

// hooked is an engine whose next call of each kind goes through a hook of the test. The hook gets a
// function that performs the call.
type hooked struct {
	lockkeeper.Engine
	attach, renew, claim, end func(do func() error) error
}

// by performs the call through the hook, which it uses once.
func by(hook *func(func() error) error, do func() error) error {
	h := *hook
	if *hook = nil; h == nil {
		return do()
	}
	return h(do)
}

func (h *hooked) Attach(ctx context.Context, s lockkeeper.Session,
	notify func([]lockkeeper.Status)) (lease lockkeeper.Lease, err error) {
	err = by(&h.attach, func() error { lease, err = h.Engine.Attach(ctx, s, notify); return err })
	return lease, err
}

func (h *hooked) Renew(ctx context.Context, k lockkeeper.Key) (lease lockkeeper.Lease, err error) {
	err = by(&h.renew, func() error { lease, err = h.Engine.Renew(ctx, k); return err })
	return lease, err
}

func (h *hooked) Claim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (st lockkeeper.Status, err error) {
	err = by(&h.claim, func() error { st, err = h.Engine.Claim(ctx, k, w); return err })
	return st, err
}

func (h *hooked) End(ctx context.Context, k lockkeeper.Key, e lockkeeper.Ending) error {
	return by(&h.end, func() error { return h.Engine.End(ctx, k, e) })
}

// Hooks: the call arrives and its answer is lost, or the call itself is lost.
func answerLost(do func() error) error { _ = do(); return errLost }
func callLost(func() error) error      { return errLost }

// delayed delays the call by before, and its answer by after.
func delayed(before, after time.Duration) func(func() error) error {
	return func(do func() error) error {
		time.Sleep(before)
		defer time.Sleep(after)
		return do()
	}
}

// onTheWay runs the body with a gate whose policy has the quota, and an engine behind hooks.
func onTheWay(t *testing.T, q access.Quota, body func(s *site, way *hooked)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, limited(q), access.Options{})
		way := &hooked{Engine: s.engine}
		s.open(way, access.Options{})
		body(s, way)
	})
}

// another attaches one more session of ci.
func (u *user) another(session string) error {
	return (&user{site: u.site, Engine: u.Engine}).attach(session, time.Minute)
}

// A session counts as long as the engine may have it, even if calls or answers were lost or late.
func TestSessionCountsWhileEngineMayHaveIt(t *testing.T) {
	one := access.Quota{Sessions: 1}
	for name, c := range map[string]struct {
		do    func(u *user, way *hooked)
		alive time.Duration // how long the session counts after that
	}{
		"attached": {func(*user, *hooked) {}, time.Minute},
		"an attach is not answered": {func(u *user, way *hooked) { way.attach = answerLost; _ = u.attach("s", time.Hour) },
			time.Hour},
		"a renewal is not answered": {func(u *user, way *hooked) {
			time.Sleep(50 * time.Second)
			way.renew = answerLost
			_, _ = u.Renew(u.Context(), u.key)
		}, time.Minute},
		"a renewal does not arrive": {func(u *user, way *hooked) {
			time.Sleep(50 * time.Second)
			way.renew = callLost
			_, _ = u.Renew(u.Context(), u.key)
		}, time.Minute},
		"a shorter TTL": {func(u *user, way *hooked) { _ = u.attach("s", time.Second) }, time.Minute},
		"a renewal is answered late": {func(u *user, way *hooked) {
			time.Sleep(59 * time.Second)
			way.renew = delayed(0, 5*time.Second)
			go u.Renew(u.Context(), u.key)
			time.Sleep(2 * time.Second)
		}, time.Minute},
		"it left before it was attached again": {func(u *user, way *hooked) {
			way.attach = delayed(time.Second, 0)
			go u.attach("s", time.Minute)
			synctest.Wait()
			_ = u.ends(lockkeeper.Ending{Kind: lockkeeper.Leave})
			time.Sleep(2 * time.Second)
		}, 55 * time.Second},
		"it does not leave": {func(u *user, way *hooked) {
			way.end = callLost
			_ = u.ends(lockkeeper.Ending{Kind: lockkeeper.Leave})
		}, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			onTheWay(t, one, func(s *site, way *hooked) {
				u := s.user("ci", "s")
				c.do(u, way)
				s.is("another session at once", u.another("other"), lockkeeper.Quota)
				time.Sleep(c.alive - 5*time.Second)
				s.is("another session before its end", u.another("other"), lockkeeper.Quota)
				time.Sleep(12 * time.Second)
				if err := u.another("other"); err != nil {
					t.Errorf("another session after its end: %v", err)
				}
			})
		})
	}
}

// Sessions and claims that the engine refused do not count.
func TestRefusedCallsAreNotCounted(t *testing.T) {
	onTheWay(t, access.Quota{}, func(s *site, way *hooked) {
		elsewhere, err := access.New(s.engine, &s.policy, access.Options{}).Admit(access.Credentials{Token: s.secrets["ci"]})
		if err != nil {
			t.Fatal(err)
		}
		if err := (&user{site: s, Engine: elsewhere.Engine()}).attach("open", time.Minute); err != nil {
			t.Fatal(err)
		}
		u := s.user("ci", "s")
		s.is("an attach of what is open elsewhere", u.another("open"), lockkeeper.ErrSession)
		s.counts(0, 0, 1, 0)
		_, err = u.Claim(t.Context(), lockkeeper.Key{Session: "never", Epoch: 1}, u.wants("a"))
		s.is("a claim of a session that never was", err, lockkeeper.ErrSession)
		_, err = u.Renew(t.Context(), lockkeeper.Key{Session: "never", Epoch: 1})
		s.is("its renewal", err, lockkeeper.ErrSession)
		s.counts(0, 0, 1, 0)
		if sessions, claims := s.gate.Remembered("ci"); sessions != 1 || claims != 0 {
			t.Errorf("%d sessions and %d claims are remembered", sessions, claims)
		}
	})
}

// A claim whose answer was lost counts until its outcome is known, and no longer.
func TestClaimCountsUntilOutcomeIsKnown(t *testing.T) {
	for name, c := range map[string]struct {
		claim func(func() error) error
		then  func(u *user, w lockkeeper.Want, way *hooked)
		count int
	}{
		"made": {answerLost, func(*user, lockkeeper.Want, *hooked) {}, 1},
		"made and renewed": {answerLost, func(u *user, _ lockkeeper.Want, _ *hooked) { _, _ = u.Renew(u.Context(), u.key) },
			1},
		"made, renewed much later": {answerLost, func(u *user, _ lockkeeper.Want, _ *hooked) {
			for range 5 {
				time.Sleep(40 * time.Second)
				_, _ = u.Renew(u.Context(), u.key)
			}
		}, 1},
		"not made": {callLost, func(*user, lockkeeper.Want, *hooked) {}, 1},
		"not made, renewed": {callLost, func(u *user, _ lockkeeper.Want, _ *hooked) { _, _ = u.Renew(u.Context(), u.key) },
			0},
		"repeated": {answerLost, func(u *user, w lockkeeper.Want, _ *hooked) { _, _ = u.tries(w) }, 1},
		"repeated and refused": {answerLost, func(u *user, w lockkeeper.Want, _ *hooked) {
			w.Targets = u.wants("else").Targets
			_, _ = u.tries(w)
		}, 1},
		"ended": {callLost, func(u *user, w lockkeeper.Want, _ *hooked) {
			_ = u.ends(lockkeeper.Ending{Kind: lockkeeper.Release, ID: w.ID})
		}, 0},
		"not known to be ended": {answerLost, func(u *user, w lockkeeper.Want, way *hooked) {
			way.end = answerLost
			_ = u.ends(lockkeeper.Ending{Kind: lockkeeper.Release, ID: w.ID})
		}, 1},
		"not known to be ended, renewed": {answerLost, func(u *user, w lockkeeper.Want, way *hooked) {
			way.end = answerLost
			_ = u.ends(lockkeeper.Ending{Kind: lockkeeper.Release, ID: w.ID})
			_, _ = u.Renew(u.Context(), u.key)
		}, 0},
		"taken over without it": {answerLost, func(u *user, _ lockkeeper.Want, _ *hooked) { _ = u.attach("s", time.Minute) },
			0},
		"taken over with it": {answerLost, func(u *user, w lockkeeper.Want, _ *hooked) {
			_ = u.attach("s", time.Minute, w.ID)
		}, 1},
		"answered late, after a takeover without it": {delayed(0, time.Second), func(u *user, _ lockkeeper.Want, _ *hooked) {
			_ = u.attach("s", time.Minute)
			time.Sleep(2 * time.Second)
		}, 0},
		"answered late, after its end": {delayed(0, time.Second), func(u *user, w lockkeeper.Want, _ *hooked) {
			_ = u.ends(lockkeeper.Ending{Kind: lockkeeper.Release, ID: w.ID})
			time.Sleep(2 * time.Second)
		}, 0},
		"answered late, after a renewal": {delayed(2*time.Second, time.Second), func(u *user, _ lockkeeper.Want, _ *hooked) {
			_, _ = u.Renew(u.Context(), u.key)
			time.Sleep(5 * time.Second)
		}, 1},
		"a renewal is answered after its end": {delayed(0, 0), func(u *user, w lockkeeper.Want, way *hooked) {
			way.renew = delayed(0, time.Second)
			go u.Renew(u.Context(), u.key)
			synctest.Wait()
			_ = u.ends(lockkeeper.Ending{Kind: lockkeeper.Release, ID: w.ID})
			time.Sleep(2 * time.Second)
		}, 0},
		"an attach is answered after a later one and its end": {delayed(0, 0), func(u *user, w lockkeeper.Want, way *hooked) {
			way.attach = delayed(0, time.Second)
			first := *u
			go first.attach("s", time.Minute, w.ID)
			synctest.Wait()
			u.key.Epoch++
			_ = u.attach("s", time.Minute, w.ID)
			_ = u.ends(lockkeeper.Ending{Kind: lockkeeper.Release, ID: w.ID})
			time.Sleep(2 * time.Second)
		}, 0},
		"it left unknown, and is attached again": {delayed(0, 0), func(u *user, w lockkeeper.Want, way *hooked) {
			way.end = answerLost
			_ = u.ends(lockkeeper.Ending{Kind: lockkeeper.Leave})
			_ = u.attach("s", time.Minute, w.ID)
		}, 0},
		"forgotten and made again while an answer is late": {delayed(0, 130*time.Second), func(u *user, w lockkeeper.Want,
			_ *hooked) {
			_ = u.ends(lockkeeper.Ending{Kind: lockkeeper.Release, ID: w.ID})
			for range 3 {
				time.Sleep(40 * time.Second)
				_, _ = u.Renew(u.Context(), u.key)
			}
			_, _ = u.tries(w)
			time.Sleep(20 * time.Second)
		}, 1},
		"another call of its id is refused": {delayed(time.Second, 0), func(u *user, w lockkeeper.Want, way *hooked) {
			way.claim = func(func() error) error { return lockkeeper.Invalid("no") }
			_, _ = u.tries(w)
			time.Sleep(2 * time.Second)
		}, 1},
		"it was made after a departure that is answered late": {callLost, func(u *user, w lockkeeper.Want, way *hooked) {
			leavesLate(u, way)
			_, _ = u.tries(w)
			time.Sleep(3 * time.Second)
		}, 1},
		"it was made after a departure, and both are answered late": {callLost, func(u *user, w lockkeeper.Want,
			way *hooked) {
			leavesLate(u, way)
			way.claim = delayed(0, 2*time.Second)
			go u.tries(w)
			time.Sleep(4 * time.Second)
		}, 1},
		"it was made under an attach that is answered late": {callLost, func(u *user, w lockkeeper.Want, way *hooked) {
			way.attach = delayed(0, time.Second)
			first := *u
			go first.attach("s", time.Minute)
			synctest.Wait()
			u.key.Epoch++
			_, _ = u.tries(w)
			time.Sleep(2 * time.Second)
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			onTheWay(t, access.Quota{}, func(s *site, way *hooked) {
				u := s.user("ci", "s")
				w := u.wants("a")
				way.claim = c.claim
				go u.tries(w)
				synctest.Wait()
				c.then(u, w, way)
				s.counts(c.count, 0, 1, c.count)
				if c.count == 0 {
					if _, claims := s.gate.Remembered("ci"); claims != 0 {
						t.Errorf("%d claims are remembered", claims)
					}
				}
			})
		})
	}
}

// leavesLate ends u's session by Leave and attaches it again. The answer to Leave comes after one
// second, that to Attach after three. u has the new key at once.
func leavesLate(u *user, way *hooked) {
	way.end = delayed(0, time.Second)
	old := *u
	go old.ends(lockkeeper.Ending{Kind: lockkeeper.Leave})
	synctest.Wait()
	way.attach = delayed(0, 3*time.Second)
	again := *u
	go again.attach("s", time.Minute)
	synctest.Wait()
	u.key.Epoch++
}

// Two concurrent calls have one id. Until it is known which of them makes the claim, they count as
// the larger one.
func TestConcurrentCallsOfOneIDCountAsLarger(t *testing.T) {
	onTheWay(t, access.Quota{Paths: 2, Waiting: 1}, func(s *site, way *hooked) {
		u, ops := s.user("ci", "s"), s.user("ops", "o")
		ops.takes("busy")
		small, large := u.wants("a"), u.wants("a", "b")
		large.ID, large.Wait = small.ID, lockkeeper.Forever
		way.claim = delayed(time.Second, 0)
		go u.tries(small)
		synctest.Wait()
		if _, err := u.tries(large); err != nil {
			t.Error(err)
		}
		s.counts(1, 0, 1, 2)
		_, err := u.tries(u.wants("c"))
		s.is("a third path", err, lockkeeper.Quota)
		time.Sleep(2 * time.Second)
		s.counts(1, 0, 1, 2)
		u.releases(small.ID)

		way.claim = delayed(time.Second, 0)
		small = u.wants("d")
		go u.tries(small)
		synctest.Wait()
		huge := u.wants("d", "e", "f")
		huge.ID = small.ID
		_, err = u.tries(huge)
		s.is("more than the quota under an id in flight", err, lockkeeper.Quota)
		time.Sleep(2 * time.Second)
		s.counts(1, 0, 1, 1)
	})
}
