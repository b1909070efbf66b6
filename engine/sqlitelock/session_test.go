package sqlitelock

import (
	"context"
	"errors"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/lockkeeper/lockkeeper"
)

// told collects the notifications of a session.
func told() (notify func([]lockkeeper.Status), all <-chan lockkeeper.Status) {
	c := make(chan lockkeeper.Status, 100)
	return func(sts []lockkeeper.Status) {
		for _, st := range sts {
			c <- st
		}
	}, c
}

// next waits for a status that satisfies a condition.
func next(t *testing.T, all <-chan lockkeeper.Status, what string, is func(lockkeeper.Status) bool) lockkeeper.Status {
	t.Helper()
	late := time.After(20 * time.Second)
	for {
		select {
		case st := <-all:
			if is(st) {
				return st
			}
		case <-late:
			t.Fatalf("never told: %s", what)
		}
	}
}

// A session of another process is notified of grants, of asks to yield, and of ends.
func TestWakeup(t *testing.T) {
	path := file(t)
	a, b := openReal(t, path), openReal(t, path)
	notifyA, toldA := told()
	notifyB, toldB := told()
	ka, kb := attach(t, a, "a", time.Minute, notifyA), attach(t, b, "b", time.Minute, notifyB)
	claim(t, a, ka, exclusive(1, "db"))
	thief := exclusive(1, "db")
	thief.Priority, thief.Steal = 1, lockkeeper.Ask
	if st := claim(t, b, kb, thief); st.State != lockkeeper.Waiting {
		t.Errorf("got %+v, want waiting", st)
	}
	st := next(t, toldA, "asked to yield", func(st lockkeeper.Status) bool { return st.Asked != nil })
	if st.Asked.By.Session != "b" {
		t.Errorf("asked by %s, want b", st.Asked.By)
	}
	if err := a.End(bounded(t), ka, lockkeeper.Ending{Kind: lockkeeper.Release, ID: 1}); err != nil {
		t.Fatal(err)
	}
	next(t, toldB, "granted", func(st lockkeeper.Status) bool { return st.State == lockkeeper.Held })
	if err := a.End(bounded(t), ka, lockkeeper.Ending{
		Kind:  lockkeeper.Revoke,
		Ref:   lockkeeper.Ref{Session: "b", ID: 1},
		Force: true,
	}); err != nil {
		t.Fatal(err)
	}
	next(t, toldB, "revoked", func(st lockkeeper.Status) bool {
		return st.State == lockkeeper.Ended && st.Reason == lockkeeper.Revoked
	})
}

// No wakeup arrives, as when a process is killed between its commit and the wakeup: the waiting
// process finds out by itself.
func TestLostWakeup(t *testing.T) {
	path := file(t)
	a, b := openReal(t, path), openReal(t, path)
	notify, all := told()
	ka, kb := attach(t, a, "a", time.Minute, nil), attach(t, b, "b", time.Minute, notify)
	claim(t, a, ka, exclusive(1, "db"))
	claim(t, b, kb, exclusive(1, "db"))
	a.folder.path = t.TempDir() // there it wakes nobody
	if err := a.End(bounded(t), ka, lockkeeper.Ending{Kind: lockkeeper.Release, ID: 1}); err != nil {
		t.Fatal(err)
	}
	next(t, all, "granted", func(st lockkeeper.Status) bool { return st.State == lockkeeper.Held })
}

// A wait that is over is noticed by time alone.
func TestWaitEnds(t *testing.T) {
	path := file(t)
	a, b := openReal(t, path), openReal(t, path)
	notify, all := told()
	ka, kb := attach(t, a, "a", time.Minute, nil), attach(t, b, "b", time.Minute, notify)
	claim(t, a, ka, exclusive(1, "db"))
	w := exclusive(1, "db")
	w.Wait = 50 * time.Millisecond
	claim(t, b, kb, w)
	st := next(t, all, "timed out", func(st lockkeeper.Status) bool { return st.Reason == lockkeeper.TimedOut })
	if len(st.Blockers) != 1 || st.Blockers[0].Ref.Session != "a" {
		t.Errorf("it does not say that a has it: %+v", st)
	}
}

