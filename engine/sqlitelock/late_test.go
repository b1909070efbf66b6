package sqlitelock

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// A transaction that pauses after it has read the clock, as when the disk hangs, takes calls that
// arrive meanwhile. Their clients count leases from the moment they sent the calls, so a lease must
// not end earlier at the engine (R12).
func TestStallBeforeJobs(t *testing.T) {
	clock := &fakeClock{}
	var stalls atomic.Pointer[func()]
	read := func() (time.Duration, error) {
		now, err := clock.read()
		if stall := stalls.Swap(nil); stall != nil {
			(*stall)()
		}
		return now, err
	}
	e, err := open(bounded(t), file(t), options{}, read, "boot")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	k := attach(t, e, "a", time.Minute, nil)
	attach(t, e, "b", 5*time.Second, nil)

	var sent time.Duration
	var reply table.Reply
	var refused error
	renewed := make(chan error, 1)
	stall := func() {
		clock.advance(10 * time.Second)
		sent, _ = clock.read()
		before := e.queue.Last()
		go func() {
			renewed <- e.call(bounded(t), false, func(tx *transaction) {
				reply, refused = tx.step(table.Command{Op: table.Renew, Key: k})
			})
		}()
		for e.queue.Last() == before {
			runtime.Gosched()
		}
	}
	stalls.Store(&stall)
	claim(t, e, k, exclusive(1, "db")) // its transaction stalls
	if err := <-renewed; err != nil || refused != nil {
		t.Fatal(err, refused)
	}
	sessions := snapshot(t, e).Sessions
	if len(sessions) != 1 {
		t.Fatalf("%d sessions, want that the short one has ended meanwhile", len(sessions))
	}
	if promised := sent + reply.Lease.TTL; sessions[0].Deadline < promised {
		t.Errorf("the session ends at %s, and %s was promised", sessions[0].Deadline, promised)
	}
}

// The engine notifies a holder when its longest hold is over, and again when its grace is, also if
// no other claim waits and the holder makes no call.
func TestLoneHolderIsNotifiedOfItsLongestHold(t *testing.T) {
	e := openReal(t, file(t))
	notify, all := told()
	k := attach(t, e, "a", time.Hour, notify)
	w := exclusive(1, "db")
	w.MaxHold, w.Grace = 50*time.Millisecond, 50*time.Millisecond
	claim(t, e, k, w)
	next(t, all, "asked", func(st lockkeeper.Status) bool {
		return st.State == lockkeeper.Held && st.Asked != nil && st.Asked.Reason == lockkeeper.Overdue
	})
	next(t, all, "overdue", func(st lockkeeper.Status) bool {
		return st.State == lockkeeper.Ended && st.Reason == lockkeeper.Overdue
	})
	var pause time.Duration
	if err := e.call(bounded(t), true, func(*transaction) { pause = e.pause() }); err != nil {
		t.Fatal(err)
	}
	if pause < time.Minute {
		t.Errorf("after that it looks every %s, want that it rests", pause)
	}
}

// If a reading fails that a write to a session file has caused, nobody causes another one. So the engine of a
// lone holder tries again soon.
func TestLoneHolderReadsAgainAfterFailure(t *testing.T) {
	e := openReal(t, file(t))
	k := attach(t, e, "a", time.Hour, nil)
	claim(t, e, k, exclusive(1, "db"))
	var rests, failed time.Duration
	if err := e.call(bounded(t), true, func(*transaction) {
		e.files.watchNow()
		cache := e.cache
		rests, e.cache = e.pause(), nil
		failed, e.cache = e.pause(), cache
	}); err != nil {
		t.Fatal(err)
	}
	if rests < time.Minute || failed > pollUnwatched {
		t.Errorf("it looks every %s, and again after %s if that has failed", rests, failed)
	}
}
