package remote_test

import (
	"errors"
	"testing"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/memlock"
	"github.com/lockkeeper/lockkeeper/internal/badnet"
	"github.com/lockkeeper/lockkeeper/internal/serve/access"
	"github.com/lockkeeper/lockkeeper/internal/serve/server"
)

// At another node of the cluster an identity has its own sessions and no others: the names of sessions
// in the table begin with the identity. Each node counts the claims of its own clients, those that come
// from a lost node among them.
func TestIdentityMovesWithItsSessions(t *testing.T) {
	e := memlock.New()
	t.Cleanup(func() { e.Close() })
	ci, ciFile := issue(t, "ci")
	ops, opsFile := issue(t, "ops")
	policy := everything(ci, ops)
	policy.Quotas = []access.Quota{{Who: []string{"ci"}, Claims: 1}}
	var nodes []*clusterNode
	for i := range 2 {
		n := &clusterNode{Engine: e, changed: make(chan struct{}), stated: lockkeeper.ClusterNodes{ID: "k3v9"}}
		gate := access.New(e, policy, access.Options{})
		var address string
		n.server, address = serveWith(t, n, server.Options{Cluster: n, Gate: gate})
		proxy, err := badnet.New(address, uint64(i))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(proxy.Close)
		n.proxy = proxy
		nodes = append(nodes, n)
	}
	for _, n := range nodes {
		n.state(lockkeeper.ClusterNodes{ID: "k3v9", Addresses: []string{nodes[0].at(), nodes[1].at()}, Self: n.at()})
	}
	client := func(file string, n *clusterNode) *lockkeeper.Client {
		c := lockkeeper.New(dial(t, "lk://"+n.at()+"?token="+file), lockkeeper.SessionTTL(time.Minute))
		t.Cleanup(func() { c.Close() })
		return c
	}
	mine, twin, others := client(ciFile, nodes[0]), client(ciFile, nodes[1]), client(opsFile, nodes[1])
	hold, err := mine.Lock(t.Context(), "db")
	if err != nil {
		t.Fatal(err)
	}
	second, err := twin.Lock(t.Context(), "site") // the other node does not count the first claim
	if err != nil {
		t.Fatal(err)
	}
	nodes[0].proxy.Close()
	moved(t, nodes[1].server, 3)
	if _, err := others.TryLock(t.Context(), "db"); !errors.Is(err, lockkeeper.ErrNotAcquired) {
		t.Errorf("the path that ci holds: %v", err)
	}
	if _, err := mine.Lock(t.Context(), "more"); !errors.Is(err, lockkeeper.Quota) {
		t.Errorf("beyond the quota: %v", err)
	}
	if err := errors.Join(hold.Err(), second.Release(t.Context()), hold.Release(t.Context())); err != nil {
		t.Errorf("what it had: %v", err)
	}
	third, err := mine.Lock(t.Context(), "more")
	if err != nil {
		t.Fatalf("within the quota: %v", err)
	}
	if err := third.Release(t.Context()); err != nil {
		t.Error(err)
	}
}
