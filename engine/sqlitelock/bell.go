package sqlitelock

import (
	"strings"

	"github.com/fsnotify/fsnotify"
)

// bell tells when files are written to: those of the sessions of this process,
// and the log of the database while somebody follows. It belongs to the engine's
// goroutine. Where the system has no watcher left, rows are polled instead.
type bell struct {
	polls   bool              // of tests: files are never watched
	watcher *fsnotify.Watcher // nil: none yet, or there is none to be had
	deaf    bool              // the file of a session is not watched
	log     bool              // the database's log is watched
}

// watch begins to watch the file of a session. A file that is removed is
// forgotten by itself.
func (b *bell) watch(path string) {
	if !b.add(path) {
		b.deaf = true
	}
}

func (b *bell) add(path string) bool {
	if b.watcher == nil && !b.polls {
		b.watcher, _ = fsnotify.NewWatcher()
	}
	return b.watcher != nil && b.watcher.Add(path) == nil
}

// watchLog begins or ends to watch the log of the database.
func (b *bell) watchLog(path string, watch bool) {
	switch {
	case watch && !b.log:
		b.log = b.add(path)
	case !watch && b.log:
		_ = b.watcher.Remove(path) // it may have ended by itself
		b.log = false
	}
}

// early reports whether an event came before what it tells of: the log is
// written to while a transaction commits, and what makes it visible is no event.
// Who looks at once may see nothing, and has to look again.
func (b *bell) early(ev fsnotify.Event) bool { return strings.HasSuffix(ev.Name, "-wal") }

func (b *bell) events() <-chan fsnotify.Event {
	if b.watcher == nil {
		return nil
	}
	return b.watcher.Events
}

func (b *bell) errors() <-chan error {
	if b.watcher == nil {
		return nil
	}
	return b.watcher.Errors
}

func (b *bell) close() {
	if b.watcher != nil {
		_ = b.watcher.Close()
	}
}
