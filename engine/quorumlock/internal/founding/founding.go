// Package founding makes the log of the first node of a cluster, which may go on with the locks of
// another engine.
//
// # The import of locks
//
// The engine that had the locks is the source, such as the directory of a durable server. At no moment
// do both have the locks, and once the source has given them up, they can only go to one node:
//
//	source                                node
//	locked by this process
//	  table after a Restart ──────────>   node.db.new with all of it, synced
//	  "moved to node N", synced  <─────   (storage.CreateAfter decides)
//	                                      renamed to node.db, synced
//
// The import may be cut short anywhere, and is then repeated. Before the source states the move, it
// has its locks, and the repetition begins again, with another id for the node. After that the source
// refuses to open, and the repetition only gives node.db.new of that very node its name: it makes no
// second node, which would have old locks and old fences.
package founding

import (
	"context"

	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/storage"
	"github.com/lockkeeper/lockkeeper/table"
)

// A Source is an engine that gives its locks to the cluster, for good, such as a *disklock.Move.
// Nobody else has it open.
type Source interface {
	// MovedTo returns the owner of the locks, as Retire stated it; "" while the source has them.
	MovedTo() string
	// Table returns the locks, after a Restart (R19).
	Table() *table.Table
	// Retire states durably the present owner of the locks. The source never answers for them again. After
	// an error it is unknown whether it does, and the next process finds out.
	Retire(to string) error
}

// Create makes the log of the only node of a new cluster, in a folder without one. It begins with the
// settings and with the locks of from, or none if from is nil. After an error the source or the
// folder has the locks, or neither until Resume: the caller begins again, with another id.
func Create(dir string, node storage.Identity, settings []replica.Setting, from Source) error {
	b := replica.Beginning{Voters: []uint64{node.ID}, Settings: settings}
	decide := func() error { return nil }
	if from != nil {
		b.Table = from.Table()
		decide = func() error { return from.Retire(node.String()) }
	}
	state, err := replica.Found(b)
	if err != nil {
		return err
	}
	return storage.CreateAfter(dir, node, state, decide)
}

// Resume completes the Create that got the locks of a source, if it was cut short after that. The folder
// is the one of that Create, or a moved one. If the node is there, nothing changes.
func Resume(ctx context.Context, dir string, from Source) error {
	_, err := storage.Resume(ctx, dir, from.MovedTo())
	return err
}
