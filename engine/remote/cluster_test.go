package remote_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/engine/remote"
	"github.com/lockkeeper/lockkeeper/internal/badnet"
	"github.com/lockkeeper/lockkeeper/internal/serve/server"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
	"github.com/lockkeeper/lockkeeper/internal/testca"
)

// A clusterNode stands for a node of a cluster: a server of an engine that all nodes share, and a proxy
// whose address is the one for clients. A suspended node performs no calls, as one without a leader.
type clusterNode struct {
	lockkeeper.Engine
	server *server.Server
	proxy  *badnet.Proxy
	waits  atomic.Int64 // how often a call began to wait because the node is suspended

	mu      sync.Mutex
	stated  lockkeeper.ClusterNodes
	changed chan struct{} // closed when stated changes
}

func (n *clusterNode) Close() error { return nil }

// Nodes implements lockkeeper.ClusterNode.
func (n *clusterNode) Nodes() (lockkeeper.ClusterNodes, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.stated, n.changed
}

// Cluster implements lockkeeper.ClusterNode.
func (*clusterNode) Cluster() lockkeeper.ClusterStatus { return lockkeeper.ClusterStatus{} }

// state makes the node state s to its clients.
func (n *clusterNode) state(s lockkeeper.ClusterNodes) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stated = s
	close(n.changed)
	n.changed = make(chan struct{})
}

// suspend makes the node perform no calls for want of a leader, and states why; "" makes it perform them again.
func (n *clusterNode) suspend(why string) {
	s, _ := n.Nodes()
	s.Suspended, s.QuorumLost = why, why != ""
	n.state(s)
}

// available waits until the node is not suspended.
func (n *clusterNode) available(ctx context.Context) error {
	for {
		s, changed := n.Nodes()
		if s.Suspended == "" {
			return nil
		}
		n.waits.Add(1)
		select {
		case <-changed:
		case <-ctx.Done():
			return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Cause: ctx.Err(), Detail: s.Suspended}
		}
	}
}

func (n *clusterNode) Attach(ctx context.Context, s lockkeeper.Session, notify func([]lockkeeper.Status)) (
	lockkeeper.Lease, error) {
	if err := n.available(ctx); err != nil {
		return lockkeeper.Lease{}, err
	}
	return n.Engine.Attach(ctx, s, notify)
}

func (n *clusterNode) Renew(ctx context.Context, k lockkeeper.Key) (lockkeeper.Lease, error) {
	if err := n.available(ctx); err != nil {
		return lockkeeper.Lease{}, err
	}
	return n.Engine.Renew(ctx, k)
}

func (n *clusterNode) Claim(ctx context.Context, k lockkeeper.Key, w lockkeeper.Want) (lockkeeper.Status, error) {
	if err := n.available(ctx); err != nil {
		return lockkeeper.Status{}, err
	}
	return n.Engine.Claim(ctx, k, w)
}

func (n *clusterNode) End(ctx context.Context, k lockkeeper.Key, ending lockkeeper.Ending) error {
	if err := n.available(ctx); err != nil {
		return err
	}
	return n.Engine.End(ctx, k, ending)
}

// startCluster starts nodes that share e, for the time of the test. They state each other to clients.
func startCluster(t *testing.T, e lockkeeper.Engine, id string, count int, seed uint64) []*clusterNode {
	t.Helper()
	all := make([]*clusterNode, count)
	addresses := make([]string, count)
	for i := range all {
		n := &clusterNode{Engine: e, changed: make(chan struct{}), stated: lockkeeper.ClusterNodes{ID: id}}
		var address string
		n.server, address = serveWith(t, n, server.Options{Cluster: n})
		proxy, err := badnet.New(address, seed+uint64(i))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(proxy.Close)
		n.proxy, all[i], addresses[i] = proxy, n, proxy.Addr()
	}
	for i, n := range all {
		n.state(lockkeeper.ClusterNodes{ID: id, Addresses: addresses, Self: addresses[i]})
	}
	return all
}

// at returns the address of a node for clients.
func (n *clusterNode) at() string { return n.proxy.Addr() }

