package quorumlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// What the tests of snaplock and cluck expected of a group of computers, where one node's rules are not
// enough. docs/coming-from/snaplock.md names the test of each case.

func exclusive(id uint64, p lockkeeper.Path) lockkeeper.Want {
	return lockkeeper.Want{ID: id, Targets: []lockkeeper.Target{{Path: p, Mode: lockkeeper.ModeExclusive}}}
}

// T1.1: a request that comes before the cluster is up is served when it is. A release then has no effect,
// and no request ends the node.
func TestRequestsBeforeTheClusterIsUp(t *testing.T) {
	for _, n := range sizes {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, n, 0)
			e := c.servers[0].running()
			early, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			err := e.End(early, lockkeeper.Key{Session: "ann", Epoch: 1}, lockkeeper.Ending{Kind: lockkeeper.Release, ID: 1})
			if !errors.Is(err, lockkeeper.ErrUnavailable) {
				t.Errorf("%d nodes: a release before the cluster is up: %v", n, err)
			}
			if c.leader() != nil {
				t.Fatal("the cluster is up already: that proves nothing")
			}
			hold, err := c.client(0).Lock(t.Context(), "early_lock")
			if err != nil {
				t.Fatalf("%d nodes: %v", n, err)
			}
			hold.Release(t.Context())
		})
	}
}

// T1.10: requests at a cluster that never comes up end by their own bounds, and are not made later.
func TestRequestsAtAClusterThatDoesNotComeUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, 0)
		c.servers[1].stop()
		c.servers[2].stop()
		var all sync.WaitGroup
		for i := range 3 {
			client := c.client(0)
			all.Go(func() {
				began := time.Now()
				_, err := client.Lock(t.Context(), fmt.Sprint("early", i), lockkeeper.WithWait(3*time.Second))
				if took := time.Since(began); !errors.Is(err, lockkeeper.ErrUnavailable) || took > 10*time.Second {
					t.Errorf("after %s: %v", took, err)
				}
				client.Close()
			})
		}
		all.Wait()
		c.heal()
		c.ready()
		time.Sleep(time.Minute)
		for st, err := range c.servers[0].running().List(t.Context(), lockkeeper.Query{}) {
			t.Errorf("a request was made later: %+v, %v", st, err)
		}
	})
}

// T1.1, 9, 10 and 12: at any node, the same request is the same hold, and neither another session nor an
// unknown id ends it.
func TestOnlyItsSessionEndsAHold(t *testing.T) {
	inBubble(t, 3, 0, func(t *testing.T, c *cluster) {
		ctx := t.Context()
		e, other := c.servers[0].running(), c.servers[1].running()
		lease, err := e.Attach(ctx, session("ann"), nil)
		if err != nil {
			t.Fatal(err)
		}
		first, err := e.Claim(ctx, lease.Key, exclusive(1, "lock1"))
		if err != nil || first.State != lockkeeper.Held {
			t.Fatalf("%+v, %v", first, err)
		}
		again, err := other.Claim(ctx, lease.Key, exclusive(1, "lock1"))
		if err != nil || again.State != lockkeeper.Held || again.Fence != first.Fence {
			t.Errorf("the same request at another node: %+v, %v", again, err)
		}
		if st, err := e.Claim(ctx, lease.Key, exclusive(2, "lock1")); err == nil && st.State == lockkeeper.Held {
			t.Error("a second request holds it too")
		}
		bob, err := other.Attach(ctx, session("bob"), nil)
		if err != nil {
			t.Fatal(err)
		}
		release := func(k lockkeeper.Key, id uint64) error {
			return other.End(ctx, k, lockkeeper.Ending{Kind: lockkeeper.Release, ID: id})
		}
		stale := lease.Key
		stale.Epoch--
		if err := errors.Join(release(bob.Key, 1), release(lease.Key, 7)); !errors.Is(err, lockkeeper.ErrNotHeld) {
			t.Errorf("releases of nothing: %v", err)
		}
		if err := release(stale, 1); !errors.Is(err, lockkeeper.ErrSession) {
			t.Errorf("a release by a former key: %v", err)
		}
		for st, err := range other.List(ctx, lockkeeper.Query{Ref: first.Ref}) {
			if err != nil || st.State != lockkeeper.Held || st.Fence != first.Fence {
				t.Errorf("the hold is %+v, %v", st, err)
			}
		}
	})
}