// Another process may end a wait that is over: the waiter is still notified of its blockers.
func TestWaitEndsElsewhere(t *testing.T) {
	path := file(t)
	clock := &fakeClock{}
	a, b := openFake(t, path, clock, "boot"), openFake(t, path, clock, "boot")
	notify, all := told()
	ka, kb := attach(t, a, "a", time.Hour, nil), attach(t, b, "b", time.Hour, notify)
	claim(t, a, ka, exclusive(1, "db"))
	w := exclusive(1, "db")
	w.Wait = time.Minute
	claim(t, b, kb, w)
	clock.advance(time.Minute)
	snapshot(t, a) // b would not look for two seconds
	st := next(t, all, "timed out", func(st lockkeeper.Status) bool { return st.Reason == lockkeeper.TimedOut })
	if len(st.Blockers) != 1 || st.Blockers[0].Ref.Session != "a" {
		t.Errorf("it does not say that a has it: %+v", st)
	}
}

// A process whose session another one takes over gets no more notifications of it, and the death of
// that process does not end the session.
func TestTakenOver(t *testing.T) {
	path := file(t)
	a, b := openReal(t, path), openReal(t, path)
	ka := attach(t, a, "s", time.Minute, nil)
	claim(t, a, ka, exclusive(1, "db"))
	if _, err := b.Attach(bounded(t), lockkeeper.Session{
		ID:    "s",
		TTL:   time.Minute,
		Named: []uint64{1},
	}, nil); !errors.Is(err, lockkeeper.ErrSession) {
		t.Errorf("got %v, want ErrSession for who does not know the epoch", err)
	}
	if b.SessionFile("s") != nil || a.SessionFile("s") == nil {
		t.Error("a refused attach has changed whose session it is")
	}
	lease, err := takeOver(bounded(t), b, lockkeeper.Session{ID: "s", TTL: time.Minute, Named: []uint64{1}}, nil)
	if err != nil || len(lease.Claims) != 1 {
		t.Fatalf("taken over with %+v (%v)", lease, err)
	}
	if _, err := a.Renew(bounded(t), ka); !errors.Is(err, lockkeeper.ErrSession) {
		t.Errorf("got %v, want ErrSession", err)
	}
	if a.SessionFile("s") != nil {
		t.Error("the first process still has a file for it")
	}
	a.Close()
	openReal(t, path) // would end the session if it were dead
	if _, err := b.Renew(bounded(t), lease.Key); err != nil {
		t.Errorf("after the end of the first process: %v", err)
	}
}