// A client that knows the address of one node finds the others when nodes are lost, one after the
// other: its hold, the positions in the queue and the order of fences stay.
func TestLostNodesCostNothing(t *testing.T) {
	e := memlock.New()
	t.Cleanup(func() { e.Close() })
	nodes := startCluster(t, e, "k3v9", 3, 0)
	client := func() *lockkeeper.Client {
		c := lockkeeper.New(dial(t, "lk://"+nodes[0].at()))
		t.Cleanup(func() { c.Close() })
		return c
	}
	holder, second, third := client(), client(), client()
	hold, err := holder.Lock(t.Context(), "db")
	if err != nil {
		t.Fatal(err)
	}
	before, err := second.Enqueue(t.Context(), lockkeeper.Exclusive("db"))
	if err != nil {
		t.Fatal(err)
	}
	nodes[0].proxy.Close()
	moved(t, nodes[0].server, 0)
	after, err := third.Enqueue(t.Context(), lockkeeper.Exclusive("db"))
	if err != nil {
		t.Fatal(err)
	}
	nodes[1].proxy.Close()
	moved(t, nodes[2].server, 3)
	if err := hold.Err(); err != nil {
		t.Fatalf("the hold ended: %v", err)
	}
	fence := hold.Fence()
	if err := hold.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, waiting := range []*lockkeeper.Pending{before, after} {
		next, err := waiting.Wait(t.Context())
		if err != nil {
			t.Fatalf("waiter %d: %v", i, err)
		}
		if next.Fence() <= fence {
			t.Errorf("waiter %d has the fence %d after %d", i, next.Fence(), fence)
		}
		fence = next.Fence()
		if err := next.Release(t.Context()); err != nil {
			t.Errorf("waiter %d: %v", i, err)
		}
	}
}

// A server that does not answer keeps no client waiting: the next one is dialled beside it. A computer
// that stands still for some seconds may end the first dial before.
func TestNextServerIsDialledBesideASilentOne(t *testing.T) {
	for try := 1; !dialsBeside(t); try++ {
		if try == 5 {
			t.Fatal("it is always dialled after the silent one")
		}
	}
}

// dialsBeside opens a client of two servers. It reports whether the client dialled the second one before
// it gave up the first, which does not answer.
func dialsBeside(t *testing.T) bool {
	var gaveUp, late atomic.Bool
	silent := pretend(t, func(_ net.Conn, in *bufio.Reader) {
		for {
			if _, err := request(in); err != nil {
				gaveUp.Store(true)
				return
			}
		}
	})
	next := pretend(t, func(nc net.Conn, in *bufio.Reader) {
		late.Store(gaveUp.Load())
		if welcomed(nc, in) == nil {
			_, _ = request(in)
		}
	})
	if err := dial(t, "lk://"+silent+","+next).Close(); err != nil {
		t.Error(err)
	}
	return !late.Load()
}

// A client leaves a node that can perform no calls, and keeps its hold.
func TestClientLeavesSuspendedNode(t *testing.T) {
	e := memlock.New()
	t.Cleanup(func() { e.Close() })
	nodes := startCluster(t, e, "k3v9", 2, 0)
	c := lockkeeper.New(dial(t, "lk://"+nodes[0].at()))
	defer c.Close()
	hold, err := c.Lock(t.Context(), "db")
	if err != nil {
		t.Fatal(err)
	}
	nodes[0].suspend("no leader")
	moved(t, nodes[1].server, 1)
	other, err := c.Lock(t.Context(), "site")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(hold.Err(), other.Release(t.Context()), hold.Release(t.Context())); err != nil {
		t.Error(err)
	}
}

// A client chooses a node that can perform calls. Where none can, calls wait until one can, or until
// their own bound.
func TestCallsWaitForTheCluster(t *testing.T) {
	e := memlock.New()
	t.Cleanup(func() { e.Close() })
	nodes := startCluster(t, e, "k3v9", 2, 0)
	nodes[0].suspend("no leader")
	url := "lk://" + nodes[0].at() + "," + nodes[1].at()
	c := lockkeeper.New(dial(t, url))
	defer c.Close()
	moved(t, nodes[1].server, 1)
	nodes[1].suspend("no leader")
	early := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := c.Lock(ctx, "db")
		return err
	}
	err := early()
	for end := time.Now().Add(time.Minute); err != nil && !strings.Contains(err.Error(), "no leader"); err = early() {
		if time.Now().After(end) { // it has not heard of the second node yet
			break
		}
	}
	if !errors.Is(err, lockkeeper.ErrUnavailable) || !errors.Is(err, lockkeeper.QuorumLost) ||
		!strings.Contains(err.Error(), "no leader") {
		t.Errorf("a call without any leader: %v", err)
	}
	locked := make(chan error, 1)
	d := lockkeeper.New(dial(t, url))
	defer d.Close()
	go func() {
		hold, err := d.Lock(t.Context(), "site")
		if err == nil {
			err = hold.Release(t.Context())
		}
		locked <- err
	}()
	nodes[0].suspend("")
	nodes[1].suspend("")
	if err := <-locked; err != nil {
		t.Error(err)
	}
}

