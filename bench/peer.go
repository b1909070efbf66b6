package main

import (
	"context"
	"io"
	"path/filepath"

	"github.com/lockkeeper/lockkeeper/internal/load"
)

// A peer is one way to lock that is measured: a lock server with the library
// that its users have, a package within this process, or a limit, which locks
// nothing but does what any lock of its kind has to do at the least.
type peer interface {
	about() about

	// start starts its server, if it has one, and returns when that answers.
	// What it writes belongs into place.dir. It is called once.
	start(ctx context.Context, place place) error

	// server is the server's process; nil if all is within this one.
	server() *process

	// open connects so many clients, as users of the peer would in one process.
	// The caller calls it again for every round.
	open(ctx context.Context, clients int) (clients, error)

	// stop ends the server. It may be called without start, and after a failed one.
	stop()
}

// about is what a peer says of itself.
type about struct {
	name  string       // as in the tables; what -peers matches
	how   string       // how it is used here, in one line
	kinds []kind       // the workloads that it can do
	lacks func() error // what is missing on this computer, and how to get it; nil: nothing ever
}

// place is where a peer's server may write.
type place struct {
	dir string    // of its own, empty
	log io.Writer // what the server prints
}

func (p place) file(name string) string { return filepath.Join(p.dir, name) }

// clients are the connected clients of one round.
type clients interface {
	// locker is the client of the i-th worker, counted from 0. It is used by one
	// goroutine, and is a batcher too if the peer does batches.
	locker(i int) load.Locker
	close()
}

// A batcher acquires all paths, without waiting for one before asking for the
// next, and then releases them in the same way. Nobody else wants them.
type batcher interface {
	batch(ctx context.Context, paths []string) error
}

// peers are all that are measured, limits first.
func peers(s sizes) []peer {
	all := []peer{
		&echoPeer{sizes: s},
		&muxPeer{sizes: s},
		&relayPeer{sizes: s},
		&diskPeer{},
		&diskPeer{group: true},
		&quorumPeer{muxPeer: muxPeer{sizes: s}},
		&redisPeer{},
		&redisPipePeer{},
		&etcdPeer{nodes: 1},
		&etcdPeer{nodes: 1, each: true},
		&etcdPeer{nodes: 3, each: true},
	}
	all = append(append(all, redisLockPeers()...), databasePeers()...)
	all = append(all, &semaphorePeer{}, &memlockPeer{})
	all = append(append(all, lkPeers()...), lkClusterPeers()...)
	return append(all, httpPeers()...)
}
