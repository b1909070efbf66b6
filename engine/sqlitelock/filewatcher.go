package sqlitelock

import (
	"strings"

	"github.com/fsnotify/fsnotify"
)

// fileWatcher reports writes to files: the session files of this process, and the log of the
// database while there are watchers. Only the goroutine of the engine uses it. If the system has no
// file watcher left, the engine polls the rows.
type fileWatcher struct {
	polls     bool              // of tests: files are never watched
	watcher   *fsnotify.Watcher // nil: none yet, or there is none to be had
	unwatched bool              // the file of a session is not watched
	log       bool              // the database's log is watched
}

// watch begins to watch a session file. When the file is removed, this ends by itself.
func (w *fileWatcher) watch(path string) {
	if !w.add(path) {
		w.unwatched = true
	}
}

func (w *fileWatcher) add(path string) bool {
	if w.watcher == nil && !w.polls {
		w.watcher, _ = fsnotify.NewWatcher()
	}
	return w.watcher != nil && w.watcher.Add(path) == nil
}

// watchLog begins or ends to watch the log of the database.
func (w *fileWatcher) watchLog(path string, watch bool) {
	switch {
	case watch && !w.log:
		w.log = w.add(path)
	case !watch && w.log:
		_ = w.watcher.Remove(path) // it may have ended by itself
		w.log = false
	}
}

// precedesCommit reports whether an event comes before the commit that it announces: a transaction
// writes to the log while it commits, and the moment in which the commit becomes visible causes no
// event. So the engine has to read again a little later.
func (w *fileWatcher) precedesCommit(ev fsnotify.Event) bool {
	return strings.HasSuffix(ev.Name, "-wal")
}

func (w *fileWatcher) events() <-chan fsnotify.Event {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Events
}

func (w *fileWatcher) errors() <-chan error {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Errors
}

func (w *fileWatcher) close() {
	if w.watcher != nil {
		_ = w.watcher.Close()
	}
}
