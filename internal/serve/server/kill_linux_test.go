package server_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper/internal/testmode"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/disklock"
	"github.com/lockkeeper/lockkeeper/engine/remote"
	"github.com/lockkeeper/lockkeeper/history"
	"github.com/lockkeeper/lockkeeper/internal/badnet"
	"github.com/lockkeeper/lockkeeper/internal/stress"
)

func init() { engines["disk"] = disklock.Open }

// ownAddress returns an address at which a server can be started repeatedly. Its port is outside
// the range for outgoing connections: a client that dials a port of that range while no server
// listens may be connected to itself.
func ownAddress(t *testing.T) string {
	t.Helper()
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", 20_000+rand.IntN(10_000))
		if l, err := net.Listen("tcp", address); err == nil {
			l.Close()
			return address
		}
	}
	t.Fatal("no free port")
	return ""
}

// join adds clients to a load, each with its own connection.
func join(t *testing.T, c *stress.Load, address string, clients, workers int, ttl time.Duration) {
	t.Helper()
	for range clients {
		c.Add("client", open(t, address), workers, lockkeeper.SessionTTL(ttl))
	}
}

func open(t *testing.T, address string) lockkeeper.Engine {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		e, err := remote.Open(ctx, address)
		if err == nil {
			return e
		}
		select {
		case <-time.After(10 * time.Millisecond): // the network may be bad
		case <-ctx.Done():
			t.Fatal(err)
		}
	}
}

// judged pauses the load and fails the test if its history has faults.
func judged(t *testing.T, c *stress.Load, what string) {
	t.Helper()
	c.Pause()
	file := filepath.Join(t.ArtifactDir(), "history.json")
	saved := c.Save(file)
	verdict := c.Faults()
	for i, wrong := range verdict {
		if i == 20 {
			break
		}
		t.Errorf("%s: %s", what, wrong)
	}
	if len(verdict) > 0 {
		t.Fatalf("the history was in %s (%v; kept with -artifacts)", file, saved)
	}
}

// A server is killed at random moments while clients use it, and started again on the same directory
// and port. Clients continue by themselves; answered calls are not lost, fences rise, and no two holders
// meet.
func TestKilledServer(t *testing.T) {
	address := ownAddress(t)
	killed(t, testmode.Seed(t), address, address)
}

// The same, while the network delivers bytes late, or again to the next server.
func TestKilledServerOnBadNetwork(t *testing.T) {
	seed, address := testmode.Seed(t), ownAddress(t)
	p, err := badnet.New(address, seed)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	t.Cleanup(func() { t.Log(p.Counts()) })
	p.Start(badnet.Schedule{
		Change:  50 * time.Millisecond,
		Healthy: 60,
		Delay:   time.Millisecond,
		Stall:   100 * time.Millisecond,
		Discard: 100 * time.Millisecond,
		Cut:     true, Duplicate: true, Late: time.Second, Replay: 10 * time.Millisecond,
	})
	killed(t, seed, address, p.Addr())
}

// mostKills bounds the kills of one directory's server, because it starts more slowly with a longer
// journal.
const mostKills = 50

// killed repeatedly kills the server at the address, while a load uses it through the address way.
func killed(t *testing.T, seed uint64, address, way string) {
	for left, life := testmode.Pick(10, 200), uint64(0); left > 0 && !t.Failed(); left, life = left-mostKills, life+1 {
		killedHere(t, seed+life, address, way, min(left, mostKills))
	}
}

// killedHere runs that many rounds in a new directory.
func killedHere(t *testing.T, seed uint64, address, way string, rounds int) {
	random := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	s := serve(t, address, "disk", dir)
	looker := open(t, address)
	rules := history.RulesOf(looker.Guarantees())
	looker.Close()
	rules.Restarts = true
	c := stress.New(seed, rules)
	join(t, c, way, 8, 2, 5*time.Second)
	began := time.Now()
	var down time.Duration
	for round := range rounds {
		// By turns at any time after the start, and when the clients are back at work.
		if busy := c.Granted.Load() + 1 + int64(random.IntN(20)); round%2 == 1 {
			for end := time.Now().Add(patience); c.Granted.Load() < busy && time.Now().Before(end); {
				<-time.After(time.Millisecond)
			}
		}
		<-time.After(time.Duration(random.IntN(20_000)) * time.Microsecond)
		killed := time.Now()
		s.Kill()
		s = serve(t, address, "disk", dir)
		down += time.Since(killed)
		if round%10 == 9 || round == rounds-1 {
			judged(t, c, fmt.Sprintf("after %d kills", round+1))
			c.Resume()
		}
	}
	c.Pause()
	took := time.Since(began)
	t.Logf("%d kills in %s, %.1f a second, each %s until it served again; %s; fences up to %d", rounds,
		took.Round(time.Millisecond), float64(rounds)/took.Seconds(),
		(down / time.Duration(rounds)).Round(time.Millisecond), c, c.Fence())
	if err := stress.CheckFree(open(t, address), patience); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	s.Kill()
	if c.Granted.Load() < int64(rounds/2) {
		t.Errorf("%d grants in %d rounds: the test proved little", c.Granted.Load(), rounds)
	}
}
