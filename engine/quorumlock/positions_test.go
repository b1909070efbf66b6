package quorumlock

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// The audit logs of all nodes name one position in the log of the cluster for one event.
func TestWatchersLearnThePositionInTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, 0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		e := c.servers[0].running()
		lease, err := e.Attach(ctx, lockkeeper.Session{ID: "ann", TTL: 10 * time.Minute}, nil)
		if err != nil {
			t.Fatal(err)
		}
		seen := make([]map[string]uint64, 3) // the position of a state of a claim, by node
		for i := range seen {
			seen[i] = make(map[string]uint64)
			go func() {
				for st, err := range c.servers[i].running().List(ctx, lockkeeper.Query{Follow: true, Brief: true}) {
					if err != nil {
						return // the test is over
					}
					seen[i][fmt.Sprint(st.Ref.ID, " ", st.State)] = st.LogIndex
				}
			}()
		}
		time.Sleep(5 * time.Second) // of the bubble: all nodes have answered their lists
		synctest.Wait()
		last := uint64(0)
		for id := range uint64(5) {
			id++
			w := lockkeeper.Want{ID: id, Targets: []lockkeeper.Target{{Path: "db", Mode: lockkeeper.ModeExclusive}}}
			if _, err := e.Claim(ctx, lease.Key, w); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second) // all nodes apply it, and the watchers read
			synctest.Wait()
			if err := e.End(ctx, lease.Key, lockkeeper.Ending{Kind: lockkeeper.Release, ID: id}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Second)
			synctest.Wait()
			for _, state := range []lockkeeper.State{lockkeeper.Held, lockkeeper.Ended} {
				at := seen[0][fmt.Sprint(id, " ", state)]
				if at <= last {
					t.Errorf("claim %d is %s at position %d, after position %d", id, state, at, last)
				}
				last = at
			}
		}
		for i := range seen {
			if !maps.Equal(seen[i], seen[0]) {
				t.Errorf("node %d says %v, node 1 %v", i+1, seen[i], seen[0])
			}
		}
	})
}
