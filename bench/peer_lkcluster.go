package main

import (
	"context"
	"fmt"

	"github.com/lockkeeper/lockkeeper/engine/remote"
	"github.com/lockkeeper/lockkeeper/internal/load"
)

// lkClusterPeer locks at a cluster of ours by the calls of engine/remote.
type lkClusterPeer struct {
	*lkCluster
	spread bool // clients are at all nodes, else all of them at the leader
}

func lkClusterPeers() []peer {
	c := &lkCluster{}
	return []peer{&lkClusterPeer{c, false}, &lkClusterPeer{c, true}}
}

func (p *lkClusterPeer) about() about {
	a := about{
		name:  clusterName,
		kinds: []kind{distinct, contended, handoff},
		how: "three of our servers as one cluster, which has each answer on two disks before it gives it; engine/remote: " +
			"Claim and End; two connections and sessions for all, at the leader",
	}
	if p.spread {
		a.name = spreadName
		a.how = "the same; three connections and sessions for all, one at each node"
	}
	return a
}

func (p *lkClusterPeer) open(ctx context.Context, n int) (clients, error) {
	all := &lockers{each: make([]load.Locker, n)}
	connections := min(n, muxConnections)
	if p.spread {
		connections = min(n, len(p.running))
	}
	for k := range connections {
		node := p.running[0]
		if p.spread {
			node = p.running[k]
		}
		engine, err := remote.Open(ctx, node.addr)
		if err != nil {
			all.close()
			return nil, err
		}
		all.shut = append(all.shut, func() { engine.Close() })
		s, err := openSession(ctx, engine, fmt.Sprintf("bench-%03d-%02d", sessions.Add(1), k))
		if err != nil {
			all.close()
			return nil, err
		}
		all.shut = append(all.shut, s.close)
		for i := k; i < n; i += connections {
			all.each[i] = s.locker()
		}
	}
	return all, nil
}
