package keeper_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// begun returns a keeper with the session ann attached, all of it safe.
func begun(t *testing.T) (*slowLog, lockkeeper.GroupCommitter, lockkeeper.Key) {
	l := newSlowLog()
	k := logged(t, l)
	go k.Attach(t.Context(), lockkeeper.Session{ID: "ann", TTL: time.Minute}, nil)
	synctest.Wait()
	l.sync(-1)
	synctest.Wait()
	return l, k, lockkeeper.Key{Session: "ann", Epoch: 1}
}

// ended reports whether a commit has ended.
func ended(c lockkeeper.Commit) bool {
	select {
	case <-c.Done():
		return true
	default:
		return false
	}
}

// A claim that is begun is decided at once, and its commit ends when it is safe.
func TestBegunClaimEndsWhenSafe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, k, key := begun(t)
		st, commit, err := k.BeginClaim(t.Context(), key, want(1, "db"))
		if err != nil || st.State != lockkeeper.Held || commit == nil {
			t.Fatalf("%v, %v, %v", st.State, commit, err)
		}
		if ended(commit) || !errors.Is(commit.Finish(), lockkeeper.ErrUnavailable) {
			t.Error("its commit has ended before it is safe")
		}
		l.sync(-1)
		if !ended(commit) || commit.Finish() != nil {
			t.Error("its commit has not ended")
		}
	})
}

// A refusal that relies on entries that are not safe waits for them; one that relies on none does
// not wait.
func TestBegunRefusalWaitsForWhatItReliesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, k, key := begun(t)
		old := lockkeeper.Key{Session: "ann", Epoch: 9}
		if _, commit, err := k.BeginClaim(t.Context(), old, want(1, "db")); commit != nil ||
			!errors.Is(err, lockkeeper.ErrSession) {
			t.Errorf("all is safe, and it answers %v, %v", commit, err)
		}
		leave := lockkeeper.Ending{Kind: lockkeeper.Leave}
		if commit, err := k.BeginEnd(t.Context(), key, leave); commit != nil || err != nil {
			t.Errorf("leaving answers %v, %v", commit, err)
		}
		_, commit, err := k.BeginClaim(t.Context(), key, want(1, "db"))
		if commit == nil || !errors.Is(err, lockkeeper.ErrSession) {
			t.Fatalf("it relies on the end of the session, and answers %v, %v", commit, err)
		}
		l.sync(-1)
		if !ended(commit) || commit.Finish() != nil {
			t.Error("its commit has not ended")
		}
	})
}

// A renewal waits only if its lease shows what is not safe, and a lapse waits in any case.
func TestBegunRenewalAndLapse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, k, key := begun(t)
		if _, commit, err := k.BeginRenew(t.Context(), key); commit != nil || err != nil {
			t.Errorf("all is safe, and a renewal answers %v, %v", commit, err)
		}
		if _, _, err := k.BeginClaim(t.Context(), key, want(1, "db")); err != nil {
			t.Fatal(err)
		}
		lease, commit, err := k.BeginRenew(t.Context(), key)
		if commit == nil || ended(commit) || err != nil || len(lease.Claims) != 1 {
			t.Errorf("the lease shows a claim that is not safe: %v, %v, %v", lease, commit, err)
		}
		lapse := lockkeeper.Ending{Kind: lockkeeper.Lapsed, Lapse: lockkeeper.Lapse{ID: 1, Reason: lockkeeper.Expired,
			EndsAt: lease.EndsAt}}
		lapsed, err := k.BeginEnd(t.Context(), key, lapse)
		if lapsed == nil || ended(lapsed) || err != nil {
			t.Errorf("a lapse answers %v, %v", lapsed, err)
		}
		l.fail(&lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: "the disk is gone"})
		for _, c := range []lockkeeper.Commit{commit, lapsed} {
			if !errors.Is(c.Finish(), lockkeeper.ErrUnavailable) {
				t.Error("a commit that failed is settled as safe")
			}
		}
	})
}

