package sqlitelock

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/lockkeeper/lockkeeper"
)

// folder holds a file for each session that has a process. The file is
//
//   - the session's bell: whoever changes a claim of it writes a byte there, and
//     the session's process, which watches the file, then looks at the rows;
//   - the kernel's word that the session lives: its process has an exclusive
//     lock (flock) on it, which ends when the process and all children that
//     have inherited the file are dead, however they died.
//
// Each attach by another process makes a file with a new name, and the
// session's row says which is in force: so an old one proves nothing.
type folder struct {
	path     string
	mode     fs.FileMode // of the files, as of the database itself
	database fs.FileInfo // to whose owner they belong if root makes them
}

func newFolder(db *database) folder {
	return folder{path: db.path + "-sessions", mode: db.file.Mode().Perm(), database: db.file}
}

// attachment is a session that this process has attached.
type attachment struct {
	epoch  uint64 // 0: it is not known whether the attach was committed
	notify func([]lockkeeper.Status)
	file   *os.File      // locked; nil if the session lives by its TTL alone
	name   string        // of file, in the folder; "" if there is none
	ttl    time.Duration // what the attach promised
}

// fileless counts a as 1 if it lives by its TTL alone.
func (a *attachment) fileless() int {
	if a == nil || a.file != nil {
		return 0
	}
	return 1
}

// make makes the folder if it is not there.
func (d folder) make() error {
	reach := d.mode | (d.mode&0o444)>>2 // who may read files may enter folders
	if err := os.Mkdir(d.path, reach); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil
		}
		return err
	}
	// Whoever may write here may have put something else in its place by now,
	// which root must not give away: so by its descriptor, and no link is followed.
	made, err := os.Lstat(d.path)
	if err != nil {
		return err
	}
	f, err := os.Open(d.path)
	if err != nil {
		return err
	}
	defer f.Close()
	if opened, err := f.Stat(); err != nil || !opened.IsDir() || !os.SameFile(opened, made) {
		return fmt.Errorf("%s was replaced while it was made (%v)", d.path, err)
	}
	giveTo(f, d.database)
	_ = f.Chmod(reach | made.Mode()&fs.ModeSetgid) // whatever the umask, and with the group that it inherits
	return nil
}

// create makes a file that nobody else knows, and locks it.
func (d folder) create() (*os.File, string, error) {
	if err := d.make(); err != nil {
		return nil, "", fmt.Errorf("no place for session files: %w", err)
	}
	for {
		name := strings.ToLower(rand.Text())
		f, err := os.OpenFile(filepath.Join(d.path, name), os.O_RDWR|os.O_CREATE|os.O_EXCL, d.mode)
		if err != nil {
			return nil, "", fmt.Errorf("making a session file: %w", err)
		}
		giveTo(f, d.database)
		_ = f.Chmod(d.mode) // whatever the umask: who uses the database has to ring
		err = lockFile(f, true)
		if err == nil && d.leadsTo(name, f) {
			return f, name, nil
		}
		f.Close()
		if err != nil && !errors.Is(err, errFileLocked) {
			return nil, "", fmt.Errorf("locking a session file: %w", err)
		}
		// A cleaner took it for one that was left over.
	}
}

// leadsTo reports whether the name still leads to f.
func (d folder) leadsTo(name string, f *os.File) bool {
	there, err := os.Stat(filepath.Join(d.path, name))
	if err != nil {
		return false
	}
	this, err := f.Stat()
	return err == nil && os.SameFile(this, there)
}

// file is the path of a name that a row has; "" if it can't be one of ours.
func (d folder) file(name string) string {
	if name == "" || name != filepath.Base(name) || !filepath.IsLocal(name) {
		return ""
	}
	return filepath.Join(d.path, name)
}

// ring tells the process that watches the file to look at the rows. It is a
// hint: whoever misses it looks by itself after a while.
func (d folder) ring(name string) {
	path := d.file(name)
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return
	}
	_, _ = f.WriteAt([]byte{'\n'}, 0)
	f.Close()
}

func (d folder) remove(name string) {
	if path := d.file(name); path != "" {
		_ = os.Remove(path)
	}
}

// fileState is what the kernel says of the processes of a session file.
type fileState int

const (
	fileUnknown fileState = iota // it is gone, or can't be asked: that proves nothing
	fileLocked                   // one lives
	fileFree                     // all are dead
)

// state asks the kernel whether a process of that file lives.
func (d folder) state(name string) fileState {
	path := d.file(name)
	if path == "" || !kernelKnows {
		return fileUnknown
	}
	f, err := os.Open(path)
	if err != nil {
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

// clean removes files that were left over: of no open session, and locked by
// nobody. A file that is just being made is not mistaken for one, see create.
func (d folder) clean(known map[string]bool) {
	entries, err := os.ReadDir(d.path)
	if err != nil || !kernelKnows {
		return
	}
	for _, entry := range entries {
		if name := entry.Name(); !known[name] {
			d.removeFree(name)
		}
	}
}

func (d folder) removeFree(name string) {
	f, err := os.Open(filepath.Join(d.path, name))
	if err != nil {
		return
	}
	defer f.Close() // and so unlocks it
	if lockFile(f, true) == nil {
		d.remove(name)
	}
}

// fileFor returns the attachment of a session of this process, with a file of
// its own. A session that is attached again keeps its file: children have it.
func (e *Engine) fileFor(id string) (*attachment, error) {
	if a := e.local[id]; a != nil && a.file != nil && e.folder.leadsTo(a.name, a.file) {
		return a, nil
	}
	f, name, err := e.folder.create()
	if err != nil {
		return nil, err
	}
	e.bell.watch(filepath.Join(e.folder.path, name))
	e.detach(id)
	// Should the commit be uncertain, the session lives as long as this is here.
	return e.keep(id, &attachment{file: f, name: name}), nil
}

func (e *Engine) keep(id string, a *attachment) *attachment {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fileless -= e.local[id].fileless()
	e.local[id] = a
	e.fileless += a.fileless()
	return a
}

// detach forgets a session that is not, or no longer, this process's.
func (e *Engine) detach(id string) {
	a := e.local[id]
	if a == nil {
		return
	}
	e.mu.Lock()
	e.fileless -= a.fileless()
	delete(e.local, id)
	e.mu.Unlock()
	for ref := range e.waits {
		if ref.Session == id {
			delete(e.waits, ref)
		}
	}
	if a.file != nil {
		e.folder.remove(a.name)
		a.file.Close()
	}
}

// keepFiles leaves the files of sessions that were not left locked until what they
// were promised has passed: their holders may still count on it.
func (e *Engine) keepFiles() {
	for _, a := range e.local {
		if f := a.file; f != nil { // and of a nothing more is kept
			time.AfterFunc(a.ttl, func() { f.Close() })
		}
	}
}

// SessionFile returns the file by which the kernel tells other processes that
// the session lives; nil if it is not attached here, or has none. A child that
// inherits it (exec.Cmd.ExtraFiles) keeps the session alive, so that what the
// session holds goes to nobody else before the child is dead as well, or the TTL
// has passed. The file is the engine's: don't close it.
//
// It is safe for concurrent use.
func (e *Engine) SessionFile(session string) *os.File {
	e.mu.Lock()
	defer e.mu.Unlock()
	if a := e.local[session]; a != nil {
		return a.file
	}
	return nil
}
