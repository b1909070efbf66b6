package sqllock

import "github.com/fsnotify/fsnotify"

// bell tells when files are written to: those of the sessions of this process,
// and the log of the database while somebody follows. It belongs to the engine's
// goroutine. Where the system has no watcher left, rows are polled instead.
type bell struct {
	watcher *fsnotify.Watcher // nil: none yet, or it does not work
	broken  bool
}

// watch begins to watch a file. A file that is removed is forgotten by itself.
func (b *bell) watch(path string) {
	if b.watcher == nil && !b.broken {
		b.watcher, _ = fsnotify.NewWatcher()
	}
	b.broken = b.broken || b.watcher == nil || b.watcher.Add(path) != nil
}

// unwatch ends a watch.
func (b *bell) unwatch(path string) {
	if b.watcher != nil {
		_ = b.watcher.Remove(path) // it may have ended by itself
	}
}

func (b *bell) works() bool { return b.watcher != nil && !b.broken }

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
