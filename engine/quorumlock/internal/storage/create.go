package storage

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/engine/quorumlock/internal/replica"
	"github.com/lockkeeper/lockkeeper/internal/dbfolder"
)

// Create makes the folder of a node that never was, which begins with that state. The id must be
// new in the cluster. Create refuses a folder that has a node. If it is cut short, there is no node, and
// Create may be called again; if it returns nil, the node is durable.
//
//	node.db.new ── all content, synced ──> mark, synced ──> decide ──> rename to node.db, folder synced
//	                                                                      ^
//	                                            Resume, if it was cut short here
func Create(dir string, node Identity, state replica.State) error {
	return CreateAfter(dir, node, state, func() error { return nil })
}

// CreateAfter is Create with a decision that makes the creation final: for example, that another engine gives up
// its locks. It calls decide when all is durable but the name of the database. If decide returns an
// error, there is no node yet. The caller that learns later that the decision has taken effect calls
// Resume, and must not create another node for it.
func CreateAfter(dir string, node Identity, state replica.State, decide func() error) error {
	if err := node.check(); err != nil {
		return lockkeeper.Invalid("no node for %s: %v", dir, err)
	}
	path, lock, err := dbfolder.LockFolder(dir)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	f := folder{path: path}
	if err := f.prepare(&node, &state); err != nil {
		return refusal(f.database(), err)
	}
	if err := decide(); err != nil {
		return err
	}
	if err := f.complete(); err != nil {
		return refusal(f.database(), err)
	}
	return nil
}

func (f folder) unfinished() string { return f.database() + ".new" }

// prepare makes everything durable but the name of the database.
func (f folder) prepare(node *Identity, state *replica.State) error {
	if _, err := os.Lstat(f.database()); !errors.Is(err, fs.ErrNotExist) {
		return lockkeeper.Invalid("%s is there already: name a new folder", f.database())
	}
	unfinished := f.unfinished()
	begun, err := dbfolder.HasContent(unfinished)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(f.mark()); !begun && !errors.Is(err, fs.ErrNotExist) {
		return lockkeeper.Invalid("%s has a file %s and no node: it belongs to something else, such as the journal of a "+
			"server; name a new folder", f.path, filepath.Base(f.mark()))
	}
	// What a cut Create left, and a log that SQLite would take for one of the new database.
	beside := []string{dbfolder.LogPath(unfinished), unfinished + "-shm"}
	old := append(beside, f.log(), f.database()+"-shm", f.mark(), unfinished)
	if err := removeAll(old); err != nil {
		return err
	}
	err = build(unfinished, node, state)
	if err == nil {
		err = removeAll(beside)
	}
	if err != nil {
		_ = removeAll(old) // so that a full disk has room again
		return err
	}
	return f.markCreated(node)
}

func (f folder) markCreated(node *Identity) error {
	m, err := dbfolder.OpenMarker(f.mark(), createCommits, uint64(node.sum()))
	if err != nil {
		return err
	}
	if err := m.Close(); err != nil {
		return err
	}
	return dbfolder.SyncFolder(f.path)
}

func (f folder) complete() error {
	if err := os.Rename(f.unfinished(), f.database()); err != nil {
		return err
	}
	return dbfolder.SyncFolder(f.path)
}

// Resume completes the creation of a node that was cut short after its decision. want is the
// [Identity.String] of that node. If the node is there already, Resume changes nothing.
func Resume(ctx context.Context, dir, want string) (Identity, error) {
	path, lock, err := dbfolder.LockFolder(dir)
	if err != nil {
		return Identity{}, err
	}
	defer lock.Unlock()
	f := folder{path: path}
	node, err := f.resume(ctx, want)
	if err != nil {
		return Identity{}, refusal(f.database(), err)
	}
	return node, nil
}

func (f folder) resume(ctx context.Context, want string) (Identity, error) {
	there, err := dbfolder.HasContent(f.database())
	if err != nil {
		return Identity{}, err
	}
	if there {
		c, err := f.recover(ctx, options{})
		if err != nil {
			return Identity{}, err
		}
		return c.node, f.refuseOther(&c.node, want)
	}
	if there, err = dbfolder.HasContent(f.unfinished()); err != nil {
		return Identity{}, err
	}
	if !there {
		return Identity{}, lockkeeper.Invalid("%s has no %s: name the folder where its creation began", f.path, want)
	}
	db, err := dbfolder.OpenDB(f.unfinished(), dbfolder.Use{Still: true})
	if err != nil {
		return Identity{}, err
	}
	defer db.Close()
	c, err := read(ctx, db)
	if err == nil {
		err = f.refuseOther(&c.node, want)
	}
	if err == nil {
		err = f.markCreated(&c.node)
	}
	if err != nil {
		return Identity{}, err
	}
	return c.node, f.complete()
}

func (f folder) refuseOther(has *Identity, want string) error {
	if has.String() == want {
		return nil
	}
	return lockkeeper.Invalid("%s has %s, not %s: name the folder of that one", f.path, has, want)
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
		insert:   func(columns ...any) error { return db.Exec(insertEntry, columns...) },
		replace:  func(columns ...any) error { return db.Exec(replaceProgress, columns...) },
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
