package keeper_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/keeper"
	"github.com/lockkeeper/lockkeeper/table"
)

// oneCommit is a log whose entries all become safe together. While it is full it refuses commands.
type oneCommit struct {
	commit *keeper.Commit
	full   atomic.Bool
}

func (l *oneCommit) Admit(bool) error {
	if l.full.Load() {
		return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: "the disk is full"}
	}
	return nil
}

func (l *oneCommit) Failed() <-chan struct{} { return nil }

func (l *oneCommit) StartCommit() {}

func (l *oneCommit) Stuck() <-chan struct{} { return nil }

func (l *oneCommit) Safe(context.Context) (*table.Table, error) {
	return nil, &lockkeeper.Error{Err: lockkeeper.ErrUnavailable}
}

func (l *oneCommit) Append(*table.Command, table.Counters) *keeper.Commit { return l.commit }

// gathering returns a keeper with such a log.
func gathering(t *testing.T) (*keeper.Keeper, *oneCommit) {
	start := time.Now()
	l := &oneCommit{commit: keeper.NewCommit()}
	k := keeper.NewLogged(lockkeeper.Guarantees{Name: "test", Features: lockkeeper.TableFeatures},
		func() time.Duration { return time.Since(start) }, table.New(), l)
	t.Cleanup(func() { k.Close() })
	return k, l
}

// failsBehind is a log that fails after it has admitted a command and before the keeper applies it.
type failsBehind struct {
	*slowLog
	now bool
}

func (l *failsBehind) Admit(relies bool) error {
	err := l.slowLog.Admit(relies)
	if l.now {
		l.now = false
		l.fail(&lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: "the disk is gone"})
		synctest.Wait() // the keeper has taken notice
	}
	return err
}

// TestFollowerThatComesAsTheLogFailsEnds: a follower that begins while the log fails does not wait
// without end.
func TestFollowerThatComesAsTheLogFailsEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &failsBehind{slowLog: newSlowLog()}
		k := keeper.NewLogged(lockkeeper.Guarantees{Name: "test", Features: lockkeeper.TableFeatures},
			func() time.Duration { return 0 }, table.New(), l)
		defer k.Close()
		synctest.Wait()
		l.now = true
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var ended error
		for _, err := range k.List(ctx, lockkeeper.Query{Follow: true}) {
			ended = err
		}
		if !errors.Is(ended, lockkeeper.ErrUnavailable) || ctx.Err() != nil {
			t.Errorf("the follower ends with %v, want unavailable at once", ended)
		}
	})
}

// TestTimePassesWhenTheLogIsBack: what falls due while the log refuses commands happens when the log
// takes them again, and sessions are notified, though no caller does anything, or only something
// that is refused.
func TestTimePassesWhenTheLogIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { timePasses(t, func(*keeper.Keeper) {}) })
	synctest.Test(t, func(t *testing.T) {
		timePasses(t, func(k *keeper.Keeper) {
			err := k.End(t.Context(), lockkeeper.Key{Session: "bob", Epoch: 2},
				lockkeeper.Ending{Kind: lockkeeper.Thaw, Path: "x"})
			if !errors.Is(err, lockkeeper.ErrNotHeld) {
				t.Error(err)
			}
		})
	})
}

func timePasses(t *testing.T, meanwhile func(*keeper.Keeper)) {
	k, l := gathering(t)
	l.commit.End(nil)
	told := make(chan lockkeeper.Status, 10)
	attach := func(id string, ttl time.Duration) lockkeeper.Key {
		lease, err := k.Attach(t.Context(), lockkeeper.Session{ID: id, TTL: ttl}, func(all []lockkeeper.Status) {
			for _, st := range all {
				told <- st
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return lease.Key
	}
	claim(t, k, attach("ann", 10*time.Second), want(1, "db"), lockkeeper.Held)
	claim(t, k, attach("bob", time.Hour), want(1, "db"), lockkeeper.Waiting)
	l.full.Store(true)
	time.Sleep(11 * time.Second)
	l.full.Store(false)
	meanwhile(k)
	time.Sleep(10 * time.Second)
	synctest.Wait()
	select {
	case st := <-told:
		if st.State == lockkeeper.Ended { // ann's, which has nobody any more to be told
			st = <-told
		}
		if st.Ref.Session != "bob" || st.State != lockkeeper.Held {
			t.Errorf("told of %s: %s", st.Ref, st.State)
		}
	default:
		t.Error("ann's session has ended, and bob is not told of the grant")
	}
}

// TestTimeGoesOn: one wait after the other falls due, though no caller does anything.
func TestTimeGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, l := gathering(t)
		l.commit.End(nil)
		told := 0
		lease, err := k.Attach(t.Context(), lockkeeper.Session{ID: "ann", TTL: time.Hour}, func(all []lockkeeper.Status) {
			told += len(all)
		})
		if err != nil {
			t.Fatal(err)
		}
		claim(t, k, lease.Key, want(1, "db"), lockkeeper.Held)
		for id := uint64(2); id < 5; id++ {
			w := want(id, "db")
			w.Wait = time.Duration(id) * time.Second
			claim(t, k, lease.Key, w, lockkeeper.Waiting)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if told != 3 {
			t.Errorf("%d of 3 waits have ended", told)
		}
	})
}

// TestTakeoverRedirectsNotifications: the new owner of a session is notified of changes after the
// takeover, also if they become safe together with changes before it.
func TestTakeoverRedirectsNotifications(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, l := gathering(t)
		var former, present []lockkeeper.Status
		gather := func(to *[]lockkeeper.Status) func([]lockkeeper.Status) {
			return func(all []lockkeeper.Status) { *to = append(*to, all...) }
		}
		bob := lockkeeper.Session{ID: "bob", TTL: time.Hour, Named: []uint64{1, 2}}
		ann, first := lockkeeper.Key{Session: "ann", Epoch: 1}, lockkeeper.Key{Session: "bob", Epoch: 2}
		for _, do := range []func(){
			func() { k.Attach(t.Context(), lockkeeper.Session{ID: "ann", TTL: time.Hour}, nil) },
			func() { k.Attach(t.Context(), bob, gather(&former)) },
			func() { k.Claim(t.Context(), ann, want(1, "a")) },
			func() { k.Claim(t.Context(), ann, want(2, "b")) },
			func() { k.Claim(t.Context(), first, want(1, "a")) },
			func() { k.Claim(t.Context(), first, want(2, "b")) },
			func() { k.End(t.Context(), ann, lockkeeper.Ending{Kind: lockkeeper.Release, ID: 1}) },
			func() { bob.Epoch = 2; k.Attach(t.Context(), bob, gather(&present)) },
			func() { k.End(t.Context(), ann, lockkeeper.Ending{Kind: lockkeeper.Release, ID: 2}) },
		} {
			go do()
			synctest.Wait()
		}
		l.commit.End(nil)
		synctest.Wait()
		if len(former) != 1 || former[0].Ref.ID != 1 || former[0].State != lockkeeper.Held {
			t.Errorf("the former owner is notified of %v", former)
		}
		if len(present) != 1 || present[0].Ref.ID != 2 || present[0].State != lockkeeper.Held {
			t.Errorf("the new owner is notified of %v", present)
		}
	})
}
