package remote_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/enginetest"
	"github.com/lockkeeper/lockkeeper/history"
	"github.com/lockkeeper/lockkeeper/internal/badnet"
	"github.com/lockkeeper/lockkeeper/internal/serve/server"
	"github.com/lockkeeper/lockkeeper/internal/stress"
	"github.com/lockkeeper/lockkeeper/internal/testmode"
)

// A cutter is the listener of a server that is lost at one exchange: reads and writes of the server
// count, over all of its connections. A read is lost before the server handles it, a write before the
// client gets it.
type cutter struct {
	net.Listener
	left  atomic.Int64 // exchanges until the loss, that one included; 0 or less after it
	kills bool         // the whole server is lost, not only the connection

	mu    sync.Mutex
	conns []net.Conn
	dead  bool
}

func (l *cutter) Accept() (net.Conn, error) {
	for {
		nc, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		l.mu.Lock()
		dead := l.dead
		l.conns = append(l.conns, nc)
		l.mu.Unlock()
		if !dead {
			return &cutConn{nc, l}, nil
		}
		nc.Close()
	}
}

// lost counts an exchange of a connection, and cuts if it is the one.
func (l *cutter) lost(nc net.Conn) bool {
	if l.left.Add(-1) != 0 {
		return false
	}
	nc.Close()
	if l.kills {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.dead = true
		for _, other := range l.conns {
			other.Close()
		}
	}
	return true
}

type cutConn struct {
	net.Conn
	of *cutter
}

func (c *cutConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == nil && c.of.lost(c.Conn) {
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

func (c *cutConn) Write(b []byte) (int, error) {
	if c.of.lost(c.Conn) {
		return 0, io.ErrClosedPipe
	}
	return c.Conn.Write(b)
}

// startCutter starts a node of a cluster that is lost at one exchange, and another node that stays.
func startCutter(t *testing.T, e lockkeeper.Engine, exchange int64, kills bool) (l *cutter, other string) {
	t.Helper()
	second := &clusterNode{Engine: e, changed: make(chan struct{}), stated: lockkeeper.ClusterNodes{ID: "k3v9"}}
	_, other = serveWith(t, second, server.Options{Cluster: second})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l = &cutter{Listener: listener, kills: kills}
	l.left.Store(exchange)
	first := &clusterNode{Engine: e, changed: make(chan struct{}), stated: lockkeeper.ClusterNodes{
		ID: "k3v9", Addresses: []string{l.Addr().String(), other}, Self: l.Addr().String(),
	}}
	s, served := server.New(first, server.Options{Cluster: first}), make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return l, other
}

// At whatever exchange a connection or a whole node is lost: each request is performed once, and the
// client goes on at the other node.
func TestLossAtEveryExchange(t *testing.T) {
	for _, kills := range []bool{false, true} {
		t.Run(fmt.Sprintf("kills=%t", kills), func(t *testing.T) {
			t.Parallel() // most of it is waiting for the next try
			exchange := int64(1)
			for ; !t.Failed(); exchange++ {
				if !loseAt(t, exchange, kills) {
					break
				}
			}
			if exchange < 10 {
				t.Errorf("only %d exchanges", exchange)
			}
		})
	}
}

// loseAt runs a client that loses its node at an exchange. It reports false if there are fewer.
func loseAt(t *testing.T, exchange int64, kills bool) bool {
	e := memlock.New()
	defer e.Close()
	l, other := startCutter(t, e, exchange, kills)
	url := "lk://" + l.Addr().String()
	if kills {
		url += "," + other // it may be killed before it has stated the other one
	}
	rival, c := lockkeeper.New(e), lockkeeper.New(dialInsisting(t, url))
	defer rival.Close()
	taken, err := rival.Lock(t.Context(), "site")
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Errorf("lost at exchange %d: %v", exchange, err)
		}
	}
	hold, err := c.Lock(t.Context(), "db")
	must(err)
	waiting, err := c.Enqueue(t.Context(), lockkeeper.Exclusive("site"))
	must(err)
	if t.Failed() {
		return false
	}
	must(taken.Release(t.Context()))
	got, err := waiting.Wait(t.Context())
	must(err)
	if t.Failed() {
		return false
	}
	held := make(map[lockkeeper.Path]uint64)
	for st, err := range e.List(t.Context(), lockkeeper.Query{}) {
		must(err)
		for _, g := range st.Grants {
			if _, twice := held[g.Path]; twice || st.State != lockkeeper.Held {
				t.Errorf("lost at exchange %d: a second claim of %s, %s", exchange, g.Path, st.State)
			}
			held[g.Path] = st.Fence
		}
	}
	if len(held) != 2 || held["db"] != hold.Fence() || held["site"] != got.Fence() {
		t.Errorf("lost at exchange %d: the engine has %v, the client %d and %d", exchange, held, hold.Fence(), got.Fence())
	}
	must(hold.Err())
	must(hold.Release(t.Context()))
	must(got.Release(t.Context()))
	must(c.Close())
	for st, err := range e.List(t.Context(), lockkeeper.Query{}) {
		t.Errorf("lost at exchange %d: %v is left: %v", exchange, st, err)
	}
	return l.left.Load() <= 0
}

