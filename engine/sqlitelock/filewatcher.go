package sqlitelock

import (
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// fileWatcher reports writes to files: the session files of this process, and the log of the
// database while there are watchers. Only the goroutine of the engine uses it. If the system has no
// file watcher left, the engine polls the rows.
type fileWatcher struct {
	polls     bool              // of tests: files are never watched
	watcher   *fsnotify.Watcher // nil: none yet, or there is none to be had
	unwatched bool              // the file of a session is not watched
	later     []string          // session files that begin to be watched at laterAt, or by watchNow
	laterAt   time.Duration     // by the engine's clock
	log       bool              // the database's log is watched
}

// watchDelay is when a session file begins to be watched, counted from its creation, if no claim of
// this process waits before. Until then a holder learns of a request to yield that much later. A
// command of lk run that takes less time needs no watcher: to close one takes the kernel more than a
// millisecond.
const watchDelay = 50 * time.Millisecond

// watchLater makes the session file be watched after watchDelay. now is read from the engine's clock.
func (w *fileWatcher) watchLater(path string, now time.Duration) {
	if len(w.later) == 0 {
		w.laterAt = now + watchDelay
	}
	w.later = append(w.later, path)
}

// forget ends watchLater. A file that is watched ends that by itself when it is removed.
func (w *fileWatcher) forget(path string) {
	w.later = slices.DeleteFunc(w.later, func(other string) bool { return other == path })
}

// watchNow begins to watch the files of watchLater. Another process may have written to them before,
// so the caller reads the rows after that, or is in a writing transaction.
func (w *fileWatcher) watchNow() {
	for _, path := range w.later {
		if !w.add(path) {
			w.unwatched = true
		}
	}
	w.later = nil
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
