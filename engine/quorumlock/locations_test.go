package quorumlock

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// locations lets messages between nodes take half of these round trips, by the indices of both nodes.
func (c *cluster) locations(rtt [][]time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.oneWay = func(from, to uint64) time.Duration { return rtt[from-1][to-1] / 2 }
}

// ms are round trips in milliseconds.
func ms(rows ...[]int) (rtt [][]time.Duration) {
	for _, row := range rows {
		var r []time.Duration
		for _, n := range row {
			r = append(r, time.Duration(n)*time.Millisecond)
		}
		rtt = append(rtt, r)
	}
	return rtt
}

// A claim costs the round trip from its node to the leader, and that from the leader to the nearest
// majority. The disks and the nodes take no time here, so this is exact.
func TestWhatLocationsCost(t *testing.T) {
	for name, rtt := range map[string][][]time.Duration{
		"one city":         ms([]int{0, 1, 2}, []int{1, 0, 2}, []int{2, 2, 0}),
		"one country":      ms([]int{0, 10, 20}, []int{10, 0, 15}, []int{20, 15, 0}),
		"three countries":  ms([]int{0, 30, 80}, []int{30, 0, 100}, []int{80, 100, 0}),
		"three continents": ms([]int{0, 90, 250}, []int{90, 0, 300}, []int{250, 300, 0}),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 3, 0)
				c.locations(rtt)
				time.Sleep(30 * time.Second) // over long distances, several elections may be needed
				c.ready()
				leader := int(c.leader().id) - 1
				majority := time.Hour // the round trip to the nearest other voter
				for i := range rtt {
					if i != leader {
						majority = min(majority, rtt[leader][i])
					}
				}
				for i := range c.servers {
					client := c.client(i)
					pair := func() (lock, release time.Duration) {
						began := time.Now()
						hold, err := client.Lock(t.Context(), fmt.Sprint("db/", i))
						if err != nil {
							t.Fatal(err)
						}
						lock = time.Since(began)
						began = time.Now()
						if err := hold.Release(t.Context()); err != nil {
							t.Fatal(err)
						}
						return lock, time.Since(began)
					}
					pair() // attaches the session
					lock, release := pair()
					want := rtt[i][leader] + majority
					if lock != want || release != want {
						t.Errorf("node %d, led by node %d: a lock takes %s, its release %s, want %s", i+1, leader+1, lock, release,
							want)
					}
				}
			})
		})
	}
}

// Over long distances a leader stays one, and a lost location costs a pause.
func TestLeaderStaysOverLongDistances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, 0)
		c.locations(ms([]int{0, 90, 250}, []int{90, 0, 300}, []int{250, 300, 0}))
		time.Sleep(30 * time.Second)
		c.ready()
		leader, term := c.leader(), c.leader().running().node.Status().Term
		hold, err := c.client(int(leader.id)%3).Lock(t.Context(), "db")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if now := leader.running().node.Status(); !now.Ready || now.Term != term {
			t.Errorf("after ten minutes node %d leads in term %d: %v; in term %d before", leader.id, now.Term, now.Ready, term)
		}
		c.isolate(leader, true)
		began := time.Now()
		if _, err := c.client(int(leader.id)%3).Lock(t.Context(), "site"); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 2*lockkeeper.DefaultTTL/3 {
			t.Errorf("after the loss of its location the next lock took %s", took)
		} else {
			t.Logf("the next lock took %s", took)
		}
		if err := hold.Err(); err != nil {
			t.Errorf("the hold: %v", err)
		}
	})
}
