package sqlitelock

import (
	"maps"
	"os"
	"time"

	"github.com/lockkeeper/lockkeeper"
	"github.com/lockkeeper/lockkeeper/internal/attached"
)

// attachment is a session that this process has attached. Its epoch is 0 while it is not known
// whether the attach was committed.
type attachment = attached.Attachment[sessionFile]

// sessionFile is the file of an attached session.
type sessionFile struct {
	file *os.File // locked; nil if the session lives by its TTL alone
	name string   // of file, in the folder; "" if there is none
}

// fileless returns 1 if a has no session file, so that only its TTL ends it.
func fileless(a *attachment) int {
	if a == nil || a.Own.file != nil {
		return 0
	}
	return 1
}

// fileFor returns the attachment of a session of this process, with a session file. A session that
// is attached again keeps its file, because children have it. A session that ended and begins again
// gets a new one: the end, which may be in this transaction, removes the old one.
func (e *Engine) fileFor(id string) (*attachment, error) {
	a := e.local.Get(id)
	if a != nil && a.Own.file != nil && e.cache.sessions[id].file == a.Own.name &&
		e.folder.leadsTo(a.Own.name, a.Own.file) {
		return a, nil
	}
	now, err := e.clock()
	if err != nil {
		return nil, err
	}
	f, name, err := e.folder.create()
	if err != nil {
		return nil, err
	}
	e.files.watchLater(e.folder.file(name), now)
	e.detach(id)
	// If the outcome of the commit is unknown, this keeps the session alive.
	return e.keep(id, &attachment{Own: sessionFile{f, name}}), nil
}

func (e *Engine) keep(id string, a *attachment) *attachment {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fileless += fileless(a) - fileless(e.local.Get(id))
	e.local.Put(id, a)
	return a
}

// detach removes a session that is not attached here any more.
func (e *Engine) detach(id string) {
	a := e.local.Get(id)
	if a == nil {
		return
	}
	e.mu.Lock()
	e.fileless -= fileless(a)
	e.local.Remove(id, a.Epoch)
	e.mu.Unlock()
	ofSession := func(ref lockkeeper.Ref) bool { return ref.Session == id }
	maps.DeleteFunc(e.waits, func(ref lockkeeper.Ref, _ uint64) bool { return ofSession(ref) })
	maps.DeleteFunc(e.bounds, func(ref lockkeeper.Ref, _ bool) bool { return ofSession(ref) })
	if a.Own.file != nil {
		e.files.forget(e.folder.file(a.Own.name))
		e.folder.remove(a.Own.name)
		a.Own.file.Close()
	}
}

// keepFiles leaves the files of sessions that were not left locked until their TTL has passed:
// their holders may still count on it.
func (e *Engine) keepFiles() {
	for _, a := range e.local.All() {
		if f := a.Own.file; f != nil { // the function must not keep a
			time.AfterFunc(a.TTL, func() { f.Close() })
		}
	}
}

// SessionFile returns the file whose lock tells other processes that the session lives; nil if the
// session is not attached here, or has none. A child that inherits it (exec.Cmd.ExtraFiles) keeps
// the session alive, so that nobody else gets its holds before the child is dead as well, or the
// TTL has passed. The file is the engine's: don't close it.
//
// It is safe for concurrent use.
func (e *Engine) SessionFile(session string) *os.File {
	e.mu.Lock()
	defer e.mu.Unlock()
	if a := e.local.Get(session); a != nil {
		return a.Own.file
	}
	return nil
}
