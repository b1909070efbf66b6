package quorumlock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
	"github.com/lockkeeper/lockkeeper/enginetest"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// faults breaks nodes of a cluster and ways between them, until stop ends that and heals all.
type faults struct {
	*cluster
	random *rand.Rand
	quit   chan struct{}
	ended  sync.WaitGroup
}

func startFaults(c *cluster, seed uint64) *faults {
	f := &faults{cluster: c, random: rand.New(rand.NewPCG(seed, 1)), quit: make(chan struct{})}
	f.ended.Go(func() {
		for f.pause(time.Second, 5*time.Second) {
			f.breakOne()
			f.pause(100*time.Millisecond, 4*time.Second)
			f.heal()
		}
	})
	return f
}

// pause waits between least and most; it returns false if the faults have to end.
func (f *faults) pause(least, most time.Duration) bool {
	select {
	case <-f.quit:
		return false
	case <-time.After(least + time.Duration(f.random.Int64N(int64(most-least)))):
		return true
	}
}

func (f *faults) breakOne() {
	at := f.servers[f.random.IntN(len(f.servers))]
	if leader := f.leader(); leader != nil && f.random.IntN(3) > 0 {
		at = leader
	}
	switch f.random.IntN(5) {
	case 0, 1:
		at.stop()
	case 2:
		f.isolate(at, true)
	case 3: // it hears nobody
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, other := range f.servers {
			f.cut[[2]uint64{other.id, at.id}] = true
		}
	case 4:
		for _, s := range f.servers {
			s.stop()
		}
	}
}

func (f *faults) stop() {
	close(f.quit)
	f.ended.Wait()
	f.heal()
}

// TestStressDuringFailovers stops, starts and cuts off nodes, mostly the leader, while clients at all
// nodes make random requests.
func TestStressDuringFailovers(t *testing.T) {
	for _, n := range sizes {
		t.Run(fmt.Sprint(n, " nodes"), func(t *testing.T) {
			var f *faults
			seed := testmode.Seed(t)
			enginetest.Stress(t, enginetest.Harness{
				Many:   true,
				Bubble: true,
				Fresh: func(t *testing.T) enginetest.Open {
					c, opened := newCluster(t, n, 0), 0
					c.delays = true
					c.ready()
					f = startFaults(c, seed)
					return func() lockkeeper.Engine {
						opened++
						return c.visitor(opened % n)
					}
				},
				Calm: func() {
					f.stop()
					f.ready() // from now on no election makes the outcome of a call unknown
				},
			})
		})
	}
}

// inBubble runs a test on a cluster that answers.
func inBubble(t *testing.T, n, outside int, body func(t *testing.T, c *cluster)) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, n, outside)
		c.ready()
		body(t, c)
	})
}

// client returns a client that begins at the node with that index and goes on at others.
func (c *cluster) client(at int) *lockkeeper.Client {
	client := c.newClient(c.visitor(at))
	c.Cleanup(func() { client.Close() })
	return client
}

// newClient returns a client that counts by the clock of the cluster. The default clock counts real
// time too, so on a busy machine a client loses its lease while the time of the bubble stands still.
func (c *cluster) newClient(e lockkeeper.Engine, options ...lockkeeper.ClientOption) *lockkeeper.Client {
	return lockkeeper.New(e, append(options, lockkeeper.BootClock(c.clock))...)
}

func TestFailoverKeepsHoldsPositionsAndFences(t *testing.T) {
	inBubble(t, 3, 0, func(t *testing.T, c *cluster) {
		ctx := t.Context()
		hold, err := c.client(0).Lock(ctx, "db")
		if err != nil {
			t.Fatal(err)
		}
		var order []int
		var mu sync.Mutex
		var waiting sync.WaitGroup
		for i := range 3 {
			client := c.client(i)
			waiting.Go(func() {
				next, err := client.Lock(ctx, "db")
				if err != nil {
					t.Error(err)
					return
				}
				if next.Fence() <= hold.Fence() {
					t.Errorf("fence %d follows fence %d", next.Fence(), hold.Fence())
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				next.Release(ctx)
			})
			synctest.Wait()
		}
		leader := c.leader()
		leader.stop()
		time.Sleep(20 * time.Second) // less than the TTL: everything waits until renewals need the next leader
		if err := hold.Err(); err != nil {
			t.Fatalf("the hold is lost with the leader: %v", err)
		}
		if err := hold.Release(ctx); err != nil {
			t.Fatal(err)
		}
		waiting.Wait()
		if fmt.Sprint(order) != "[0 1 2]" {
			t.Errorf("waiters were granted in the order %v", order)
		}
	})
}

func TestRestartOfAllNodesKeepsHolds(t *testing.T) {
	for _, n := range sizes {
		inBubble(t, n, 0, func(t *testing.T, c *cluster) {
			hold, err := c.client(0).Lock(t.Context(), "db")
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range c.servers {
				s.stop()
			}
			time.Sleep(5 * time.Second)
			c.heal()
			time.Sleep(time.Minute)
			if err := hold.Err(); err != nil {
				t.Errorf("%d nodes: %v", n, err)
			}
			if _, err := c.client(n-1).TryLock(t.Context(), "db"); err == nil {
				t.Errorf("%d nodes: two holders", n)
			}
		})
	}
}

// A lost voter is replaced by a node outside, which has all locks before it votes.
func TestNodeOutsideReplacesALostVoter(t *testing.T) {
	inBubble(t, 3, 1, func(t *testing.T, c *cluster) {
		hold, err := c.client(0).Lock(t.Context(), "db")
		if err != nil {
			t.Fatal(err)
		}
		c.servers[2].stop()
		time.Sleep(2 * voterGrace)
		if s := c.leader().running().node.Status(); fmt.Sprint(s.Voters) != "[1 2 4]" {
			t.Fatalf("the voters are %v, the learners %v", s.Voters, s.Learners)
		}
		c.servers[1].stop() // from now on the new one is needed
		if _, err := c.client(3).TryLock(t.Context(), "db"); err == nil {
			t.Error("two holders")
		}
		if err := hold.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := c.client(3).Lock(t.Context(), "db"); err != nil {
			t.Error(err)
		}
	})
}

// waitVoters waits until the voters are those, which must happen within an election timeout for each
// change.
func (c *cluster) waitVoters(want string) {
	c.Helper()
	var s replica.Status
	for range 10 {
		time.Sleep(electionTicks * tickTime)
		if leader := c.leader(); leader != nil {
			if s = leader.running().node.Status(); fmt.Sprint(s.Voters, s.Learners) == want {
				return
			}
		}
	}
	c.Errorf("the voters and learners are %v %v, want %s", s.Voters, s.Learners, want)
}

// follow begins a list that goes on at e, and returns the error with which it ends.
func follow(ctx context.Context, e lockkeeper.Engine) <-chan error {
	ended := make(chan error, 1)
	go func() {
		for _, err := range e.List(ctx, lockkeeper.Query{Follow: true}) {
			if err != nil {
				ended <- err
				return
			}
		}
		ended <- nil
	}()
	synctest.Wait()
	return ended
}
