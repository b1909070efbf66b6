package sqllock

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/rows"
)

// interrupted is a dialect that has something happen each time that a claim of a session
// has been read.
type interrupted struct {
	dialect
	session string
	happen  *atomic.Pointer[func()]
}

// claims implements dialect.
func (d interrupted) claims(s *search, each func(int, *rows.Claim)) statement {
	return d.dialect.claims(s, func(region int, c *rows.Claim) {
		if c.Ref.Session == d.session {
			if happen := d.happen.Swap(nil); happen != nil {
				(*happen)()
			}
		}
		each(region, c)
	})
}

// A renewal tells a holder that no claim asks for its hold any more, just while another process
// asks again: the lease that it got last counts (R12).
func TestRenewalWhileClaimIsRead(t *testing.T) {
	overKinds(t, func(t *testing.T, k kind) {
		t.Parallel()
		url := k.shared(t).Database(t)
		by := new(atomic.Int64)
		holder := join(t, openShifted(t, url, by), "holder", cutTTL)
		e := openShifted(t, url, by)
		happen := new(atomic.Pointer[func()])
		e.dialect = interrupted{e.dialect, "holder", happen}
		thief, second := join(t, e, "thief", cutTTL), join(t, e, "second", cutTTL)
		renew := func() {
			if _, err := holder.Renew(bounded(t), holder.key); err != nil {
				t.Error(err)
			}
		}

		holder.claim(exclusive(1, 0, "a"), lockkeeper.Held)
		w := exclusive(1, lockkeeper.Forever, "a")
		w.Priority, w.Steal, w.After = 1, lockkeeper.Take, time.Minute
		thief.claim(w, lockkeeper.Waiting)
		renew() // tells the end
		thief.release(1)
		happen.Store(&renew) // tells that there is none
		w.Steal, w.After = lockkeeper.Ask, 0
		second.claim(w, lockkeeper.Waiting)
		by.Add(int64(2 * time.Minute))
		second.end(lockkeeper.Ending{Kind: lockkeeper.Revoke, Ref: lockkeeper.Ref{Session: "holder", ID: 1}, Force: true})
		if st := second.await(1, lockkeeper.Held); !st.Unconfirmed {
			t.Errorf("what the holder was told that it keeps is granted without a word: %+v", st)
		}
	})
}

// A claim that asks for one of two held paths goes on asking when another claim asks for the other
// path.
func TestAsksForTwoPaths(t *testing.T) {
	overKinds(t, func(t *testing.T, k kind) {
		t.Parallel()
		url := k.shared(t).Database(t)
		by := new(atomic.Int64)
		e := openShifted(t, url, by)
		holder, thief, second := join(t, e, "holder", cutTTL), join(t, e, "thief", cutTTL), join(t, openShifted(t, url, by),
			"second", cutTTL)
		holder.claim(exclusive(1, 0, "a", "b"), lockkeeper.Held)
		w := exclusive(1, lockkeeper.Forever, "a")
		w.Priority, w.Steal, w.After = 1, lockkeeper.Take, time.Minute
		thief.claim(w, lockkeeper.Waiting)
		w.Targets[0].Path, w.After = "b", time.Hour
		by.Add(int64(time.Second))
		second.claim(w, lockkeeper.Waiting)
		lease, err := holder.Renew(bounded(t), holder.key)
		if err != nil || len(lease.Claims) != 1 || lease.Claims[0].Left > time.Minute {
			t.Errorf("the holder is told %+v, %v, want an end in less than a minute", lease.Claims, err)
		}
	})
}
