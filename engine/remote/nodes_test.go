package remote

import (
	"slices"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// newNodes returns the nodes of a client that has connected to "a" of the URL, whose server states the
// addresses b, c and d, and its own as self.
func newNodes(self string) *nodes {
	n := &nodes{given: []string{"a", "b"}, avoided: make(map[string]time.Time)}
	n.connected("a", &lockkeeper.ClusterNodes{ID: "k3v9", Addresses: []string{"b", "c", "d", self}, Self: self})
	return n
}

// The first connection tries the URL's addresses in their order. After a loss the client tries another
// server, then the lost one, then the others; after silence, the lost one last.
func TestOrderOfServers(t *testing.T) {
	now := time.Now()
	first := &nodes{given: []string{"b", "a", "c"}}
	if order := first.order(now); !slices.Equal(order, first.given) {
		t.Errorf("at first %v", order)
	}
	for range 50 {
		n := newNodes("e")
		order := n.order(now)
		if len(order) != 5 || order[0] == "a" || order[0] == "e" || order[1] != "a" || order[4] != "e" {
			t.Errorf("after a loss %v", order)
		}
		n.last = true
		order = n.order(now)
		if len(order) != 5 || order[3] != "a" || order[4] != "e" {
			t.Errorf("after silence %v", order)
		}
		slices.Sort(order)
		if !slices.Equal(order, []string{"a", "b", "c", "d", "e"}) {
			t.Errorf("not each once: %v", order)
		}
	}
}

// A client leaves a server that can serve no claims once, as long as there is one that it has not left.
// It tries those that it has left after the others.
func TestServersThatWereLeftComeLast(t *testing.T) {
	now, n := time.Now(), newNodes("a")
	for _, at := range []string{"a", "b", "c"} {
		n.connected(at, &lockkeeper.ClusterNodes{})
		if !n.leave(now) {
			t.Errorf("it stays at %s", at)
		}
		if order := n.order(now); len(order) != 4 || order[3] != at {
			t.Errorf("after %s: %v", at, order)
		} else if _, left := n.avoided[order[0]]; left {
			t.Errorf("after %s it goes back: %v", at, order)
		}
	}
	n.connected("d", &lockkeeper.ClusterNodes{})
	if n.leave(now) {
		t.Error("it leaves the last server, too")
	}
	n.connected("a", &lockkeeper.ClusterNodes{})
	if n.leave(now) {
		t.Error("it leaves a server twice within the time")
	}
	if !n.leave(now.Add(avoidTime)) {
		t.Error("it stays after the time")
	}
	if len(n.avoided) != 1 {
		t.Errorf("it remembers %v without need", n.avoided)
	}
}

// A server belongs to the cluster by its id alone. A server that became a node of a cluster later is
// welcome.
func TestOnlyTheClusterIsKnown(t *testing.T) {
	alone, ours, others := &lockkeeper.ClusterNodes{}, &lockkeeper.ClusterNodes{ID: "k3v9"},
		&lockkeeper.ClusterNodes{ID: "m2p4"}
	n := &nodes{given: []string{"a"}}
	if err := n.check("a", alone); err != nil {
		t.Error(err)
	}
	n.connected("a", alone)
	if err := n.check("a", ours); err != nil {
		t.Error(err)
	}
	n.connected("a", ours)
	if n.check("a", ours) != nil || n.check("a", others) == nil || n.check("a", alone) == nil {
		t.Error("the cluster is not known by its id")
	}
}
