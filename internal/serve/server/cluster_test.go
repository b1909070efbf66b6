package server

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
	"github.com/lockkeeper/lockkeeper/internal/serve/wire"
)

// stating is a node of a cluster that states what a test says.
type stating struct {
	mu      sync.Mutex
	nodes   lockkeeper.ClusterNodes
	changed chan struct{}
}

func (s *stating) Nodes() (lockkeeper.ClusterNodes, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes, s.changed
}

// Cluster implements lockkeeper.ClusterNode.
func (*stating) Cluster() lockkeeper.ClusterStatus { return lockkeeper.ClusterStatus{} }

func (s *stating) set(n lockkeeper.ClusterNodes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes = n
	close(s.changed)
	s.changed = make(chan struct{})
}

// A client gets the nodes of the cluster with its welcome, and again when they change. The server leaves
// out what no client could dial.
func TestNodesAreStated(t *testing.T) {
	e := memlock.New()
	defer e.Close()
	node := &stating{changed: make(chan struct{}), nodes: lockkeeper.ClusterNodes{
		ID: "k3v9", Addresses: []string{"a:1", ":7420", "0.0.0.0:1", "b:1", "a:1"}, Self: "b:1",
	}}
	_, address := start(t, e, Options{Cluster: node})
	p := connect(t, address)
	p.send(&wire.ClientFrame{Hello: &wire.Hello{Protocol: wire.Protocol}})
	f, err := p.frame()
	stated := f.GetWelcome().GetCluster()
	if err != nil || stated.GetId() != "k3v9" || !slices.Equal(stated.GetAddresses(), []string{"a:1", "b:1"}) ||
		stated.GetSelf() != "b:1" || stated.GetSuspended() != "" {
		t.Fatalf("welcomed with %v: %v", stated, err)
	}
	many := make([]string, wire.MaxNodes+10)
	for i := range many {
		many[i] = fmt.Sprintf("host%d:1", i)
	}
	node.set(lockkeeper.ClusterNodes{ID: "k3v9", Addresses: many, Suspended: "no leader"})
	for stated.GetSuspended() == "" { // the first may be that of the welcome again
		if f, err = p.frame(); err != nil {
			t.Fatal(err)
		}
		stated = f.GetCluster()
	}
	if len(stated.GetAddresses()) != wire.MaxNodes || stated.GetSelf() != "" {
		t.Errorf("stated %v", stated)
	}
	if _, err := stated.Read(); err != nil {
		t.Errorf("a client refuses it: %v", err)
	}
}

// A server whose engine is no node of a cluster states none.
func TestServerAloneStatesNoCluster(t *testing.T) {
	_, address := startMemory(t)
	p := connect(t, address)
	p.send(&wire.ClientFrame{Hello: &wire.Hello{Protocol: wire.Protocol}})
	if f, err := p.frame(); err != nil || f.GetWelcome().GetCluster() != nil {
		t.Errorf("%v: %v", f, err)
	}
}

// A client gets the state of the cluster if its identity may look at everything, and only then.
func TestClusterIsForThoseWhoSeeEverything(t *testing.T) {
	o := Options{About: func(context.Context) lockkeeper.ServerState {
		return lockkeeper.ServerState{Cluster: &lockkeeper.ClusterStatus{Node: "one"}}
	}}
	g := startGuarded(t, o, "ops", "eye")
	p := g.policy("ops", "eye")
	p.Rules[0].Who = []string{"ops"}
	p.Rules = append(p.Rules, access.Rule{Who: []string{"eye"}, May: []access.Verb{access.Look}, Paths: []string{"site"}})
	g.gate.Set(p)
	for name, sees := range map[string]bool{"ops": true, "eye": false} {
		c := g.as(name)
		about := c.answered(c.ask(&wire.Request{About: true})).GetAbout().Read()
		if about.Identity != name || (about.Cluster != nil) != sees {
			t.Errorf("%s: %+v", name, about)
		}
	}
}
