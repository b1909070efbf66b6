package storage

import (
	"errors"
	"io/fs"
	"os"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
	"github.com/lockkeeper/lockkeeper/internal/dbfolder"
)

// Create makes the folder of a node that never was, which begins with that state. The id must be
// new in the cluster. Create refuses a folder that has a node. If it is cut short, Open refuses the
// folder, and Create may be called again; if it returns nil, the node is durable.
//
//	node.db.new ── all content, synced ──> mark, synced ──> rename to node.db, folder synced
func Create(dir string, node Identity, state replica.State) error {
	if err := node.check(); err != nil {
		return lockkeeper.Invalid("no node for %s: %v", dir, err)
	}
	path, lock, err := dbfolder.LockFolder(dir)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	f := folder{path: path}
	if err := f.create(&node, &state); err != nil {
		return refusal(f.database(), err)
	}
	return nil
}

func (f folder) create(node *Identity, state *replica.State) error {
	if _, err := os.Lstat(f.database()); !errors.Is(err, fs.ErrNotExist) {
		return lockkeeper.Invalid("%s is there already: name a new folder", f.database())
	}
	unfinished := f.database() + ".new"
	// What a cut Create left, and a log that SQLite would take for one of the new database.
	old := []string{
		unfinished, dbfolder.LogPath(unfinished), unfinished + "-shm", f.log(), f.database() + "-shm", f.mark(),
	}
	if err := removeAll(old); err != nil {
		return err
	}
	err := build(unfinished, node, state)
	if err == nil {
		err = removeAll(old[1:3])
	}
	if err != nil {
		_ = removeAll(old) // so that a full disk has room again
		return err
	}
	m, err := dbfolder.OpenMarker(f.mark(), createCommits, uint64(node.sum()))
	if err != nil {
		return err
	}
	if err := m.Close(); err != nil {
		return err
	}
	if err := os.Rename(unfinished, f.database()); err != nil {
		return err
	}
	return dbfolder.SyncFolder(f.path)
}

func removeAll(paths []string) error {
	for _, path := range paths {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// createCommits is the number of transactions of build.
const createCommits = 1

// build makes a whole and closed database, synced.
func build(path string, node *Identity, state *replica.State) error {
	db, err := dbfolder.OpenDB(path, dbfolder.Use{Alone: true})
	if err != nil {
		return err
	}
	defer db.Close()
	if err := db.BeginCreate(schema); err != nil {
		return err
	}
	if err := db.Exec("INSERT INTO node VALUES (1, ?, ?, ?, ?, ?)", node.Cluster, int64(node.ID), node.Name,
		int64(node.Random), int64(node.sum())); err != nil {
		return err
	}
	none := noSnapshot(node.sum())
	t := &transaction{
		db: db, node: node.sum(), snapshot: none,
		progress: progress{state: stateClosed, writer: dbfolder.Writer(), file: dbfolder.FileID(path), chain: none.chain},
		insert:   func(e *pb.Entry, own sum) error { return db.Exec(insertEntry, entryColumns(e, own)...) },
	}
	err = t.apply(&replica.Write{
		HardState: state.HardState, Snapshot: state.Snapshot, Install: true, Entries: state.Entries,
	})
	if err == nil {
		err = t.finish()
	}
	if err == nil {
		err = db.Exec("COMMIT")
	}
	if err == nil {
		err = db.Checkpoint(true)
	}
	if err != nil {
		return err
	}
	return db.Close()
}

// Retire makes the node of a folder one that Open refuses, for good: another node goes on with what it
// had. Its database stays, under another name. Retire may be repeated.
func Retire(dir string) error {
	path, lock, err := dbfolder.LockFolder(dir)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	f := folder{path: path}
	if err := os.Rename(f.database(), f.database()+".retired"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return refusal(f.database(), err)
	}
	return dbfolder.SyncFolder(path)
}
