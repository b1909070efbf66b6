package quorumlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
	"github.com/lockkeeper/lockkeeper/internal/roundtrip"
)

func session(id string) lockkeeper.Session {
	return lockkeeper.Session{ID: id, TTL: lockkeeper.DefaultTTL, Label: lockkeeper.Label{As: id}}
}

// follower returns a server that does not lead.
func (c *cluster) follower() *server {
	leader := c.leader()
	for _, s := range c.servers {
		if s != leader {
			return s
		}
	}
	return nil
}

func TestNodeWithoutContactEndsWatchersAndNotifiesSessions(t *testing.T) {
	inBubble(t, 3, 0, func(t *testing.T, c *cluster) {
		at := c.follower()
		var missed atomic.Int64
		_, err := at.engine.Attach(t.Context(), session("ann"), func(all []lockkeeper.Status) {
			if len(all) == 0 {
				missed.Add(1)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		ended := follow(t.Context(), at.engine)
		c.isolate(at, true)
		err = <-ended
		if !errors.Is(err, lockkeeper.ErrUnavailable) || !errors.Is(err, replica.ErrNoLeader) {
			t.Errorf("the watcher ended with %v", err)
		}
		if n := missed.Load(); n != 1 {
			t.Errorf("the session was notified %d times that no leader is in contact", n)
		}
		c.isolate(at, false)
		if err := at.engine.node.Read(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * tickTime)
		if n := missed.Load(); n != 2 {
			t.Errorf("the session was notified %d times, want once more when the contact is back", n)
		}
	})
}

func TestShortLossOfContactEndsNoWatcher(t *testing.T) {
	inBubble(t, 3, 0, func(t *testing.T, c *cluster) {
		at := c.follower()
		ended := follow(t.Context(), at.engine)
		c.isolate(at, true)
		time.Sleep(electionTicks * tickTime / 2)
		c.isolate(at, false)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		select {
		case err := <-ended:
			t.Errorf("the watcher ended with %v", err)
		default:
		}
	})
}

func TestCallWithoutALeaderWaitsForItsOwnBound(t *testing.T) {
	inBubble(t, 3, 0, func(t *testing.T, c *cluster) {
		at := c.follower()
		c.isolate(at, true)
		time.Sleep(5 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		began := time.Now()
		_, err := at.engine.Attach(ctx, session("ann"), nil)
		if !errors.Is(err, lockkeeper.ErrUnavailable) || !errors.Is(err, replica.ErrNoLeader) ||
			!errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("it took %s", took)
		}
		began = time.Now()
		if _, err = at.engine.Attach(t.Context(), session("ann"), nil); !errors.Is(err, replica.ErrNoLeader) {
			t.Errorf("%v", err)
		}
		if took := time.Since(began); took < callTimeout || took > callTimeout+tickTime {
			t.Errorf("without a bound it took %s", took)
		}
		time.AfterFunc(time.Second, func() { c.isolate(at, false) })
		if _, err = at.engine.Attach(t.Context(), session("ann"), nil); err != nil {
			t.Errorf("the contact came back: %v", err)
		}
	})
}

// A stated outage ends the calls of callers who do not wait for its end, and no later than the contact is back.
// What is stated too late does nothing.
func TestOutageEndsWithTheSuspension(t *testing.T) {
	inBubble(t, 3, 0, func(t *testing.T, c *cluster) {
		at := c.follower()
		c.isolate(at, true)
		time.Sleep(5 * time.Second)
		at.engine.node.StateOutage("two nodes are missing")
		hasty := roundtrip.EndInOutage(t.Context())
		_, err := at.engine.Attach(hasty, session("ann"), nil)
		if !errors.Is(err, replica.ErrNoLeader) || !strings.Contains(err.Error(), "two nodes are missing") ||
			!errors.Is(err, roundtrip.ErrNoEffect) {
			t.Errorf("in the outage: %v", err)
		}
		c.isolate(at, false)
		if err := at.engine.node.Read(t.Context()); err != nil {
			t.Error(err)
		}
		at.engine.node.StateOutage("two nodes are missing")
		if _, err := at.engine.Attach(hasty, session("ann"), nil); err != nil {
			t.Errorf("after the outage: %v", err)
		}
	})
}

// A call that its caller has given up is not made when the leader is back.
func TestGivenUpCallIsNotMade(t *testing.T) {
	inBubble(t, 3, 0, func(t *testing.T, c *cluster) {
		at := c.follower()
		c.isolate(at, true)
		time.Sleep(5 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := at.engine.Attach(ctx, session("ann"), nil); !errors.Is(err, lockkeeper.ErrUnavailable) {
			t.Fatal(err)
		}
		c.isolate(at, false)
		time.Sleep(10 * time.Second)
		lease, err := at.engine.Attach(t.Context(), session("ann"), nil)
		if err != nil {
			t.Fatalf("the session exists already: %v", err)
		}
		if lease.Key.Epoch == 0 {
			t.Errorf("%+v", lease)
		}
	})
}

func TestListOfANodeWithoutContact(t *testing.T) {
	inBubble(t, 3, 0, func(t *testing.T, c *cluster) {
		at := c.follower()
		lease, err := at.engine.Attach(t.Context(), session("ann"), nil)
		if err != nil {
			t.Fatal(err)
		}
		want := lockkeeper.Want{ID: 1, Targets: []lockkeeper.Target{{Path: "db", Mode: lockkeeper.ModeExclusive}}}
		if _, err = at.engine.Claim(t.Context(), lease.Key, want); err != nil {
			t.Fatal(err)
		}
		c.isolate(at, true)
		for _, err := range at.engine.List(t.Context(), lockkeeper.Query{Stale: true}) {
			if err != nil && !errors.Is(err, errUnconfirmed) {
				t.Errorf("a list right after the contact was lost: %v", err)
			}
		}
		time.Sleep(5 * time.Second)
		for range 2 {
			var seen []lockkeeper.Status
			var last error
			for st, err := range at.engine.List(t.Context(), lockkeeper.Query{Stale: true}) {
				if last = err; err == nil {
					seen = append(seen, st)
				}
			}
			var stale *lockkeeper.Error
			if !errors.As(last, &stale) || !errors.Is(last, lockkeeper.ErrUnavailable) || stale.Stale < time.Second {
				t.Errorf("a stale list ends with %v", last)
			}
			if len(seen) != 1 || seen[0].State != lockkeeper.Held {
				t.Errorf("a stale list has %v", seen)
			}
		}
		for _, err := range at.engine.List(t.Context(), lockkeeper.Query{}) {
			if !errors.Is(err, replica.ErrNoLeader) {
				t.Errorf("a list that may not be stale: %v", err)
			}
		}
	})
}

// A leader that is cut off grants and renews nothing.
func TestIsolatedLeaderGrantsNothing(t *testing.T) {
	inBubble(t, 3, 0, func(t *testing.T, c *cluster) {
		old := c.leader()
		lease, err := old.engine.Attach(t.Context(), session("ann"), nil)
		if err != nil {
			t.Fatal(err)
		}
		c.isolate(old, true)
		if _, err := old.engine.Renew(t.Context(), lease.Key); !errors.Is(err, lockkeeper.ErrUnavailable) {
			t.Errorf("a renewal: %v", err)
		}
		want := lockkeeper.Want{ID: 1, Targets: []lockkeeper.Target{{Path: "db", Mode: lockkeeper.ModeExclusive}}}
		if st, err := old.engine.Claim(t.Context(), lease.Key, want); !errors.Is(err, lockkeeper.ErrUnavailable) {
			t.Errorf("a claim: %v, %v", st, err)
		}
		for _, err := range old.engine.List(t.Context(), lockkeeper.Query{}) {
			if !errors.Is(err, lockkeeper.ErrUnavailable) {
				t.Errorf("a list: %v", err)
			}
		}
	})
}

// A holder hears that its cluster has lost the majority while a quarter of its TTL is left, also if
// callers that give up just then leave work for its client.
func TestHolderHearsOfALostMajority(t *testing.T) {
	lost := map[string]func(c *cluster, s *server){
		"cut off": func(c *cluster, s *server) { c.isolate(s, true) },
		"stopped": func(_ *cluster, s *server) { s.stop() },
	}
	const ttl = time.Second
	for how, lose := range lost {
		for after := range 12 {
			inBubble(t, 3, 0, func(t *testing.T, c *cluster) {
				client := c.newClient(c.visitor(0), lockkeeper.SessionTTL(ttl))
				defer client.Close()
				var holds []*lockkeeper.Hold
				for _, path := range []string{"db", "site"} {
					h, err := client.Lock(t.Context(), path)
					if err != nil {
						t.Fatal(err)
					}
					holds = append(holds, h)
				}
				time.Sleep(5*ttl + time.Duration(after)*ttl/30)
				lose(c, c.servers[1])
				lose(c, c.servers[2])
				soon, cancel := context.WithTimeout(t.Context(), ttl/50)
				defer cancel()
				if err := holds[1].Release(soon); !errors.Is(err, lockkeeper.ErrUnavailable) {
					t.Errorf("%s: the release ended with %v", how, err)
				}
				for holds[0].RenewError() == nil && holds[0].Err() == nil {
					time.Sleep(time.Millisecond)
				}
				if left := holds[0].Remaining(); left < ttl/4 {
					t.Errorf("%s: with %s of %s left the holder hears of %v; it ends with %v", how, left, ttl,
						holds[0].RenewError(), holds[0].Err())
				}
			})
		}
	}
}

// A hold that ends because its cluster has lost the majority says so, if its TTL is longer than a node
// needs to find that out.
func TestHoldEndsForTheLostMajority(t *testing.T) {
	inBubble(t, 3, 0, func(t *testing.T, c *cluster) {
		client := c.newClient(c.visitor(0), lockkeeper.SessionTTL(20*time.Second))
		defer client.Close()
		h, err := client.Lock(t.Context(), "db")
		if err != nil {
			t.Fatal(err)
		}
		c.isolate(c.servers[1], true)
		c.isolate(c.servers[2], true)
		<-h.Done()
		if err := h.Err(); !errors.Is(err, lockkeeper.QuorumLost) {
			t.Errorf("the hold ended with %v", err)
		}
	})
}

func TestNodeWithABrokenDiskStops(t *testing.T) {
	inBubble(t, 3, 0, func(t *testing.T, c *cluster) {
		at := c.leader()
		at.disk.fail(errors.New("the disk is gone"))
		_, err := at.engine.Attach(t.Context(), session("ann"), nil)
		if !errors.Is(err, replica.ErrStopped) || !strings.Contains(err.Error(), "the disk is gone") {
			t.Errorf("%v", err)
		}
		other := c.servers[at.id%3]
		if err := other.engine.node.Read(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := other.engine.Attach(t.Context(), session("bob"), nil); err != nil {
			t.Errorf("at another node: %v", err)
		}
	})
}

// A call waits while the disk is full, and is made when it has room.
func TestFullDiskDelaysCalls(t *testing.T) {
	inBubble(t, 1, 0, func(t *testing.T, c *cluster) {
		at := c.servers[0]
		at.disk.fail(errFull)
		time.AfterFunc(5*time.Second, func() { at.disk.fail(nil) })
		began := time.Now()
		if _, err := at.engine.Attach(t.Context(), session("ann"), nil); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took < 5*time.Second || took > 6*time.Second {
			t.Errorf("it took %s", took)
		}
		at.disk.fail(errFull)
		answered := make(chan error, 1)
		go func() {
			_, err := at.engine.Attach(t.Context(), session("bob"), nil)
			answered <- err
		}()
		synctest.Wait()
		at.engine.Close() // does not wait for room
		if err := <-answered; !errors.Is(err, lockkeeper.ErrUnavailable) {
			t.Error(err)
		}
	})
}

// A node whose disk takes no writes hears no answers, though a leader is in contact with it. So it suspends itself.
// If it leads, it lets another one lead.
func TestNodeWithAStuckDiskIsSuspended(t *testing.T) {
	inBubble(t, 3, 0, func(t *testing.T, c *cluster) {
		at, leader := c.follower(), c.leader()
		ended := follow(t.Context(), at.engine)
		at.disk.fail(errFull)
		if _, err := leader.engine.Attach(t.Context(), session("ann"), nil); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, lockkeeper.ErrUnavailable) || errors.Is(err, replica.ErrNoLeader) {
			t.Errorf("the watcher ended with %v", err)
		}
		if since, stuck := at.engine.node.Stuck(); !stuck || since < 2*electionTicks*tickTime {
			t.Errorf("stuck %v, since %s", stuck, since)
		}
		if why, outage, quorumLost := new(host).suspension(at.engine); why == "" || !outage || quorumLost {
			t.Errorf("it states %q, outage %t, quorum lost %t", why, outage, quorumLost)
		}
		at.engine.node.StateOutage("no room")
		_, err := at.engine.Attach(roundtrip.EndInOutage(t.Context()), session("bob"), nil)
		if !errors.Is(err, lockkeeper.ErrUnavailable) || !strings.Contains(err.Error(), "no room") {
			t.Errorf("a call that does not wait: %v", err)
		}
		at.disk.fail(nil)
		if _, err := at.engine.Attach(t.Context(), session("bob"), nil); err != nil {
			t.Errorf("with room: %v", err)
		}
		if _, suspended := at.engine.node.Suspended(); suspended {
			t.Error("with room it is suspended")
		}
		leader.disk.fail(errFull)
		for i := range 100 { // more than a leader has in flight
			if _, err := at.engine.Attach(t.Context(), session(fmt.Sprint("eve", i)), nil); err != nil &&
				!errors.Is(err, replica.ErrUnknown) {
				t.Errorf("while the leader's disk is full: %v", err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if _, stuck := leader.engine.node.Stuck(); !stuck || c.leader() == leader {
			t.Errorf("the leader whose disk is full: stuck %v, leads %v", stuck, c.leader() == leader)
		}
	})
}

// A node whose disk is stuck does not win an election, though its log is as long as those of others: it would lead and
// answer nobody.
func TestNodeWithAStuckDiskDoesNotLead(t *testing.T) {
	for range 8 {
		inBubble(t, 3, 0, func(t *testing.T, c *cluster) {
			at, leader := c.follower(), c.leader()
			at.disk.fail(errFull)
			if _, err := leader.engine.Attach(t.Context(), session("ann"), nil); err != nil {
				t.Error(err)
			}
			time.Sleep(3 * electionTicks * tickTime)
			leader.stop()
			leader.start()
			if _, err := leader.engine.Attach(t.Context(), session("bob"), nil); err != nil {
				t.Errorf("the leader has restarted: %v", err)
			}
			if s := at.engine.node.Status(); s.Leader == at.id {
				t.Error("the node with a stuck disk leads")
			}
		})
	}
}

// A leader whose disk is stuck goes on to the next heir if one does not take the lead, because its disk is stuck, too.
func TestLeaderWithAStuckDiskTriesEachHeir(t *testing.T) {
	inBubble(t, 5, 0, func(t *testing.T, c *cluster) {
		leader := c.leader()
		heir, _ := leader.engine.node.Successor()
		var at *server
		for _, s := range c.servers {
			if s == leader || s.id == heir {
				s.disk.fail(errFull)
			} else {
				at = s
			}
		}
		began := time.Now()
		for i := range 100 {
			if _, err := at.engine.Attach(t.Context(), session(fmt.Sprint("eve", i)), nil); err != nil &&
				!errors.Is(err, replica.ErrUnknown) {
				t.Errorf("two of five disks are full: %v", err)
			}
		}
		if took := time.Since(began); took > 30*time.Second || c.leader() == leader || c.leader().id == heir {
			t.Errorf("100 calls took %s, and node %d leads", took, c.leader().id)
		}
	})
}

func TestClosedNodeAnswersItsCalls(t *testing.T) {
	inBubble(t, 3, 0, func(t *testing.T, c *cluster) {
		at := c.follower()
		e := at.engine
		c.isolate(at, true)
		answered := make(chan error, 1)
		go func() {
			_, err := e.Attach(t.Context(), session("ann"), nil)
			answered <- err
		}()
		ended := follow(t.Context(), e)
		synctest.Wait()
		at.stop()
		for name, got := range map[string]<-chan error{"call": answered, "watcher": ended} {
			if err := <-got; !errors.Is(err, lockkeeper.ErrUnavailable) || !strings.Contains(err.Error(), "closed") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := e.Attach(t.Context(), session("ann"), nil); !errors.Is(err, lockkeeper.ErrUnavailable) {
			t.Errorf("a call after Close: %v", err)
		}
	})
}