// Many clients of a cluster whose nodes are cut off, stall and lose their leader leave a history without
// faults. All paths are free shortly after the faults end.
func TestCrowdOverCluster(t *testing.T) {
	t.Parallel() // most of it is waiting
	seed, e := testmode.Seed(t), memlock.New()
	defer e.Close()
	nodes := startCluster(t, e, "k3v9", 3, seed)
	c := stress.New(seed, history.RulesOf(e.Guarantees()))
	c.Long = 2 * crowdTTL
	for i := range 6 {
		c.Add("client", dialInsisting(t, nodes[i%len(nodes)].at()), 2, lockkeeper.SessionTTL(crowdTTL))
	}
	random := rand.New(rand.NewPCG(seed, 1))
	for leg := range testmode.Pick(1, 30) {
		for _, n := range nodes {
			n.proxy.Start(harsh)
		}
		began, granted := time.Now(), c.Granted.Load()
		tick := time.NewTicker(50 * time.Millisecond)
		for c.Granted.Load() < granted+300 && time.Since(began) < 3*time.Second {
			<-tick.C
			nodes[random.IntN(len(nodes))].suspend([]string{"", "", "no leader"}[random.IntN(3)])
		}
		tick.Stop()
		for _, n := range nodes { // before Pause: releases wait for it
			n.suspend("")
		}
		c.Pause()
		for _, n := range nodes {
			n.proxy.Heal()
		}
		if err := stress.CheckFree(dialInsisting(t, nodes[0].at()), patience); err != nil {
			t.Errorf("leg %d: %v", leg, err)
		}
		t.Logf("leg %d: %s", leg, c)
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

// Engines at two nodes pass the whole suite, on a network that delays. It cuts no connection, for the
// suite uses keys as they are: at another node a session has to be attached again, which a Client does.
func TestConformanceAtTwoNodes(t *testing.T) {
	testmode.NeedLong(t, "it is the suite once more; TestLossAtEveryExchange and TestCrowdOverCluster move clients")
	seed := testmode.Seed(t)
	var number atomic.Uint64
	enginetest.Run(t, enginetest.Harness{
		Many: true,
		Fresh: func(t *testing.T) enginetest.Open {
			e := memlock.New()
			t.Cleanup(func() { e.Close() })
			nodes := startCluster(t, e, "k3v9", 2, seed+2*number.Add(1))
			for _, n := range nodes {
				n.proxy.Start(badnet.Schedule{
					Change: 80 * time.Millisecond, Healthy: 60, Delay: 3 * time.Millisecond, Drip: true,
				})
			}
			opened := 0
			return func() lockkeeper.Engine {
				opened++
				return dial(t, "lk://"+nodes[opened%2].at())
			}
		},
	})
}
