package sqlitelock

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/lockkeeper/lockkeeper"
)

// folder holds a file for each session that has a process. The file is
//
//   - the session's wakeup: a process that changes a claim of the session writes a byte
//     there. The session's own process watches the file and then reads the rows;
//   - the proof that the session lives: its process has an exclusive lock (flock) on it. The kernel
//     releases the lock when the process and all children that have inherited the file are dead,
//     however they died.
//
// Each attach by another process creates a file with a new name, and the session's row names the
// one in force: so an old file proves nothing.
//
// Other users may be able to put anything in the place of the folder and into it. So it is
// opened without following a link, must belong to a trusted user (see [trusted]), and is used
// through that descriptor. In it only files that this package can have made are opened or removed,
// see [folder.find].
//
// A folder belongs to the engine's goroutine.
type folder struct {
	path     string
	database fs.FileInfo // the database beside it
	me       actor
	dir      *os.File // nil: not open, see opened
}

func newFolder(db *database) *folder {
	return &folder{path: db.path + "-sessions", database: db.file, me: db.me}
}

// mode returns the mode of session files: like the database, for the owner alone or for the group
// too.
func (d *folder) mode() fs.FileMode {
	const group = 0o060
	if d.database.Mode().Perm()&group == group {
		return 0o660
	}
	return 0o600
}

// directoryMode returns the mode of a directory for files of that mode: users that may read the
// files may enter it.
func directoryMode(files fs.FileMode) fs.FileMode { return files | files&0o440>>2 }

