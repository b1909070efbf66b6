package sqlitelock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// observed returns what a watcher of path receives until the test ends. It waits until the
// watcher has received that claim 1 of ann is held.
func observed(t *testing.T, e *Engine, path lockkeeper.Path) <-chan lockkeeper.Status {
	t.Helper()
	seen := make(chan lockkeeper.Status, 100)
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	t.Cleanup(func() { cancel(); <-stopped })
	go func() {
		defer close(stopped)
		for st, err := range e.List(ctx, lockkeeper.Query{Follow: true, Meets: path}) {
			if err != nil {
				t.Error(err)
				return
			}
			seen <- st
		}
	}()
	if st := <-seen; st.State != lockkeeper.Held {
		t.Fatalf("the watcher receives %s first, want held", st.State)
	}
	synctest.Wait()
	return seen
}

// busy keeps the engine in a transaction until the caller closes resume. Then it calls do.
func busy(t *testing.T, e *Engine, do func(tx *transaction)) (resume chan struct{}) {
	resume = make(chan struct{})
	go func() {
		if err := e.call(t.Context(), true, func(tx *transaction) {
			<-resume
			do(tx)
		}); err != nil {
			t.Error(err)
		}
	}()
	synctest.Wait()
	return resume
}

// release releases claim 1 without waiting for the answer.
func release(t *testing.T, e *Engine, k lockkeeper.Key) {
	k.LowestOpen = 2 // so that the table forgets the end at once (R16)
	go func() {
		if err := e.End(t.Context(), k, lockkeeper.Ending{Kind: lockkeeper.Release, ID: 1}); err != nil {
			t.Error(err)
		}
	}()
	synctest.Wait()
}

// reads makes the watchers of e read, as after a change of another claim.
func reads(e *Engine) {
	e.notifyWatchers(&news{anything: true})
	time.Sleep(2 * watchPause)
	synctest.Wait()
}

// wantReleased waits for the next status, which must be a released claim.
func wantReleased(t *testing.T, seen <-chan lockkeeper.Status) {
	t.Helper()
	if st := <-seen; st.State != lockkeeper.Ended || st.Reason != lockkeeper.Released {
		t.Errorf("the watcher receives %s (%s), want ended (released)", st.State, st.Reason)
	}
}

// A watcher that reads in the transaction that ends a claim receives the reason, however early it
// gets its answer.
func TestWatcherGetsReasonsBeforeItsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := inBubble(t, file(t), "boot")
		t.Cleanup(func() { e.Close() })
		proceed := make(chan struct{})
		ann := attach(t, e, "ann", time.Hour, func(all []lockkeeper.Status) {
			if all[0].State == lockkeeper.Ended {
				<-proceed
			}
		})
		claim(t, e, ann, exclusive(1, "db"))
		seen := observed(t, e, "db")
		resume := busy(t, e, func(*transaction) {})
		release(t, e, ann)
		reads(e) // after the release, in the same transaction
		close(resume)
		synctest.Wait() // the engine has answered, and is about to notify ann
		close(proceed)
		wantReleased(t, seen)
	})
}

// A watcher whose read just precedes the end of a claim receives the reason with its next read.
func TestWatcherKeepsReasonsForItsNextRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := inBubble(t, file(t), "boot")
		t.Cleanup(func() { e.Close() })
		ann := attach(t, e, "ann", time.Hour, nil)
		claim(t, e, ann, exclusive(1, "db"))
		seen := observed(t, e, "db")
		resume := busy(t, e, func(*transaction) {})
		reads(e)
		release(t, e, ann) // after the read, in the same transaction
		close(resume)
		wantReleased(t, seen)
	})
}

// A process that has to read all rows again, as after an error of the disk, gives its watchers the
// reasons of the claims that ended meanwhile, and no others.
func TestWatcherGetsReasonsAfterReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := file(t)
		e, other := inBubble(t, path, "boot"), inBubble(t, path, "boot")
		t.Cleanup(func() { e.Close(); other.Close() })
		bob := attach(t, other, "bob", time.Hour, nil)
		claim(t, other, bob, exclusive(1, "db/old"))
		release(t, other, bob)
		snapshot(t, e)
		ann := attach(t, other, "ann", time.Hour, nil)
		claim(t, other, ann, exclusive(1, "db"))
		seen := observed(t, e, "db")
		resume := busy(t, e, func(tx *transaction) { tx.e.cache = nil })
		release(t, other, ann)
		close(resume)
		wantReleased(t, seen)
		reads(e)
		if len(seen) > 0 {
			t.Errorf("the watcher also receives %+v", <-seen)
		}
	})
}

// A claim may have ended long before a process writes its end, as when the computer slept. The row
// stays for a while nevertheless, so that watchers of other processes learn the reason.
func TestLateEndIsKeptForWatchers(t *testing.T) {
	path := file(t)
	clock := &fakeClock{}
	e := openFake(t, path, clock, "boot")
	ann := attachOutliving(t, e, "ann", time.Minute, nil)
	claim(t, e, ann, exclusive(1, "db"))
	rows := func() (n int) {
		if err := e.call(bounded(t), true, func(tx *transaction) {
			all, err := tx.e.db.changedSince(0, true)
			if n = len(all.claims); err != nil {
				t.Error(err)
			}
		}); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, step := range []struct {
		pass time.Duration
		want int
	}{{0, 1}, {time.Hour, 1}, {keepEnded + purgeEvery, 0}} {
		clock.advance(step.pass)
		attach(t, e, "bob", time.Hour, nil) // it writes
		if n := rows(); n != step.want {
			t.Errorf("%d rows of claims after %s more, want %d", n, step.pass, step.want)
		}
	}
}
