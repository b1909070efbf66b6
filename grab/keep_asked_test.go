package grab_test

import (
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// TestKeepAskedTwice: a request to yield without an end, and then one with an end: the Keepalive
// ends before that end, and the engine knows it.
func TestKeepAskedTwice(t *testing.T) {
	inMemory(t, func(w *world) {
		w.ok("me", "db")
		k := w.keeps("me", "db")
		w.pass(time.Second)
		held := k.Answer().Fence
		asks := func(as string, priority int, steal lockkeeper.Steal, after time.Duration) lockkeeper.Key {
			w.Helper()
			e := w.engine()
			lease, err := e.Attach(w.ctx(), lockkeeper.Session{ID: as, TTL: time.Minute}, nil)
			if err != nil {
				w.Fatal(err)
			}
			_, err = e.Claim(w.ctx(), lease.Key, lockkeeper.Want{
				ID:       1,
				Targets:  []lockkeeper.Target{exclusive("db")},
				Wait:     lockkeeper.Forever,
				Priority: priority,
				Steal:    steal,
				After:    after,
			})
			if err != nil {
				w.Fatal(err)
			}
			return lease.Key
		}
		asks("polite", 1, lockkeeper.Ask, 0)
		w.pass(time.Second)
		if by := k.Answer().Asked; by == nil || by.Left != lockkeeper.Forever {
			w.Fatalf("asked %v, want without an end", by)
		}
		hasty := asks("hasty", 2, lockkeeper.Take, 2*time.Second)
		w.pass(time.Second)
		if left := k.Remaining(); left > time.Second {
			w.Errorf("%s are left for sure, and it is taken in 1s", left)
		}
		if err := w.engine().End(w.ctx(), hasty, lockkeeper.Ending{Kind: lockkeeper.Leave}); err != nil {
			w.Fatal(err)
		}
		w.pass(10 * time.Second)
		if a := k.Answer(); k.Err() != nil || a.State != lockkeeper.Held || a.Fence != held {
			w.Errorf("who asked with an end has gone: %s (%v), want still held", a.State, k.Err())
		}
		hasty = asks("hasty", 2, lockkeeper.Take, 2*time.Second)
		<-k.Done()
		w.pass(2 * time.Second)
		for st, err := range w.engine().List(w.ctx(), lockkeeper.Query{Ref: lockkeeper.Ref{Session: hasty.Session, ID: 1}}) {
			if err != nil || st.State != lockkeeper.Held || st.Unconfirmed {
				w.Errorf("%s, unconfirmed: %t (%v); want held, and that the keeper knows", st.State, st.Unconfirmed, err)
			}
		}
	})
}
