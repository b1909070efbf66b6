package quorumlock

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/join"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/node"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/voters"
)

// A node that is to be expelled is replaced first, without the grace of a lost one.
func TestExpelledNodeIsReplaced(t *testing.T) {
	inBubble(t, 3, 1, func(t *testing.T, c *cluster) {
		e := c.servers[1].engine
		if err := join.Expel(t.Context(), e.Settings(), 3, "its disk is lost"); !errors.Is(err, join.ErrVotes) {
			t.Errorf("a voter is expelled: %v", err)
		}
		if err := e.takeVote(t.Context(), &join.Node{Name: "node3", ID: 3}); err != nil {
			t.Fatal(err)
		}
		if err := join.Expel(t.Context(), e.Settings(), 3, "its disk is lost"); err != nil {
			t.Fatal(err)
		}
		c.waitVoters("[1 2 4] []")
	})
}

// A voter whose disk is stuck is none of those without which another one can lose its vote.
func TestStuckVoterKeepsNoMajority(t *testing.T) {
	inBubble(t, 3, 0, func(t *testing.T, c *cluster) {
		leader := c.leader()
		var followers []*server
		for _, s := range c.servers {
			if s != leader {
				followers = append(followers, s)
			}
		}
		stuck, leaves := followers[0], followers[1]
		stuck.disk.fail(errFull)
		time.Sleep(time.Minute)
		if err := leader.engine.SetRank(t.Context(), fmt.Sprint("node", leaves.id), RankOff); err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			if _, err := leader.engine.Attach(t.Context(), session(fmt.Sprint("eve", i)), nil); err != nil {
				t.Fatalf("the voters are %v: %v", leader.engine.node.Status().Voters, err)
			}
			time.Sleep(time.Second)
		}
		stuck.disk.fail(nil)
		c.waitVoters(fmt.Sprintf("[%d] %v", leader.id, []uint64{min(stuck.id, leaves.id), max(stuck.id, leaves.id)}))
	})
}

func TestNumberOfVotersIsASetting(t *testing.T) {
	inBubble(t, 3, 2, func(t *testing.T, c *cluster) {
		settings := c.servers[1].engine.Settings()
		for _, number := range []string{"7", "5"} { // 7 is no number of voters: nothing changes
			v, err := settings.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			s := v.Setting(votersKey)
			s.Value = []byte(number)
			if err := settings.Put(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			if err := settings.Put(t.Context(), s); !errors.Is(err, join.ErrRevision) {
				t.Errorf("a change of a state that is not the latest: %v", err)
			}
		}
		c.waitVoters("[1 2 3 4 5] []")
	})
}

func TestViewOfSettings(t *testing.T) {
	inBubble(t, 1, 0, func(t *testing.T, c *cluster) {
		settings := c.servers[0].engine.Settings()
		for _, key := range []string{"a/1", "a/2", "b"} {
			if err := settings.Put(t.Context(), join.Setting{Key: key, Value: []byte(key)}); err != nil {
				t.Fatal(err)
			}
		}
		v, err := settings.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		gone := v.Setting("a/1")
		gone.Value = nil
		if err := settings.Put(t.Context(), gone); err != nil {
			t.Fatal(err)
		}
		if got := v.Settings("a/"); len(got) != 2 || got[1].Key != "a/2" || string(got[1].Value) != "a/2" {
			t.Errorf("the settings below a/ are %v", got)
		}
		if got := v.Setting("a/1"); string(got.Value) != "a/1" {
			t.Errorf("a view has changed: %v", got)
		}
		now := settings.Known()
		for _, key := range []string{"a/1", "c"} {
			s := now.Setting(key)
			s.Value = []byte("made")
			if err := settings.Put(t.Context(), s); len(now.Setting(key).Value) > 0 || err != nil {
				t.Errorf("%s, which is not there, can't be made: %v", key, err)
			}
		}
	})
}

// The time of a view passes though nothing happens, so tokens end in an idle cluster, too.
func TestTimeOfSettingsPassesInAnIdleCluster(t *testing.T) {
	inBubble(t, 3, 0, func(t *testing.T, c *cluster) {
		for _, s := range c.servers {
			before, err := s.engine.Settings().Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			<-time.After(time.Hour)
			after, err := s.engine.Settings().Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if passed := after.Now() - before.Now(); passed < time.Hour-time.Second {
				t.Errorf("node %d: %s have passed of an hour", s.id, passed)
			}
		}
	})
}

// The leader is lost while it has a change of a setting: it is made once, and its maker hears that.
func TestSettingIsPutWhileTheLeaderIsLost(t *testing.T) {
	inBubble(t, 3, 0, func(t *testing.T, c *cluster) {
		c.ready()
		leader := c.leader()
		other := c.servers[0]
		if other == leader {
			other = c.servers[1]
		}
		settings := other.engine.Settings()
		v, err := settings.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s := v.Setting(votersKey)
		s.Value = []byte("1")
		c.isolate(leader, true)
		if err := settings.Put(t.Context(), s); err != nil {
			t.Errorf("the change was not made: %v", err)
		}
		if v, err = settings.Read(t.Context()); err != nil || string(v.Setting(votersKey).Value) != "1" {
			t.Errorf("the setting is %q: %v", v.Setting(votersKey).Value, err)
		}
	})
}

// nowhere is the transport of a node without others.
type nowhere struct{}

func (nowhere) Send(replica.Message) {}

// A leader whose process stood still knows old things of the others. It decides about voters again only when a
// node has been silent for an election timeout that began after the pause.
func TestPausedLeaderLetsATimeoutPassBeforeItChangesVoters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state, err := replica.Found(replica.Beginning{Voters: []uint64{1}})
		if err != nil {
			t.Fatal(err)
		}
		var decisions, pause atomic.Int64
		start := time.Now()
		n, err := node.New(withDefaults(node.Config{
			Replica:   replica.Config{ID: 1, Incarnation: 1},
			Storage:   &disk{},
			Transport: nowhere{},
			Clock:     func() time.Duration { return time.Second + time.Since(start) + time.Duration(pause.Load()) },
			Members: func(*replica.Replica) (voters.Policy, []voters.Member, error) {
				decisions.Add(1)
				return voters.Policy{Voters: 1, Grace: time.Minute}, nil, nil
			},
		}), state)
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		if err := n.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
		const timeout = electionTicks * tickTime
		during := func(d time.Duration) int64 {
			before := decisions.Load()
			time.Sleep(d)
			synctest.Wait()
			return decisions.Load() - before
		}
		if got := during(5 * timeout); got != 5 {
			t.Errorf("it decides %d times in 5 election timeouts", got)
		}
		pause.Add(int64(5 * time.Second))
		if got := during(2*timeout - 2*tickTime); got != 0 {
			t.Errorf("after a pause it decides %d times before two election timeouts have passed", got)
		}
		if got := during(2 * timeout); got != 2 {
			t.Errorf("then it decides %d times in 2 election timeouts", got)
		}
	})
}