// opened returns the descriptor of the folder that is at the path now. The error is an
// fs.ErrNotExist if there is none; other errors say why this package can't use the folder.
func (d *folder) opened() (*os.File, error) {
	there, err := os.Lstat(d.path)
	if err == nil && d.dir != nil {
		if this, err := d.dir.Stat(); err == nil && os.SameFile(this, there) {
			return d.dir, nil
		}
	}
	d.close()
	switch {
	case err != nil:
		return nil, err
	case !there.IsDir():
		return nil, d.refuse("it is " + kindOf(there) + ", and no directory")
	}
	dir, err := openDirectory(d.path)
	if err != nil {
		return nil, err
	}
	this, err := dir.Stat()
	if err == nil && !trusted(this, d.database, d.me) {
		err = d.refuse("it belongs to another user (" + ownershipOf(this) + ")")
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	d.dir = dir
	return dir, nil
}

// refuse returns the error that says why this package does not use the folder, and what to do.
func (d *folder) refuse(why string) error {
	return &lockkeeper.Error{Err: lockkeeper.ErrUnavailable, Detail: fmt.Sprintf(
		"%s, where session files belong, is not used: %s. Look at what it is, then move it away or remove it", d.path, why)}
}

func (d *folder) close() {
	if d.dir != nil {
		d.dir.Close()
		d.dir = nil
	}
}

// make opens the folder, and creates it if there is none.
func (d *folder) make() (*os.File, error) {
	dir, err := d.opened()
	if !errors.Is(err, fs.ErrNotExist) {
		return dir, err
	}
	if !inherits(filepath.Dir(d.path), d.database) && !d.me.owns(d.database) {
		return nil, d.refuse("the first session makes it, and must be one of the file's owner (" +
			ownershipOf(d.database) + "), or the directory must hand its group down (chmod g+s)")
	}
	err = os.Mkdir(d.path, 0o700)
	if errors.Is(err, fs.ErrExist) {
		return d.opened() // another process was faster
	}
	if err != nil {
		return nil, err
	}
	if dir, err = d.opened(); err != nil {
		return nil, err
	}
	made, err := dir.Stat()
	if err != nil || !d.me.owns(made) || made.Mode().Perm()&0o077 != 0 {
		return dir, err // it was replaced, or its mode has changed
	}
	if names, err := namesIn(dir, 1); err != nil || len(names) > 0 {
		return dir, err // it was replaced by one that was there before
	}
	return dir, shareWith(dir, d.database, directoryMode(d.mode())|made.Mode()&fs.ModeSetgid)
}

// create creates a session file with a new random name, and locks it.
func (d *folder) create() (*os.File, string, error) {
	dir, err := d.make()
	if err != nil {
		return nil, "", fmt.Errorf("no place for session files: %w", err)
	}
	for {
		name := strings.ToLower(rand.Text()[:nameLength])
		f, err := openIn(dir, name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
		if err != nil {
			return nil, "", fmt.Errorf("making a session file in %s: %w", d.path, err)
		}
		if err := shareWith(f, d.database, d.mode()); err != nil {
			f.Close()
			return nil, "", fmt.Errorf("making a session file in %s: %w", d.path, err)
		}
		err = lockFile(f, true)
		if err == nil && d.leadsTo(name, f) {
			return f, name, nil
		}
		f.Close()
		if err != nil && !errors.Is(err, errFileLocked) {
			return nil, "", fmt.Errorf("locking a session file: %w", err)
		}
		// Another process has just removed it as left over, see clean: try another name.
	}
}

// nameLength is the length of the names that create gives.
const nameLength = 26

// isOwnName reports whether create can have given that name.
func isOwnName(name string) bool {
	return len(name) == nameLength && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

// isOwn reports whether info describes a file that create can have made: it has only the content
// that wake writes, and no other name.
func isOwn(info fs.FileInfo) bool {
	return info.Mode().IsRegular() && info.Size() <= 1 && links(info) == 1
}

// find opens the session file of that name. It follows no link, does not block, and returns an
// error if this package can't have made the file.
func (d *folder) find(name string, flag int) (*os.File, error) {
	dir, err := d.opened()
	if err != nil {
		return nil, err
	}
	if !isOwnName(name) {
		return nil, fmt.Errorf("%q is no name of a session file", name)
	}
	f, err := openIn(dir, name, flag)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !isOwn(info) {
		err = fmt.Errorf("%s is no session file", name)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// leadsTo reports whether the name still leads to f.
func (d *folder) leadsTo(name string, f *os.File) bool {
	found, err := d.find(name, os.O_RDONLY)
	if err != nil {
		return false
	}
	defer found.Close()
	there, err := found.Stat()
	if err != nil {
		return false
	}
	this, err := f.Stat()
	return err == nil && os.SameFile(this, there)
}

// file returns the path of a session file, for a watcher: if another user puts a link there, the
// watcher follows it, and only gets wakeups for another file.
func (d *folder) file(name string) string { return filepath.Join(d.path, name) }

// wake wakes the process that watches the file, to read the rows. It is a hint: a process that
// misses it reads them after a while.
func (d *folder) wake(name string) {
	f, err := d.find(name, os.O_WRONLY)
	if err != nil {
		return
	}
	_, _ = f.WriteAt([]byte{'\n'}, 0)
	f.Close()
}

// remove removes a session file.
func (d *folder) remove(name string) {
	if f, err := d.find(name, os.O_RDONLY); err == nil {
		defer f.Close()
		_ = removeIn(d.dir, name)
	}
}

// fileState says whether processes of a session file live.
type fileState int

const (
	fileUnknown fileState = iota // the kernel can't be asked, which proves nothing
	fileGone                     // there is no such file, which proves nothing either
	fileLocked                   // a process lives
	fileFree                     // all processes are dead
)

// state asks the kernel whether a process of that file lives.
func (d *folder) state(name string) fileState {
	if !kernelKnows {
		return fileUnknown
	}
	f, err := d.find(name, os.O_RDONLY)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fileGone
	case err != nil:
		return fileUnknown
	}
	defer f.Close()
	switch err := lockFile(f, false); {
	case err == nil:
		return fileFree
	case errors.Is(err, errFileLocked):
		return fileLocked
	}
	return fileUnknown
}

// mostEntries bounds how many entries of the folder are read: other users may put any number there.
const mostEntries = 10_000

// entries returns the names in the folder, at most mostEntries: those of session files, and others.
func (d *folder) entries() (own, foreign []string, err error) {
	dir, err := d.opened()
	if err != nil {
		return nil, nil, err
	}
	names, err := namesIn(dir, mostEntries)
	for _, name := range names {
		f, err := d.find(name, os.O_RDONLY)
		switch {
		case errors.Is(err, fs.ErrNotExist): // just removed
		case err != nil:
			foreign = append(foreign, name)
		default:
			f.Close()
			own = append(own, name)
		}
	}
	return own, foreign, err
}

// clean removes session files that belong to no open session and that no process has locked. If it
// removes a file that another process is just creating, that process tries again, see create. It
// leaves all other entries alone, and returns their names.
func (d *folder) clean(known map[string]bool) (foreign []string) {
	own, foreign, err := d.entries()
	if err != nil || !kernelKnows {
		return foreign
	}
	for _, name := range own {
		if !known[name] {
			d.removeFree(name)
		}
	}
	return foreign
}

func (d *folder) removeFree(name string) {
	f, err := d.find(name, os.O_RDONLY)
	if err != nil {
		return
	}
	defer f.Close() // and so unlocks it
	if lockFile(f, true) == nil && d.leadsTo(name, f) {
		_ = removeIn(d.dir, name)
	}
}
