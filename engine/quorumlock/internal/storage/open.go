package storage

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/dbfolder"
)

// folder is the folder of a node.
type folder struct {
	path string
	lock dbfolder.Lock
}

func (f folder) database() string { return filepath.Join(f.path, "node.db") }
func (f folder) log() string      { return dbfolder.LogPath(f.database()) }
func (f folder) mark() string     { return dbfolder.MarkPath(f.path) }

// HasLog reports whether the folder has a node's log, which may be damaged.
func HasLog(dir string) bool { return exist(folder{path: dir}.database()) }

// HadLog reports whether the folder has a node's log or a trace of one: SQLite's log, which stays when the
// database is removed, or the log of a node that is retired.
func HadLog(dir string) bool {
	f := folder{path: dir}
	return exist(f.database(), f.log(), f.retired())
}

func exist(files ...string) bool {
	return slices.ContainsFunc(files, func(file string) bool {
		_, err := os.Lstat(file)
		return err == nil
	})
}

// Open opens the folder of a node, and checks all that it has. want says which node it must be; its
// zero fields may be anything. ctx limits the time of the checks. Open changes nothing if it refuses.
//
// If something is missing or changed, the cause of the error is ErrLost. If there is no node, it is
// ErrNoNode. If another process has the folder, the error is an ErrUnavailable that names the
// process. The error is an ErrInvalid if the folder has another node.
func Open(ctx context.Context, dir string, want Identity) (*Store, error) {
	return open(ctx, dir, want, options{})
}

func open(ctx context.Context, dir string, want Identity, o options) (*Store, error) {
	if o.checkpointPages == 0 {
		o.checkpointPages = pagesBetweenCheckpoints
	}
	f := folder{path: dir}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, f.noNode("")
	}
	var err error
	if f.path, f.lock, err = dbfolder.LockFolder(dir); err != nil {
		return nil, err
	}
	s, err := f.open(ctx, want, o)
	if err != nil {
		f.lock.Unlock()
		return nil, refusal(f.database(), err)
	}
	return s, nil
}

func (f folder) noNode(yet string) error {
	return &lockkeeper.Error{Err: lockkeeper.ErrInvalid, Detail: f.path + " has no node" + yet, Cause: ErrNoNode}
}

// open opens the folder, which is locked.
func (f folder) open(ctx context.Context, want Identity, o options) (*Store, error) {
	c, err := f.recover(ctx, o)
	if err != nil {
		return nil, err
	}
	if !c.node.is(&want) {
		return nil, lockkeeper.Invalid("%s has %s, not %s: name its own folder", f.path, &c.node, &want)
	}
	db, err := dbfolder.OpenDB(f.database(), dbfolder.Use{Alone: true, OwnSync: true, Careless: o.careless})
	if err != nil {
		return nil, err
	}
	s := &Store{
		options: o, folder: f, node: c.node, opened: c.progress.opened + 1, db: db, progress: c.progress,
		snapshot: c.snapshot,
	}
	s.snapshot.conf, s.snapshot.data = nil, nil
	if err := s.begin(); err != nil {
		db.Close()
		if s.marker != nil {
			s.marker.Close()
		}
		return nil, err
	}
	return s, nil
}

// begin begins writing: it states in the database that a process has the folder, and then marks that. Until
// the database has this file's number, a mark that a person has emptied stays empty: else a process that ends
// in between would leave a copy that the next one refuses. begin checkpoints the whole log and so syncs its
// content again, because after a failed sync of an earlier process the system may not have written it.
func (s *Store) begin() (err error) {
	if err := dbfolder.SyncFolder(s.folder.path); err != nil {
		return err
	}
	if err := s.prepare(); err != nil {
		return err
	}
	err = s.commit(func(t *transaction) error {
		p := &t.progress
		p.state, p.writer, p.opened, p.file = stateOpen, dbfolder.Writer(), s.opened, dbfolder.FileID(s.folder.database())
		return nil
	})
	if err != nil {
		return err
	}
	s.marker, err = dbfolder.OpenMarker(s.folder.mark(), s.progress.commits, uint64(s.node.sum()))
	if err != nil {
		return err
	}
	return s.db.Checkpoint(true)
}

// recover checks log, database and mark against each other, and reads the database. It does not
// change a folder that it refuses.
func (f folder) recover(ctx context.Context, o options) (*content, error) {
	m, err := dbfolder.ReadMark(f.mark())
	if err != nil {
		return nil, lostf("%s is damaged: %v", f.mark(), err)
	}
	log, err := dbfolder.ExamineLog(f.log())
	if err != nil {
		return nil, lostf("%s is damaged: %v; nothing was changed", f.log(), err)
	}
	there, err := dbfolder.HasContent(f.database())
	var begun, retired bool
	if err == nil && !there {
		begun, err = dbfolder.HasContent(f.unfinished())
	}
	if err == nil && !there {
		retired, err = f.isRetired()
	}
	switch {
	case err != nil:
		return nil, err
	case begun:
		return nil, f.noNode(" yet: its creation was cut short, so repeat it")
	case !there && retired:
		return nil, lostf("the node of %s is retired: another node goes on with what it had, as %s says", f.path, f.record())
	case !there && m == nil && log.Size == 0:
		return nil, f.noNode("")
	case !there:
		return nil, lostf("%s is missing, though there is what belongs to it", f.database())
	case log.Missing:
		if err := f.checkMissingLog(m); err != nil {
			return nil, err
		}
	}
	db, err := dbfolder.OpenDB(f.database(), dbfolder.Use{Careless: o.careless})
	if err != nil {
		return nil, err
	}
	c, err := read(ctx, db)
	if err == nil {
		err = f.compare(c, m, o)
	}
	if err != nil {
		db.CloseUnchanged()
		return nil, err
	}
	return c, db.Close()
}

// compare refuses a database that ends before its mark, or that is not the one that was written last.
func (f folder) compare(c *content, m *dbfolder.Mark, o options) error {
	file := dbfolder.FileID(f.database())
	switch {
	case m == nil:
		return lostf("%s is missing, so it can't be told whether the database has all that was durable", f.mark())
	case m.Waived():
		return nil
	case m.Value != uint64(c.node.sum()):
		return lostf("%s does not belong to %s, which %s has", f.mark(), &c.node, f.database())
	case c.progress.commits < m.Seq:
		return lostf("%s ends with transaction %d, though transaction %d was durable, as %s says: something is missing, or "+
			"this is an older copy", f.database(), c.progress.commits, m.Seq, f.mark())
	case c.progress.file != 0 && file != 0 && c.progress.file != file && !o.moved:
		return lostf("%s is a copy, as its inode or its time of birth says: it may lack what the node did later",
			f.database())
	}
	return nil
}

// checkMissingLog checks a database without a log. Nothing of Lockkeeper removes the log, so somebody
// did. The database is complete without it if it was closed, or if the mark is of this boot, and so
// exact, and the database has its transaction.
func (f folder) checkMissingLog(m *dbfolder.Mark) error {
	db, err := dbfolder.OpenDB(f.database(), dbfolder.Use{Careless: true, Still: true})
	if err != nil {
		return err
	}
	defer db.Close()
	if fresh, err := db.Identify(schema); err != nil || fresh {
		return err
	}
	var state string
	var commits int64
	if err := db.Query("SELECT state, commits FROM progress", &state, &commits); err != nil {
		return rowError("progress", err)
	}
	if state == stateClosed || m.Waived() || m.ThisBoot() && uint64(commits) >= m.Seq {
		return nil
	}
	return lostf("%s is missing, though %s was not closed: what was durable in it is lost", f.log(), f.database())
}
