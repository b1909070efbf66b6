package sqlitelock

import (
	"context"
	"database/sql"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// takeOver attaches a session, also if another process has it.
func takeOver(ctx context.Context, e *Engine, s lockkeeper.Session, notify func([]lockkeeper.Status)) (lockkeeper.Lease,
	error) {
	lease, err := e.Attach(ctx, s, notify)
	var told *lockkeeper.Error
	if errors.As(err, &told) && told.Epoch != 0 {
		s.Epoch = told.Epoch
		lease, err = e.Attach(ctx, s, notify)
	}
	return lease, err
}

// attach opens a session at an engine, or takes it over.
func attach(t *testing.T, e *Engine, id string, ttl time.Duration, notify func([]lockkeeper.Status)) lockkeeper.Key {
	t.Helper()
	lease, err := takeOver(bounded(t), e, lockkeeper.Session{ID: id, TTL: ttl}, notify)
	if err != nil {
		t.Fatal(err)
	}
	return lease.Key
}

// attachOutliving attaches a session that lives by its TTL alone.
func attachOutliving(t *testing.T, e *Engine, id string, ttl time.Duration,
	notify func([]lockkeeper.Status)) lockkeeper.Key {
	t.Helper()
	lease, err := takeOver(bounded(t), e, lockkeeper.Session{ID: id, TTL: ttl, Outlive: true}, notify)
	if err != nil {
		t.Fatal(err)
	}
	return lease.Key
}

func exclusive(id uint64, path lockkeeper.Path) lockkeeper.Want {
	return lockkeeper.Want{
		ID:      id,
		Wait:    lockkeeper.Forever,
		Targets: []lockkeeper.Target{{Path: path, Mode: lockkeeper.ModeExclusive}},
	}
}

func claim(t *testing.T, e *Engine, k lockkeeper.Key, w lockkeeper.Want) lockkeeper.Status {
	t.Helper()
	st, err := e.Claim(bounded(t), k, w)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

var errDisk = errors.New("the disk is on fire")

// A call whose commit fails is never answered as done. If the commit did not happen, nothing has
// changed; if it did, a repetition of the call returns its result.
func TestCommitFails(t *testing.T) {
	for _, done := range []bool{false, true} {
		path := file(t)
		e := openReal(t, path)
		k := attach(t, e, "a", time.Minute, nil)
		claim(t, e, k, exclusive(1, "before"))
		var failing atomic.Bool
		err := e.call(bounded(t), false, func(tx *transaction) {
			tx.after = append(tx.after, func() {
				e.db.commitFault = func(commit func() error) error {
					if !failing.Load() {
						return commit()
					}
					if done {
						commit()
					}
					return errDisk
				}
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		failing.Store(true)
		_, err = e.Claim(bounded(t), k, exclusive(2, "db"))
		if !errors.Is(err, lockkeeper.ErrUnavailable) || !errors.Is(err, errDisk) {
			t.Fatalf("got %v, want ErrUnavailable and the cause", err)
		}
		if _, err := e.Renew(bounded(t), k); !errors.Is(err, lockkeeper.ErrUnavailable) {
			t.Errorf("a renewal: got %v, want ErrUnavailable", err)
		}
		failing.Store(false)
		claims := len(snapshot(t, e).Claims)
		if want := map[bool]int{false: 1, true: 2}[done]; claims != want {
			t.Errorf("commit done %t: %d claims, want %d", done, claims, want)
		}
		compare(t, "after the failure", snapshot(t, openReal(t, path)), snapshot(t, e))
		if st := claim(t, e, k, exclusive(2, "db")); st.State != lockkeeper.Held || st.Fence != 2 {
			t.Errorf("commit done %t: repeated: %s with fence %d, want held with fence 2", done, st.State, st.Fence)
		}
	}
}

// An attach with an unknown outcome keeps the session's file, so that no process takes the session
// for dead.
func TestAttachUncertain(t *testing.T) {
	path := file(t)
	e := openReal(t, path)
	k := attach(t, e, "a", time.Minute, nil)
	before := e.SessionFile("a")
	err := e.call(bounded(t), false, func(tx *transaction) {
		tx.after = append(tx.after, func() {
			e.db.commitFault = func(commit func() error) error { commit(); return errDisk }
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	again := lockkeeper.Session{ID: "a", TTL: time.Minute, Epoch: k.Epoch}
	if _, err := e.Attach(bounded(t), again, nil); !errors.Is(err, lockkeeper.ErrUnavailable) {
		t.Fatalf("got %v, want ErrUnavailable", err)
	}
	snapshot(t, openReal(t, path)) // would end the session if it were dead
	other := openReal(t, path)
	if sessions := snapshot(t, other).Sessions; len(sessions) != 1 {
		t.Errorf("%d sessions, want 1", len(sessions))
	}
	// reads what became of it
	if err := e.call(bounded(t), true, func(*transaction) { e.db.commitFault = nil }); err != nil {
		t.Fatal(err)
	}
	if now := e.SessionFile("a"); now == nil || now != before {
		t.Error("the session's file is not the same: a child that has it counts for nothing")
	}
	// It had happened: its repetition is refused, and told what to follow.
	_, err = e.Attach(bounded(t), again, nil)
	var told *lockkeeper.Error
	if !errors.As(err, &told) || told.Err != lockkeeper.ErrSession || told.Epoch != k.Epoch+1 {
		t.Errorf("repeated: got %v, want ErrSession with epoch %d", err, k.Epoch+1)
	}
	if _, err := takeOver(bounded(t), e, again, nil); err != nil {
		t.Error(err)
	}
	if now := e.SessionFile("a"); now == nil || now != before {
		t.Error("the session's file is not the same after a refused attach and a good one")
	}
}

// A caller that gives up before its call starts gets an answer at once, and the call has no effect.
func TestGiveUpInQueue(t *testing.T) {
	path := file(t)
	e, blocker := openReal(t, path), openReal(t, path)
	k := attach(t, e, "a", time.Minute, nil)
	inside, leave := make(chan struct{}), make(chan struct{})
	go blocker.call(context.Background(), false, func(*transaction) { close(inside); <-leave })
	<-inside // from now on nobody else can write
	ctx, cancel := context.WithCancel(context.Background())
	answer := make(chan error)
	go func() {
		_, err := e.Claim(ctx, k, exclusive(1, "db"))
		answer <- err
	}()
	for queued := false; !queued; queued, _ = e.queue.waiting() {
		runtime.Gosched()
	}
	cancel()
	err := <-answer
	if !errors.Is(err, lockkeeper.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want ErrUnavailable and the context's error", err)
	}
	close(leave)
	if claims := snapshot(t, e).Claims; len(claims) != 0 {
		t.Errorf("the claim was made all the same: %+v", claims)
	}
}

func TestClosedEngine(t *testing.T) {
	e := openReal(t, file(t))
	k := attach(t, e, "a", time.Minute, nil)
	followed := make(chan error, 1)
	began := make(chan struct{})
	go func() {
		var last error
		for st, err := range e.List(context.Background(), lockkeeper.Query{Follow: true}) {
			if last = err; st.State == lockkeeper.Held {
				close(began)
			}
		}
		followed <- last
	}()
	claim(t, e, k, exclusive(1, "db"))
	<-began
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Errorf("closing twice: %v", err)
	}
	if _, err := e.Renew(bounded(t), k); !errors.Is(err, lockkeeper.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
	if err := <-followed; !errors.Is(err, lockkeeper.ErrUnavailable) {
		t.Errorf("the follower got %v, want ErrUnavailable", err)
	}
}

// A program that keeps SQLite's lock, such as the sqlite3 tool in a transaction, is never taken for
// the holder of a path: a caller that gives up gets an error.
func TestKeptBusy(t *testing.T) {
	path := file(t)
	e := openReal(t, path)
	k := attach(t, e, "a", time.Minute, nil)
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.Exec("BEGIN EXCLUSIVE"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	answer := make(chan error)
	go func() {
		_, err := e.Claim(ctx, k, exclusive(1, "db"))
		answer <- err
	}()
	for bound := bounded(t); !e.db.blocked.Load(); runtime.Gosched() {
		if bound.Err() != nil {
			t.Fatal("nobody notices that the file is kept busy")
		}
	}
	cancel()
	if err := <-answer; !errors.Is(err, lockkeeper.ErrUnavailable) || errors.Is(err, lockkeeper.ErrNotAcquired) ||
		!strings.Contains(err.Error(), "another program keeps") {
		t.Errorf("got %v, want ErrUnavailable and who might do that", err)
	}
	if _, err := db.Exec("ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if st := claim(t, e, k, exclusive(2, "db")); st.State != lockkeeper.Held {
		t.Errorf("afterwards it is %s", st.State)
	}
}
