package keeper_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/keeper"
)

// The rules are tested in package table, and what an engine owes its callers by
// enginetest on memlock. Here is what only a keeper does: time passes without
// anybody's call, and news reaches those whom it concerns.

func open(t *testing.T) (*keeper.Keeper, func(session string, ttl time.Duration,
	notify func([]lockkeeper.Status)) lockkeeper.Key) {
	start := time.Now()
	g := lockkeeper.Guarantees{Name: "test", Features: lockkeeper.TableFeatures, NoExpiry: true}
	k := keeper.New(g, func() time.Duration { return time.Since(start) })
	t.Cleanup(func() { k.Close() })
	return k, func(session string, ttl time.Duration, notify func([]lockkeeper.Status)) lockkeeper.Key {
		lease, err := k.Attach(t.Context(), lockkeeper.Session{ID: session, TTL: ttl}, notify)
		if err != nil {
			t.Fatal(err)
		}
		return lease.Key
	}
}

func want(id uint64, path lockkeeper.Path) lockkeeper.Want {
	target := lockkeeper.Target{Path: path, Mode: lockkeeper.ModeExclusive}
	return lockkeeper.Want{ID: id, Wait: lockkeeper.Forever, Targets: []lockkeeper.Target{target}}
}

func claim(t *testing.T, k *keeper.Keeper, key lockkeeper.Key, w lockkeeper.Want, state lockkeeper.State) {
	t.Helper()
	if st, err := k.Claim(t.Context(), key, w); err != nil || st.State != state {
		t.Fatalf("claim %d: %v, %v; want %v", w.ID, st.State, err, state)
	}
}

// TestTimePassesByItself: a lease ends and the next in line is told, in the
// moment when it is due, though nobody calls; an earlier moment that comes up
// later is not missed.
func TestTimePassesByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, attach := open(t)
		start := time.Now()
		granted := make(chan time.Duration, 1)
		ann := attach("ann", 10*time.Second, nil)
		bob := attach("bob", 0, func(news []lockkeeper.Status) {
			for _, st := range news {
				if st.State == lockkeeper.Held {
					granted <- time.Since(start)
				}
			}
		})
		attach("long", time.Hour, nil) // the first timer is a later one
		claim(t, k, ann, want(1, "db"), lockkeeper.Held)
		claim(t, k, bob, want(1, "db"), lockkeeper.Waiting)
		if at := <-granted; at != 10*time.Second {
			t.Errorf("granted at %s, want 10s", at)
		}
	})
}

// TestFollow: a follower sees every claim's last state, its own list first, and
// learns that the keeper was closed.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, attach := open(t)
		ann := attach("ann", 0, nil)
		claim(t, k, ann, want(1, "db/a"), lockkeeper.Held)
		seen := make(chan lockkeeper.Status, 16)
		ended := make(chan error, 1)
		go func() {
			for st, err := range k.List(context.Background(), lockkeeper.Query{Meets: "db", Follow: true}) {
				if err != nil {
					ended <- err
					return
				}
				seen <- st
			}
		}()
		next := func(ref uint64, state lockkeeper.State) {
			t.Helper()
			if st := <-seen; st.Ref.ID != ref || st.State != state {
				t.Errorf("the follower sees %s %s, want %d %s", st.Ref, st.State, ref, state)
			}
		}
		next(1, lockkeeper.Held)
		claim(t, k, ann, want(2, "other"), lockkeeper.Held)
		claim(t, k, ann, want(3, "db"), lockkeeper.Waiting)
		next(3, lockkeeper.Waiting)
		if err := k.End(t.Context(), ann, lockkeeper.Ending{Kind: lockkeeper.Release, ID: 1}); err != nil {
			t.Fatal(err)
		}
		next(1, lockkeeper.Ended)
		next(3, lockkeeper.Held)
		k.Close()
		if err := <-ended; !errors.Is(err, lockkeeper.ErrUnavailable) {
			t.Errorf("the follower ends with %v, want unavailable", err)
		}
	})
}

// A follower that does not read is bounded, and ends with an error that says so.
func TestSlowFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, attach := open(t)
		ann := attach("ann", time.Minute, nil)
		claim(t, k, ann, want(1, "db"), lockkeeper.Held)
		const changed = 4096 + 1 // claims, one more than is kept for a watcher
		heard := 0
		for st, err := range k.List(context.Background(), lockkeeper.Query{Follow: true}) {
			if heard++; heard == 1 {
				for id := range uint64(changed) {
					if id == changed-1 {
						time.Sleep(2 * time.Second) // of the bubble's time: it does not read meanwhile
					}
					claim(t, k, ann, want(2+id, "other"), lockkeeper.Held)
					if err := k.End(t.Context(), ann, lockkeeper.Ending{Kind: lockkeeper.Release, ID: 2 + id}); err != nil {
						t.Fatal(err)
					}
				}
				continue
			}
			if !errors.Is(err, lockkeeper.ErrUnavailable) {
				t.Fatalf("hears of %s and %v, want that it is too slow", st.Ref, err)
			}
			return
		}
		t.Error("the follower ends without a word")
	})
}

// TestClosed: a closed keeper answers that it is unavailable, and does nothing more.
func TestClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, attach := open(t)
		ann := attach("ann", 10*time.Second, nil)
		k.Close()
		if _, err := k.Claim(t.Context(), ann, want(1, "db")); !errors.Is(err, lockkeeper.ErrUnavailable) {
			t.Errorf("a claim is answered %v, want unavailable", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := k.Renew(ctx, ann); !errors.Is(err, lockkeeper.ErrUnavailable) {
			t.Errorf("under an ended context the answer is %v, want unavailable", err)
		}
	})
}
