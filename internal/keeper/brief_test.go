package keeper_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
)

// TestBriefFollowersGetNoEvidence: a brief follower gets every waiting claim without evidence, which the
// keeper does not compute then; a follower beside it gets evidence.
func TestBriefFollowersGetNoEvidence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := memlock.New()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		lease, err := e.Attach(ctx, lockkeeper.Session{ID: "s", TTL: time.Minute}, nil)
		if err != nil {
			t.Fatal(err)
		}
		claim := func(id uint64) {
			want := lockkeeper.Want{
				ID:      id,
				Wait:    lockkeeper.Forever,
				Targets: []lockkeeper.Target{{Path: "x", Mode: lockkeeper.ModeExclusive}},
			}
			if _, err := e.Claim(ctx, lease.Key, want); err != nil {
				t.Fatal(err)
			}
		}
		follow := func(q lockkeeper.Query) *[]lockkeeper.Status {
			q.Follow = true
			var waiting []lockkeeper.Status
			go func() {
				for st, err := range e.List(ctx, q) {
					if err == nil && st.State == lockkeeper.Waiting {
						waiting = append(waiting, st)
					}
				}
			}()
			synctest.Wait()
			return &waiting
		}
		claim(1)
		claim(2)
		brief := follow(lockkeeper.Query{Brief: true})
		follow(lockkeeper.Query{Meets: "elsewhere"})
		claim(3)
		long := follow(lockkeeper.Query{})
		claim(4)
		synctest.Wait()
		if len(*brief) != 3 || len(*long) != 3 {
			t.Fatalf("%d and %d claims that wait were told of, want 3 and 3", len(*brief), len(*long))
		}
		if st := (*brief)[0]; st.Position != 0 || st.Blockers != nil || st.Waits != nil {
			t.Errorf("the list that is brief says why: %+v", st)
		}
		if st := (*brief)[1]; st.Position != 0 || st.Blockers != nil {
			t.Errorf("what followed says why: %+v", st)
		}
		for _, st := range *long {
			if st.Position == 0 || len(st.Blockers) == 0 {
				t.Errorf("it is not said why: %+v", st)
			}
		}
	})
}
