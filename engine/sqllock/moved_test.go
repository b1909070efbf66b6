package sqllock

import (
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// A waiting session has moved to another process. The process that it left grants its claim, and
// wakes the other one.
func TestGrantByTheProcessThatWasLeft(t *testing.T) {
	overKinds(t, func(t *testing.T, k kind) {
		t.Parallel()
		url := k.shared(t).Database(t)
		a, b := openEngine(t, url), openEngine(t, url)
		holder, left := join(t, a, "holder", cutTTL), join(t, a, "mover", cutTTL)
		holder.claim(exclusive(1, 0, "a"), lockkeeper.Held)
		left.claim(exclusive(1, lockkeeper.Forever, "a"), lockkeeper.Waiting)
		moved := &member{Engine: b, t: t, told: make(map[uint64][]lockkeeper.Status), more: make(chan struct{}, 1)}
		lease, err := b.Attach(bounded(t), lockkeeper.Session{
			ID:    "mover",
			TTL:   cutTTL,
			Named: []uint64{1},
			Epoch: left.key.Epoch,
		}, moved.hear)
		if err != nil {
			t.Fatal(err)
		}
		moved.key = lease.Key
		holder.release(1)
		moved.await(1, lockkeeper.Held)
	})
}

// A caller with a session's key can claim for it. The process that the session is
// attached to learns of the claim, and ends its wait when its bound is reached.
func TestClaimByAnotherProcess(t *testing.T) {
	overKinds(t, func(t *testing.T, k kind) {
		t.Parallel()
		url := k.shared(t).Database(t)
		a, b := openEngine(t, url), openEngine(t, url)
		holder, waiter := join(t, b, "holder", cutTTL), join(t, a, "waiter", cutTTL)
		waiter.claim(exclusive(1, 0, "other"), lockkeeper.Held) // a process without claims does not listen
		holder.claim(exclusive(1, 0, "a"), lockkeeper.Held)
		if st, err := b.Claim(bounded(t), waiter.key, exclusive(2, 100*time.Millisecond, "a")); err != nil ||
			st.State != lockkeeper.Waiting {
			t.Fatalf("a claim by another process: %v %v", st, err)
		}
		if st := waiter.await(2, lockkeeper.Ended); st.Reason != lockkeeper.TimedOut {
			t.Errorf("the wait ended as %v, want %v", st.Reason, lockkeeper.TimedOut)
		}
	})
}
