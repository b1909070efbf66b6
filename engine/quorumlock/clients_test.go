package quorumlock

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/remote"
	clientserver "github.com/lockkeeper/lockkeeper/internal/serve/server"
)

// serve starts a node with a server for clients. It returns a function that stops both, without a word to
// the clients.
func (m *machine) serve() (stop func()) {
	m.of.Helper()
	l, err := new(net.ListenConfig).Listen(m.of.ctx(), "tcp", "127.0.0.1:0")
	if err != nil {
		m.of.Fatal(err)
	}
	m.config.ClientAddress = l.Addr().String()
	if m.engine == nil {
		m.start()
	}
	s := clientserver.New(m.engine, clientserver.Options{Cluster: m.engine})
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		now, cancel := context.WithCancel(context.Background())
		cancel()
		_ = s.Shutdown(now) // it could not end gently
		if err := <-served; err != nil {
			m.of.Error(err)
		}
		m.stop()
	}
	m.of.Cleanup(stop)
	return stop
}

// A client that knows the address of one node keeps its hold and its position when that node is lost,
// and when the node where it goes loses its leader.
func TestClientKeepsItsHoldWhenNodesAreLost(t *testing.T) {
	ms := newMachines(t, 1)
	var stops []func()
	ms.all[0].stop()
	stops = append(stops, ms.all[0].serve())
	for range 2 {
		m := ms.add("node" + string(rune('1'+len(ms.all))))
		if err := m.join(ms.token()); err != nil {
			t.Fatal(err)
		}
		stops = append(stops, m.serve())
	}
	ms.settle(3, 0)
	for _, m := range ms.all {
		for {
			nodes, changed := m.engine.Nodes()
			if len(nodes.Addresses) == 3 && nodes.Self == m.config.ClientAddress && nodes.Suspended == "" {
				break
			}
			select {
			case <-changed:
			case <-ms.ctx().Done():
				t.Fatalf("%s states %+v", m.config.Name, nodes)
			}
		}
	}
	client := func(m *machine) *lockkeeper.Client {
		e, err := remote.Open(ms.ctx(), "lk://"+m.config.ClientAddress)
		if err != nil {
			t.Fatal(err)
		}
		return lockkeeper.New(e, lockkeeper.SessionTTL(time.Minute))
	}
	holder, waiter := client(ms.all[0]), client(ms.all[0])
	hold, err := holder.Lock(ms.ctx(), "db")
	if err != nil {
		t.Fatal(err)
	}
	waiting, err := waiter.Enqueue(ms.ctx(), lockkeeper.Exclusive("db"))
	if err != nil {
		t.Fatal(err)
	}
	stops[0]()
	if other, err := holder.Lock(ms.ctx(), "site"); err != nil {
		t.Fatal(err)
	} else if err := other.Release(ms.ctx()); err != nil {
		t.Error(err)
	}
	if err := hold.Err(); err != nil {
		t.Fatalf("the hold ended with its node: %v", err)
	}
	if err := hold.Release(ms.ctx()); err != nil {
		t.Fatal(err)
	}
	next, err := waiting.Wait(ms.ctx())
	if err != nil {
		t.Fatal(err)
	}
	if next.Fence() <= hold.Fence() {
		t.Errorf("fence %d after %d", next.Fence(), hold.Fence())
	}
	for _, c := range []*lockkeeper.Client{holder, waiter} {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	// The last node alone states that it is suspended.
	stops[1]()
	last := ms.all[2].engine
	for {
		nodes, changed := last.Nodes()
		if nodes.Suspended != "" {
			break
		}
		select {
		case <-changed:
		case <-ms.ctx().Done():
			t.Fatalf("the last node states %+v", nodes)
		}
	}
}
