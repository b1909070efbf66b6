package keeper_test

import (
	"errors"
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
		if ended(commit) || !errors.Is(commit.Settle(), lockkeeper.ErrUnavailable) {
			t.Error("its commit has ended before it is safe")
		}
		l.sync(-1)
		if !ended(commit) || commit.Settle() != nil {
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
		if !ended(commit) || commit.Settle() != nil {
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
			if !errors.Is(c.Settle(), lockkeeper.ErrUnavailable) {
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
		if !ended(commit) || commit.Settle() != nil {
			t.Error("its commit has not ended")
		}
	})
}
