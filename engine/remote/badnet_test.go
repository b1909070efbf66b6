package remote_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/testmode"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/disklock"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/enginetest"
	"github.com/lockkeeper/lockkeeper/history"
	"github.com/lockkeeper/lockkeeper/internal/badnet"
	"github.com/lockkeeper/lockkeeper/internal/stress"
)

// mild is a schedule under which every repeated call gets an answer long before a TTL ends.
var mild = badnet.Schedule{
	Change:  80 * time.Millisecond,
	Healthy: 60,
	Delay:   3 * time.Millisecond,
	Stall:   lockkeeper.MinTTL / 10,
	Discard: lockkeeper.MinTTL / 10,
	Cut:     true, Drip: true, Duplicate: true, Late: lockkeeper.MinTTL / 3, Replay: 200 * time.Millisecond,
}

// behind puts a proxy with a fault schedule in front of a server.
func behind(t *testing.T, address string, seed uint64, w badnet.Schedule) *badnet.Proxy {
	t.Helper()
	p, err := badnet.New(address, seed)
	if err != nil {
		t.Fatal(err)
	}
	p.Start(w)
	t.Cleanup(func() {
		p.Close()
		t.Log(p.Counts())
	})
	return p
}

// Clients that repeat unanswered calls pass the whole suite on a network that delays, cuts, doubles
// and delivers late.
func TestConformanceOnBadNetwork(t *testing.T) {
	testmode.NeedLong(t, "it is the suite once more; TestCrowdOnBadNetwork is on a worse network")
	seed := testmode.Seed(t)
	var number atomic.Uint64
	skip := map[string]string{
		"Cancellation/by a deadline":                     "this network may need more than its second",
		"Cancellation/while waiting":                     "as by a deadline",
		"R12/taken sooner than promised, so unconfirmed": "the engine must know that an answer was lost",
		"R19/late calls after leaving make nothing":      "it can't repeat an attach whose answer was lost",
		"R18/a follower sees every last state": "a follower whose connection is cut lists again, and that list lacks " +
			"claims that ended meanwhile",
	}
	for _, name := range []string{"stolen", "revoked", "revoked by force", "overdue", "released", "yielded",
		"contact is lost, and comes back", "the session is taken over"} {
		skip["OneReason/"+name] = "it has a follower that must see every last state"
	}
	enginetest.Run(t, enginetest.Harness{
		Many: true,
		Skip: skip,
		Fresh: func(t *testing.T) enginetest.Open {
			_, address := serve(t, memlock.New())
			p := behind(t, address, seed+number.Add(1), mild)
			return func() lockkeeper.Engine {
				return insisting{dialInsisting(t, p.Addr()), nil}
			}
		},
	})
}

// inMemoryAndOnDisk runs a test with a server in memory, and with one on disk.
func inMemoryAndOnDisk(t *testing.T, test func(t *testing.T, open func(t *testing.T) lockkeeper.Engine)) {
	engines := map[string]func(t *testing.T) lockkeeper.Engine{
		"mem": func(*testing.T) lockkeeper.Engine { return memlock.New() },
		"disk": func(t *testing.T) lockkeeper.Engine {
			e, err := disklock.Open(t.Context(), quickDir(t))
			if err != nil {
				t.Fatal(err)
			}
			return e
		},
	}
	for name, open := range engines {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			test(t, open)
		})
	}
}

// harsh is a schedule under which calls fail for longer than sessions live.
var harsh = badnet.Schedule{
	Change:    200 * time.Millisecond,
	Healthy:   50,
	Delay:     20 * time.Millisecond,
	Stall:     3 * lockkeeper.MinTTL / 2,
	Discard:   3 * lockkeeper.MinTTL / 2,
	Cut:       true,
	Drip:      true,
	Duplicate: true,
	Late:      2 * lockkeeper.MinTTL,
	Replay:    100 * time.Millisecond,
	Refuse:    lockkeeper.MinTTL / 2,
}

// peaceful is an engine without the feature to steal. The answer that states when a hold will be
// stolen counts as acknowledged (R12) even if the network loses it. The thief's grant is then not
// marked as unconfirmed, and the history would show two holders.
type peaceful struct{ lockkeeper.Engine }

func (e peaceful) Guarantees() lockkeeper.Guarantees {
	g := e.Engine.Guarantees()
	g.Features &^= lockkeeper.FeatureSteal
	return g
}

// Random operations on a network where sessions end because they can't be renewed leave a history
// without faults. Soon after the network works again, all paths are free.
func TestStressOnBadNetwork(t *testing.T) {
	testmode.NeedLong(t, "TestCrowdOnBadNetwork is a load of less time")
	inMemoryAndOnDisk(t, stressOnBadNetwork)
}

func stressOnBadNetwork(t *testing.T, open func(t *testing.T) lockkeeper.Engine) {
	seed := testmode.Seed(t)
	var p *badnet.Proxy
	calm := new(atomic.Bool)
	enginetest.Stress(t, enginetest.Harness{
		Many: true,
		Fresh: func(t *testing.T) enginetest.Open {
			_, address := serve(t, open(t))
			p = behind(t, address, seed, harsh)
			return func() lockkeeper.Engine { return peaceful{insisting{dialInsisting(t, p.Addr()), calm}} }
		},
		Calm: func() {
			p.Heal()
			calm.Store(true) // the fault schedule has just cut its stalled connections
		},
	})
}

// crowdTTL is the TTL of the sessions below.
const crowdTTL = lockkeeper.MinTTL

// Many clients, each with its own connection, leave a history without faults in each leg. After
// each leg the network works again, and all paths are free shortly after the TTL.
func TestCrowdOnBadNetwork(t *testing.T) { inMemoryAndOnDisk(t, crowdOnBadNetwork) }

func crowdOnBadNetwork(t *testing.T, open func(t *testing.T) lockkeeper.Engine) {
	seed, e := testmode.Seed(t), open(t)
	_, address := serve(t, e)
	p := behind(t, address, seed, badnet.Schedule{})
	c := stress.New(seed, history.RulesOf(e.Guarantees()))
	c.Long = 2 * crowdTTL
	for range 6 {
		c.Add("client", dialInsisting(t, p.Addr()), 2, lockkeeper.SessionTTL(crowdTTL))
	}
	wasHarsh := func() bool {
		n := p.Counts()
		return n.Cut.Load() > 0 && n.Stalled.Load() > 0 && n.Replayed.Load() > 0
	}
	for leg := range testmode.Pick(1, 30) {
		p.Start(harsh)
		legBegan, granted := time.Now(), c.Granted.Load()
		// A leg is short, but the first one goes on until every kind of fault has happened.
		for c.Granted.Load() < granted+300 && time.Since(legBegan) < 3*time.Second ||
			!wasHarsh() && time.Since(legBegan) < 30*time.Second {
			<-time.After(10 * time.Millisecond)
		}
		c.Pause()
		p.Heal()
		began := time.Now()
		if err := stress.CheckFree(dialInsisting(t, address), patience); err != nil {
			t.Errorf("leg %d: %v", leg, err)
		}
		t.Logf("leg %d: %s; everything was free after %s", leg, c, time.Since(began).Round(time.Millisecond))
		for _, wrong := range c.Faults() {
			t.Errorf("leg %d: %s", leg, wrong)
		}
		if t.Failed() {
			break
		}
		c.Resume()
	}
	c.Pause()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if !wasHarsh() {
		t.Errorf("the schedule was not harsh: %s", p.Counts())
	}
}