// Leaving returns the claim's last status. It waits only for an end that is not safe.
func TestBegunLeaveReturnsLastStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, k, key := begun(t)
		if _, _, err := k.BeginClaim(t.Context(), key, want(1, "db")); err != nil {
			t.Fatal(err)
		}
		stale := lockkeeper.Key{Session: "ann", Epoch: 9}
		if _, commit, err := k.BeginLeave(t.Context(), stale, 1); commit != nil || !errors.Is(err, lockkeeper.ErrSession) {
			t.Errorf("leaving by a stale key is answered by %v, %v", commit, err)
		}
		st, commit, err := k.BeginLeave(t.Context(), key, 1)
		if st.State != lockkeeper.Held || commit != nil || err != nil {
			t.Errorf("leaving with a hold is answered by %v, %v, %v", st.State, commit, err)
		}
		l.sync(-1)
		go k.(lockkeeper.Engine).Attach(t.Context(), lockkeeper.Session{ID: "bob", TTL: time.Minute}, nil)
		synctest.Wait()
		l.sync(-1)
		synctest.Wait()
		bob := lockkeeper.Key{Session: "bob", Epoch: 2}
		conflicting := want(2, "db")
		conflicting.Wait = 0
		for _, w := range []lockkeeper.Want{want(1, "db"), conflicting} {
			if _, _, err := k.BeginClaim(t.Context(), bob, w); err != nil {
				t.Fatal(err)
			}
		}
		st, commit, err = k.BeginLeave(t.Context(), bob, 2)
		if st.State != lockkeeper.Ended || commit == nil || ended(commit) || err != nil {
			t.Fatalf("leaving with an end that is not safe is answered by %v, %v, %v", st.State, commit, err)
		}
		l.sync(-1)
		if !ended(commit) || commit.Finish() != nil {
			t.Error("its commit has not ended")
		}
	})
}

// A session opens with its claim: nobody learns of either before both are safe, and what is safe
// shows both.
func TestBegunOpenIsSafeAsAWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, k, _ := begun(t)
		lease, commit, err := k.BeginOpen(t.Context(), lockkeeper.Session{ID: "bob", TTL: time.Minute}, want(1, "db"), nil)
		if err != nil || commit == nil || len(lease.Claims) != 1 || lease.Claims[0].State != lockkeeper.Held {
			t.Fatalf("%+v, %v, %v", lease, commit, err)
		}
		l.sync(1)
		if ended(commit) {
			t.Error("its commit has ended before the claim is safe")
		}
		l.sync(-1)
		if !ended(commit) || commit.Finish() != nil {
			t.Error("its commit has not ended")
		}
		if st, found := l.safe.Status(lockkeeper.Ref{Session: "bob", ID: 1}); !found || st.Fence != lease.Claims[0].Fence {
			t.Errorf("safe is %+v", st)
		}
		if again, _, err := k.BeginRenew(t.Context(), lease.Key); err != nil || again.Number != lease.Number+1 {
			t.Errorf("the lease after number %d: %+v, %v", lease.Number, again, err)
		}
	})
}

// A session that is open does not open again: the refusal names its epoch, and waits for what it
// relies on.
func TestBegunOpenOfAnOpenSessionChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, k, key := begun(t)
		for _, epoch := range []uint64{0, key.Epoch} {
			s := lockkeeper.Session{ID: "ann", TTL: time.Hour, Epoch: epoch}
			_, commit, err := k.BeginOpen(t.Context(), s, want(1, "db"), nil)
			var e *lockkeeper.Error
			if !errors.As(err, &e) || e.Err != lockkeeper.ErrSession || e.Epoch != key.Epoch || commit != nil {
				t.Errorf("with epoch %d it answers %v, %v", epoch, commit, err)
			}
		}
		if lease, _, err := k.BeginRenew(t.Context(), key); err != nil || len(lease.Claims) > 0 || lease.TTL != time.Minute {
			t.Errorf("the session is changed: %+v, %v", lease, err)
		}
		l.sync(-1)
	})
}

// A claim that the table refuses takes its session with it, also in the log.
func TestBegunOpenLeavesNoSessionWithoutItsClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, k, _ := begun(t)
		for n := 0; ; n++ { // until there are too many freezes
			name, freeze := fmt.Sprint("s", n), lockkeeper.Want{ID: 1, Freeze: time.Minute}
			for i := range lockkeeper.MaxTargets {
				target := lockkeeper.Target{Path: lockkeeper.Path(fmt.Sprint(n, "/", i)), Mode: lockkeeper.ModeExclusive}
				freeze.Targets = append(freeze.Targets, target)
			}
			s := lockkeeper.Session{ID: name, TTL: time.Hour}
			lease, commit, err := k.BeginOpen(t.Context(), s, freeze, nil)
			if err == nil {
				continue
			}
			if commit == nil || len(lease.Claims) > 0 {
				t.Fatalf("the refusal %v has the commit %v and the lease %+v", err, commit, lease)
			}
			l.sync(-1)
			if err := commit.Finish(); err != nil {
				t.Error(err)
			}
			if l.safe.Open(name) {
				t.Errorf("session %s is open", name)
			}
			return
		}
	})
}
