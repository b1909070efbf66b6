package quorumlock

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/remote"
	"github.com/lockkeeper/lockkeeper/internal/roundtrip"
)

// A client that knows the address of one node keeps its hold and its position when that node is lost,
// and when the node where it goes loses its leader.
func TestClientKeepsItsHoldWhenNodesAreLost(t *testing.T) {
	all := newServed(t, 3, 0)
	ms := all[0].of
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
	client := func() *lockkeeper.Client {
		return lockkeeper.New(dial(t, "lk://"+all[0].proxy.Addr()), lockkeeper.SessionTTL(time.Minute))
	}
	holder, waiter := client(), client()
	hold, err := holder.Lock(ms.ctx(), "db")
	if err != nil {
		t.Fatal(err)
	}
	waiting, err := waiter.Enqueue(ms.ctx(), lockkeeper.Exclusive("db"))
	if err != nil {
		t.Fatal(err)
	}
	all[0].stop()
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
	// The last node alone states that it is suspended, and later an outage.
	all[1].stop()
	last, missing := all[2].engine, all[0].config.ClientAddress
	hasty := roundtrip.EndInOutage(ms.ctx())
	before := make(chan error, 1)
	go func() { before <- last.SetRank(hasty, all[0].config.Name, 3) }()
	for {
		nodes, changed := last.Nodes()
		if nodes.Outage {
			if !strings.Contains(nodes.Suspended, missing) || !nodes.QuorumLost {
				t.Errorf("it does not name %s, which is missing: %s (quorum lost: %t)", missing, nodes.Suspended,
					nodes.QuorumLost)
			}
			_, err := last.Attach(hasty, lockkeeper.Session{ID: "s", TTL: time.Minute}, nil)
			for _, err := range []error{<-before, err} {
				var e *lockkeeper.Error
				if !errors.Is(err, lockkeeper.ErrUnavailable) || !errors.As(err, &e) || e.Reason != lockkeeper.QuorumLost ||
					!strings.Contains(err.Error(), missing) {
					t.Errorf("a call that does not wait for the end of an outage ends with %v", err)
				}
			}
			break
		}
		select {
		case <-changed:
		case <-ms.ctx().Done():
			t.Fatalf("the last node states %+v", nodes)
		}
	}
}

// A node that was removed states that to its clients, with the addresses of the others. It has no other alarm,
// and tries to reach the others no more.
func TestRemovedNodeNamesTheOthersToItsClients(t *testing.T) {
	all := newServed(t, 3, 0)
	ms, last := all[0].of, all[2]
	for all[0].engine.Cluster().Live < 3 { // removing one of fewer is refused
		select {
		case <-all[0].engine.Changed():
		case <-time.After(tickTime):
		case <-ms.ctx().Done():
			t.Fatal("the nodes do not find each other")
		}
	}
	if err := all[0].engine.Remove(ms.ctx(), last.config.Name, "a test"); err != nil {
		t.Fatal(err)
	}
	for {
		nodes, changed := last.engine.Nodes()
		if nodes.Outage {
			other := all[0].config.ClientAddress
			if !strings.Contains(nodes.Suspended, "was removed") || !strings.Contains(nodes.Suspended, other) ||
				nodes.QuorumLost {
				t.Errorf("it states %+v, want that it was removed, and %s", nodes, other)
			}
			break
		}
		select {
		case <-changed:
		case <-ms.ctx().Done():
			t.Fatalf("the removed node states %+v", nodes)
		}
	}
	for len(last.engine.host.transport.Status()) > 0 {
		select {
		case <-time.After(tickTime):
		case <-ms.ctx().Done():
			t.Fatalf("the removed node still tries to reach %+v", last.engine.host.transport.Status())
		}
	}
	if nodes, _ := last.engine.Nodes(); !strings.Contains(nodes.Suspended, "was removed") {
		t.Errorf("after it gave up it states %q", nodes.Suspended)
	}
	if alarms := last.engine.Cluster().Alarms; len(alarms) != 1 || alarms[0].Kind != lockkeeper.AlarmRemoved {
		t.Errorf("its alarms are %q", alarms)
	}
}

// What is about one server stays there: when that drains, and when it can perform no calls.
func TestOneServerIsNotLeft(t *testing.T) {
	all := newServed(t, 3, 0)
	ms, one := all[0].of, all[1]
	url := "lk://" + one.proxy.Addr()
	e, err := remote.Open(remote.OneServer(ms.ctx()), url)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	one.server.Drain("it moves")
	for range 3 {
		if state, err := e.About(ms.ctx()); err != nil || state.Draining != "it moves" {
			t.Errorf("a server that drains says %+v, %v", state, err)
		}
	}
	all[0].stop()
	all[2].stop()
	ms.until("it is suspended", func() bool { n, _ := one.engine.Nodes(); return n.Suspended != "" })
	late, err := remote.Open(remote.OneServer(ms.ctx()), url)
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	if state, err := late.About(ms.ctx()); err != nil || state.Draining != "it moves" {
		t.Errorf("a server without the others says %+v, %v", state, err)
	}
	_, err = remote.Open(remote.OneServer(ms.ctx()), url+","+all[0].proxy.Addr())
	if !errors.Is(err, lockkeeper.ErrInvalid) {
		t.Errorf("a URL of two servers for what is about one: %v", err)
	}
}
