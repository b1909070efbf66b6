package main

import (
	"context"
	"fmt"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/remote"
	"github.com/lockkeeper/lockkeeper/internal/load"
)

// lkPeer is our own server, as "lk serve" runs it, with clients through package
// remote: either the bare engine, as the wire has it, or the Client that programs
// use, which adds what is the same for all engines.
type lkPeer struct {
	ownServer
	kind    string // of the server, by ownServers
	name    string
	how     string
	clients bool
}

func lkPeers() []peer {
	const shared = "; two connections and sessions for all"
	return []peer{
		&lkPeer{
			kind: "lk-memory",
			name: oursName,
			how: "our server on memlock, engine/remote: Claim and End" + shared +
				"; a batch is one frame on a connection of each worker's own",
		},
		&lkPeer{
			kind:    "lk-memory",
			name:    "lk, memory, client",
			how:     "the same, under lockkeeper.Client: Lock and Release" + shared,
			clients: true,
		},
		&lkPeer{
			kind: "lk-disk",
			name: diskName,
			how:  "our server on disklock, which has each answer on disk before it gives it; else as on memlock",
		},
	}
}

func (p *lkPeer) about() about {
	a := about{name: p.name, how: p.how, kinds: []kind{distinct, batches, contended, handoff}}
	if p.clients {
		a.kinds = []kind{distinct, contended, handoff}
	}
	return a
}

func (p *lkPeer) start(_ context.Context, at place) error { return p.launch(p.kind, at) }

func (p *lkPeer) open(ctx context.Context, n int) (clients, error) {
	all := &lockers{each: make([]load.Locker, n)}
	connections := min(n, muxConnections)
	for k := range connections {
		engine, err := remote.Open(ctx, p.addr())
		if err != nil {
			all.close()
			return nil, err
		}
		if p.clients {
			client := lockkeeper.New(engine)
			all.shut = append(all.shut, func() { client.Close() })
			for i := k; i < n; i += connections {
				all.each[i] = &clientLocker{client: client}
			}
			continue
		}
		all.shut = append(all.shut, func() { engine.Close() })
		s, err := openSession(ctx, engine, fmt.Sprintf("bench-%03d-%02d", sessions.Add(1), k))
		if err != nil {
			all.close()
			return nil, err
		}
		all.shut = append(all.shut, s.close)
		for i := k; i < n; i += connections {
			l := s.locker()
			l.address = p.addr()
			all.each[i] = l
		}
	}
	return all, nil
}
