package keeper_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// TestListsDoNotWaitForAStuckLog: while the log can make nothing safe, a list ends at once, and
// one for people tells what is safe and how old that is. A watcher hears of what comes then.
func TestListsDoNotWaitForAStuckLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newSlowLog()
		k := logged(t, l)
		attached := make(chan lockkeeper.Key, 1)
		go func() {
			lease, err := k.Attach(t.Context(), lockkeeper.Session{ID: "ann", TTL: time.Hour}, nil)
			if err != nil {
				t.Error(err)
			}
			attached <- lease.Key
		}()
		synctest.Wait()
		l.sync(-1)
		ann := <-attached
		go k.Claim(t.Context(), ann, want(1, "db"))
		synctest.Wait()
		l.sync(-1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var watched []lockkeeper.State
		go func() {
			for st, err := range k.List(ctx, lockkeeper.Query{Follow: true}) {
				if err == nil {
					watched = append(watched, st.State)
				}
			}
		}()
		synctest.Wait()
		if err := k.End(t.Context(), ann, lockkeeper.Ending{Kind: lockkeeper.Release, ID: 1}); err != nil {
			t.Fatal(err)
		}
		list := func(q lockkeeper.Query) (states []lockkeeper.State, last error) {
			for st, err := range k.List(t.Context(), q) {
				if last = err; err == nil {
					states = append(states, st.State)
				}
			}
			return states, last
		}
		waiting := later(func() {
			if states, err := list(lockkeeper.Query{}); len(states) > 0 || !errors.Is(err, lockkeeper.ErrUnavailable) {
				t.Errorf("a list that waited tells of %v and ends with %v, want ErrUnavailable alone", states, err)
			}
		})
		if waiting() {
			t.Error("a list does not wait for what is about to be safe")
		}
		l.refuse(true)
		if !waiting() {
			t.Fatal("a list waits for a log that is stuck")
		}
		time.Sleep(12 * time.Second) // of the bubble's time
		states, err := list(lockkeeper.Query{Stale: true})
		held := []lockkeeper.State{lockkeeper.Held}
		ago, ok := lockkeeper.Stale(err)
		if !ok || ago < 12*time.Second || ago > 13*time.Second || !slices.Equal(states, held) {
			t.Errorf("told of %v, and then %v, of %s ago; want what was held 12s ago", states, err, ago)
		}
		if _, err := list(lockkeeper.Query{}); !errors.Is(err, lockkeeper.ErrUnavailable) {
			t.Errorf("a list that is no good when it is old ends with %v, want ErrUnavailable", err)
		} else if _, ok := lockkeeper.Stale(err); ok {
			t.Error("it passes for one that is old")
		}
		if !slices.Equal(watched, held) {
			t.Errorf("the watcher heard of %v before it was safe", watched)
		}
		l.refuse(false)
		l.sync(-1)
		if synctest.Wait(); !slices.Equal(watched, []lockkeeper.State{lockkeeper.Held, lockkeeper.Ended}) {
			t.Errorf("the watcher heard of %v, want held and ended", watched)
		}
		if states, err := list(lockkeeper.Query{Stale: true}); len(states) > 0 || err != nil {
			t.Errorf("after all a list tells of %v, and ends with %v", states, err)
		}
	})
}
