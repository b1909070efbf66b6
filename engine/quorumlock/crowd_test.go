package quorumlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/remote"
	"github.com/lockkeeper/lockkeeper/history"
	"github.com/lockkeeper/lockkeeper/internal/badnet"
	clientserver "github.com/lockkeeper/lockkeeper/internal/serve/server"
	"github.com/lockkeeper/lockkeeper/internal/stress"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// A served machine has a server, and a proxy whose address is the one for clients. So the node starts
// again at the same address.
type served struct {
	*machine
	proxy   *badnet.Proxy
	address string // of the server
	server  *clientserver.Server
	stop    func()
}

// up starts the node and its server.
func (s *served) up() {
	s.of.Helper()
	l, err := new(net.ListenConfig).Listen(s.of.ctx(), "tcp", s.address)
	if err != nil {
		s.of.Fatal(err)
	}
	s.start()
	s.server = clientserver.New(s.engine, clientserver.Options{Cluster: s.engine})
	server, ended := s.server, make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	s.stop = func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		_ = server.Shutdown(now) // it can't end gently
		if err := <-ended; err != nil {
			s.of.Error(err)
		}
		s.machine.stop()
		s.stop = nil
	}
}

// newServed returns a cluster whose nodes have servers for clients.
func newServed(t *testing.T, n int, seed uint64) (all []*served) {
	t.Cleanup(func() {
		for _, s := range all {
			if s.stop != nil {
				s.stop()
			}
		}
	})
	ms := &machines{TB: t, dir: t.TempDir()}
	for i := range n {
		l, err := new(net.ListenConfig).Listen(ms.ctx(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := &served{machine: ms.add(fmt.Sprint("node", i+1)), address: l.Addr().String()}
		l.Close()
		if s.proxy, err = badnet.New(s.address, seed+uint64(i)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.proxy.Close)
		s.config.ClientAddress = s.proxy.Addr()
		if i == 0 {
			err = Found(s.folder, s.config, nil)
		} else {
			err = s.join(ms.token())
		}
		if err != nil {
			t.Fatal(err)
		}
		s.up()
		all = append(all, s)
	}
	ms.settle(n, 0)
	return all
}

// dial opens the cluster at an address, as soon as a server answers.
func dial(t *testing.T, url string) lockkeeper.Engine {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		e, err := remote.Open(ctx, url)
		if err == nil {
			return e
		}
		if ctx.Err() != nil || !errors.Is(err, lockkeeper.ErrUnavailable) {
			t.Fatal(err)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// Clients of a cluster whose nodes are stopped and whose connections are cut leave a history without
// faults. When the faults end, all paths become free.
func TestCrowdAtTheServersOfACluster(t *testing.T) {
	testmode.NeedLong(t, "TestClientKeepsItsHoldWhenNodesAreLost loses each node once")
	seed := testmode.Seed(t)
	random := rand.New(rand.NewPCG(seed, 1))
	all := newServed(t, 3, seed)
	c := stress.New(seed, history.RulesOf(guarantees()))
	const ttl = 3 * time.Second
	c.Long = 2 * ttl
	for i := range 6 {
		c.Add("client", dial(t, "lk://"+all[i%len(all)].proxy.Addr()), 2, lockkeeper.SessionTTL(ttl))
	}
	for leg := range 20 {
		for range 6 {
			s, other := all[random.IntN(len(all))], all[random.IntN(len(all))]
			switch random.IntN(5) {
			case 0:
				s.proxy.Cut(true)
			case 1:
				s.proxy.Set(badnet.Profile{
					Up: badnet.Direction{Discard: true}, Down: badnet.Direction{Discard: random.IntN(2) == 0},
				})
			case 2:
				s.stop()
				if other != s { // then no node leads
					other.stop()
				}
			default:
				s.stop()
			}
			<-time.After(time.Duration(random.Int64N(int64(2 * time.Second))))
			for _, down := range all {
				if down.stop == nil {
					down.up()
				}
			}
			s.proxy.Set(badnet.Profile{})
		}
		c.Pause()
		began := time.Now()
		if err := stress.CheckFree(dial(t, "lk://"+all[0].proxy.Addr()), time.Minute); err != nil {
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
}
