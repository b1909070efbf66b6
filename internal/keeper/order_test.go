package keeper_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// TestSlowWatcherHearsEndsBeforeTheirGrants: what a watcher has not read yet comes in the order
// of the latest changes, so that it never sees two who hold one thing.
func TestSlowWatcherHearsEndsBeforeTheirGrants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, attach := open(t)
		ann, bob := attach("ann", 0, nil), attach("bob", 0, nil)
		claim(t, k, ann, want(1, "db"), lockkeeper.Held)
		var heard []string
		for st, err := range k.List(t.Context(), lockkeeper.Query{Follow: true, Brief: true, Meets: "db"}) {
			if err != nil {
				t.Fatal(err)
			}
			if heard = append(heard, fmt.Sprint(st.Ref, " ", st.State, " ", st.Reason)); len(heard) == 4 {
				break
			}
			if len(heard) > 1 {
				continue
			}
			claim(t, k, bob, want(1, "db"), lockkeeper.Waiting)
			claim(t, k, ann, want(2, "db/2"), lockkeeper.Waiting)
			if err := k.End(t.Context(), ann, lockkeeper.Ending{Kind: lockkeeper.Release, ID: 1}); err != nil {
				t.Fatal(err)
			}
			if err := k.End(t.Context(), bob, lockkeeper.Ending{Kind: lockkeeper.Release, ID: 1}); err != nil {
				t.Fatal(err)
			}
		}
		want := []string{"ann.1 held none", "ann.1 ended released", "bob.1 ended released", "ann.2 held none"}
		if !slices.Equal(heard, want) {
			t.Errorf("heard %q, want %q", heard, want)
		}
	})
}

// TestEvidenceWaitsForItsCommit: evidence that tells of a change which is not safe yet is told
// when that is safe.
func TestEvidenceWaitsForItsCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newSlowLog()
		k := logged(t, l)
		keys := make(chan lockkeeper.Key, 1)
		go func() {
			lease, err := k.Attach(t.Context(), lockkeeper.Session{ID: "ann", TTL: time.Hour}, nil)
			if err != nil {
				t.Error(err)
			}
			keys <- lease.Key
		}()
		synctest.Wait()
		l.sync(-1)
		ann := <-keys
		ask := func(id uint64, priority int) {
			w := want(id, "db")
			w.Priority = priority
			go k.Claim(t.Context(), ann, w)
			synctest.Wait()
		}
		ask(1, 0)
		l.sync(-1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var places []int
		go func() {
			for st, err := range k.List(ctx, lockkeeper.Query{Follow: true}) {
				if err == nil && st.Ref.ID == 2 {
					places = append(places, st.Position)
				}
			}
		}()
		synctest.Wait()
		ask(2, 0)
		ask(3, 1) // goes before it
		l.sync(1)
		if synctest.Wait(); len(places) > 0 {
			t.Errorf("told of place %d, which is not safe", places)
		}
		l.sync(-1)
		if synctest.Wait(); !slices.Equal(places, []int{2}) {
			t.Errorf("told of places %d, want 2", places)
		}
	})
}
