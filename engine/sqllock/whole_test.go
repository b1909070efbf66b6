package sqllock

import (
	"fmt"
	"testing"

	"github.com/lockkeeper/lockkeeper"
)

// A session that holds more paths than there are latches leaves. A claim that waits for one of its
// paths and for a path of another session goes on waiting for the other.
func TestManyLatches(t *testing.T) {
	overKinds(t, func(t *testing.T, k kind) {
		t.Parallel()
		url := k.shared(t).Database(t)
		e := openEngine(t, url)
		rich, other, waiter := join(t, e, "rich", cutTTL), join(t, e, "other", cutTTL), join(t, e, "waiter", cutTTL)
		for n := 0; n <= usual.latches; n += lockkeeper.MaxTargets {
			w := lockkeeper.Want{ID: uint64(n + 1)}
			for i := range lockkeeper.MaxTargets {
				w.Targets = append(w.Targets, lockkeeper.Target{Path: lockkeeper.Path(fmt.Sprintf("rich/%d", n+i)),
					Mode: lockkeeper.ModeExclusive})
			}
			rich.claim(w, lockkeeper.Held)
		}
		other.claim(exclusive(1, 0, "other"), lockkeeper.Held)
		waiter.claim(exclusive(1, lockkeeper.Forever, "other", "rich/0"), lockkeeper.Waiting)
		if err := e.End(bounded(t), rich.key, lockkeeper.Ending{Kind: lockkeeper.Leave}); err != nil {
			t.Fatal(err)
		}
		if held := listedHeld(t, opened(t, url)); len(held) != 1 || held[0] != "other.1" {
			t.Errorf("held: %v, want other.1 alone", held)
		}
		other.release(1)
		waiter.await(1, lockkeeper.Held)
	})
}
