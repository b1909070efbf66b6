package solo_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/solo"
)

var db = lockkeeper.Want{ID: solo.ClaimID, Targets: []lockkeeper.Target{{Path: "db", Mode: lockkeeper.ModeExclusive}}}

// inBubble runs a test with an engine on fake time, and with two processes' views of one session.
func inBubble(t *testing.T, test func(t *testing.T, e lockkeeper.Engine, a, b *solo.Session)) {
	synctest.Test(t, func(t *testing.T) {
		e := memlock.New()
		defer e.Close()
		view := func() *solo.Session {
			return &solo.Session{Engine: e, ID: "s", Rivals: "others", Cache: solo.NewCache()}
		}
		test(t, e, view(), view())
	})
}

func obtain(t *testing.T, s *solo.Session, want lockkeeper.Want) (o solo.Observation) {
	t.Helper()
	err := s.Do(t.Context(), func(ctx context.Context) (err error) {
		o, _, err = s.Obtain(ctx, time.Minute, want, nil)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func state(t *testing.T, s *solo.Session) lockkeeper.State {
	t.Helper()
	st, err := s.Look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return st.State
}

// TestOlderKeyHasNoEffect: a process that stopped between two exchanges, while another one used the
// session, changes nothing with its key.
func TestOlderKeyHasNoEffect(t *testing.T) {
	inBubble(t, func(t *testing.T, e lockkeeper.Engine, a, b *solo.Session) {
		ctx := t.Context()
		stopped, err := a.Attach(ctx, time.Minute, "", 0)
		if err != nil {
			t.Fatal(err)
		}
		obtain(t, b, db)
		if _, err := a.Claim(ctx, stopped.Key, db); !errors.Is(err, lockkeeper.ErrSession) {
			t.Errorf("claimed: %v", err)
		}
		if err := a.Leave(ctx, stopped.Key); !errors.Is(err, lockkeeper.ErrSession) {
			t.Errorf("left: %v", err)
		}
		if s := state(t, b); s != lockkeeper.Held {
			t.Errorf("the claim is %v", s)
		}
	})
}

// TestRenewByCachedKey: a process renews by its cached key; one without a key, or with an older one,
// attaches.
func TestRenewByCachedKey(t *testing.T) {
	inBubble(t, func(t *testing.T, e lockkeeper.Engine, a, b *solo.Session) {
		epoch := obtain(t, a, db).Key.Epoch
		for i, step := range []struct {
			by       *solo.Session
			attaches bool
		}{{a, false}, {b, true}, {b, false}, {a, true}, {a, false}} {
			o, err := step.by.Renew(t.Context(), time.Minute)
			if err != nil || o.State != lockkeeper.Held || o.TTL != time.Minute {
				t.Fatalf("renewal %d: %+v, %v", i, o, err)
			}
			if o.Key.Epoch != epoch != step.attaches {
				t.Errorf("renewal %d: epoch %d after %d", i, o.Key.Epoch, epoch)
			}
			epoch = o.Key.Epoch
		}
	})
}

// TestRenewOpensNoSession: to renew what has ended leaves no session, so that the next claim of the
// id starts without a past.
func TestRenewOpensNoSession(t *testing.T) {
	inBubble(t, func(t *testing.T, e lockkeeper.Engine, a, b *solo.Session) {
		if o, err := a.Renew(t.Context(), time.Minute); err != nil || !solo.Gone(o.Status) {
			t.Errorf("%+v, %v", o, err)
		}
		if _, err := e.Attach(t.Context(), lockkeeper.Session{ID: "s", TTL: time.Second}, nil); err != nil {
			t.Errorf("there is a session: %v", err)
		}
	})
}

// TestConcurrentReleaseEndsOnce: of many processes that release one claim exactly one ends it.
func TestConcurrentReleaseEndsOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, e lockkeeper.Engine, a, b *solo.Session) {
		obtain(t, a, db)
		var released atomic.Int64
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				s := &solo.Session{Engine: e, ID: "s"}
				err := s.Do(t.Context(), func(ctx context.Context) error {
					st, err := s.Look(ctx)
					if err != nil || solo.Gone(st) {
						return err
					}
					if err = s.Release(ctx, st, 0); err == nil {
						released.Add(1)
					}
					return err
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := released.Load(); n != 1 || state(t, a) == lockkeeper.Held {
			t.Errorf("released %d times; the claim is %v", n, state(t, a))
		}
	})
}

// TestReleaseSparesALaterClaim: Release ends the claim that Look returned, and no claim made since.
func TestReleaseSparesALaterClaim(t *testing.T) {
	inBubble(t, func(t *testing.T, e lockkeeper.Engine, a, b *solo.Session) {
		earlier := obtain(t, a, db).Status
		if err := a.Release(t.Context(), earlier, 0); err != nil {
			t.Fatal(err)
		}
		obtain(t, b, db)
		if err := a.Release(t.Context(), earlier, 0); err != solo.ErrAgain {
			t.Errorf("got %v, want ErrAgain", err)
		}
		if s := state(t, b); s != lockkeeper.Held {
			t.Errorf("the later claim is %v", s)
		}
	})
}

// TestAcknowledgementIsOfOneSession: the leases of a new session with the same id are counted from 1
// again. A process that acknowledged leases of the session before has acknowledged none of these, so
// its holder may not know of an announced end, and the next grant is unconfirmed (R12).
func TestAcknowledgementIsOfOneSession(t *testing.T) {
	inBubble(t, func(t *testing.T, e lockkeeper.Engine, a, b *solo.Session) {
		ctx := t.Context()
		renew := func(s *solo.Session) solo.Observation {
			o, err := s.Renew(ctx, time.Minute)
			if err != nil || o.State != lockkeeper.Held {
				t.Fatalf("renewed: %v, %v", o.State, err)
			}
			return o
		}
		earlier := obtain(t, a, db)
		for range 3 {
			a.Acknowledge(renew(a).Change)
		}
		if err := b.Release(ctx, earlier.Status, 0); err != nil {
			t.Fatal(err)
		}
		obtain(t, b, db)
		renew(b)
		lease, err := e.Attach(ctx, lockkeeper.Session{ID: "next", TTL: time.Hour}, nil)
		if err != nil {
			t.Fatal(err)
		}
		waits := db
		waits.Wait = lockkeeper.Forever
		if _, err := e.Claim(ctx, lease.Key, waits); err != nil {
			t.Fatal(err)
		}
		if err := e.End(ctx, lease.Key, lockkeeper.Ending{Kind: lockkeeper.Revoke, Ref: b.Ref()}); err != nil {
			t.Fatal(err)
		}
		for range 2 { // both announce the end, and neither answer reaches the holder
			time.Sleep(20 * time.Second)
			renew(a)
		}
		time.Sleep(30 * time.Second)
		next, err := solo.Look(ctx, e, lockkeeper.Ref{Session: "next", ID: solo.ClaimID})
		if err != nil || next.State != lockkeeper.Held || !next.Unconfirmed {
			t.Errorf("the next claim is %v, unconfirmed %t, %v; want an unconfirmed hold", next.State, next.Unconfirmed, err)
		}
	})
}

// TestDoGivesUp: a session that is always in use by others is unavailable in the end, and says so.
func TestDoGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, tries := &solo.Session{Rivals: "others"}, 0
		err := s.Do(t.Context(), func(context.Context) error { tries++; return solo.ErrAgain })
		if !errors.Is(err, lockkeeper.ErrUnavailable) || tries != 60 {
			t.Errorf("%d tries: %v", tries, err)
		}
	})
}

// TestCacheIsBounded: a forgotten session costs exchanges, and nothing else.
func TestCacheIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, e lockkeeper.Engine, a, b *solo.Session) {
		obtain(t, a, db)
		for i := range 2 * 8192 {
			other := &solo.Session{Engine: e, ID: fmt.Sprint("o", i), Cache: a.Cache}
			if _, err := other.Open(t.Context(), time.Minute, ""); err != nil {
				t.Fatal(err)
			}
		}
		if a.CachedKey().Epoch != 0 {
			t.Error("the oldest key is still cached")
		}
		if o, err := a.Renew(t.Context(), time.Minute); err != nil || o.State != lockkeeper.Held {
			t.Errorf("%+v, %v", o, err)
		}
	})
}