// A session that is left takes its file with it; one that is not lives on.
func TestSessionFiles(t *testing.T) {
	path := file(t)
	e := openReal(t, path)
	files := func() int {
		entries, err := os.ReadDir(path + "-sessions")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	attach(t, e, "a", time.Minute, nil)
	first := e.SessionFile("a")
	attach(t, e, "b", time.Minute, nil)
	if n := files(); n != 2 || first == nil {
		t.Fatalf("%d files for two sessions", n)
	}
	k := attach(t, e, "a", time.Minute, nil)
	if e.SessionFile("a") != first {
		t.Error("attached again it has another file: children have only the first")
	}
	if err := e.End(bounded(t), k, lockkeeper.Ending{Kind: lockkeeper.Leave}); err != nil {
		t.Fatal(err)
	}
	if n := files(); n != 1 || e.SessionFile("a") != nil {
		t.Errorf("%d files after one session was left, want 1", n)
	}
	e.Close()
	other := openReal(t, path)
	if sessions := snapshot(t, other).Sessions; len(sessions) != 1 || sessions[0].ID != "b" {
		t.Errorf("sessions %+v, want b, which was not left and has its TTL ahead", sessions)
	}
}

// A session whose time has passed begins again with a file of its own, which is there and locked.
func TestSessionThatBeginsAgainHasANewFile(t *testing.T) {
	path := file(t)
	clock := &fakeClock{}
	e, other := openFake(t, path, clock, "boot"), openFake(t, path, clock, "boot")
	attach(t, e, "a", time.Minute, nil)
	first := e.SessionFile("a")
	clock.advance(2 * time.Minute)
	claim(t, e, attach(t, e, "a", time.Minute, nil), exclusive(1, "db"))
	again := e.SessionFile("a")
	if again == nil || again == first {
		t.Fatalf("its file is %v, as before: %v", again, again == first)
	}
	if _, err := again.Stat(); err != nil {
		t.Errorf("a child can't have it: %v", err)
	}
	var state fileState
	if err := other.call(bounded(t), true, func(tx *transaction) {
		state = other.folder.state(other.cache.sessions["a"].file)
	}); err != nil {
		t.Fatal(err)
	}
	if kernelKnows && state != fileLocked {
		t.Errorf("to others its file is in state %d, want that it is locked", state)
	}
}

// A session that was promised a long time, and then attached for a short one, lives
// on for the long one when its engine is closed (R11).
func TestSessionFileKept(t *testing.T) {
	path := file(t)
	e := openReal(t, path)
	attach(t, e, "a", time.Hour, nil)
	attach(t, e, "a", lockkeeper.MinTTL, nil)
	e.Close()
	<-time.After(lockkeeper.MinTTL * 5 / 4)
	if sessions := snapshot(t, openReal(t, path)).Sessions; len(sessions) != 1 {
		t.Errorf("%d sessions after the short time, want 1", len(sessions))
	}
}

// Sessions that outlive their process have no file, and are woken by the
// database's log.
func TestOutlive(t *testing.T) {
	path := file(t)
	a := openReal(t, path)
	k := attachOutliving(t, a, "grab", time.Minute, nil)
	claim(t, a, k, exclusive(1, "db"))
	if a.SessionFile("grab") != nil {
		t.Error("it has a file")
	}
	a.Close()
	b := openReal(t, path)
	// The next program goes on with the same key, or attaches again.
	if _, err := b.Renew(bounded(t), k); err != nil {
		t.Fatal(err)
	}
	notify, all := told()
	w := attachOutliving(t, b, "waiter", time.Minute, notify)
	claim(t, b, w, exclusive(1, "db"))
	// The engine watches the log once the transaction of the claim has ended, and this call may be in
	// that transaction.
	var pause time.Duration
	log, bound := false, bounded(t)
	for !log && bound.Err() == nil {
		if err := b.call(bounded(t), true, func(*transaction) { pause, log = b.pause(), b.files.log }); err != nil {
			t.Fatal(err)
		}
	}
	if !log || pause <= pollUnwatched {
		t.Errorf("while it waits it looks every %s, and watches the log: %v; want to be woken", pause, log)
	}
	c := openReal(t, path)
	if err := c.End(bounded(t), k, lockkeeper.Ending{Kind: lockkeeper.Release, ID: 1}); err != nil {
		t.Fatal(err)
	}
	next(t, all, "granted", func(st lockkeeper.Status) bool { return st.State == lockkeeper.Held })
}

// A process that is woken by the database's log may read before the change is visible. So it reads
// again soon, and not only at its next poll.
func TestLooksAgain(t *testing.T) {
	path := file(t)
	a := openReal(t, path)
	k := attachOutliving(t, a, "holder", time.Minute, nil)
	claim(t, a, k, exclusive(1, "db"))
	w := attachOutliving(t, a, "waiter", time.Minute, nil)
	claim(t, a, w, exclusive(1, "db"))
	// The engine's goroutine begins to watch the log after the transaction of the claim, and this
	// call may be in that transaction.
	var log *fsnotify.Watcher
	ask := func() (again, pause time.Duration) {
		if err := a.call(bounded(t), true, func(*transaction) {
			log, again, pause = a.files.watcher, a.again,
				a.pause()
		}); err != nil {
			t.Fatal(err)
		}
		return again, pause
	}
	for again, _ := ask(); again > 0 || log == nil; again, _ = ask() {
		<-time.After(50 * time.Millisecond) // what the claims wrote
	}
	log.Events <- fsnotify.Event{Name: path + "-wal", Op: fsnotify.Write}
	if again, pause := ask(); again == 0 || pause > again {
		t.Errorf("after the log was written to it looks again after %s, and then after %s; want soon", pause, again)
	}
}

// A session that had a process may be made one that needs none, and back.
func TestOutliveChanges(t *testing.T) {
	path := file(t)
	a := openReal(t, path)
	attach(t, a, "s", time.Minute, nil)
	named := lockkeeper.Session{ID: "s", TTL: time.Minute, Outlive: true}
	for _, outlive := range []bool{true, false, true} {
		named.Outlive = outlive
		lease, err := takeOver(bounded(t), a, named, nil)
		if err != nil {
			t.Fatal(err)
		}
		named.Named = []uint64{1}
		claim(t, a, lease.Key, exclusive(1, "db"))
		if has := a.SessionFile("s") != nil; has == outlive {
			t.Errorf("outlive %v: a file: %v", outlive, has)
		}
	}
	entries, err := os.ReadDir(path + "-sessions")
	if err != nil || len(entries) != 0 {
		t.Errorf("files %v (%v), want none left", entries, err)
	}
	a.Close()
	if snap := snapshot(t, openReal(t, path)); len(snap.Sessions) != 1 || len(snap.Claims) != 1 {
		t.Errorf("after its process ended: %+v, want its session and its claim", snap)
	}
}

// A watcher in another process receives the last state of every claim.
func TestWatchAcrossProcesses(t *testing.T) {
	path := file(t)
	a, b := openReal(t, path), openReal(t, path)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	seen := make(chan lockkeeper.Status, 100)
	go func() {
		for st, err := range b.List(ctx, lockkeeper.Query{Meets: "db", Follow: true}) {
			if err != nil {
				t.Error(err)
				return
			}
			seen <- st
		}
	}()
	k := attach(t, a, "a", time.Minute, nil)
	claim(t, a, k, exclusive(1, "db/x"))
	next(t, seen, "held", func(st lockkeeper.Status) bool { return st.State == lockkeeper.Held })
	w := attach(t, a, "w", time.Minute, nil)
	claim(t, a, w, exclusive(1, "db"))
	next(t, seen, "waiting", func(st lockkeeper.Status) bool { return st.State == lockkeeper.Waiting && st.Position == 1 })
	claim(t, a, k, exclusive(2, "elsewhere"))
	// The session ends with all its claims, and the watcher receives their ends all the same.
	if err := a.End(bounded(t), k, lockkeeper.Ending{Kind: lockkeeper.Leave}); err != nil {
		t.Fatal(err)
	}
	var released, granted bool
	for !released || !granted {
		st := next(t, seen, "released and granted", func(st lockkeeper.Status) bool { return true })
		released = released || st.Ref.Session == "a" && st.State == lockkeeper.Ended && st.Reason == lockkeeper.Released
		granted = granted || st.Ref.Session == "w" && st.State == lockkeeper.Held
	}
	freeze := lockkeeper.Want{
		ID:      2,
		Freeze:  time.Minute,
		Targets: []lockkeeper.Target{{Path: "db", Mode: lockkeeper.ModeExclusive}},
	}
	claim(t, a, w, freeze)
	next(t, seen, "frozen", func(st lockkeeper.Status) bool { return st.State == lockkeeper.Freezing })
	if err := a.End(bounded(t), w, lockkeeper.Ending{Kind: lockkeeper.Thaw, Path: "db"}); err != nil {
		t.Fatal(err)
	}
	next(t, seen, "thawed", func(st lockkeeper.Status) bool {
		return st.State == lockkeeper.Ended && st.Ref == lockkeeper.Ref{Session: "w", ID: 2}
	})
}

// A session that begins again under its old id has none of its old claims, for a
// process that reads all rows as for one that follows them.
func TestSessionBeginsAgain(t *testing.T) {
	path := file(t)
	first, follows := openReal(t, path), openReal(t, path)
	k := attach(t, first, "s", time.Minute, nil)
	claim(t, first, k, exclusive(1, "db"))
	claim(t, first, k, exclusive(2, "site"))
	snapshot(t, follows)
	for _, ending := range []lockkeeper.Ending{{Kind: lockkeeper.Release, ID: 1}, {Kind: lockkeeper.Leave}} {
		if err := first.End(bounded(t), k, ending); err != nil {
			t.Fatal(err)
		}
	}
	k = attach(t, first, "s", time.Minute, nil)
	want := snapshot(t, first)
	compare(t, "a process that follows", snapshot(t, follows), want)
	later := openReal(t, path)
	compare(t, "a process that reads all rows", snapshot(t, later), want)
	if st := claim(t, later, k, exclusive(1, "db")); st.State != lockkeeper.Held || st.Fence != 3 {
		t.Errorf("claim 1 of the new session: %s with fence %d, want held with fence 3", st.State, st.Fence)
	}
}

// A caller that asks after a change was committed elsewhere sees the change, even if this process
// is just answering other callers from older rows.
func TestReadsAreNotStale(t *testing.T) {
	path := file(t)
	clock := &fakeClock{}
	var armed atomic.Bool
	var e *Engine
	other := openFake(t, path, clock, "boot")
	k := attach(t, other, "other", time.Minute, nil)
	seen := make(chan int, 1)
	e, err := open(bounded(t), path, options{}, func() (time.Duration, error) {
		if armed.CompareAndSwap(true, false) { // e's transaction has begun, and takes no jobs yet
			claim(t, other, k, exclusive(1, "db"))
			go func() {
				all, err := e.list(bounded(t), lockkeeper.Query{})
				if err != nil {
					t.Error(err)
				}
				seen <- len(all)
			}()
			for latest := e.queue.Last(); e.queue.Last() == latest; {
				runtime.Gosched()
			}
		}
		return clock.read()
	}, "boot")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	armed.Store(true)
	if _, err := e.list(bounded(t), lockkeeper.Query{}); err != nil {
		t.Fatal(err)
	}
	if n := <-seen; n != 1 {
		t.Errorf("who asked after the claim sees %d claims, want 1", n)
	}
}