// A server that is no node of the client's cluster is never asked, even if its address is one of the
// client's: neither a node of another cluster, nor a server of its own.
func TestOtherServersAreNotTheCluster(t *testing.T) {
	e, other := memlock.New(), memlock.New()
	t.Cleanup(func() { e.Close() })
	nodes := startCluster(t, e, "k3v9", 1, 0)
	foreign := startCluster(t, other, "m2p4", 1, 0)
	_, alone := serve(t, other)
	for address, says := range map[string]string{
		foreign[0].at(): "is a node of the cluster m2p4",
		alone:           "is a server of its own",
	} {
		proxy, err := badnet.New(nodes[0].at(), 1)
		if err != nil {
			t.Fatal(err)
		}
		defer proxy.Close()
		e := dial(t, "lk://"+proxy.Addr()+","+address)
		defer e.Close()
		session := lockkeeper.Session{ID: "s" + says[:7], TTL: time.Minute}
		if _, err := e.Attach(t.Context(), session, nil); err != nil {
			t.Fatal(err)
		}
		proxy.Close()
		nodes[0].proxy.Refuse(true)
		for range 2 { // the first call may find the connection that has ended
			_, err = e.Attach(t.Context(), session, nil)
		}
		if !errors.Is(err, lockkeeper.ErrUnavailable) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, should say %q", err, says)
		}
		nodes[0].proxy.Refuse(false)
	}
	if n := foreign[0].server.Sessions(); n > 0 {
		t.Errorf("%d sessions at the other cluster", n)
	}
}

// A server that breaks the bounds of what it may state, or changes its cluster, is left with words.
func TestHostileClusterIsRefused(t *testing.T) {
	stating := func(first, later *wire.Cluster) string {
		return pretend(t, func(nc net.Conn, in *bufio.Reader) {
			if _, err := request(in); err != nil {
				return
			}
			wire.WriteFrame(nc, &wire.ServerFrame{Welcome: &wire.Welcome{
				Protocol: wire.Protocol, Guarantees: wire.NewGuarantees(memlock.New().Guarantees()), Cluster: first,
			}})
			if _, err := request(in); err == nil && later != nil {
				wire.WriteFrame(nc, &wire.ServerFrame{Cluster: later})
			}
		})
	}
	good := &wire.Cluster{Id: "k3v9", Addresses: []string{"127.0.0.1:1"}}
	many := make([]string, wire.MaxNodes+1)
	for i := range many {
		many[i] = fmt.Sprintf("host%d:7420", i)
	}
	for says, bad := range map[string]*wire.Cluster{
		"65 addresses":   {Id: "k3v9", Addresses: many},
		"names no host":  {Id: "k3v9", Addresses: []string{"0.0.0.0:7420"}},
		"0 bytes":        {Addresses: []string{"host:7420"}},
		"not among":      {Id: "k3v9", Self: "host:7420"},
		"has the port":   {Id: "k3v9", Addresses: []string{"host:0"}},
		"32768":          {Id: "k3v9", Suspended: strings.Repeat("x", 1<<17)},
		"not HOST:PORT":  {Id: "k3v9", Addresses: []string{"host"}},
		"the cluster m2": {Id: "m2p4"},
	} {
		if says != "the cluster m2" && says != "32768" {
			_, err := remote.Open(t.Context(), stating(bad, nil))
			if !errors.Is(err, lockkeeper.ErrUnavailable) || !strings.Contains(err.Error(), says) {
				t.Errorf("a welcome: %v, should say %q", err, says)
			}
		}
		e := dial(t, stating(good, bad))
		defer e.Close()
		_, err := e.Renew(t.Context(), lockkeeper.Key{Session: "k3v9", Epoch: 1})
		if !errors.Is(err, lockkeeper.ErrUnavailable) || !strings.Contains(err.Error(), says) {
			t.Errorf("a later frame: %v, should say %q", err, says)
		}
	}
}

// A node that the client has learned must show a certificate for its address, signed by the authorities
// of the URL, as a server of the URL must.
func TestLearnedNodesAreVerified(t *testing.T) {
	ca, others := testca.New(t), testca.New(t)
	e := memlock.New()
	node := &clusterNode{Engine: e, changed: make(chan struct{})}
	o := server.Options{Cluster: node}
	first := secured(t, shared{e}, ca.Server(), nil, o)
	foreign := secured(t, shared{e}, others.Server(), nil, o)
	_, port, _ := net.SplitHostPort(secured(t, shared{e}, ca.Server(), nil, o))
	misnamed := net.JoinHostPort("localhost", port)
	proxy, err := badnet.NewFrameless(first, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	node.state(lockkeeper.ClusterNodes{
		ID:        "k3v9",
		Addresses: []string{proxy.Addr(), foreign, misnamed},
		Self:      proxy.Addr(),
	})
	opened := dial(t, "lks://"+proxy.Addr()+"?ca="+ca.File)
	defer opened.Close()
	proxy.Close()
	about := func() error {
		_, err := opened.(lockkeeper.ServerClient).About(t.Context())
		return err
	}
	for err = about(); err != nil && !strings.Contains(err.Error(), "localhost"); { // it may find the ended connection
		err = about()
	}
	for _, says := range []string{
		"for 127.0.0.1, and not for the name",
		"that no authority in " + ca.File + " has signed",
	} {
		if !errors.Is(err, lockkeeper.ErrUnavailable) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, should say %q", err, says)
		}
	}
}