// T1.7, T1.11 and T1.1, 13: the end of a hold comes at the next leader: it is asked to yield, and has
// ended after its grace.
func TestLongestHoldEndsAtTheNextLeader(t *testing.T) {
	inBubble(t, 3, 0, func(t *testing.T, c *cluster) {
		hold, err := c.client(0).Lock(t.Context(), "adopted", lockkeeper.WithMaxHold(5*time.Second, 5*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		c.leader().stop()
		began := time.Now()
		next, err := c.client(1).Lock(t.Context(), "adopted")
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 8*time.Second || took > 15*time.Second {
			t.Errorf("the next one has it after %s, want 8s and the pause between the leaders", took)
		}
		if next.Fence() <= hold.Fence() || !errors.Is(hold.Err(), lockkeeper.Overdue) {
			t.Errorf("fence %d follows %d, which ended with %v", next.Fence(), hold.Fence(), hold.Err())
		}
	})
}

// T1.9: a node that does not vote passes requests on, and refuses what is out of range with the range.
func TestNodeThatDoesNotVotePassesRequestsOn(t *testing.T) {
	inBubble(t, 3, 2, func(t *testing.T, c *cluster) {
		outside := c.servers[4]
		short := session("ann")
		short.TTL = time.Millisecond
		if _, err := outside.running().Attach(t.Context(), short, nil); !errors.Is(err, lockkeeper.ErrInvalid) {
			t.Errorf("a TTL of a millisecond: %v", err)
		}
		hold, err := c.client(4).Lock(t.Context(), "lock")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.client(0).TryLock(t.Context(), "lock"); !errors.Is(err, lockkeeper.ErrNotAcquired) {
			t.Errorf("at a voter: %v", err)
		}
		if err := hold.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := c.client(0).TryLock(t.Context(), "lock"); err != nil {
			t.Errorf("at a voter, after the release: %v", err)
		}
	})
}

// T1.18 d: a majority of the nodes that has no majority of the voters grants nothing, and elects nobody.
func TestMajorityOfNodesWithoutVotersGrantsNothing(t *testing.T) {
	inBubble(t, 3, 4, func(t *testing.T, c *cluster) {
		hold, err := c.client(6).Lock(t.Context(), "held")
		if err != nil {
			t.Fatal(err)
		}
		split := func(cut bool) {
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, voter := range c.servers[:3] {
				for _, s := range c.servers[3:] {
					c.cut[[2]uint64{voter.id, s.id}], c.cut[[2]uint64{s.id, voter.id}] = cut, cut
				}
			}
		}
		split(true)
		time.Sleep(5 * time.Second)
		for _, s := range c.servers[3:] {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			_, err := s.running().Attach(ctx, session("ann"), nil)
			cancel()
			if !errors.Is(err, lockkeeper.ErrUnavailable) {
				t.Errorf("node %d, cut off from the voters: %v", s.id, err)
			}
		}
		if _, err := c.client(0).TryLock(t.Context(), "held"); !errors.Is(err, lockkeeper.ErrNotAcquired) {
			t.Errorf("the voters do not know the hold: %v", err)
		}
		split(false)
		c.ready()
		if err := hold.Err(); err != nil {
			t.Errorf("the hold: %v", err)
		}
	})
}

// T1.18 f: 50 locks are held when the leader is lost. All are held after it, with their fences and ends.
func TestFiftyHoldsOutliveTheLeader(t *testing.T) {
	inBubble(t, 3, 0, func(t *testing.T, c *cluster) {
		const holds = 50
		held := func(at *server) map[lockkeeper.Path]lockkeeper.Status {
			all := make(map[lockkeeper.Path]lockkeeper.Status)
			for st, err := range at.running().List(t.Context(), lockkeeper.Query{}) {
				if err != nil {
					t.Fatal(err)
				}
				all[st.Grants[0].Path] = st
			}
			return all
		}
		for i := range holds {
			_, err := c.client(i%3).Lock(t.Context(), fmt.Sprint("lock", i), lockkeeper.WithMaxHold(time.Hour, time.Minute))
			if err != nil {
				t.Fatal(err)
			}
		}
		before, began := held(c.follower()), time.Now()
		lost := c.leader()
		lost.stop()
		for c.leader() == nil {
			time.Sleep(tickTime)
		}
		after, took := held(c.leader()), time.Since(began)
		if len(before) != holds || len(after) != holds {
			t.Fatalf("%d locks were held, then %d, want %d", len(before), len(after), holds)
		}
		for path, st := range before {
			now := after[path]
			if now.State != lockkeeper.Held || now.Fence != st.Fence || now.Ref != st.Ref {
				t.Errorf("%s: %+v became %+v", path, st, now)
			}
			if now.Left > st.Left || now.Left < st.Left-took {
				t.Errorf("%s: %s were left, and %s later %s", path, st.Left, took, now.Left)
			}
		}
	})
}

// T1.17: processes read a counter, add one and write it back, while the leader is lost. No step is lost.
func TestCounterUnderTheLock(t *testing.T) {
	inBubble(t, 3, 0, func(t *testing.T, c *cluster) {
		const processes, repeats = 5, 20
		var mu sync.Mutex
		counter := 0
		get := func() int { mu.Lock(); defer mu.Unlock(); return counter }
		put := func(n int) { mu.Lock(); defer mu.Unlock(); counter = n }
		var all sync.WaitGroup
		for i := range processes {
			client := c.client(i % 3)
			all.Go(func() {
				for range repeats {
					hold, err := client.Lock(t.Context(), "counter")
					if err != nil {
						t.Error(err)
						return
					}
					n := get()
					time.Sleep(10 * time.Millisecond)
					put(n + 1)
					hold.Release(t.Context())
				}
			})
		}
		time.Sleep(200 * time.Millisecond)
		lost := c.leader()
		lost.stop()
		time.AfterFunc(5*time.Second, c.heal)
		all.Wait()
		if got := get(); got != processes*repeats {
			t.Errorf("the counter is %d, want %d", got, processes*repeats)
		}
	})
}

// A renewal that gets no answer delays no release.
func TestReleaseDoesNotWaitForARenewal(t *testing.T) {
	inBubble(t, 3, 0, func(t *testing.T, c *cluster) {
		e := &mute{visitor: c.visitor(0), renews: make(chan struct{}, 100)}
		client := c.newClient(e)
		defer client.Close()
		hold, err := client.Lock(t.Context(), "db")
		if err != nil {
			t.Fatal(err)
		}
		<-e.renews
		began := time.Now()
		if err := hold.Release(t.Context()); err != nil || time.Since(began) > 100*time.Millisecond {
			t.Errorf("the release took %s: %v", time.Since(began), err)
		}
		if _, err := c.client(1).TryLock(t.Context(), "db"); err != nil {
			t.Error(err)
		}
	})
}

// A mute engine does not answer renewals.
type mute struct {
	*visitor
	renews chan struct{} // gets a value with each
}

func (m *mute) Renew(ctx context.Context, _ lockkeeper.Key) (lockkeeper.Lease, error) {
	m.renews <- struct{}{}
	<-ctx.Done()
	return lockkeeper.Lease{}, &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Cause: ctx.Err()}
}
